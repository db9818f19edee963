"""Training that ended while the loss was falling."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule

_SOMETHING = 0.05  # of the first loss, that it must have fallen by
_SEVERAL = 5  # epochs, of which the last fifth is told
_HALF = 0.5  # of the way from guessing to perfect
_STRAIGHT = 0.75  # of the fall that a straight line has in the last fifth
_UNBROKEN = 0.9  # the same, where half has been learned
_MOST = 0.85


class StoppedEarly(Rule):
    """Training and validation loss were still falling at the end.

    A remark, as every short run is like that; a warning where the loss fell nearly in a straight line and the training
    data are not half learned, or fell as fast as before while they are not learned for the most part.

    Args:
        share: the part of the whole fall that came in the last fifth of the epochs. A straight line has a fifth there;
            a loss that has settled next to nothing.
    """

    kind = "stopped_early"
    needs = ("logs/loss",)
    epochs = 3
    at_end = True
    reads_loss = True
    order = 62
    picture = "training_curves"

    def __init__(self, share: float = 0.1) -> None:
        self.share = share

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        epochs, loss = evidence.log("loss")
        _, val = evidence.log("val_loss")
        if len(loss) < 3 or loss[-1] <= 0 or not np.isfinite(evidence.logs["loss"][-1]):
            return
        tail = max(2, len(loss) // 5) if len(loss) >= _SEVERAL else 1
        fall, late = loss[0] - loss[-1], loss[-1 - tail] - loss[-1]
        rises = len(val) > tail and val[-1] > val[-1 - tail]
        if fall < _SOMETHING * abs(loss[0]) or late < self.share * fall or rises:
            return
        straight = fall * tail / (len(loss) - 1)
        progress = 1.0 if evidence.progress is None else evidence.progress
        unfinished = (progress < _HALF and late >= _STRAIGHT * straight) or (
            progress < _MOST and late >= _UNBROKEN * straight
        )
        if len(loss) < _SEVERAL and not unfinished:
            return  # so is every run that short
        severity: Severity = "warning" if unfinished else "info"
        yield self.finding(
            severity,
            f"the loss was still falling: {100 * late / fall:.0f} % of its fall came in the last "
            f"{f'{tail} epochs' if tail > 1 else 'epoch'}",
            ["loss"],
            since=int(epochs[-1 - tail]),
            view="logs",
            evidence={"fall of logs/loss": fall, f"of it in the last {tail}": late, "last logs/loss": loss[-1]},
            cause="the training ended before the loss had settled",
            suggestion="train for more epochs, with EarlyStopping on val_loss to end it",
        )
