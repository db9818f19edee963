"""Variables that no gradient reaches."""

from collections.abc import Iterator

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import held_since, is_kernel
from keras_introspect.diagnosis.rule import Rule

_NONE = "no gradient reached an optimizer"  # what the collector Gradients says of a variable without one


class NoGradient(Rule):
    """Trainable kernels whose gradient is exactly zero in whole epochs, or that get none at all.

    No threshold: zero is zero. Biases are left out, as those before a softmax or a normalisation have none in exact
    arithmetic; embeddings are named only where they get none.

    Args:
        epochs_zero: for how many of the last epochs.
    """

    kind = "no_gradient"
    needs = ("gradients/rms",)
    order = 25
    picture = "scale_lines"

    def __init__(self, epochs_zero: int = 2) -> None:
        self.epochs_zero = epochs_zero

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding of all such kernels."""
        names = evidence.names("gradients")
        rows = evidence.kernels("gradients")
        rms = evidence.epoch("gradients", "rms")[:, rows]
        last = rms[-min(self.epochs_zero, len(rms)) :]
        zero = (last == 0).all(axis=0)
        without = self._without(evidence)
        found = [names[i] for i in rows[zero]] + without
        if not found:
            return
        total = len(rows) + len(without)
        severity: Severity = "error" if len(found) > total / 2 else "warning"
        if evidence.learned:
            severity = "info"
        since = None
        if zero.any():
            since = held_since((rms[:, zero] == 0).all(axis=1), evidence.epochs("gradients"))
        yield self.finding(
            severity,
            f"{len(found)} of {total} kernels get a gradient of exactly zero or none: they learn nothing",
            found,
            since=since,
            view="gradients",
            evidence={f"gradients/rms {name}": 0.0 for name in found},
            cause=self._cause(evidence, bool(without)),
            suggestion="see the finding above it, if there is one: dead units, a softmax over one unit, or zero "
            "weights stop the gradient; is each layer's output used in the loss, and nothing behind a stop_gradient "
            "or an argmax?",
        )

    @staticmethod
    def _without(evidence: Evidence) -> list[str]:
        names = (
            dict(zip(evidence.names("weights"), evidence.shapes("weights"), strict=True))
            if evidence.has("weights/rms")
            else {}
        )
        return [
            name
            for name, reason in evidence.recording.unobserved.items()
            if _NONE in reason
            and (
                name.endswith("/embeddings")
                or is_kernel(name, names.get(name, (1, 1) if name.endswith("kernel") else ()))
            )
        ]

    @staticmethod
    def _cause(evidence: Evidence, without: bool) -> str:
        if without:
            return "the loss does not depend on them: their layers' outputs are not used, or not differentiably"
        if evidence.has("layer_outputs/dead_rate") and (evidence.latest("layer_outputs", "dead_rate") >= 1).any():
            return "a layer behind them is dead and passes no gradient back"
        return "something between them and the loss has a slope of zero: a constant output, zero weights, saturation"
