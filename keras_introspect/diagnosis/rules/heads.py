"""Shared by the rules on heads: the range of an output, and what the loss expects."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence

_SUM = 1e-4  # by how much float32 may miss a sum of 1
CATEGORICAL = ("categorical_crossentropy", "sparse_categorical_crossentropy", "categorical_focal_crossentropy")
BINARY = ("binary_crossentropy", "binary_focal_crossentropy")
# Activations whose outputs are known; under any other a head is not judged.
KNOWN = frozenset(
    [
        "linear",
        "relu",
        "relu6",
        "leaky_relu",
        "prelu",
        "elu",
        "selu",
        "gelu",
        "silu",
        "swish",
        "tanh",
        "hard_tanh",
        "sigmoid",
        "hard_sigmoid",
        "softmax",
        "softplus",
        "softsign",
        "exponential",
    ]
)
NEVER_NEGATIVE = ("relu", "relu6", "softplus", "exponential")


def is_constant(head: Mapping[str, Any]) -> bool:
    """Whether it is a softmax over one unit, of which nothing else need be said."""
    return head.get("activation") == "softmax" and head.get("units") == 1


def output_range(evidence: Evidence, head: Mapping[str, Any]) -> tuple[float, float] | None:
    """The smallest and largest output of a head that was observed; `None` where none was."""
    row = evidence.head_row(head)
    if row is None or not evidence.has("layer_outputs/min") or not evidence.has("layer_outputs/max"):
        return None
    low, high = (evidence.epoch("layer_outputs", key)[:, row] for key in ("min", "max"))
    if not np.isfinite(low).any():
        return None
    return float(np.nanmin(low)), float(np.nanmax(high))


def looks_like_probabilities(evidence: Evidence, head: Mapping[str, Any]) -> bool:
    """Whether every output so far lay from 0 to 1, and those of several units summed up to 1."""
    found, row, units = output_range(evidence, head), evidence.head_row(head), int(head.get("units") or 0)
    if found is None or row is None or not 0 <= found[0] <= found[1] <= 1 or not units:
        return False
    if units == 1:
        return True
    if not evidence.has("layer_outputs/mean"):
        return False
    means = evidence.epoch("layer_outputs", "mean")[:, row]
    return bool(np.nanmax(np.abs(units * means - 1)) < _SUM)


def range_evidence(evidence: Evidence, head: Mapping[str, Any]) -> dict[str, float]:
    """The range of a head, as evidence."""
    found = output_range(evidence, head)
    if found is None:
        return {}
    return {f"layer_outputs/min {head['name']}": found[0], f"layer_outputs/max {head['name']}": found[1]}
