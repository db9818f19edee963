"""What a step changes."""

import keras
import tensorflow as tf

from keras_introspect.capture import Capture, Wanted
from keras_introspect.collectors.base import Group, spec_of_variable
from keras_introspect.collectors.variables import VariableCollector
from keras_introspect.statistics import Piece


@keras.saving.register_keras_serializable("keras_introspect")
class Updates(VariableCollector):
    """Each trainable variable after the step minus before it: what the optimizer, constraints and decay made of it.

    Example:

    >>> Updates().name
    'updates'
    """

    key = "updates"
    wanted = Wanted(values_before=True)

    def groups(self, capture: Capture) -> list[Group]:
        groups = []
        for variable in self.chosen(capture.model):
            before = capture.before.get(id(variable))
            if before is None:
                capture.missed[(self.name, variable.path)] = "it was made in this step: there is no value before it"
                continue
            groups.append([Piece(tf.convert_to_tensor(variable) - before, spec_of_variable(variable))])
        return groups
