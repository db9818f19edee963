"""Regression targets of a scale far from 1."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import SQUARED, Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.inputs import described


class UnscaledTargets(Rule):
    """Targets of a squared or absolute error far larger than 1: the gradients grow with them.

    Where the recording does not describe its targets, their size follows from the first loss of a linear head.

    Args:
        rms: of the targets. DeepDiagnosis (Wardat et al., 2022) compares the range of a linear output with that of the
            labels, at a factor of 10; fresh outputs are of the order 1, and 100 leaves percentages in peace.
    """

    kind = "unscaled_targets"
    needs = ("data/targets|logs/loss", "description/losses")
    reads_loss = True
    order = 14
    picture = "training_curves"

    def __init__(self, rms: float = 100.0) -> None:
        self.rms = rms

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        kinds = {loss["loss"] for loss in evidence.losses}
        if not kinds or not kinds <= set(SQUARED) or evidence.classifies or evidence.learned:
            return
        entries = described(evidence, "targets")
        if entries:
            size = max(float(np.hypot(entry["mean"], entry["std"])) for entry in entries)
            told = {"rms of the targets": size}
        else:
            first = evidence.first_loss
            if first is None or len(kinds) > 1:
                return
            size = float(np.sqrt(abs(first))) if kinds == {"mean_squared_error"} else abs(first)
            told = {"first logs/loss": first}
        if size < self.rms:
            return
        severity: Severity = "warning" if evidence.failed or evidence.progress is None else "info"
        yield self.finding(
            severity,
            f"the targets have rms {size:.3g}",
            ["targets"],
            evidence=told,
            cause="the targets are fed as they came: fresh outputs are of the order 1, and have far to go",
            suggestion="standardise the targets, and scale the predictions back; or predict their logarithm",
        )
