"""Labels that the head cannot give, or that the loss cannot read."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_introspect.diagnosis.evidence import BOUNDED, CROSS_ENTROPIES, SQUARED, Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.heads import BINARY, is_constant


class LabelsOutOfRange(Rule):
    """Labels outside the range of the head's activation or of the loss; fractions as numbers of classes.

    From the description of the targets where the recording has one. Without it, from what cannot be otherwise: a
    cross-entropy below zero, a squared error above that of the whole range, and a cross-entropy near zero with an
    accuracy near chance.

    Args:
        slack: how far outside, of the range's width, is still inside: rounding, and label smoothing.
        certain: cross-entropy below which the labels count as learned.
    """

    kind = "labels_out_of_range"
    needs = ("description/losses|data/targets", "data/targets|logs/loss")
    epochs = 0
    order = 9
    picture = "training_curves"

    def __init__(self, slack: float = 0.01, certain: float = 0.1) -> None:
        self.slack = slack
        self.certain = certain

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        if any(is_constant(head) for head in evidence.heads):
            return
        found = self._described(evidence)
        if found is None and not evidence.data.get("targets"):
            found = self._by_loss(evidence)
        if found is None:
            return
        what, numbers, suggestion = found
        heads = [str(head["name"]) for head in evidence.heads[:1]]
        yield self.finding(
            "error",
            what,
            heads or ["targets"],
            evidence=numbers,
            cause="labels and head were made for different ranges: scaled like the images, counted from 1, or coded "
            "as −1 and 1",
            suggestion=suggestion,
        )

    def _described(self, evidence: Evidence) -> tuple[str, dict[str, float], str] | None:
        targets = evidence.data.get("targets") or []
        pairs = evidence.head_losses
        if len(targets) != len(pairs) or not pairs:
            return None
        for (head, loss), target in zip(pairs, _in_order(targets, pairs), strict=True):
            if target.get("min") is None or target.get("max") is None:
                continue
            low, high = float(target["min"]), float(target["max"])
            if loss.get("ignore_class") in (low, high):
                continue  # which labels there are beside it is not known
            numbers = {"least label": low, "largest label": high}
            kind, activation, units = loss["loss"], head.get("activation"), head.get("units")
            if kind == "sparse_categorical_crossentropy":
                if target.get("integers") is False:
                    text = f"the labels are fractions ({low:.3g} to {high:.3g}), and {kind} reads class numbers"
                    return text, numbers, "whole numbers from 0 as labels: do not scale them with the data"
                if units and (high > units - 1 or low < 0):
                    text = f"the labels go from {low:.0f} to {high:.0f}, and the head has {units} units"
                    return text, numbers, "count the classes from 0, and give the head a unit a class"
                continue
            ends = BOUNDED.get(str(activation)) if kind in SQUARED else None
            if kind in CROSS_ENTROPIES:
                ends = (0.0, 1.0)
            if activation in ("relu", "softplus", "exponential") and ends is None and kind in SQUARED:
                ends = (0.0, np.inf)
            if ends is None:
                continue
            slack = self.slack * (ends[1] - ends[0] if np.isfinite(ends[1]) else max(abs(high), 1.0))
            if low < ends[0] - slack or high > ends[1] + slack:
                text = f"the labels go from {low:.3g} to {high:.3g}, and {activation} under {kind} from {ends[0]:g} to "
                text += "∞" if np.isinf(ends[1]) else f"{ends[1]:g}"
                return (
                    text,
                    numbers,
                    "scale or code the labels to that range, or choose a head and loss that reach them",
                )
        return None

    def _by_loss(self, evidence: Evidence) -> tuple[str, dict[str, float], str] | None:
        _, loss = evidence.log("loss")
        if not len(loss) or len(evidence.head_losses) != 1 or evidence.loss_is_unknown:
            return None
        head, about = evidence.head_losses[0]
        kind, last = about["loss"], float(loss[-1])
        if kind in BINARY and last < -self.slack:
            return (
                f"{kind} is {last:.3g}, below zero: labels lie outside 0 to 1",
                {"last logs/loss": last},
                "labels 0 and 1; for more classes softmax and sparse_categorical_crossentropy",
            )
        ends = BOUNDED.get(str(head.get("activation")))
        if kind in ("mean_squared_error", "mean_absolute_error") and ends is not None:
            width = ends[1] - ends[0]
            most = (width * (1 + self.slack)) ** (2 if kind == "mean_squared_error" else 1)
            if loss.min() > most and not any(
                "regularizers" in layer for layer in evidence.description.get("layers", ())
            ):
                return (
                    f"{kind} stays above {most:.3g}, the most that labels within the range of {head['activation']} "
                    "allow",
                    {"lowest logs/loss": loss.min()},
                    "scale the targets to the range of the head, or make the head linear",
                )
        if kind == "sparse_categorical_crossentropy" and evidence.accuracy_names:
            accuracy = evidence.log(evidence.accuracy_names[0])[1]
            classes = evidence.classes or 2
            if len(accuracy) and last < self.certain and accuracy[-1] < max(0.5, 1.5 / classes):
                return (
                    f"{kind} is {last:.3g}, all but certain, and the accuracy {accuracy[-1]:.3g}: the labels are not "
                    "the numbers of the classes",
                    {"last logs/loss": last, f"last logs/{evidence.accuracy_names[0]}": accuracy[-1]},
                    "whole numbers from 0 as labels: do not scale them with the data",
                )
        return None


def _in_order(
    targets: list[dict[str, Any]], pairs: list[tuple[dict[str, Any], dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The targets in the order of the heads: those of a dict belong to the heads of their names."""
    by_name = {str(target.get("name")): target for target in targets}
    names = [loss["output"] or str(head["name"]).rsplit("/", 1)[-1] for head, loss in pairs]
    if len(targets) == 1 or not any(name in by_name for name in names):
        return targets
    return [by_name.get(name, {}) for name in names]
