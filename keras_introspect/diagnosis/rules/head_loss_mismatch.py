"""A head whose outputs are not what the loss takes them for."""

from collections.abc import Iterator

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.heads import BINARY, CATEGORICAL, KNOWN, NEVER_NEGATIVE, range_evidence


class HeadLossMismatch(Rule):
    """Sigmoid, ReLU, tanh and the like under a cross-entropy that expects probabilities over classes, or of one.

    By the definition of the losses: categorical cross-entropy of outputs expects a distribution over the units, which a
    softmax over another axis does not give; binary cross-entropy a number from 0 to 1 in each, or, of logits, numbers
    of both signs. Linear heads are another kind, `logits_as_probabilities`.
    """

    kind = "head_loss_mismatch"
    needs = ("description/losses",)
    epochs = 0
    order = 6
    picture = "value_distribution"

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields a finding a head."""
        for head, loss in evidence.head_losses:
            activation, kind, units = head.get("activation"), loss["loss"], head.get("units")
            if activation not in KNOWN or activation == "linear":
                continue
            expected, severity = None, "error"
            if loss["from_logits"]:
                if kind in BINARY and activation in NEVER_NEGATIVE:
                    expected = "a linear head: a logit that is never negative never says no"
            elif kind in CATEGORICAL and head.get("softmax_axis", -1) != loss.get("axis", -1):
                expected = "a softmax over the last axis, the classes"
                activation = f"softmax over axis {head['softmax_axis']}"
            elif kind in CATEGORICAL and activation != "softmax":
                expected = "softmax over the classes"
                if units == 1:
                    expected = "a unit a class and softmax, or binary cross-entropy"
            elif kind in CATEGORICAL and units == 1:
                continue  # that is softmax over one unit
            elif kind in BINARY and activation not in ("sigmoid", "hard_sigmoid", "softmax"):
                expected = "sigmoid"
            elif kind == "kl_divergence" and activation in ("relu", "tanh", "elu", "selu", "leaky_relu"):
                expected = "softmax"
            elif kind == "poisson" and activation in ("tanh", "softmax", "sigmoid"):
                expected = "softplus or exponential: counts have no upper end"
                severity = "warning"
            if expected is None:
                continue
            level: Severity = "error" if severity == "error" and not evidence.learned else "warning"
            yield self.finding(
                level,
                f"{head['name']} has activation {activation} under {kind}, which expects {expected}",
                [str(head["name"])],
                view="layer_outputs",
                evidence=range_evidence(evidence, head),
                cause=f"{activation} does not give what {kind} compares with the labels: the probabilities do not "
                "sum to 1, or lie outside 0 to 1",
                suggestion="softmax with (sparse) categorical cross-entropy for one class of many; sigmoid with "
                "binary cross-entropy for yes or no, or for several labels at once",
            )
