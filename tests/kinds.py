"""A convolutional, a recurrent and a transformer model, and the eager training loop by hand that goes with them.

Nothing here imports keras_introspect.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

KINDS = ("conv", "recurrent", "transformer")
CLASSES = 3
SAMPLES = 20  # two batches of 8 and one of 4
BATCH = 8
Arrays = dict[str, np.ndarray]


def data(kind: str, samples: int = SAMPLES, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, samples).astype("int32")
    if kind == "conv":
        x = rng.normal(size=(samples, 8, 6, 2)) + y[:, None, None, None]
    elif kind == "recurrent":
        x = rng.normal(size=(samples, 5, 4)) + 0.5 * y[:, None, None]
    else:
        return rng.integers(0, 11, (samples, 6)).astype("int32"), y
    return x.astype("float32"), y


def build(kind: str, base: Any = keras.Model, seed: int = 3) -> Any:
    """One of `KINDS` on a base class; the same seed gives the same weights. It yields logits."""
    keras.utils.set_random_seed(seed)
    if kind == "conv":
        inputs = keras.Input((8, 6, 2), name="image")
        h = layers.Conv2D(4, 3, use_bias=False, kernel_regularizer=keras.regularizers.L2(1e-2), name="conv")(inputs)
        h = layers.BatchNormalization(name="norm")(h)
        h = layers.ReLU(name="relu")(h)
        h = layers.Conv2D(6, 2, strides=2, activation="relu", name="conv2")(h)
        h = layers.GlobalAveragePooling2D(name="pool")(h)
    elif kind == "recurrent":
        inputs = keras.Input((5, 4), name="sequence")
        h = layers.LSTM(5, return_sequences=True, name="lstm")(inputs)
        h = layers.GRU(4, name="gru")(h)
    else:
        inputs = keras.Input((6,), dtype="int32", name="tokens")
        h = layers.Embedding(13, 8, name="embedding")(inputs)  # rows 11 and 12 are never looked up
        h = layers.Add(name="add")([h, layers.MultiHeadAttention(2, 4, name="attention")(h, h)])
        h = layers.LayerNormalization(name="norm")(h)
        g = layers.Dense(8, name="contract")(layers.Dense(12, activation="gelu", name="expand")(h))
        h = layers.LayerNormalization(name="norm2")(layers.Add(name="add2")([h, g]))
        h = layers.GlobalAveragePooling1D(name="pool")(h)
    return base(inputs, layers.Dense(CLASSES, name="head")(h), name="net")


def loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def optimizer() -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


@dataclasses.dataclass
class Step:
    """One step by hand; names are Keras's paths."""

    x: Any
    y: Any
    loss: float
    prediction: np.ndarray
    gradients: Arrays
    before: Arrays
    after: Arrays
    outputs: Arrays

    @property
    def updates(self) -> Arrays:
        return {path: self.after[path] - self.before[path] for path in self.after}


def values_of(variables: Any) -> Arrays:
    return {v.path: np.array(keras.ops.convert_to_numpy(v)) for v in variables}


def probe(model: Any) -> Any:
    """The same layers in the same order, all of whose outputs come out."""
    found = {layer.name: layer.output for layer in model.layers if not isinstance(layer, layers.InputLayer)}
    return keras.Model(model.input, found)


def batches(x: Any, y: Any, size: int = BATCH) -> Any:
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        yield keras.tree.map_structure(lambda a, part=part: a[part], x), y[part]


def by_hand(
    model: Any,
    optimizer: Any,
    loss: Callable[[Any, Any], Any],
    x: np.ndarray,
    y: np.ndarray,
    epochs: int = 2,
    batch_size: int = BATCH,
    validation: np.ndarray | None = None,
) -> tuple[list[list[Step]], list[Arrays]]:
    """Trains a functional model op by op, as `fit(shuffle=False)` does, and keeps everything.

    Returns:
        The steps of each epoch; and for each the layers' outputs of `training=False` over the validation set, at once.
    """
    variables = model.trainable_variables
    optimizer.build(variables)
    probed = probe(model)
    history, validated = [], []
    for _ in range(epochs):
        steps = []
        for xb, yb in batches(x, y, batch_size):
            before = values_of(variables)
            with tf.GradientTape() as tape:
                outputs = probed(xb, training=True)
                prediction = outputs[model.layers[-1].name]
                total = loss(yb, prediction)
                for penalty in model.losses:
                    total = total + penalty
            gradients = tape.gradient(total, [v.value for v in variables])
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            dense = [np.array(tf.convert_to_tensor(g)) for g in gradients]
            steps.append(
                Step(
                    xb,
                    yb,
                    float(total),
                    np.array(prediction),
                    {v.path: g for v, g in zip(variables, dense, strict=True)},
                    before,
                    values_of(variables),
                    {name: np.array(value) for name, value in outputs.items()},
                )
            )
        history.append(steps)
        if validation is not None:
            validated.append({name: np.array(v) for name, v in probed(validation, training=False).items()})
    return history, validated
