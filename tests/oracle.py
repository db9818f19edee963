"""The independent oracle: a training loop written by hand, and the statistics in NumPy.

Nothing here imports keras_introspect. The loop runs a plain Keras model layer by layer, keeps every tensor that the
contract speaks of, and the statistics below follow the definitions word by word, in float64, over whole arrays.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Arrays = dict[str, np.ndarray]

MOMENTS = ("count", "mean", "std", "rms", "l2_norm", "mean_abs", "min", "max", "nonfinite")
ACTIVITY = ("activation_rate", "dead_rate", "spatial_dead_rate")
EXACT = ("count", "nonfinite", "min", "max", *ACTIVITY)


# --- the statistics ---


def moments(arrays: Sequence[np.ndarray]) -> dict[str, float]:
    """The moments of all finite elements of all arrays."""
    every = np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])
    x = every[np.isfinite(every)]
    squares = float(np.sum(x * x))
    return {
        "count": float(x.size),
        "mean": float(np.mean(x)),
        "std": float(np.std(x)),
        "rms": float(np.sqrt(squares / x.size)),
        "l2_norm": float(np.sqrt(squares)),
        "mean_abs": float(np.mean(np.abs(x))),
        "min": float(np.min(x)),
        "max": float(np.max(x)),
        "nonfinite": float(every.size - x.size),
    }


def activity(arrays: Sequence[np.ndarray], positions: bool) -> dict[str, float]:
    """How many elements are not zero, and how many channels and positions are zero throughout.

    Args:
        arrays: one array a step; only the first axis may differ.
        positions: whether the axes between the first and the last are positions: so for layer outputs and their
            gradients, not for variables.
    """
    rank = np.asarray(arrays[0]).ndim
    nonzero = sum(int(np.count_nonzero(a)) for a in arrays)
    size = sum(np.asarray(a).size for a in arrays)
    channel_lives = np.any([np.any(a != 0, axis=tuple(range(rank - 1))) for a in arrays], axis=0)
    spatial = np.nan
    if positions and rank > 2:
        position_lives = np.any([np.any(a != 0, axis=(0, rank - 1)) for a in arrays], axis=0)
        spatial = float(np.mean(~position_lives))
    return {
        "activation_rate": nonzero / size,
        "dead_rate": float(np.mean(~channel_lives)),
        "spatial_dead_rate": spatial,
    }


def statistics(arrays: Sequence[np.ndarray], positions: bool) -> dict[str, float]:
    return {**moments(arrays), **activity(arrays, positions)}


def assert_statistic(
    statistic: str, actual: float, expected: Mapping[str, float], where: str = "", resolution: float = 0.0
) -> None:
    """Counts and rates exactly, else 1e-5 relative; a mean may cancel, so it may also err by 1e-6 rms.

    `resolution` is what the tensor's own elements may err by, where they are differences of rounded numbers.
    """
    value = expected[statistic]
    if np.isnan(value):
        assert np.isnan(actual), f"{where} {statistic}: got {actual!r}, expected NaN"
        return
    if statistic in ("count", "nonfinite", *ACTIVITY):
        tolerance = 1e-9  # a ratio of two integers, whatever the float it was divided in
        tolerance = 1e-7 if statistic in ACTIVITY else tolerance
    else:
        tolerance = 1e-5 * abs(value) + resolution
        if statistic == "mean":
            tolerance += 1e-6 * expected["rms"]
    assert abs(actual - value) <= tolerance, f"{where} {statistic}: got {actual!r}, expected {value!r}"


# --- the training loop ---


@dataclasses.dataclass
class Step:
    """Everything one step computed; names are Keras paths."""

    loss: float
    weights: Arrays  # after the step
    gradients: Arrays
    updates: Arrays
    layer_outputs: Arrays
    output_gradients: Arrays  # only those that exist
    without_gradient: tuple[str, ...]


@dataclasses.dataclass
class Run:
    epochs: list[list[Step]]

    def arrays(self, collector: str, epoch: int) -> dict[str, list[np.ndarray]]:
        """Name → the arrays that an epoch series of this collector pools."""
        steps = self.epochs[epoch]
        if collector == "weights":
            steps = steps[-1:]
        return {name: [getattr(step, collector)[name] for step in steps] for name in getattr(steps[0], collector)}

    def expected(self, collector: str, epoch: int) -> dict[str, dict[str, float]]:
        positions = collector in ("layer_outputs", "output_gradients")
        return {name: statistics(a, positions) for name, a in self.arrays(collector, epoch).items()}

    def expected_step(self, collector: str, step: int) -> dict[str, dict[str, float]]:
        positions = collector in ("layer_outputs", "output_gradients")
        flat = [s for epoch in self.epochs for s in epoch]
        return {name: statistics([a], positions) for name, a in getattr(flat[step], collector).items()}


def apply_layer(layer: Any, *inputs: Any) -> Any:
    """Calls a layer as Keras does in training."""
    if "training" in inspect.signature(layer.call).parameters:
        return layer(*inputs, training=True)
    return layer(*inputs)


Forward = Callable[[Any, Any], tuple[dict[str, Any], Any]]


def train(
    model: Any,
    forward: Forward,
    loss: Callable[[Any, Any], Any],
    optimizer: Any,
    x: np.ndarray,
    y: np.ndarray,
    batch_size: int,
    epochs: int,
    eager: bool,
    keep: bool = True,
) -> Run:
    """Trains `model` as `fit(shuffle=False)` does, and keeps everything.

    Args:
        model: a built plain Keras model.
        forward: (model, batch) → ({layer path: output}, prediction), by calling one layer after another.
        loss: (y, prediction) → scalar.
        optimizer: the optimizer, unbuilt.
        x: inputs.
        y: targets.
        batch_size: the last batch may be smaller.
        epochs: their number.
        eager: run op by op instead of as one `tf.function`.
        keep: `False` only trains. In a graph, a second reader of a variable's gradient lets TensorFlow's arithmetic
            optimizer rewrite the sums differently, and the last bits of the weights with them.
    """
    variables = model.trainable_variables
    optimizer.build(variables)

    def step(xb: Any, yb: Any) -> tuple[Any, ...]:
        with tf.GradientTape() as tape:
            outputs, prediction = forward(model, xb)
            total = loss(yb, prediction)
            for regularisation in model.losses:
                total = total + regularisation
        # one backward pass, as in `fit`: a second one for the outputs would be simplified otherwise, to other last bits
        gradients, output_gradients = tape.gradient(total, ([v.value for v in variables], outputs))
        kept = [tf.convert_to_tensor(g) for g in gradients] if keep else []
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        if not keep:
            outputs, output_gradients = {}, {}
        return total, outputs, output_gradients, kept

    # the batch size is unknown while tracing, as in `fit`: known shapes fold into constants, and to other last bits
    signature = [tf.TensorSpec((None, *a.shape[1:]), a.dtype) for a in (x, y)]
    run_step = step if eager else tf.function(step, input_signature=signature)
    history: list[list[Step]] = []
    for _ in range(epochs):
        steps = []
        for start in range(0, len(x), batch_size):
            before = {v.path: v.numpy() for v in variables}
            xb = tf.constant(x[start : start + batch_size])
            yb = tf.constant(y[start : start + batch_size])
            total, outputs, output_gradients, gradients = run_step(xb, yb)
            after = {v.path: v.numpy() for v in variables}
            steps.append(
                Step(
                    loss=float(total),
                    weights=after,
                    gradients={v.path: g.numpy() for v, g in zip(variables, gradients, strict=keep)},
                    # exact: the float32 difference of neighbours, which is what a device computes as well
                    updates={path: after[path] - before[path] for path in after},
                    layer_outputs={path: o.numpy() for path, o in outputs.items()},
                    output_gradients={p: g.numpy() for p, g in output_gradients.items() if g is not None},
                    without_gradient=tuple(p for p, g in output_gradients.items() if g is None),
                )
            )
        history.append(steps)
    return Run(history)


def same_bits(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return len(one) == len(other) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other, strict=True)
    )


def optimizer_values(optimizer: Any) -> list[np.ndarray]:
    return [np.asarray(keras.ops.convert_to_numpy(v)) for v in optimizer.variables]
