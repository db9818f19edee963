"""The values of the variables."""

from typing import Any

import keras
import tensorflow as tf

from keras_introspect.capture import Capture
from keras_introspect.collectors.base import Group, spec_of_variable
from keras_introspect.collectors.variables import VariableCollector
from keras_introspect.statistics import Piece


@keras.saving.register_keras_serializable("keras_introspect")
class Weights(VariableCollector):
    """Each variable's value at the end of the epoch, computed then: it costs nothing a step.

    Args:
        trainable_only: leave out variables that do not train, such as moving averages.
        statistics: see `Collector`, as all further arguments.

    Example:

    >>> Weights(layers="conv*", trainable_only=False).name
    'weights'
    """

    key = "weights"
    at_epoch_end = True

    def __init__(self, statistics: Any = None, trainable_only: bool = True, **kwargs: Any) -> None:
        super().__init__(statistics, **kwargs)
        self.trainable_only = bool(trainable_only)

    def observed_variables(self, model: Any) -> list[Any]:
        if self.trainable_only:
            return list(model.trainable_variables)
        return [v for v in model.weights if keras.backend.is_float_dtype(v.dtype)]

    def groups_at_epoch_end(self, model: Any) -> list[Group]:
        """The values now, outside any step."""
        return [[Piece(tf.convert_to_tensor(v), spec_of_variable(v, name))] for name, v in self.chosen(model).items()]

    def groups(self, capture: Capture) -> list[Group]:
        return self.groups_at_epoch_end(capture.model)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "trainable_only": self.trainable_only}
