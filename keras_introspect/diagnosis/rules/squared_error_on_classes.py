"""Squared or absolute error on classes."""

from collections.abc import Iterator

from keras_introspect.diagnosis.evidence import BOUNDED, Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.heads import is_constant, range_evidence

_ERRORS = ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh")


class SquaredErrorOnClasses(Rule):
    """A squared or absolute error between classes and a sigmoid or softmax head.

    Where the head is sure and wrong it is flat, and the gradient vanishes.

    That the targets are classes is told by a softmax head, by an accuracy among the metrics, or by targets that are
    whole numbers from 0 to 1 only. A sigmoid head alone is no sign: pixels are no classes. (Golik, Doetsch and Ney,
    *Cross-Entropy vs. Squared Error Training*, 2013: from random weights squared error is stuck in worse optima.)
    """

    kind = "squared_error_on_classes"
    needs = ("description/losses",)
    order = 20
    picture = "training_curves"

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields a finding a head."""
        for head, loss in evidence.head_losses:
            activation = head.get("activation")
            if loss["loss"] not in _ERRORS or activation not in BOUNDED or is_constant(head):
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
