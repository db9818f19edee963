"""What all collectors of variables share."""

from collections.abc import Sequence
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

    def chosen(self, model: Any) -> dict[str, Any]:
        """The observed variables that `layers=` chooses, by name.

        That is the path, and of the second layer of one path, which Keras allows, that with `~2` behind the layer.
        """
        owners, observed = owners_of(model), self.observed_variables(model)
        names = names_of([*model.weights, *observed])
        return {names[id(v)]: v for v in observed if self.selection.chooses(owners.get(id(v)), v.path)}


def names_of(variables: Sequence[Any]) -> dict[int, str]:
    """Id of a variable → its path; from the second of one path on the layer is numbered in it: `dense~2/kernel`."""
    found: dict[int, str] = {}
    taken: dict[str, int] = {}
    for variable in variables:
        if id(variable) not in found:
            taken[variable.path] = number = taken.get(variable.path, 0) + 1
            layer, slash, last = variable.path.rpartition("/")
            numbered = f"{layer}~{number}/{last}" if slash else f"{last}~{number}"
            found[id(variable)] = variable.path if number == 1 else numbered
    return found


def owners_of(model: Any) -> dict[int, Any]:
    """Id of a variable → the layer that holds it."""
    return {id(variable): layer for layer in [model, *flatten_layers(model)] for variable in own_variables(layer)}
