"""The gradients of the variables."""

import keras

from keras_introspect.capture import Capture, Wanted
from keras_introspect.collectors.base import Group, spec_of_variable
from keras_introspect.collectors.variables import VariableCollector
from keras_introspect.statistics import Piece


@keras.saving.register_keras_serializable("keras_introspect")
class Gradients(VariableCollector):
    """d loss / d variable, as it reaches the optimizer.

    Of the unscaled loss (a loss scale is divided out), before clipping, averaging over accumulation steps and weight
    decay; summed over replicas, as it is applied. Embeddings' sparse gradients count as what they stand for: the sum of
    repeated rows, and zeros elsewhere.

    Example:

    >>> Gradients(every=10).every
    10
    """

    key = "gradients"
    wanted = Wanted(gradients=True)

    def groups(self, capture: Capture) -> list[Group]:
        groups = []
        for variable in self.chosen(capture.model):
            if id(variable) in capture.gradients:
                spec = spec_of_variable(variable)
                _, gradients = capture.gradients[id(variable)]
                groups.append([Piece(seen.values, spec, seen.zeros) for seen in gradients])
            else:
                capture.missed[(self.name, variable.path)] = "no gradient reached an optimizer of the model in the step"
        return groups
