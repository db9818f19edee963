"""Logits that the loss takes for probabilities."""

from collections.abc import Iterator

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.heads import BINARY, CATEGORICAL, output_range, range_evidence


class LogitsAsProbabilities(Rule):
    """A linear head under a cross-entropy that was not told that it gets logits.

    By the definition of the losses. Where the head's outputs were observed they must leave 0 to 1, as probabilities do
    not: a custom layer may well make probabilities under a linear activation.
    """

    kind = "logits_as_probabilities"
    needs = ("description/losses",)
    order = 7
    picture = "value_distribution"

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields a finding a head."""
        for head, loss in evidence.head_losses:
            if head.get("activation") != "linear" or loss["from_logits"]:
                continue
            if loss["loss"] not in (*CATEGORICAL, *BINARY):
                continue
            seen = output_range(evidence, head)
            if seen is not None and seen[0] >= -1e-6 and seen[1] <= 1 + 1e-6:
                continue
            severity: Severity = "warning" if evidence.learned else "error"
            yield self.finding(
                severity,
                f"{head['name']} is linear, and {loss['loss']} takes its outputs for probabilities",
                [str(head["name"])],
                view="layer_outputs",
                evidence=range_evidence(evidence, head),
                cause="the loss cuts what is not between 0 and 1, where it has no gradient",
                suggestion="from_logits=True on the loss; or activation 'softmax' (one class of many) or 'sigmoid' "
                "(yes or no)",
            )
