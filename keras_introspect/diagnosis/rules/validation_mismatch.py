"""Validation that was never any good, beside a training that was."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.rule import Rule


class ValidationMismatch(Rule):
    """The training data are learned, and the validation loss never got better than it was, or hardly.

    Unlike overfitting, where validation was good once: here nothing that was learned holds for the validation data.

    Args:
        times: the last validation loss over the last training loss.
        best: the best validation loss over the first.
        apart: by how much the accuracy of the training must be above the best of the validation, where there is one.
    """

    kind = "validation_mismatch"
    needs = ("logs/loss", "logs/val_loss")
    epochs = 3
    reads_loss = True
    order = 60
    picture = "training_curves"

    def __init__(self, times: float = 10.0, best: float = 0.8, apart: float = 0.4) -> None:
        self.times = times
        self.best = best
        self.apart = apart

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        _, loss = evidence.log("loss")
        epochs, val = evidence.log("val_loss")
        if len(val) < self.epochs or not evidence.learned or val[0] <= 0 or loss[-1] <= 0:
            return
        if val[-1] < self.times * loss[-1] or val.min() > val[0] or val.min() < self.best * val[0]:
            return
        told = {"last logs/loss": loss[-1], "last logs/val_loss": val[-1], "best logs/val_loss": val.min()}
        for name in evidence.accuracy_names:
            _, train = evidence.log(name)
            _, held = evidence.log(f"val_{name}")
            if len(train) and len(held):
                if train[-1] - held.max() < self.apart:
                    return
                told |= {f"last logs/{name}": train[-1], f"best logs/val_{name}": held.max()}
        yield self.finding(
            "warning",
            f"the validation loss is {val[-1] / loss[-1]:.0f} times the training loss, and was never below "
            f"{100 * val.min() / val[0]:.0f} % of its first value",
            ["val_loss"],
            since=int(epochs[0]),
            view="logs",
            evidence={key: float(value) for key, value in told.items() if np.isfinite(value)},
            cause="the validation data are not what the model is trained on: scaled or encoded otherwise, other "
            "labels, another order of classes; or nothing in the training data holds beyond them",
            suggestion="evaluate() on the training data as a check; one function that prepares both; a random split; "
            "for batch normalisation, LayerOutputs(phase='both')",
        )
