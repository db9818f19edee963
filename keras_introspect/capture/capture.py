"""The tensors of one training step, as they come by."""

import math
import threading
from collections.abc import Callable, Set
from typing import Any, NamedTuple

import tensorflow as tf

from keras_introspect.capture.internals import (
    Functional,
    calls_its_cell_for_shapes,
    current_graph,
    flatten_layers,
    has_gradient_of_gradient,
    sublayers,
    tape_is_stopped,
)
from keras_introspect.capture.loops import Carrier, Probe
from keras_introspect.capture.twins import needed, twin

_ACTIVE = threading.local()


class Wanted(NamedTuple):
    """What the collectors of a model need to see."""

    outputs: bool = False
    output_gradients: bool = False
    gradients: bool = False
    values_before: bool = False
    applied: bool = False
    metrics: bool = False
    parts: bool = False


class Seen(NamedTuple):
    """One tensor that came by.

    Attributes:
        values: the tensor; `None` inside a loop, where only sums get out.
        layer: whose call returned it.
        zeros: how many elements of a sparse tensor are zero and not in `values`.
        rows: of a sparse tensor, int64: where the rows of `values` belong.
        recomputed: whether a tape recorded the call.
        sums: of a gradient inside loops, float64: see `capture.loops.SUMS`.
        call: the number of the call, counted from 0 for each layer and step in the order of the forward pass.
        part: of a gradient summed over replicas, the mean squared norm of a replica's own, as of a loss of its own.
    """

    values: Any
    layer: Any = None
    zeros: Any = None
    rows: Any = None
    recomputed: bool = False
    sums: Any = None
    part: Any = None
    call: int = 0


class Capture:
    """Collects the tensors of one run, or one trace, of a training step.

    Args:
        model: the observed model.
        wanted: what to look at.
        names: of the layers.

    Attributes:
        observe_in_loop: takes (name, layer, tensor) of a layer output inside a loop or branch, says whether it could.
        probe_variable: makes the variable of the probes, or `None` where there can be none.
        outputs: name of a layer's output → tensors, a call each.
        output_gradients: the same for their gradients, unscaled.
        gradients: id of a variable → (the variable, its gradients).
        applied: id of a variable → the gradient that its optimizer applies, over a round of accumulation steps.
        optimizers: id of a variable → (its optimizer, that one's iterations before the step).
        before: id of a variable → its value before the step.
        metric_calls: id of a metric → (the metric, the arguments of its updates in the step).
        metric_results: (metric, what its `result` gave in the step).
        logs: what the step returned.
        learning_rate: of the first optimizer applied, as it was then.
        missed: (view, name) → why it could not be observed.
        phases: name of a layer → the values of `training` that it was called with, as far as they are no tensors.
        carries: whether tensors are brought out of loops and branches: not under XLA; see `capture.loops`.
        loop_states: (collector, name) → (spec, states by statistic) of what was observed inside loops, and not carried.
    """

    def __init__(self, model: Any, wanted: Wanted, names: "LayerNames") -> None:
        self.model = model
        self.observe_in_loop: Callable[[str, Any, Any], bool] | None = None
        self.probe_variable: Callable[[], Any] | None = None
        self.carries = False
        self._twice_differentiated = False
        self._carriers: dict[str, dict[Any, Carrier]] = {}
        self._probe_rows: dict[str, int] = {}
        self._probe_layers: dict[str, Any] = {}
        self._probe_gradients: list[Any] = []
        self._probe: Probe | None = None
        self._calls: list[list[Any]] = []  # under way: the layer, and a cell's calls to come that are for shapes
        self.wanted = wanted
        self.names = names
        self.graph = current_graph()
        self.outputs: dict[str, list[Seen]] = {}
        self.output_gradients: dict[str, list[Seen]] = {}
        self._taps: dict[str, int] = {}
        self.gradients: dict[int, tuple[Any, list[Seen]]] = {}
        self.applied: dict[int, Seen] = {}
        self.optimizers: dict[int, tuple[Any, Any]] = {}
        self.before: dict[int, Any] = {}
        self.metric_calls: dict[int, tuple[Any, list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {}
        self.metric_results: list[tuple[Any, Any]] = []
        self.logs: Any = None
        self.learning_rate: Any = None
        self.missed: dict[tuple[str, str], str] = {}
        self.phases: dict[str, set[bool]] = {}
        self.loop_states: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {}
        self.called: dict[int, Any] = {}
        self.iterations: Any = None
        self.loss_scale: Any = None
        self.applying = False
        self._needed: Set[str] | None = None

    def in_step_graph(self) -> bool:
        return current_graph() is self.graph

    def miss(self, name: str, reason: str) -> None:
        """Notes that neither a layer's outputs nor their gradients can be observed."""
        self.missed[("layer_outputs", name)] = reason
        self.missed[("output_gradients", name)] = reason

    def add_output(self, name: str, seen: Seen) -> None:
        self.outputs.setdefault(name, []).append(seen)

    def next_tap(self, name: str) -> int:
        """The number of the call whose output of that name is to be tapped."""
        self._taps[name] = number = self._taps.get(name, -1) + 1
        return number

    def add_output_gradient(self, name: str, seen: Seen) -> None:
        self.output_gradients.setdefault(name, []).append(seen)

    def add_gradient(self, variable: Any, seen: Seen) -> None:
        self.gradients.setdefault(id(variable), (variable, []))[1].append(seen)

    def enter_call(self, layer: Any) -> None:
        """Notes that a layer call begins; an outermost one gets a probe for the loops that may be inside it."""
        if not self._calls and self.graph is not None and self.in_step_graph() and sublayers(layer):
            self._probe = None
            weights = layer.trainable_variables if self.carries else []
            self._twice_differentiated = bool(weights) and has_gradient_of_gradient(tf.convert_to_tensor(weights[0]))
            if self.wanted.output_gradients and self.probe_variable is not None and not tape_is_stopped():
                variable = self.probe_variable()
                if variable is not None:
                    self._probe = Probe(variable, self._probe_rows, self._probe_gradients.append)
        self._calls.append([layer, math.inf if calls_its_cell_for_shapes(layer) else 0])

    def leave_call(self) -> None:
        self._calls.pop()

    def enter_loop(self, layer: Any) -> None:
        """Notes that a recurrent layer comes to its loop: one more call of its cell is for shapes."""
        if self._calls and self._calls[-1][0] is layer:
            self._calls[-1][1] = 1

    def is_call_for_shapes(self) -> bool:
        """Whether a call that begins is one that a recurrent layer makes before its loop, dropping the result."""
        if not self._calls or not self._calls[-1][1]:
            return False
        self._calls[-1][1] -= 1
        return True

    def carry(self, name: str, values: Any) -> bool:
        """Brings a layer output out of a loop or branch; says whether that can be done."""
        if not self.carries or self._twice_differentiated or has_gradient_of_gradient(values):
            return False
        if not Carrier.takes(values):
            return False
        carriers = self._carriers.setdefault(name, {})
        kind = (not tape_is_stopped(), values.dtype, tuple(values.shape[1:]))
        if kind not in carriers:
            carriers[kind] = Carrier(self.graph, values)
        carriers[kind].add(values)
        return True

    def carried(self, name: str) -> list[tuple[Any, Any]]:
        """All that came out of loops and branches of an output, and what came last: a pair a shape."""
        carriers = self._carriers.get(name, {})
        # In a rematerialised layer, the forward pass that no tape records comes first, and is the one that counts.
        recorded = all(kind[0] for kind in carriers)
        return [carrier.all for kind, carrier in carriers.items() if kind[0] is recorded]

    def tap_in_loop(self, name: str, layer: Any, values: Any) -> Any | None:
        """Taps the gradient of a tensor inside a loop or branch; `None` where that cannot be done."""
        tapped = None if self._probe is None else self._probe.tap(name, values)
        if tapped is not None:
            self._probe_layers[name] = layer
        return tapped

    def collect_probes(self) -> None:
        """Puts what the probes brought out of the loops among the output gradients; after the backward pass."""
        if self._probe_gradients:
            sums = tf.add_n(self._probe_gradients)
            for name, layer in self._probe_layers.items():
                self.add_output_gradient(name, Seen(None, layer, sums=sums[self._probe_rows[name]]))

    def moved(self, variable: Any) -> Any:
        """Whether its optimizer moved a variable in the step: not while it accumulates gradients, or skips a step."""
        optimizer, before = self.optimizers[id(variable)]
        return tf.not_equal(tf.convert_to_tensor(optimizer.iterations), before)

    def apart(self, tensor: Any) -> Any:
        """An observed tensor as grappler does not see it used; once the step is traced to its end."""
        return tensor if self.graph is None else twin(tensor, self._needed_operations())

    def uses(self, tensor: Any) -> bool:
        """Whether anything comes of a tensor in the step, but for us; once the step is traced to its end."""
        return self.graph is None or tensor.op.name in self._needed_operations()

    def _needed_operations(self) -> Set[str]:
        if self._needed is None:
            self._needed = needed(self.graph, self.logs)
        return self._needed

    def keep_value(self, variable: Any) -> None:
        """Keeps a variable's value as it is now, unless an earlier one is kept."""
        if id(variable) not in self.before:
            self.before[id(variable)] = tf.identity(tf.convert_to_tensor(variable))


class LayerNames:
    """Names of layers: their paths. Two layers of one path are told apart by `~2`, `~3` and so on.

    Keras gives no path to a layer that has nothing to build, such as ReLU or Dropout: it is named like a layer with
    weights in its place would be.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._layers: list[Any] = []  # keeps the layers alive, so that no id is used twice

    def of(self, layer: Any) -> str:
        if id(layer) not in self._names:
            path = layer.path or self._path_beside_siblings(layer)
            self._taken[path] = number = self._taken.get(path, 0) + 1
            self._names[id(layer)] = path if number == 1 else f"{path}~{number}"
            self._layers.append(layer)
        return self._names[id(layer)]

    def _path_beside_siblings(self, layer: Any) -> str:
        parent = self._parent_of(layer)
        if parent is None:
            return str(layer.name)
        for sibling in sublayers(parent):
            if sibling.path and sibling.path.endswith(sibling.name):
                return str(sibling.path[: -len(sibling.name)] + layer.name)
        if parent is self._model or isinstance(parent, Functional):
            return str(layer.name)
        return f"{parent.path or self._path_beside_siblings(parent)}/{layer.name}"

    def _parent_of(self, layer: Any) -> Any:
        for parent in [self._model, *flatten_layers(self._model)]:
            if any(child is layer for child in sublayers(parent)):
                return parent
        return None


def active() -> Capture | None:
    """The capture of the step that this thread runs or traces."""
    return getattr(_ACTIVE, "capture", None)


class activate:
    """Context: makes a capture, or none, this thread's active one. Steps nest: replica threads, inner models."""

    def __init__(self, capture: Capture | None) -> None:
        self.capture = capture

    def __enter__(self) -> Capture | None:
        self.previous = active()
        _ACTIVE.capture = self.capture
        return self.capture

    def __exit__(self, *_: object) -> None:
        _ACTIVE.capture = self.previous
