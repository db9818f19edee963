"""An oracle for any model: plain Keras, run eagerly, with spies on calls, tapes and optimizers.

Nothing here imports keras_introspect, nor works the way it does. Spies sit on classes, not on instances; what a layer
returned is handed on as it is; and output gradients are asked of the user's own tape, `tape.gradient(loss, outputs)`.
So it knows every model and every train step that Keras can run eagerly, those of users included.
"""

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import oracle

VIEWS = ("weights", "gradients", "updates", "layer_outputs", "output_gradients")
Arrays = dict[str, list[np.ndarray]]


@dataclasses.dataclass
class Step:
    """What came by in a step. Layer outputs are keyed by the layer's path, or its name if it has none."""

    weights: Arrays = dataclasses.field(default_factory=dict)  # after the step
    gradients: Arrays = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    updates: Arrays = dataclasses.field(default_factory=dict)
    layer_outputs: Arrays = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    output_gradients: Arrays = dataclasses.field(default_factory=lambda: collections.defaultdict(list))


class Spy(keras.callbacks.Callback):
    """Keeps every tensor of every step of an eager `fit` of a plain model.

    Attributes:
        epochs: the steps of each.
        channel_axes: of layer outputs that say `channels_first`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[list[Step]] = []
        self.channel_axes: dict[str, int] = {}
        self._step: Step | None = None
        self._watched: list[tuple[str, Any]] = []
        self._before: dict[str, np.ndarray] = {}
        self._inside: list[Any] = []  # layers whose call is under way
        self._for_shapes: float = 0  # calls of the cell of a recurrent layer, under way, that are made for shapes
        self._busy = False  # a gradient or an update is being computed

    # --- when a step begins and ends ---

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append([])

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begin_step(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.end_step(self.model)

    def begin_step(self, model: Any) -> None:
        self._step, self._watched = Step(), []
        self._before = values_of(model.trainable_variables)

    def end_step(self, model: Any) -> None:
        step, self._step = self._step, None
        assert step is not None
        after = values_of(model.trainable_variables)
        step.weights = {path: [value] for path, value in after.items()}
        step.updates = {path: [after[path] - self._before[path]] for path in after if path in self._before}
        if not self.epochs:
            self.epochs.append([])
        self.epochs[-1].append(step)

    # --- what is seen ---

    def run(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Runs a layer's call; a call within one of the same layer (`super().call`) is part of it.

        So is that of the functional model by which Keras runs a sequential one. Before its loop, and once in it, Keras
        calls a recurrent cell to learn shapes and drops the result: those are no calls of the step.
        """
        holder = self._inside[-1] if self._inside else self.model
        part = any(layer is other for other in self._inside) or getattr(holder, "_functional", None) is layer
        if self._step is None or layer is self.model or part:
            return original(layer, *args, **kwargs)
        if isinstance(holder, keras.layers.RNN) and not holder.unroll and self._for_shapes:
            self._for_shapes -= 1
            return self._unseen(original, layer, args, kwargs)
        before, self._for_shapes = self._for_shapes, np.inf  # until the layer, if it is a recurrent one, is in its loop
        self._inside.append(layer)
        try:
            outputs = original(layer, *args, **kwargs)
        finally:
            self._inside.pop()
            self._for_shapes = before
        return self._note(layer, outputs)

    def enter_loop(self) -> None:
        self._for_shapes = 1  # the backend's own

    def _unseen(self, original: Callable[..., Any], layer: Any, args: Any, kwargs: Any) -> Any:
        step, self._step = self._step, None
        try:
            return original(layer, *args, **kwargs)
        finally:
            self._step = step

    def _note(self, layer: Any, outputs: Any) -> Any:
        noted: list[Any] = []
        flat = keras.tree.flatten(outputs)
        for i, tensor in enumerate(flat):
            values = getattr(tensor, "flat_values", None) if isinstance(tensor, tf.RaggedTensor) else tensor
            values = tensor.values if isinstance(tensor, tf.SparseTensor) else values
            if isinstance(values, tf.Tensor) and hasattr(values, "numpy") and values.dtype.is_floating:
                # The gradient asked for is the one that arrives at what the layer returned: neither at what it was
                # given and hands through, nor at what it went on to compute with.
                copy = tf.identity(values)
                for attribute in ("_keras_mask", "_keras_logits"):
                    if hasattr(tensor, attribute):
                        setattr(copy, attribute, getattr(tensor, attribute))
                tensor = _with_values(tensor, copy)
                values = copy
                name = (layer.path or layer.name) + (f":{i}" if i else "")
                self._step.layer_outputs[name].append(array(values))
                self._watched.append((name, values))
                if getattr(layer, "data_format", None) == "channels_first":
                    self.channel_axes[name] = 1
            noted.append(tensor)
        return keras.tree.pack_sequence_as(outputs, noted)

    def gradient(
        self, original: Any, tape: Any, target: Any, sources: Any, output_gradients: Any, unconnected: Any
    ) -> Any:
        if self._step is None or self._busy:
            return original(tape, target, sources, output_gradients, unconnected)
        names = [name for name, _ in self._watched]
        tensors = [tensor for _, tensor in self._watched]
        with self._being_busy():
            asked, found = original(tape, target, [sources, tensors], output_gradients)
        for name, value in zip(names, found, strict=True):
            if value is not None:
                self._step.output_gradients[name].append(array(value) / self._scale())
        if unconnected == tf.UnconnectedGradients.ZERO:
            asked = tf.nest.map_structure(lambda g, s: tf.zeros_like(s) if g is None else g, asked, sources)
        return asked

    def _scale(self) -> float:
        optimizer = getattr(self.model, "optimizer", None)
        return scale_of(optimizer)

    def apply(self, original: Any, optimizer: Any, grads: Any, variables: Any, kwargs: Any) -> Any:
        if self._step is None or self._busy:
            return original(optimizer, grads, variables, **kwargs)
        grads = list(grads)
        trained = list(optimizer._trainable_variables if variables is None else variables)
        for gradient, variable in zip(grads, trained, strict=True):
            if gradient is not None:
                self._step.gradients[variable.path].append(array(tf.convert_to_tensor(gradient)) / scale_of(optimizer))
        self._before = {**values_of(trained), **self._before}  # of a model that is built in its first step
        with self._being_busy():
            return original(optimizer, grads, variables, **kwargs)

    @contextlib.contextmanager
    def _being_busy(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    # --- what it comes to ---

    def pooled(self, view: str, epoch: int) -> Arrays:
        """Name → the arrays that an epoch series pools."""
        steps = self.epochs[epoch][-1:] if view == "weights" else self.epochs[epoch]
        found: Arrays = {}
        for step in steps:
            for name, arrays in getattr(step, view).items():
                found.setdefault(name, []).extend(arrays)
        return found

    def statistics(self, view: str, name: str, arrays: Sequence[np.ndarray]) -> dict[str, float]:
        of_layers = view in ("layer_outputs", "output_gradients")
        return statistics(arrays, of_layers, self.channel_axes.get(name) if of_layers else None)


def _with_values(tensor: Any, values: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.with_flat_values(values)
    if isinstance(tensor, tf.SparseTensor):
        return tf.SparseTensor(tensor.indices, values, tensor.dense_shape)
    return values


def array(tensor: Any) -> np.ndarray:
    tensor = tf.convert_to_tensor(tensor)
    return tensor.numpy() if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32).numpy()


def values_of(variables: Sequence[Any]) -> dict[str, np.ndarray]:
    return {variable.path: array(variable) for variable in variables}


def scale_of(optimizer: Any) -> float:
    """The loss scale in force: all are powers of two, so dividing by one is exact in float32."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return float(optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale)
    return float(getattr(optimizer, "loss_scale_factor", None) or 1.0)


def statistics(arrays: Sequence[np.ndarray], of_layers: bool, channel_axis: int | None = None) -> dict[str, float]:
    if channel_axis is not None:
        arrays = [np.moveaxis(a, channel_axis, -1) for a in arrays]
    found = oracle.moments(arrays)
    sizes = {a.shape[1:] if of_layers else a.shape for a in arrays}
    if len(sizes) == 1 and arrays[0].ndim > 0 and not (of_layers and arrays[0].ndim < 2):
        found |= oracle.activity(arrays, positions=of_layers)
    return found


# --- putting the spies in place ---


def _subclasses(cls: type) -> Iterator[type]:
    yield cls
    for child in cls.__subclasses__():
        yield from _subclasses(child)


@contextlib.contextmanager
def spying(spy: Spy) -> Iterator[None]:
    """Context: every layer's call, every tape's gradient and every optimizer's apply is seen by the spy."""
    with contextlib.ExitStack() as stack:

        def put(cls: type, name: str, function: Any) -> None:
            original = cls.__dict__[name]
            setattr(cls, name, function)
            stack.callback(setattr, cls, name, original)

        for cls in set(_subclasses(keras.layers.Layer)):
            for name in ("call", "quantized_call"):
                if name in cls.__dict__ and callable(cls.__dict__[name]):
                    put(cls, name, _call_spy(spy, cls.__dict__[name]))
        for cls in set(_subclasses(keras.layers.RNN)):
            if "inner_loop" in cls.__dict__:
                put(cls, "inner_loop", _loop_spy(spy, cls.__dict__["inner_loop"]))
        for cls in set(_subclasses(keras.optimizers.Optimizer)) | set(keras.optimizers.Optimizer.__mro__):
            if "apply" in cls.__dict__:
                put(cls, "apply", _apply_spy(spy, cls.__dict__["apply"]))
        put(tf.GradientTape, "gradient", _gradient_spy(spy, tf.GradientTape.__dict__["gradient"]))
        yield


def _call_spy(spy: Spy, original: Any) -> Any:
    @functools.wraps(original)  # Keras reads its signature
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return spy.run(self, original, args, kwargs)

    return call


def _loop_spy(spy: Spy, original: Any) -> Any:
    @functools.wraps(original)
    def inner_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        spy.enter_loop()
        return original(self, *args, **kwargs)

    return inner_loop


def _apply_spy(spy: Spy, original: Any) -> Any:
    def apply(self: Any, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        return spy.apply(original, self, grads, trainable_variables, kwargs)

    return apply


def _gradient_spy(spy: Spy, original: Any) -> Any:
    def gradient(
        self: Any,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        return spy.gradient(original, self, target, sources, output_gradients, unconnected_gradients)

    return gradient


# --- comparing ---


@dataclasses.dataclass
class Difference:
    """What a recording has otherwise than the spy, and what has no value though the spy saw one."""

    wrong: list[str] = dataclasses.field(default_factory=list)
    absent: dict[tuple[str, str], set[str]] = dataclasses.field(default_factory=dict)  # (view, name) → statistics


def row_of(name: str, names: Sequence[str]) -> str | None:
    """The row for a layer output: by its path, or, of a layer without one, by the end of its name."""
    if name in names:
        return name
    ends = [other for other in names if other.endswith(f"/{name}")]
    return ends[0] if len(ends) == 1 else None


def compare(recording: Any, spy: Spy, tolerance: float = 1e-5, views: Sequence[str] = VIEWS) -> Difference:
    """Compares every number of every epoch."""
    result = Difference()
    for view in views:
        if view not in recording:
            for name in spy.pooled(view, 0):
                result.absent[view, name] = {"all"}
            continue
        series = recording[view]
        if len(series.epochs) != len(spy.epochs):
            result.wrong.append(f"{view}: {len(series.epochs)} epochs, expected {len(spy.epochs)}")
            continue
        explained = set()
        for epoch in range(len(spy.epochs)):
            for name, arrays in spy.pooled(view, epoch).items():
                row = row_of(name, series.names)
                if row is None:
                    result.absent[view, name] = {"all"}
                    continue
                explained.add(row)
                selected = series.sel(row)
                values = spy.statistics(view, name, arrays)
                if view == "output_gradients" and np.isnan(selected.epoch("min")[epoch]):
                    forward = recording["layer_outputs"].sel(row).epoch("count")[epoch]
                    values = _with_zeros(arrays, values, selected.epoch("count")[epoch], forward)
                _compare_row(result, selected, view, name, values, epoch, tolerance)
        surplus = set(series.names) - explained
        if view == "output_gradients":  # in a loop, what nothing uses has zeros for its gradient
            surplus = {name for name in surplus if np.any(series.sel(name).epoch("l2_norm") != 0)}
        result.wrong += [f"{view}: {name} was never seen by the spy" for name in sorted(surplus)]
    return result


def _with_zeros(
    arrays: Sequence[np.ndarray], values: dict[str, float], count: float, forward: float
) -> dict[str, float]:
    """The statistics where gradients came from inside a loop: of an output that nothing uses in a turn, zeros."""
    surplus = int(count - values["count"])
    if surplus <= 0 or count != forward:
        return values
    flat = [a.ravel() for a in arrays]
    padded = oracle.moments([*flat, np.zeros(surplus)])
    rate = values.get("activation_rate", np.nan) * values["count"] / count
    return {**values, **padded, "activation_rate": rate}


def _compare_row(
    result: Difference,
    row: Any,
    view: str,
    name: str,
    values: Mapping[str, float],
    epoch: int,
    tolerance: float,
) -> None:
    for statistic, value in values.items():
        actual = float(row.epoch(statistic)[epoch])
        if np.isnan(value) and np.isnan(actual):
            continue
        if np.isnan(actual):
            result.absent.setdefault((view, name), set()).add(statistic)
        elif not abs(actual - value) <= _allowed(statistic, values, tolerance):
            result.wrong.append(f"{view} {name} {statistic} of epoch {epoch}: got {actual!r}, expected {value!r}")


def _allowed(statistic: str, values: Mapping[str, float], tolerance: float) -> float:
    if statistic in ("count", "nonfinite"):
        return 0.0
    if statistic in ("activation_rate", "dead_rate", "spatial_dead_rate"):
        # Below rounding tolerances of single steps, a value may be zero here and a rounding error there.
        # Of what is zero in truth, such as the gradient of a key's bias in attention, neither is any.
        return 0.25 if values["rms"] < 1e-8 else 1e-7 if tolerance <= 1e-4 else 0.05
    if statistic == "l2_norm":
        return tolerance * values["l2_norm"] + 3e-8 * values["count"] ** 0.5
    # A mean, or an extreme, may be the small rest of large terms: an error of the others' size is in it. And of a
    # gradient that is zero in truth, such as a bias's before batch normalisation, only rounding errors are seen.
    return tolerance * max(abs(values[statistic]), values["rms"]) + 3e-8
