"""Inputs that do not vary."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.places import first_of_depth
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.inputs import described


class ConstantInputs(Rule):
    """All inputs are the same number, or what the first layers make of them is.

    Args:
        spread: std over the size of the mean, below which they do not vary: float32 resolves 1e-7.
    """

    kind = "constant_inputs"
    needs = ("data/inputs|layer_outputs/std",)
    order = 12
    picture = "value_distribution"

    def __init__(self, spread: float = 1e-6) -> None:
        self.spread = spread

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        entries = described(evidence, "inputs")
        found = {
            f"std of {entry.get('name') or 'the inputs'}": float(entry["std"])
            for entry in entries
            if entry["std"] <= self.spread * max(abs(entry["mean"]), 1e-30)
        }
        if len(found) < len(entries):  # a mask of ones beside other inputs is no fault
            return
        where, view = ["inputs"], ""
        if not entries and evidence.has("layer_outputs/std") and evidence.has("layer_outputs/mean"):
            first = first_of_depth(evidence.recording)
            std = evidence.latest("layer_outputs", "std")[:first]
            mean = np.abs(evidence.latest("layer_outputs", "mean")[:first])
            rows = np.flatnonzero(std <= self.spread * np.maximum(mean, 1e-30))
            names = [evidence.names("layer_outputs")[i] for i in rows]
            if len(names) < first:
                return
            found = {f"layer_outputs/std {name}": float(std[i]) for name, i in zip(names, rows, strict=True)}
            where, view = names, "layer_outputs"
        if not found:
            return
        yield self.finding(
            "error",
            "the inputs do not vary: there is nothing to learn from them",
            where,
            view=view,
            evidence=found,
            cause="the pipeline lost the data: divided twice, cast to integers, cut off, or read from the wrong place",
            suggestion="print a batch as it reaches the model, and its std",
        )
