"""What a step changes."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_introspect.capture import Capture, Wanted
from keras_introspect.collectors.base import Group, spec_of_variable
from keras_introspect.collectors.variables import VariableCollector
from keras_introspect.statistics import ImplicitRate, Piece, Quantiles, Statistic, UpdateRatio


@keras.saving.register_keras_serializable("keras_introspect")
class Updates(VariableCollector):
    """Each trainable variable after the step minus before it: what the optimizer, constraints and decay made of it.

    Whatever `statistics` are chosen, `update_ratio` and `implicit_learning_rate` come with them.

    Example:

    >>> Updates(statistics="moments").statistics
    (Moments(), UpdateRatio(), ImplicitRate(levels=[0.0, 12.5, 25.0, 37.5, 50.0, 62.5, 75.0, 87.5, 100.0], sample=4096))
    """

    key = "updates"
    wanted = Wanted(values_before=True, gradients=True, applied=True)
    logged: ClassVar[tuple[str, ...]] = (*VariableCollector.logged, "update_ratio")

    def further_statistics(self, chosen: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
        # A view has one set of quantile levels.
        levels = next((s.levels for s in chosen if isinstance(s, Quantiles)), None)
        return UpdateRatio(), ImplicitRate() if levels is None else ImplicitRate(levels)

    def groups(self, capture: Capture) -> list[Group]:
        groups = []
        for name, variable in self.chosen(capture.model).items():
            before = capture.before.get(id(variable))
            if before is None:
                capture.missed[(self.name, name)] = "it was made in this step: there is no value before it"
                continue
            update = tf.convert_to_tensor(variable) - before
            groups.append([Piece(update, spec_of_variable(variable, name), beside=_beside(capture, variable, update))])
        return groups


def _beside(capture: Capture, variable: Any, update: Any) -> dict[str, Any]:
    """What the update is compared with; nothing where no optimizer applied it."""
    if id(variable) not in capture.optimizers:
        return {}
    beside = {"weights": capture.before[id(variable)], "moved": capture.moved(variable), "update": update}
    seen = capture.applied.get(id(variable))
    if seen is None and id(variable) in capture.gradients:
        seen = capture.gradients[id(variable)][1][-1]
    if seen is not None:
        beside["gradients"] = seen.values
        if seen.rows is not None:
            beside["update"] = tf.gather(update, seen.rows)
    return beside
