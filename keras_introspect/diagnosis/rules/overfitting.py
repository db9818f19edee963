"""Validation that gets worse while training gets better."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule

_OF_FIRST = 0.4  # of the first validation loss


class Overfitting(Rule):
    """The validation loss has risen well above its best, while the training loss went on falling.

    A little of it is what training to the end looks like: a remark. A warning where the validation loss ends above
    where it began and the accuracy of the validation has not gained meanwhile, where it is far above its best and near
    where it began, or where the accuracies are far apart.

    Args:
        rise: the last validation loss (median of three) over its best. SageMaker Debugger compares validation and
            training loss at a margin of 0.1; less than a quarter above the best is ordinary.
        far: the same, from which it is a warning.
        gap: training accuracy over that of the validation, which makes it a warning too.
        fall: the last training loss over that at the best validation.
        patience: epochs since the best.
    """

    kind = "overfitting"
    needs = ("logs/loss", "logs/val_loss")
    epochs = 5
    reads_loss = True
    order = 61
    picture = "training_curves"

    def __init__(
        self, rise: float = 1.25, far: float = 2.0, gap: float = 0.2, fall: float = 0.8, patience: int = 3
    ) -> None:
        self.rise = rise
        self.far = far
        self.gap = gap
        self.fall = fall
        self.patience = patience

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        loss, val = evidence.logs["loss"], evidence.logs["val_loss"]
        both = np.isfinite(loss) & np.isfinite(val)
        epochs, loss, val = evidence.log_epochs[both], loss[both], val[both]
        if len(val) < 5:
            return
        best = int(np.argmin(val))
        last = float(np.median(val[-3:]))
        if len(val) - 1 - best < self.patience or val[best] <= 0 or loss[best] <= 0:
            return
        if last < self.rise * val[best] or loss[-1] > self.fall * loss[best] or last < loss[-1]:
            return
        far = last >= self.far * val[best] and last >= _OF_FIRST * val[0]
        apart = self._apart(evidence, both) >= self.gap
        worse = far or apart or (last > val[0] and not self._gained(evidence, both, best))
        severity: Severity = "warning" if worse else "info"
        yield self.finding(
            severity,
            f"the validation loss rose to {last / val[best]:.1f} times its best of epoch {epochs[best]}, while the "
            f"training loss fell to {100 * loss[-1] / loss[best]:.0f} %",
            ["val_loss"],
            since=int(epochs[best]),
            view="logs",
            evidence={
                "best logs/val_loss": val[best],
                "logs/val_loss, median of the last three": last,
                "logs/loss at the best": loss[best],
                "last logs/loss": loss[-1],
            },
            cause="the model learns the training data by heart: too few data for its size, or trained for too long",
            suggestion="EarlyStopping(restore_best_weights=True); more data or augmentation; dropout, weight decay; "
            "a smaller model",
        )

    @staticmethod
    def _apart(evidence: Evidence, both: np.ndarray) -> float:
        """By how much the accuracy of the training is above that of the validation, in the end."""
        names = [name for name in evidence.accuracy_names if f"val_{name}" in evidence.logs]
        ends = [(evidence.logs[name][both][-3:], evidence.logs[f"val_{name}"][both][-3:]) for name in names]
        return max((float(np.mean(train) - np.mean(val)) for train, val in ends), default=0.0)

    @staticmethod
    def _gained(evidence: Evidence, both: np.ndarray, best: int) -> bool:
        """Whether an accuracy of the validation is as good as at the best loss, or better."""
        names = [f"val_{name}" for name in evidence.accuracy_names if f"val_{name}" in evidence.logs]
        values = [evidence.logs[name][both] for name in names]
        return any(np.nanmean(v[-3:]) >= v[best] - 0.01 for v in values)
