"""The models that are trained, and their data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import keras_introspect as ki

CLASSES = 10
BATCHES = 8  # distinct ones, repeated as often as a unit needs
TOKENS = 1000

Build = Callable[[type], Any]  # from keras.Model or ki.IntrospectiveModel to a model of that class


class Subject(NamedTuple):
    """A model, the shape of its inputs, and how many steps a timed unit has at least."""

    build: Build
    shape: tuple[int, ...]
    batch: int
    steps: int
    steps_per_execution: int = 1
    tokens: bool = False

    def dataset(self, steps: int) -> Any:
        """Batches of noise from memory: what the data cost is small, and the same for every configuration."""
        rng = np.random.default_rng(0)
        size = (BATCHES, self.batch, *self.shape)
        x = rng.integers(TOKENS, size=size) if self.tokens else rng.normal(size=size).astype("float32")
        y = rng.integers(CLASSES, size=size[:2])
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread sleeps for 5, 10, 20, ... ms, and the end of a fit waits for it
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().take(steps).prefetch(2).with_options(options)


def _cnn(cls: type) -> Any:
    x = inputs = keras.Input((32, 32, 3))
    for filters, strides in ((32, 1), (32, 2), (64, 1), (64, 2)):
        x = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return cls(inputs, _head(layers.Flatten()(x)))


def _transformer(cls: type) -> Any:
    inputs = keras.Input((64,), dtype="int64")
    x = layers.Embedding(TOKENS, 128)(inputs)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 32)(y, y)])
        y = layers.Dense(512, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(128)(y)])
    return cls(inputs, _head(layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))))


def _mlp(depth: int, width: int) -> Build:
    def build(cls: type) -> Any:
        x = inputs = keras.Input((width,))
        for _ in range(depth):
            x = layers.Dense(width, "relu", kernel_initializer="he_normal")(x)
        return cls(inputs, _head(x))

    return build


def _mobilenet(cls: type) -> Any:
    model = keras.applications.MobileNetV3Small((64, 64, 3), weights=None, classes=CLASSES)
    return model if cls is keras.Model else ki.instrument(model)


def _lstm(cls: type) -> Any:
    inputs = keras.Input((32, 32))
    return cls(inputs, _head(layers.LSTM(128)(inputs)))


def _head(x: Any) -> Any:
    return layers.Dense(CLASSES, "softmax")(x)


SUBJECTS = {
    "cnn32": Subject(_cnn, (32, 32, 3), batch=32, steps=40),
    "cnn128": Subject(_cnn, (32, 32, 3), batch=128, steps=24),
    "transformer": Subject(_transformer, (64,), batch=32, steps=24, tokens=True),
    "mlp": Subject(_mlp(6, 256), (256,), batch=128, steps=200, steps_per_execution=50),
    "mobilenet": Subject(_mobilenet, (64, 64, 3), batch=32, steps=24),
    "lstm": Subject(_lstm, (32, 32), batch=32, steps=40),
    "deep": Subject(_mlp(160, 32), (32,), batch=32, steps=40),
}
