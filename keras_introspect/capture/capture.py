"""The tensors of one training step, as they come by."""

import threading
from typing import Any, NamedTuple

import tensorflow as tf

from keras_introspect.capture.internals import current_graph

_ACTIVE = threading.local()


class Wanted(NamedTuple):
    """What the collectors of a model need to see."""

    outputs: bool = False
    output_gradients: bool = False
    gradients: bool = False
    values_before: bool = False


class Seen(NamedTuple):
    """One tensor that came by: `zeros` counts rows of a sparse tensor that are zero and not in `values`."""

    values: Any
    layer: Any = None
    zeros: Any = None
    recomputed: bool = False


class Capture:
    """Collects the tensors of one run, or one trace, of a training step.

    Attributes:
        outputs: name of a layer's output → tensors, a call each.
        output_gradients: the same for their gradients, unscaled.
        gradients: id of a variable → (the variable, its gradients).
        before: id of a variable → its value before the step.
        missed: (view, name) → why it could not be observed.
    """

    def __init__(self, model: Any, wanted: Wanted, names: "LayerNames") -> None:
        self.model = model
        self.wanted = wanted
        self.names = names
        self.graph = current_graph()
        self.outputs: dict[str, list[Seen]] = {}
        self.output_gradients: dict[str, list[Seen]] = {}
        self.gradients: dict[int, tuple[Any, list[Seen]]] = {}
        self.before: dict[int, Any] = {}
        self.missed: dict[tuple[str, str], str] = {}
        self.called: dict[int, Any] = {}
        self.iterations: Any = None
        self.loss_scale: Any = None
        self.applying = False

    def in_step_graph(self) -> bool:
        return current_graph() is self.graph

    def add_output(self, name: str, seen: Seen) -> None:
        self.outputs.setdefault(name, []).append(seen)

    def add_output_gradient(self, name: str, seen: Seen) -> None:
        self.output_gradients.setdefault(name, []).append(seen)

    def add_gradient(self, variable: Any, seen: Seen) -> None:
        self.gradients.setdefault(id(variable), (variable, []))[1].append(seen)

    def keep_value(self, variable: Any) -> None:
        """Keeps a variable's value as it is now, unless an earlier one is kept."""
        if id(variable) not in self.before:
            self.before[id(variable)] = tf.identity(tf.convert_to_tensor(variable))


class LayerNames:
    """Names of layers: their paths; two layers of one path are told apart by `~2`, `~3`, …"""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._layers: list[Any] = []  # keeps the layers alive, so that no id is used twice

    def of(self, layer: Any) -> str:
        if id(layer) not in self._names:
            path = getattr(layer, "path", None) or layer.name
            self._taken[path] = number = self._taken.get(path, 0) + 1
            self._names[id(layer)] = path if number == 1 else f"{path}~{number}"
            self._layers.append(layer)
        return self._names[id(layer)]


def active() -> Capture | None:
    """The capture of the step that this thread runs or traces."""
    return getattr(_ACTIVE, "capture", None)


class activate:
    """Context: makes a capture this thread's active one. Steps nest, as replica threads and inner models do."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture

    def __enter__(self) -> Capture:
        self.previous = active()
        _ACTIVE.capture = self.capture
        return self.capture

    def __exit__(self, *_: object) -> None:
        _ACTIVE.capture = self.previous
