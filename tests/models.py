"""Small models of every way that Keras has of writing one, each with a forward pass by hand for the oracle."""

import functools
from typing import Any

import keras
import numpy as np
from keras import layers

from oracle import apply_layer

KINDS = ("functional", "sequential", "subclassed", "instrumented")
HEADS = ("softmax", "logits", "softmax_layer")
SHAPE = (8, 8, 3)
CLASSES = 5


def data(samples: int = 70, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images with labels; 70 samples are two batches of 32 and one of 6."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, samples).astype("int32")
    x = rng.normal(size=(samples, *SHAPE)).astype("float32") + 0.3 * y[:, None, None, None]
    return x.astype("float32"), y


def loss(head: str) -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=head == "logits")


def path(layer: Any, parent: str = "") -> str:
    """The layer's Keras path.

    Keras leaves it `None` where a layer has nothing to build (Dropout, ReLU, pooling); then it is what a layer with
    weights in its place would have, which `parent` says.
    """
    return layer.path or (f"{parent}/{layer.name}" if parent else layer.name)


def head_layers(head: str) -> list[Any]:
    if head == "softmax":
        return [layers.Dense(CLASSES, activation="softmax", name="head")]
    if head == "logits":
        return [layers.Dense(CLASSES, name="head")]
    return [layers.Dense(CLASSES, name="head"), layers.Softmax(name="probabilities")]


# --- functional: a nested model, a shortcut, dropout ---


def _functional_graph(head: str) -> tuple[Any, Any]:
    block_in = keras.Input((8, 8, 4), name="block_input")
    h = layers.Conv2D(4, 3, padding="same", use_bias=False, name="block_conv")(block_in)
    h = layers.BatchNormalization(name="block_norm")(h)
    block = keras.Model(block_in, layers.ReLU(name="block_relu")(h), name="block")

    inputs = keras.Input(SHAPE, name="image")
    h = layers.Conv2D(
        4, 3, padding="same", use_bias=False, kernel_regularizer=keras.regularizers.L2(1e-2), name="conv"
    )(inputs)
    h = layers.BatchNormalization(name="norm")(h)
    h = layers.ReLU(name="relu")(h)
    h = layers.Add(name="add")([h, block(h)])
    h = layers.Conv2D(6, 3, strides=2, activation="relu", name="conv2")(h)
    h = layers.Dropout(0.3, seed=11, name="drop")(h)
    h = layers.GlobalAveragePooling2D(name="pool")(h)
    h = layers.Dense(10, activation="relu", name="dense")(h)
    h = layers.Dropout(0.25, seed=12, name="drop2")(h)
    for layer in head_layers(head):
        h = layer(h)
    return inputs, h


def functional_forward(model: Any, x: Any) -> tuple[dict[str, Any], Any]:
    outputs: dict[str, Any] = {}

    def run(layer: Any, *inputs: Any) -> Any:
        outputs[path(layer)] = result = apply_layer(layer, *inputs)
        return result

    get, block = model.get_layer, model.get_layer("block")
    h = relu = run(get("relu"), run(get("norm"), run(get("conv"), x)))
    for name in ("block_conv", "block_norm", "block_relu"):
        h = run(block.get_layer(name), h)
    outputs[path(block)] = h
    h = run(get("add"), [relu, h])
    for name in ("conv2", "drop", "pool", "dense", "drop2", "head"):
        h = run(get(name), h)
    if model.layers[-1].name == "probabilities":
        h = run(model.layers[-1], h)
    return outputs, h


# --- sequential ---


def _sequential_layers(head: str) -> list[Any]:
    return [
        keras.Input(SHAPE),
        layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2", name="conv"),
        layers.BatchNormalization(name="norm"),
        layers.Conv2D(6, 3, strides=2, use_bias=False, name="conv2"),
        layers.Activation("relu", name="relu"),
        layers.SpatialDropout2D(0.2, seed=21, name="drop"),
        layers.Flatten(name="flatten"),
        layers.Dense(12, activation="relu", name="dense"),
        layers.Dropout(0.4, seed=22, name="drop2"),
        *head_layers(head),
    ]


def sequential_forward(model: Any, x: Any) -> tuple[dict[str, Any], Any]:
    outputs = {}
    for layer in model.layers:
        outputs[path(layer, model.name)] = x = apply_layer(layer, x)
    return outputs, x


# --- subclassed ---


class ConvBlock(layers.Layer):
    """A layer of layers: convolution, normalisation, ReLU."""

    def __init__(self, filters: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.conv = layers.Conv2D(filters, 3, padding="same", use_bias=False, name="conv")
        self.norm = layers.BatchNormalization(name="norm")
        self.relu = layers.ReLU(name="relu")

    def build(self, shape: Any) -> None:
        self.conv.build(shape)
        shape = self.conv.compute_output_shape(shape)
        self.norm.build(shape)
        self.relu.build(shape)
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        return self.relu(self.norm(self.conv(x), training=training))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters}


@functools.cache
def net_class(base: type) -> type:
    """The same subclassed model on any base class."""

    class Net(base):  # type: ignore[misc]
        def __init__(self, head: str = "softmax", name: str = "net", **kwargs: Any) -> None:
            super().__init__(name=name, **kwargs)
            self.head_kind = head
            self.stem = ConvBlock(4, name="stem")
            self.conv2 = layers.Conv2D(
                6, 3, strides=2, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-2), name="conv2"
            )
            self.drop = layers.Dropout(0.3, seed=31, name="drop")
            self.pool = layers.GlobalMaxPooling2D(name="pool")
            self.dense = layers.Dense(10, activation="relu", name="dense")
            self.drop2 = layers.Dropout(0.25, seed=32, name="drop2")
            self.tail = head_layers(head)

        def call(self, x: Any, training: bool = False) -> Any:
            x = self.drop(self.conv2(self.stem(x, training=training)), training=training)
            x = self.drop2(self.dense(self.pool(x)), training=training)
            for layer in self.tail:
                x = layer(x)
            return x

        def get_config(self) -> dict[str, Any]:
            return {"head": self.head_kind, "name": self.name}

    Net.__qualname__ = f"Net_{base.__name__}"
    return keras.saving.register_keras_serializable("keras_introspect_tests", f"Net_{base.__name__}")(Net)


keras.saving.register_keras_serializable("keras_introspect_tests")(ConvBlock)


def subclassed_forward(model: Any, x: Any) -> tuple[dict[str, Any], Any]:
    outputs = {}
    stem = model.stem
    for layer in (stem.conv, stem.norm, stem.relu):
        outputs[path(layer, "net/stem")] = x = apply_layer(layer, x)
    outputs[path(stem)] = x
    for layer in (model.conv2, model.drop, model.pool, model.dense, model.drop2, *model.tail):
        outputs[path(layer, "net")] = x = apply_layer(layer, x)
    return outputs, x


# --- the entry points ---

FORWARDS = {
    "functional": functional_forward,
    "sequential": sequential_forward,
    "subclassed": subclassed_forward,
    "instrumented": functional_forward,
}


def build(kind: str, head: str = "softmax", introspective: bool = False, seed: int = 3) -> Any:
    """One of `KINDS`; with the same seed, plain and introspective models start from the same weights.

    A subclassed model comes unbuilt, as a user's does.
    """
    keras.utils.set_random_seed(seed)
    if not introspective:
        if kind in ("functional", "instrumented"):
            inputs, outputs = _functional_graph(head)
            return keras.Model(inputs, outputs, name="model")
        if kind == "sequential":
            return keras.Sequential(_sequential_layers(head), name="model")
        return net_class(keras.Model)(head)

    import keras_introspect as ki

    if kind == "functional":
        inputs, outputs = _functional_graph(head)
        return ki.IntrospectiveModel(inputs, outputs, name="model")
    if kind == "instrumented":
        return ki.instrument(build("functional", head, seed=seed))
    if kind == "sequential":
        return ki.IntrospectiveSequential(_sequential_layers(head), name="model")
    return net_class(ki.IntrospectiveModel)(head)


def build_for_oracle(kind: str, head: str = "softmax", seed: int = 3) -> Any:
    """A plain model with all its variables, whose paths are those that `fit` gives them."""
    model = build(kind, head, seed=seed)
    if not model.built:
        model(np.zeros((1, *SHAPE), "float32"), training=False)
    return model


def compile_and_fit(model: Any, x: np.ndarray, y: np.ndarray, **kwargs: Any) -> Any:
    """`compile` and a quiet `fit` of two epochs; `compile_args` go to `compile`, the rest to `fit`."""
    compile_args = {"optimizer": optimizer("sgd"), **kwargs.pop("compile_args", {})}
    model.compile(**compile_args)
    return model.fit(x, y, **{"batch_size": 32, "epochs": 2, "shuffle": False, "verbose": 0, **kwargs})


def optimizer(name: str) -> Any:
    if name == "sgd":
        return keras.optimizers.SGD(0.1, momentum=0.9)
    if name == "adam":
        return keras.optimizers.Adam(0.01)
    if name == "clipped":
        return keras.optimizers.SGD(0.1, clipnorm=0.01)
    raise ValueError(name)
