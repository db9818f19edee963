"""Looks at a model outside of its training: `measure_activity` and `phase_gap`."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture import LayerNames
from keras_introspect.capture.internals import sublayers
from keras_introspect.capture.phases import spying, unchanged
from keras_introspect.collectors import LayerOutputs
from keras_introspect.errors import unknown_name
from keras_introspect.observer import Observer
from keras_introspect.recording import Recording, Series
from keras_introspect.saving import IntrospectionState

_PHASES = ("inference", "train")


def measure_activity(
    model: Any,
    data: Any,
    phase: str = "inference",
    layers: Any = None,
    batch_size: int = 32,
    verbose: bool = False,
) -> Series:
    """How active each layer, channel and position is over a data set, without training, and without touching it.

    Args:
        model: a built `keras.Model`.
        data: the inputs: an array or tensor, or a structure of them as the model takes it; a `tf.data.Dataset`, a
            `keras.utils.PyDataset` or an iterator of batches, each `x`, `(x, y)` or `(x, y, sample_weight)`.
        phase: `"inference"` or `"train"`: with which `training=` the model is called.
        layers: which layers, as in `LayerOutputs`; default: all.
        batch_size: of arrays.
        verbose: show a progress bar.

    Returns:
        A series of one epoch, like `recording["layer_outputs"]`: `epoch("activation_rate")`, `epoch("dead_rate")`,
        `epoch("spatial_dead_rate")` and the moments, shape (1, L); `unit("activation_rate")`, `unit("mean")`,
        `unit("std")`: name → (1, channels); `unit("position_activation_rate")`: name → (1, positions).

    Raises:
        ValueError: the model is not built, there is no data, an unknown phase or layer.

    Example:

    >>> import keras, numpy as np
    >>> relu = keras.layers.Dense(2, activation="relu", name="relu")
    >>> model = keras.Sequential([keras.Input((1,)), relu], name="net")
    >>> relu.set_weights([np.array([[1.0, -1.0]]), np.zeros(2)])
    >>> activity = measure_activity(model, np.array([[1.0], [2.0]]))
    >>> activity.unit("activation_rate")["net/relu"], activity.epoch("dead_rate")
    (array([[1., 0.]]), array([[0.5]]))
    """
    if phase not in _PHASES:
        raise unknown_name("value of phase= of measure_activity", phase, _PHASES)
    _check_built(model, "measure_activity")
    collector = LayerOutputs(
        ["moments", "activity", "per_unit"], phase="inference", layers=layers, name="layer_outputs"
    )
    observer = Observer([collector], IntrospectionState())
    training = phase == "train"

    def step(x: Any) -> None:
        observer.run_test_step(model, lambda x: model(x, training=training), x)

    run = step if model.run_eagerly else tf.function(step, reduce_retracing=True, autograph=False)
    progress = keras.utils.Progbar(None) if verbose else None
    seen = 0
    with unchanged(model):
        for x in _batches(data, batch_size):
            run(x)
            seen += 1
            if progress is not None:
                progress.update(seen)
        if not seen:
            raise ValueError("measure_activity() got no data: the data set is empty. Give at least one batch.")
        if progress is not None:
            progress.update(seen, finalize=True)
        observer.reading.end_evaluation(model)
    return observer.recording["layer_outputs"]


def _batches(data: Any, batch_size: int) -> Iterator[Any]:
    """The inputs, batch by batch."""
    if isinstance(data, keras.utils.PyDataset):
        sequence = data
        data = (sequence[i] for i in range(len(sequence)))
    elif not isinstance(data, tf.data.Dataset) and not isinstance(data, Iterator):
        flat = keras.tree.flatten(data)
        sizes = {len(array) for array in flat}
        if len(sizes) != 1:
            raise ValueError(f"The inputs have {sorted(sizes)} samples; expected as many in each.")
        for start in range(0, sizes.pop(), batch_size):
            rows = slice(start, start + batch_size)
            yield keras.tree.pack_sequence_as(data, [tf.convert_to_tensor(array[rows]) for array in flat])
        return
    for batch in data:
        yield keras.utils.unpack_x_y_sample_weight(batch)[0]


def _check_built(model: Any, function: str) -> None:
    if not isinstance(model, keras.Model):
        raise TypeError(f"{function}() was given {model!r} of type {type(model).__name__}; expected a keras.Model.")
    if not model.built:
        raise ValueError(f"{function}() needs a built model. Call it once on a batch first: model(x).")


# Layers that are meant to behave otherwise in training, as long as their rate or deviation is not zero.
_RANDOM = (
    keras.layers.Dropout,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
    keras.layers.AlphaDropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
)


@dataclasses.dataclass(frozen=True, eq=False)
class PhaseGap:
    """What `phase_gap` found.

    Attributes:
        names: the layers, in the order of their calls.
        gap: shape (L,): rms(training output − inference output) / rms(training output), of the whole model run in each
            phase: a difference goes on from layer to layer.
        own_gap: shape (L,): the same, both phases on the input that the layer had in training: what the layer itself
            makes of the phase. NaN of layers that know no phase.
        ignoring: layers that ignore the phase although their kind should not, name → why.
        normalisation: name of each batch normalisation → how far its moving statistics are from this batch's:
            `mean_distance`, the rms over channels of (batch mean − moving mean) / moving deviation; `variance_ratio`,
            the geometric mean over channels of batch variance / moving variance. 0 and 1 where they agree.
        recording: moments of both phases, as `layer_outputs` and `val_layer_outputs`, for `plots.phase_gap`.
    """

    names: tuple[str, ...]
    gap: np.ndarray
    own_gap: np.ndarray
    ignoring: dict[str, str]
    normalisation: dict[str, dict[str, float]]
    recording: Recording

    def __str__(self) -> str:
        width = max(map(len, self.names), default=5)
        lines = [f"{'layer':{width}}  gap     own gap"]
        for name, gap, own in zip(self.names, self.gap, self.own_gap, strict=True):
            notes = [self.ignoring[name]] if name in self.ignoring else []
            if name in self.normalisation:
                notes.append(
                    "moving mean {mean_distance:.2g} σ off, variance × {variance_ratio:.2g}".format(
                        **self.normalisation[name]
                    )
                )
            lines.append(f"{name:{width}}  {gap:<7.3g} {own:<7.3g} {'; '.join(notes)}".rstrip())
        return "\n".join(lines)


def phase_gap(model: Any, x: Any) -> PhaseGap:
    """Runs one batch through a model in both phases, and says how far each layer's outputs differ.

    Dropout and batch normalisation are meant to differ. A fault shows as a layer that does not although its kind should
    (called with a fixed `training=` argument), or as a batch normalisation whose moving statistics are far from the
    batch's. Nothing is changed: variables, seeds and metrics keep their values.

    Args:
        model: a built `keras.Model`.
        x: one batch of inputs, as the model takes it.

    Raises:
        TypeError: it is no `keras.Model`.
        ValueError: the model is not built.

    Example:

    >>> import keras, numpy as np
    >>> class Net(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.dropped = keras.layers.Dropout(0.5, seed=1, name="dropped")
    ...     def call(self, x):
    ...         return self.dropped(x, training=True)
    >>> model = Net()
    >>> y = model(np.ones((4, 8)))
    >>> phase_gap(model, np.ones((4, 8))).ignoring
    {'dropped': 'it is called with training=True in both phases'}
    """
    _check_built(model, "phase_gap")
    x = keras.tree.map_structure(tf.convert_to_tensor, x)
    names = LayerNames(model)
    with unchanged(model):
        train = _Pass(names)
        with spying(model, train.on_call):
            model(x, training=True)
    with unchanged(model):
        inference = _Pass(names)
        with spying(model, inference.on_call):
            model(x, training=False)
    shared = tuple(name for name in train.outputs if name in inference.outputs)
    gaps = [_relative(train.outputs[name], inference.outputs[name]) for name in shared]
    recording = Recording()
    for view, outputs in (("layer_outputs", train.outputs), ("val_layer_outputs", inference.outputs)):
        shapes = [(None, *outputs[name][0].shape[1:]) for name in shared]
        if shared:
            recording.add_epoch(view, 0, shared, shapes, _moments([outputs[name] for name in shared]))
    ignoring = {}
    for name in shared:
        layer, phases = train.layers[name], train.phases[name] | inference.phases[name]
        own = train.own_gaps.get(name, np.nan)
        if not _should_differ(layer):
            continue
        if len(phases) == 1 and isinstance(next(iter(phases)), bool):
            ignoring[name] = f"it is called with training={next(iter(phases))} in both phases"
        elif own == 0 and np.any(train.outputs[name][0]):
            ignoring[name] = "it returns the same in both phases"
    own_gap = np.array([train.own_gaps.get(name, np.nan) for name in shared])
    return PhaseGap(shared, np.array(gaps), own_gap, ignoring, train.normalisation, recording)


class _Pass:
    """One forward pass: what each layer was called with and returned; the calls of one layer one after the other."""

    def __init__(self, names: LayerNames) -> None:
        self._names = names
        self.layers: dict[str, Any] = {}
        self.outputs: dict[str, list[np.ndarray]] = {}
        self.phases: dict[str, set[Any]] = {}
        self.own_gaps: dict[str, float] = {}
        self.normalisation: dict[str, dict[str, float]] = {}

    def on_call(self, layer: Any, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = self._names.of(layer)
        if isinstance(layer, keras.layers.BatchNormalization):
            x = args[0] if args else kwargs["inputs"]
            self.normalisation.setdefault(name, _distances(layer, x))  # a second call finds its statistics moved
        training = kwargs.get("training")
        moving = [variable.numpy() for variable in layer.non_trainable_variables] if training is not None else []
        outputs = call(*args, **kwargs)
        tensors = [t for t in keras.tree.flatten(outputs) if tf.is_tensor(t) and t.dtype.is_floating]
        if not tensors:
            return outputs
        arrays = [np.asarray(tf.cast(t, tf.float32)) for t in tensors]
        if training and not sublayers(layer):
            after = [variable.numpy() for variable in layer.non_trainable_variables]
            for variable, value in zip(layer.non_trainable_variables, moving, strict=True):
                variable.assign(value)
            other = keras.tree.flatten(call(*args, **{**kwargs, "training": False}))
            for variable, value in zip(layer.non_trainable_variables, after, strict=True):
                variable.assign(value)
            others = [np.asarray(tf.cast(t, tf.float32)) for t in other if tf.is_tensor(t) and t.dtype.is_floating]
            self.own_gaps[name] = max(self.own_gaps.get(name, 0.0), _relative(arrays, others))
        self.layers[name] = layer
        self.phases.setdefault(name, set()).add(None if training is None else bool(training))
        self.outputs.setdefault(name, []).extend(arrays)
        return outputs


def _relative(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """rms(a − b) / rms(a) of finite elements; NaN where the shapes differ."""
    if len(a) != len(b) or any(x.shape != y.shape for x, y in zip(a, b, strict=True)):
        return float("nan")
    one, other = (np.concatenate([x.ravel().astype(np.float64) for x in arrays]) for arrays in (a, b))
    finite = np.isfinite(one) & np.isfinite(other)
    size, distance = np.linalg.norm(one[finite]), np.linalg.norm(one[finite] - other[finite])
    if size > 0:
        return float(distance / size)
    return 0.0 if distance == 0 else float("inf")


def _should_differ(layer: Any) -> bool:
    if isinstance(layer, keras.layers.BatchNormalization):
        return bool(layer.trainable)  # a frozen one is meant to run as at inference
    rate = getattr(layer, "rate", None) or getattr(layer, "stddev", None)
    return isinstance(layer, _RANDOM) and bool(rate)


def _distances(layer: Any, x: Any) -> dict[str, float]:
    values = np.asarray(tf.cast(x, tf.float32), np.float64)
    axis = layer.axis if layer.axis >= 0 else layer.axis + values.ndim
    over = tuple(i for i in range(values.ndim) if i != axis)
    mean, variance = values.mean(axis=over), values.var(axis=over)
    moving_mean, moving_variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    deviation = np.sqrt(moving_variance + layer.epsilon)
    ratio = (variance + layer.epsilon) / (moving_variance + layer.epsilon)
    return {
        "mean_distance": float(np.sqrt(np.mean(((mean - moving_mean) / deviation) ** 2))),
        "variance_ratio": float(np.exp(np.mean(np.log(ratio)))),
    }


def _moments(outputs: list[list[np.ndarray]]) -> dict[str, list[float]]:
    flat = [np.concatenate([array.ravel().astype(np.float64) for array in arrays]) for arrays in outputs]
    finite = [x[np.isfinite(x)] for x in flat]
    return {
        "count": [len(x) for x in finite],
        "mean": [float(x.mean()) if len(x) else np.nan for x in finite],
        "std": [float(x.std()) if len(x) else np.nan for x in finite],
        "rms": [float(np.sqrt(np.mean(x * x))) if len(x) else np.nan for x in finite],
        "nonfinite": [len(x) - len(y) for x, y in zip(flat, finite, strict=True)],
    }
