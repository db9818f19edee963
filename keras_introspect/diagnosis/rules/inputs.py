"""Shared by the rules on inputs: where inputs enter, and how large they are."""

from typing import Any, NamedTuple

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.places import first_of_depth, is_kernel

# What scales its inputs.
SCALING: tuple[str, ...] = (
    "Rescaling",
    "Normalization",
    "BatchNormalization",
    "LayerNormalization",
    "GroupNormalization",
    "UnitNormalization",
)
# What takes its inputs for names: how large they are does not matter. Another input beside them it does not look up.
LOOKUPS: tuple[str, ...] = ("Embedding", "Hashing", "StringLookup", "IntegerLookup", "Discretization")


class Scale(NamedTuple):
    """The size of the inputs of the first layer, and what says so.

    Attributes:
        rms: of the largest input.
        largest: magnitude of an element.
        spread: std of the widest feature of an input over that of its narrowest.
        evidence: the numbers it comes from.
        name: of the input, where there are several.
    """

    rms: float
    largest: float
    spread: float
    evidence: dict[str, float]
    name: str = ""


def scaled_inside(evidence: Evidence) -> bool:
    """Whether the model scales its inputs itself, or looks them up."""
    layers = [layer["class"] for layer in evidence.description.get("layers", ())]
    first = next((name for name in layers if name not in ("InputLayer", "Reshape", "Flatten", "Permute")), "")
    if first in SCALING or any(name in ("Rescaling", "Normalization") for name in layers[:8]):
        return True
    entries = described(evidence, "inputs")
    if len(entries) > 1 and _floats(evidence, entries):
        return False  # what one input is looked up by says nothing of the others
    if first in LOOKUPS:
        return True
    if "gradients" in evidence.recording and len(evidence.names("gradients")):
        name = evidence.names("gradients")[0].lower()
        return "embedding" in name or "normalization" in name
    return False


def frozen_start(evidence: Evidence) -> bool:
    """Whether the first layer with weights is frozen, so trained before, on inputs of that scale."""
    layers = [layer for layer in evidence.description.get("layers", ()) if "kernel_initializer" in layer]
    return bool(layers) and not layers[0]["trainable"]


def described(evidence: Evidence, what: str) -> list[dict[str, Any]]:
    """The description of inputs or targets: those with numbers."""
    about = evidence.data.get(what) or []
    return [entry for entry in about if isinstance(entry, dict) and entry.get("std") is not None]


def _floats(evidence: Evidence, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The inputs that are quantities; beside an embedding, whole numbers of any dtype are what it looks up."""
    looks_up = any(layer["class"] in LOOKUPS for layer in evidence.description.get("layers", ()))
    return [
        entry
        for entry in entries
        if "int" not in str(entry.get("dtype", "")) and not (looks_up and entry.get("integers"))
    ]


def _called(entry: dict[str, Any], entries: list[dict[str, Any]]) -> str:
    """The name of an input; of a list, its number; of the only one, none."""
    name = str(entry.get("name") or "")
    if len(entries) == 1:
        return ""
    return f"input {name}" if name.isdigit() else name


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
    floats = _floats(evidence, entries) or entries
    if floats:
        sizes = [float(np.hypot(entry["mean"], entry["std"])) for entry in floats]
        spreads = [
            float(entry["feature_std_max"]) / float(entry["feature_std_min"])
            if entry.get("feature_std_min") and entry.get("feature_std_max")
            else 1.0
            for entry in floats
        ]
        names = [_called(entry, entries) for entry in floats]
        told = {f"rms of {name or 'the inputs'}": size for name, size in zip(names, sizes, strict=True)}
        largest = max(max(abs(entry["min"]), abs(entry["max"])) for entry in floats)
        worst = max(range(len(floats)), key=lambda k: (sizes[k], spreads[k]))
        return Scale(sizes[worst], largest, max(spreads), told, names[worst])
    if evidence.has("layer_outputs/rms"):
        first = first_of_depth(evidence.recording)
        if 0 < first < len(evidence.names("layer_outputs")):
            rms = float(evidence.latest("layer_outputs", "rms")[first - 1])
            if np.isfinite(rms):
                return Scale(rms, np.inf, 1.0, {f"layer_outputs/rms {evidence.names('layer_outputs')[first - 1]}": rms})
    return inferred_scale(evidence)
