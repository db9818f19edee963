"""Shared by the rules on inputs: where inputs enter, and how large they are."""

from typing import NamedTuple

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.places import first_of_depth, is_kernel

# What scales, or looks up, its inputs.
SCALING: tuple[str, ...] = (
    "Rescaling",
    "Normalization",
    "BatchNormalization",
    "LayerNormalization",
    "GroupNormalization",
    "UnitNormalization",
    "Embedding",
    "Hashing",
    "StringLookup",
    "IntegerLookup",
    "Discretization",
)


class Scale(NamedTuple):
    """The size of the inputs of the first layer, and what says so."""

    rms: float
    largest: float
    spread: float
    evidence: dict[str, float]


def scaled_inside(evidence: Evidence) -> bool:
    """Whether the model scales its inputs itself, or looks them up."""
    layers = [layer["class"] for layer in evidence.description.get("layers", ())]
    first = next((name for name in layers if name not in ("InputLayer", "Reshape", "Flatten", "Permute")), "")
    if first in SCALING or any(name in ("Rescaling", "Normalization") for name in layers[:8]):
        return True
    if "gradients" in evidence.recording and len(evidence.names("gradients")):
        name = evidence.names("gradients")[0].lower()
        return "embedding" in name or "normalization" in name
    return False


def frozen_start(evidence: Evidence) -> bool:
    """Whether the first layer with weights is frozen, so trained before, on inputs of that scale."""
    layers = [layer for layer in evidence.description.get("layers", ()) if "kernel_initializer" in layer]
    return bool(layers) and not layers[0]["trainable"]


def described(evidence: Evidence, what: str) -> list[dict[str, float]]:
    """The description of inputs or targets: those with numbers."""
    about = evidence.data.get(what) or []
    return [entry for entry in about if isinstance(entry, dict) and entry.get("std") is not None]


def inferred_scale(evidence: Evidence) -> Scale | None:
    """The size of the inputs, from the first layer's gradients: of the kernel Σ input × δ, of the bias Σ δ.

    Their ratio is about the rms of the inputs, where these do not cancel in the sum.
    """
    if not evidence.has("gradients/rms"):
        return None
    names, shapes = evidence.names("gradients"), evidence.shapes("gradients")
    first = next((i for i, name in enumerate(names) if is_kernel(name, shapes[i])), None)
    if first is None or first > 0:
        return None
    bias = names[first].rpartition("/")[0] + "/bias"
    if bias not in names:
        return None
    rms = evidence.epoch("gradients", "rms")[:, [first, names.index(bias)]]
    rows = (rms > 0).all(axis=1)
    if not rows.any():
        return None
    ratio = float(np.median(rms[rows, 0] / rms[rows, 1]))
    return Scale(ratio, np.inf, 1.0, {f"gradients/rms {names[first]} over {bias}": ratio})


def input_scale(evidence: Evidence) -> Scale | None:
    """The size of the inputs: as described, else that of an input layer's output, else as inferred."""
    entries = described(evidence, "inputs")
    floats = [entry for entry in entries if "int" not in str(entry.get("dtype", ""))] or entries
    if floats:
        rms = max(float(np.hypot(entry["mean"], entry["std"])) for entry in floats)
        spreads = [
            float(entry["feature_std_max"]) / float(entry["feature_std_min"])
            for entry in floats
            if entry.get("feature_std_min") and entry.get("feature_std_max")
        ]
        told = {
            f"rms of {entry.get('name') or 'the inputs'}": float(np.hypot(entry["mean"], entry["std"]))
            for entry in floats
        }
        largest = max(max(abs(entry["min"]), abs(entry["max"])) for entry in floats)
        return Scale(rms, largest, max(spreads, default=1.0), told)
    if evidence.has("layer_outputs/rms"):
        first = first_of_depth(evidence.recording)
        if 0 < first < len(evidence.names("layer_outputs")):
            rms = float(evidence.latest("layer_outputs", "rms")[first - 1])
            if np.isfinite(rms):
                return Scale(rms, np.inf, 1.0, {f"layer_outputs/rms {evidence.names('layer_outputs')[first - 1]}": rms})
    return inferred_scale(evidence)
