"""Inputs that do not vary."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import first_of_depth
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.inputs import SCALING, described


class ConstantInputs(Rule):
    """All inputs are one number, one of several is always zero, or what the first layers make of them is constant.

    An input of ones beside others is no fault: so is a mask.

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
        constant = [entry for entry in entries if entry["std"] <= self.spread * max(abs(entry["mean"]), 1e-30)]
        zero = [entry for entry in constant if entry["min"] == entry["max"] == 0]
        made = self._made_constant(evidence)
        if constant and len(constant) == len(entries):
            yield self._found("error", "the inputs do not vary", ["inputs"], constant)
        elif zero:
            names = [f"input {entry['name']}" for entry in zero]
            severity: Severity = "warning" if self._feeds_a_kernel(evidence, zero) else "info"
            yield self._found(severity, f"{', '.join(names)} is zero in all samples", names, zero)
        elif made:
            yield self.finding(
                "info" if evidence.learned else "error",
                f"what {next(iter(made))} hands on does not vary: there is nothing to learn from it",
                list(made),
                view="layer_outputs",
                evidence={f"layer_outputs/std {name}": std for name, std in made.items()},
                cause="the pipeline lost the data, or the layer makes all of them equal: a normalisation over one "
                "feature leaves nothing",
                suggestion="print a batch before and behind this layer, and its std; which axis does it normalise?",
            )

    @staticmethod
    def _feeds_a_kernel(evidence: Evidence, entries: list[dict[str, Any]]) -> bool:
        """Whether a kernel of as many inputs gets no gradient at all; states of zero and segments of zero are usual."""
        if evidence.learned or not evidence.has("gradients/rms"):
            return False
        features = {tuple(entry.get("shape") or ())[-1:] for entry in entries if "int" not in str(entry.get("dtype"))}
        rms = evidence.epoch("gradients", "rms")
        return any(
            (rms[:, i] == 0).all() and evidence.shapes("gradients")[i][:1] in features
            for i in evidence.kernels("gradients")
        )

    def _found(self, severity: Severity, summary: str, where: list[str], entries: list[dict[str, Any]]) -> Finding:
        return self.finding(
            severity,
            f"{summary}: there is nothing to learn from {'it' if len(where) == 1 and where != ['inputs'] else 'them'}",
            where,
            evidence={f"std of {entry.get('name') or 'the inputs'}": float(entry["std"]) for entry in entries},
            cause="the pipeline lost the data: divided twice, cast to integers, cut off, joined by a key that never "
            "matches, or read from the wrong place",
            suggestion="print a batch as it reaches the model, and its std",
        )

    def _made_constant(self, evidence: Evidence) -> dict[str, float]:
        """The outputs in front of the first kernel, if they are all constant, or a normalisation makes them so.

        Returns:
            Their std by name: in validation if that was collected, as offsets drift while they train.
        """
        view = "val_layer_outputs" if evidence.has("val_layer_outputs/std") else "layer_outputs"
        if not evidence.has(f"{view}/std") or not evidence.has(f"{view}/mean"):
            return {}
        names = evidence.names(view)
        std, mean = (evidence.latest(view, key) for key in ("std", "mean"))
        still = std <= self.spread * np.maximum(np.abs(mean), 1e-30)
        first = first_of_depth(evidence.recording, view)
        while first < len(names) and self._scales(evidence, names[first]):
            first += 1
        front = [i for i in range(first) if evidence.layer(names[i]).get("class") != "InputLayer"]
        if not front or not still[front[-1]]:
            return {}
        alone = self._scales(evidence, names[front[-1]]) and len(evidence.data.get("inputs") or [0]) == 1
        return {names[i]: float(std[i]) for i in front if still[i]} if alone or still[front].all() else {}

    @staticmethod
    def _scales(evidence: Evidence, name: str) -> bool:
        return evidence.layer(name).get("class") in SCALING
