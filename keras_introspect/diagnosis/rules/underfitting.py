"""Training that ends near chance."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.rule import Rule


class Underfitting(Rule):
    """The training data are not learned: the loss stands near that of guessing, or above where it began.

    Near guessing: accuracy against 1 / classes, cross-entropy against log(classes), squared error against the variance
    of the targets, whichever the recording allows. Where none is, the loss must not have fallen below its first value.

    Args:
        progress: the part of the way from guessing to perfect that a run must have come.
        still: the fall of the loss, of its first value, below which it has not moved.
    """

    kind = "underfitting"
    needs = ("logs/loss",)
    epochs = 3
    at_end = True
    reads_loss = True
    order = 60
    picture = "training_curves"

    def __init__(self, progress: float = 0.15, still: float = 0.01) -> None:
        self.progress = progress
        self.still = still

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        epochs, loss = evidence.log("loss")
        if len(loss) < 3 or loss[0] == 0 or not np.isfinite(evidence.logs["loss"][-1]):
            return
        progress = evidence.progress
        fall = float((loss[0] - loss[-1]) / abs(loss[0]))
        if progress is not None and progress >= self.progress:
            return
        if progress is None and fall >= self.still:
            return
        if progress is None and not self._restless(loss):
            return  # it may have been learned within the first epoch
        late = loss[-max(2, len(loss) // 4) :]
        falling = bool(late[0] - late[-1] > 0.1 * abs(loss[0]))
        if falling:
            return  # it has just begun to learn
        told = {"first logs/loss": loss[0], "last logs/loss": loss[-1]}
        for name in evidence.accuracy_names[:1]:
            told[f"last logs/{name}"] = evidence.log(name)[1][-1]
        if progress is not None:
            told["progress from guessing (0) to perfect (1)"] = progress
        yield self.finding(
            "warning",
            f"after {len(loss)} epochs the training data are not learned: loss {loss[0]:.3g}, then {loss[-1]:.3g}"
            + (f"; {100 * progress:.0f} % of the way from guessing" if progress is not None else ""),
            ["loss"],
            since=int(epochs[0]),
            view="logs",
            evidence=told,
            cause="see the findings above, if there are any; else the model is too small, the inputs do not tell "
            "the labels, or the learning rate does not fit",
            suggestion="let the model learn ten samples by heart: if it cannot, something is wrong in model, loss "
            "or data; if it can, try a larger model or another learning rate",
        )

    @staticmethod
    def _restless(loss: np.ndarray) -> bool:
        """Whether the loss still moves by a part of its size: then it has not settled on a low level."""
        return bool(np.median(np.abs(np.diff(loss))) > 0.02 * np.median(np.abs(loss)))
