"""Probabilities that the loss takes for logits."""

from collections.abc import Iterator

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.heads import BINARY, CATEGORICAL, looks_like_probabilities, range_evidence


class ProbabilitiesAsLogits(Rule):
    """A softmax or sigmoid head under a loss with `from_logits=True`: the loss squashes them once more.

    By the definition of the losses. A head whose activation is not known, such as a mean of votes, is judged by what it
    put out: from 0 to 1 always, and summing to 1 over several units. Squashed twice, probabilities of 0 and 1 become
    0.27 and 0.73 of two classes: the loss has a floor. Keras heals it where it finds the logits behind the head.
    """

    kind = "probabilities_as_logits"
    needs = ("description/losses",)
    order = 8
    picture = "value_distribution"

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields a finding a head."""
        for head, loss in evidence.head_losses:
            if loss["loss"] not in (*CATEGORICAL, *BINARY) or not loss["from_logits"]:
                continue
            activation = head.get("activation")
            if activation in ("softmax", "sigmoid", "hard_sigmoid"):
                activation = f"activation {activation}"
            elif activation is None and looks_like_probabilities(evidence, head):
                activation = "outputs from 0 to 1"
            else:
                continue
            severity: Severity = "warning" if evidence.learned else "error"
            yield self.finding(
                severity,
                f"{head['name']} has {activation}, and {loss['loss']} takes its outputs for logits",
                [str(head["name"])],
                view="layer_outputs",
                evidence=range_evidence(evidence, head),
                cause="from_logits=True lets the loss apply softmax or sigmoid once more, which flattens the "
                "probabilities and their gradient",
                suggestion="leave out from_logits=True, or the head's activation: the latter computes more exactly",
            )
