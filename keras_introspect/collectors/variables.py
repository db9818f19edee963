"""What all collectors of variables share."""

from typing import Any, ClassVar

from keras_introspect.capture.internals import flatten_layers, own_variables
from keras_introspect.collectors.base import Collector


class VariableCollector(Collector):
    """Base of the collectors of variables: their rows are variables, by Keras path."""

    replicated = True
    logged: ClassVar[tuple[str, ...]] = ("rms", "nonfinite")

    def observed_variables(self, model: Any) -> list[Any]:
        """The variables of a model that this collector looks at."""
        return list(model.trainable_variables)

    def candidates(self, model: Any) -> list[tuple[Any, tuple[str, ...]]]:
        owners = owners_of(model)
        return [(owners.get(id(v)), (v.path,)) for v in self.observed_variables(model)]

    def chosen(self, model: Any) -> list[Any]:
        """The observed variables that `layers=` chooses."""
        owners = owners_of(model)
        return [v for v in self.observed_variables(model) if self.selection.chooses(owners.get(id(v)), v.path)]


def owners_of(model: Any) -> dict[int, Any]:
    """Id of a variable → the layer that holds it."""
    return {id(variable): layer for layer in [model, *flatten_layers(model)] for variable in own_variables(layer)}
