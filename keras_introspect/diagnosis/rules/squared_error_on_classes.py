"""Squared or absolute error on classes."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_introspect.diagnosis.evidence import BOUNDED, Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.heads import is_constant, range_evidence

_ERRORS = ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh")


class SquaredErrorOnClasses(Rule):
    """A squared or absolute error between classes and a sigmoid or softmax head, or between their numbers and a unit.

    Where a sigmoid or softmax is sure and wrong it is flat, and the gradient vanishes. The numbers of classes have no
    order: between 2 and 4 there is no class 3. They are told from quantities by what they are: whole numbers of an
    integer type, from 0 to a few, all about equally frequent, so that their mean is in the middle and their std
    about (count of them) / √12.

    That the targets are classes is told by a softmax head, by an accuracy among the metrics, or by targets that are
    whole numbers from 0 to 1 only. A sigmoid head alone is no sign: pixels are no classes. (Golik, Doetsch and Ney,
    *Cross-Entropy vs. Squared Error Training*, 2013: from random weights squared error is stuck in worse optima.)

    Args:
        classes: how many of them there may be, where one unit is to hit their numbers.
        even: how far std and mean of the targets may be from those of equally frequent numbers, as a part of the std.
    """

    kind = "squared_error_on_classes"
    needs = ("description/losses",)
    order = 20
    picture = "training_curves"

    def __init__(self, classes: int = 30, even: float = 0.08) -> None:
        self.classes = classes
        self.even = even

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields a finding a head."""
        for head, loss in evidence.head_losses:
            activation = head.get("activation")
            if loss["loss"] not in _ERRORS or is_constant(head):
                continue
            if activation not in BOUNDED:
                if head.get("units") == 1 and self._numbered(evidence):
                    yield self._of_numbers(evidence, head, str(loss["loss"]))
                continue
            targets = [entry for entry in evidence.data.get("targets") or [] if entry.get("integers") is not None]
            whole = any(entry["integers"] and entry.get("min") == 0 and entry.get("max") == 1 for entry in targets)
            fractions = any(not entry["integers"] for entry in targets)
            if fractions or not (activation == "softmax" or evidence.accuracy_names or whole):
                continue
            severity: Severity = "info" if evidence.learned else "warning"
            told = {
                f"last logs/{name}": evidence.log(name)[1][-1]
                for name in ("loss", *evidence.accuracy_names[:1])
                if len(evidence.log(name)[1])
            }
            yield self.finding(
                severity,
                f"{loss['loss']} on classes, with a {activation} head",
                [str(head["name"])],
                view="layer_outputs",
                evidence={**told, **range_evidence(evidence, head)},
                cause=f"where {activation} is sure and wrong it is flat, and so is the loss: the gradient vanishes "
                "there",
                suggestion="categorical_crossentropy (softmax) or binary_crossentropy (sigmoid)",
            )

    def _numbered(self, evidence: Evidence) -> bool:
        """Whether the only targets are numbers of classes."""
        targets = evidence.data.get("targets") or []
        if len(targets) != 1 or not targets[0].get("integers") or "int" not in str(targets[0].get("dtype", "")):
            return False
        low, high, mean, std = (float(targets[0][key]) for key in ("min", "max", "mean", "std"))
        count = high - low + 1
        even = np.sqrt((count**2 - 1) / 12)
        off = max(abs(std / even - 1), abs(mean - (low + high) / 2) / even)
        return low == 0 and 3 <= count <= self.classes and off <= self.even

    def _of_numbers(self, evidence: Evidence, head: Mapping[str, Any], loss: str) -> Finding:
        target = evidence.data["targets"][0]
        return self.finding(
            "info" if evidence.learned else "warning",
            f"{loss} on whole numbers from {target['min']:.0f} to {target['max']:.0f}, which look like classes",
            [str(head["name"])],
            view="layer_outputs",
            evidence={"std of the targets": target["std"], **range_evidence(evidence, head)},
            cause="one unit is to hit the number of the class, as if class 3 lay between 2 and 4",
            suggestion="a unit a class with softmax, and sparse_categorical_crossentropy; if they are quantities, such "
            "as ratings, this is right",
        )
