"""A loss that swings, and gradients that flip."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule

_STEPS = 10


class Oscillation(Rule):
    """The loss, or that of the validation, goes up and down from epoch to epoch, or gradients turn around at each step.

    The swing is the median of |loss of an epoch − mean of its neighbours'|, which a steady fall does not show, over the
    second half of the epochs, relative to the loss there; it must also be a part of the first loss, or a loss that is
    near zero would swing for nothing. Gradients turn around where those of successive steps point away from each other.

    Args:
        swing: of the loss there. AUTOTRAINER (Zhang et al., 2021) counts swings of the accuracy of 0.03 and more.
        of_first: of the first loss.
        share: of epochs that go up, as the same source's share of 20 % that swing.
        cosine: of the gradients of successive steps, of most kernels. Batches drawn without replacement leave
            −1 / (steps − 1) of it, at most −0.1 in an epoch of the ten steps that are asked for.
    """

    kind = "oscillation"
    needs = ("logs/loss|gradients/step_cosine",)
    epochs = 4
    reads_loss = True
    order = 32
    picture = "training_curves"

    def __init__(self, swing: float = 0.15, of_first: float = 0.05, share: float = 0.2, cosine: float = -0.3) -> None:
        self.swing = swing
        self.of_first = of_first
        self.share = share
        self.cosine = cosine

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding: of the loss, else of the gradients."""
        found = self._loss(evidence) or self._gradients(evidence)
        if found is not None:
            yield found

    def _loss(self, evidence: Evidence) -> Finding | None:
        _, loss = evidence.log("loss")
        first = evidence.first_loss
        if len(loss) < 6 or first is None:
            return None
        first = max(abs(first), abs(float(loss[0])))
        for name in ("loss", "val_loss"):
            epochs, values = evidence.log(name)
            if len(values) < 6:
                continue
            half = values[len(values) // 2 :] if len(values) >= 12 else values[2:]
            swings = np.abs(half[1:-1] - (half[:-2] + half[2:]) / 2)
            swing, size = float(np.median(swings)), float(np.median(np.abs(half)))
            up = float(np.mean(np.diff(half) > 0))
            if size and swing >= self.swing * size and swing >= self.of_first * first and up >= self.share:
                break
        else:
            return None
        severity: Severity = "info" if evidence.mastered else "warning"
        return self.finding(
            severity,
            f"{name} swings by {100 * swing / size:.0f} % from epoch to epoch, and rises in {100 * up:.0f} % of them",
            [name],
            since=int(epochs[len(values) - len(half)]),
            view="logs",
            evidence={f"swing of logs/{name}": swing, f"median of logs/{name}": size, "share of epochs that rise": up},
            cause="the steps are too large for the slope, or the batches too small and too noisy",
            suggestion="lower the learning rate threefold to tenfold, or let it decay; larger batches; less momentum",
        )

    def _gradients(self, evidence: Evidence) -> Finding | None:
        steps = evidence.steps_per_epoch()
        if not evidence.has("gradients/step_cosine") or steps is None or steps < _STEPS:
            return None
        rows = evidence.kernels("gradients")
        cosine = evidence.latest("gradients", "step_cosine")[rows]
        turning = np.nan_to_num(cosine) < self.cosine
        if not len(rows) or turning.mean() <= 0.5:
            return None
        order = [k for k in np.argsort(cosine) if turning[k]]
        names = [evidence.names("gradients")[rows[k]] for k in order]
        severity: Severity = "info" if evidence.mastered else "warning"
        return self.finding(
            severity,
            f"the gradients of {len(names)} kernels turn around from step to step: cosine {np.median(cosine):.2f}",
            names,
            view="gradients",
            picture="scale_lines",
            evidence={f"gradients/step_cosine {name}": cosine[k] for name, k in zip(names, order, strict=True)},
            cause="each step jumps across the valley: the steps are too large",
            suggestion="lower the learning rate threefold to tenfold; less momentum",
        )
