"""A softmax that has nothing to choose from."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.rule import Rule


class SoftmaxOverOneUnit(Rule):
    """A head of one unit under softmax: its output is 1, whatever comes in, and its gradient 0.

    No threshold: e^x / e^x = 1. Seen in the configuration, or in outputs that are exactly 1 in every element.
    """

    kind = "softmax_over_one_unit"
    needs = ("description/outputs|layer_outputs/min",)
    epochs = 0
    order = 5
    picture = "value_distribution"

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields a finding a head."""
        for head in evidence.heads:
            if head.get("units") != 1:
                continue
            row = evidence.head_row(head)
            seen = {}
            ones = False
            if row is not None and evidence.has("layer_outputs/min") and evidence.has("layer_outputs/max"):
                ends = np.stack([evidence.epoch("layer_outputs", key)[:, row] for key in ("min", "max")])
                ones = bool(np.isfinite(ends).any()) and bool((np.nan_to_num(ends, nan=1.0) == 1).all())
                seen = {f"layer_outputs/{key} {head['name']}": ends[i, -1] for i, key in enumerate(("min", "max"))}
            softmax = head.get("activation") == "softmax"
            if not softmax and not (ones and "activation" not in head and len(ends[0]) > 1):
                continue
            yield self.finding(
                "error",
                f"{head['name']} is a softmax over one unit: its output is always 1",
                [str(head["name"])],
                view="layer_outputs",
                evidence=seen,
                cause="softmax divides by the sum over the units, which is the unit itself; no gradient passes",
                suggestion="for two classes: one unit with activation='sigmoid' and binary_crossentropy, or two "
                "units with softmax and sparse_categorical_crossentropy; for a number: one unit, linear, and mean "
                "squared error",
            )
