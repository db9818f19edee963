"""Every way of writing a model that people have: the rows of the table. Small, and different from each other."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from compatibility.cases import Case, Construct, Kit

CONSTRUCTS: dict[str, Construct] = {}
SAMPLES = 20  # two batches of 8 and one of 4

ONLY_SUMS = "of gradients inside a loop only sums get out"
LOGITS = "the cross-entropy is computed from the logits"
NO_GRADIENT = "no gradient came back to it"
NOT_CALLED = "it was not called in the training step"
INTEGERS = "it returns no floating-point tensor"


def construct(title: str, group: str, **facts: Any) -> Callable[[Callable[[Kit], Case]], Callable[[Kit], Case]]:
    def add(build: Callable[[Kit], Case]) -> Callable[[Kit], Case]:
        CONSTRUCTS[build.__name__] = Construct(build.__name__, title, group, build, **facts)
        return build

    return add


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(SAMPLES, *shape)).astype("float32")


def whole(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, (SAMPLES, *shape)).astype("int32")


# --- ways of writing a model ---

WRITING = "Ways of writing a model"


@construct("Functional: convolution, batch normalisation, dropout", WRITING)
def convolutional(kit: Kit) -> Case:
    inputs = keras.Input((6, 6, 2))
    h = layers.Conv2D(4, 3, padding="same", use_bias=False, kernel_regularizer="l2", name="conv")(inputs)
    h = layers.BatchNormalization(name="norm")(h)
    h = layers.ReLU(name="relu")(h)
    h = layers.MaxPooling2D(name="pool")(h)
    h = layers.Dropout(0.3, seed=1, name="drop")(h)
    h = layers.Dense(3, name="head")(layers.Flatten(name="flat")(h))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Case(kit.Model(inputs, h), numbers(6, 6, 2), whole(3), {"loss": loss})


@construct("Sequential", WRITING)
def sequential(kit: Kit) -> Case:
    chain = [layers.Dense(6, activation="relu", name="hidden"), layers.Dropout(0.2, seed=1, name="drop")]
    model = kit.Sequential([keras.Input((4,)), *chain, layers.Dense(1, name="head")], name="net")
    return Case(model, numbers(4), numbers(1))


@construct("Sequential, built at the first batch", WRITING)
def sequential_unbuilt(kit: Kit) -> Case:
    chain = [layers.Dense(6, activation="relu", name="hidden"), layers.Dense(1, name="head")]
    return Case(kit.Sequential(chain, name="net"), numbers(4), numbers(1))


@construct("Subclass, built at the first batch", WRITING)
def subclass_unbuilt(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.hidden = layers.Dense(6, activation="tanh", name="hidden")
            self.norm = layers.LayerNormalization(name="norm")
            self.head = layers.Dense(1, name="head")

        def call(self, x: Any, training: bool = False) -> Any:
            return self.head(self.norm(self.hidden(x)))

    return Case(Net(), numbers(4), numbers(1))


@construct("Several inputs and outputs by name, a loss and a weight each", WRITING)
def named_inputs_and_outputs(kit: Kit) -> Case:
    one, two = keras.Input((4,), name="one"), keras.Input((3,), name="two")
    h = layers.Concatenate(name="joined")([layers.Dense(5, name="first")(one), layers.Dense(5, name="second")(two)])
    outputs = {
        "number": layers.Dense(1, name="number_head")(h),
        "label": layers.Dense(3, name="label_head")(h),
    }
    model = kit.Model({"one": one, "two": two}, outputs)
    losses = {"number": "mse", "label": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    return Case(
        model,
        {"one": numbers(4), "two": numbers(3, seed=1)},
        {"number": numbers(1), "label": whole(3)},
        {"loss": losses, "loss_weights": {"number": 0.5, "label": 2.0}},
    )


@construct("Functional model in a functional model", WRITING)
def nested_functional(kit: Kit) -> Case:
    inner_input = keras.Input((5,))
    inner = keras.Model(inner_input, layers.Dense(5, activation="relu", name="inner_dense")(inner_input), name="inner")
    inputs = keras.Input((5,))
    h = layers.Add(name="add")([inputs, inner(inputs)])
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(5), numbers(1))


@construct("Sequential in a functional model", WRITING)
def sequential_in_functional(kit: Kit) -> Case:
    chain = keras.Sequential([layers.Dense(5, activation="relu", name="a"), layers.Dense(4, name="b")], name="chain")
    inputs = keras.Input((5,))
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(chain(inputs))), numbers(5), numbers(1))


class Gate(keras.Model):
    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = layers.Dense(units, name="value")
        self.gate = layers.Dense(units, activation="sigmoid", name="gate")

    def call(self, x: Any) -> Any:
        return self.value(x) * self.gate(x)


@construct("Subclassed model in a functional model", WRITING)
def subclass_in_functional(kit: Kit) -> Case:
    inputs = keras.Input((5,))
    h = Gate(4, name="gated")(inputs)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(5), numbers(1))


@construct("A layer called three times", WRITING)
def shared_layer(kit: Kit) -> Case:
    one, two = keras.Input((4,)), keras.Input((4,))
    shared = layers.Dense(4, activation="relu", name="shared")
    h = layers.Concatenate(name="joined")([shared(one), shared(shared(two))])
    model = kit.Model([one, two], layers.Dense(1, name="head")(h))
    return Case(model, [numbers(4), numbers(4, seed=1)], numbers(1))


@construct("Layers in lists and dicts", WRITING)
def layers_in_containers(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.chain = [layers.Dense(4, activation="relu", name=f"link{i}") for i in range(3)]
            self.heads = {"a": layers.Dense(1, name="head_a"), "b": [layers.Dense(1, name="head_b")]}

        def call(self, x: Any) -> Any:
            for layer in self.chain:
                x = layer(x)
            return self.heads["a"](x) + self.heads["b"][0](x)

    return Case(Net(), numbers(4), numbers(1))


@construct("Functional subclass: `super().__init__(inputs, outputs)`", WRITING)
def functional_subclass(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            inputs = keras.Input((4,))
            super().__init__(inputs, layers.Dense(1, name="head")(layers.Dense(3, name="hidden")(inputs)), name="net")

    return Case(Net(), numbers(4), numbers(1))


@construct("Layers made while another is built", WRITING)
def made_in_build(kit: Kit) -> Case:
    class Late(layers.Layer):
        def build(self, shape: Any) -> None:
            self.inner = layers.Dense(shape[-1], activation="relu", name="inner")
            self.inner.build(shape)
            self.built = True

        def call(self, x: Any) -> Any:
            return self.inner(x) + x

    model = kit.Sequential([Late(name="late"), layers.Dense(1, name="head")], name="net")
    return Case(model, numbers(4), numbers(1))


@construct("Weights that a layer adds in its call", WRITING)
def weights_added_late(kit: Kit) -> Case:
    class Lazy(layers.Layer):
        scale = None

        def call(self, x: Any) -> Any:
            if self.scale is None:
                with tf.init_scope():
                    self._tracker.unlock()
                    self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
                    self._tracker.lock()
            return x * self.scale

    model = kit.Sequential([Lazy(name="lazy"), layers.Dense(1, name="head")], name="net")
    return Case(model, numbers(4), numbers(1))


@construct("Two layers that share one weight", WRITING)
def tied_weights(kit: Kit) -> Case:
    class Back(layers.Layer):
        def __init__(self, dense: Any, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.dense = dense

        def call(self, x: Any) -> Any:
            return ops.matmul(x, ops.transpose(self.dense.kernel))

    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.there = layers.Dense(3, activation="tanh", name="there")
            self.back = Back(self.there, name="back")

        def call(self, x: Any) -> Any:
            return self.back(self.there(x))

    x = numbers(4)
    return Case(Net(), x, x)


# --- kinds of nets ---

NETS = "Kinds of nets"


@construct("Residual net", NETS)
def residual(kit: Kit) -> Case:
    inputs = keras.Input((6, 6, 3))
    h = layers.Conv2D(4, 3, padding="same", name="stem")(inputs)
    for i in range(2):
        inner = layers.BatchNormalization(name=f"norm{i}")(h)
        inner = layers.Activation("relu", name=f"relu{i}")(inner)
        inner = layers.Conv2D(4, 3, padding="same", use_bias=False, name=f"conv{i}")(inner)
        h = layers.Add(name=f"add{i}")([h, inner])
    h = layers.GlobalAveragePooling2D(name="pool")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(6, 6, 3), numbers(1))


@construct("Dense net: every layer sees all before it", NETS)
def densely_connected(kit: Kit) -> Case:
    inputs = keras.Input((6, 6, 2))
    h = inputs
    for i in range(3):
        h = layers.Concatenate(name=f"join{i}")([h, layers.Conv2D(2, 3, padding="same", name=f"conv{i}")(h)])
    h = layers.GlobalMaxPooling2D(name="pool")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(6, 6, 2), numbers(1))


@construct("Separable, depthwise and transposed convolutions, group normalisation", NETS)
def convolutions(kit: Kit) -> Case:
    inputs = keras.Input((6, 6, 4))
    h = layers.SeparableConv2D(4, 3, padding="same", activation="swish", name="separable")(inputs)
    h = layers.GroupNormalization(2, name="norm")(h)
    h = layers.DepthwiseConv2D(3, activation="gelu", name="depthwise")(h)
    h = layers.Conv2DTranspose(2, 3, name="transposed")(h)
    h = layers.UpSampling2D(name="up")(h)
    return Case(kit.Model(inputs, layers.Conv2D(1, 1, name="head")(h)), numbers(6, 6, 4), numbers(12, 12, 1))


@construct("`channels_first`, pooling and padding", NETS)
def channels_first(kit: Kit) -> Case:
    # No convolution: TensorFlow's for this order on the CPU trains otherwise eagerly than in a graph, with plain Keras.
    first = {"data_format": "channels_first"}
    inputs = keras.Input((3, 6, 6))
    h = layers.Dense(5, activation="relu", name="dense")(inputs)
    h = layers.ZeroPadding2D(1, name="padding", **first)(h)
    h = layers.UpSampling2D(2, name="up", **first)(h)
    h = layers.GlobalAveragePooling2D(name="mean", **first)(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(3, 6, 6), numbers(1))


@construct("A net of 160 layers", NETS)
def deep(kit: Kit) -> Case:
    inputs = keras.Input((6,))
    h = inputs
    for i in range(80):  # small weights: else the gradients grow so much that rounding decides where the training goes
        small = keras.initializers.RandomNormal(stddev=0.05, seed=i)
        inner = layers.Dense(6, activation="tanh", kernel_initializer=small, name=f"dense{i}")(h)
        h = layers.Add(name=f"add{i}")([h, inner])
    return Case(
        kit.Model(inputs, layers.Dense(1, name="head")(h)),
        numbers(6),
        numbers(1),
        {"optimizer": keras.optimizers.SGD(1e-3)},
    )


# --- sequences ---

SEQUENCES = "Sequences"


@construct("LSTM", SEQUENCES, partial=ONLY_SUMS)
def lstm(kit: Kit) -> Case:
    inputs = keras.Input((5, 3))
    h = layers.LSTM(4, return_sequences=True, name="lstm")(inputs)
    h = layers.LSTM(3, name="top")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(5, 3), numbers(1))


@construct("GRU, both ways", SEQUENCES, partial=ONLY_SUMS)
def bidirectional_gru(kit: Kit) -> Case:
    inputs = keras.Input((5, 3))
    h = layers.Bidirectional(layers.GRU(3, dropout=0.2, seed=4, name="gru"), name="both")(inputs)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(5, 3), numbers(1))


@construct("Simple RNN, unrolled", SEQUENCES)
def unrolled_rnn(kit: Kit) -> Case:
    inputs = keras.Input((4, 3))
    h = layers.SimpleRNN(4, unroll=True, name="rnn")(inputs)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4, 3), numbers(1))


class Cell(layers.Layer):
    """A cell as a user writes one, with a layer of its own."""

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.state_size = units
        self.mix = layers.Dense(units, name="mix")

    def build(self, shape: Any) -> None:
        self.mix.build((shape[0], shape[-1] + self.state_size))
        self.built = True

    def call(self, x: Any, states: Any) -> Any:
        h = ops.tanh(self.mix(ops.concatenate([x, states[0]], axis=-1)))
        return h, [h]


@construct("A recurrent cell of one's own, stacked on another", SEQUENCES, partial=ONLY_SUMS)
def custom_cells(kit: Kit) -> Case:
    inputs = keras.Input((4, 3))
    h = layers.RNN([Cell(4, name="mine"), layers.SimpleRNNCell(3, name="simple")], name="rnn")(inputs)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4, 3), numbers(1))


@construct("`TimeDistributed`", SEQUENCES)
def time_distributed(kit: Kit) -> Case:
    inputs = keras.Input((4, 5, 5, 1))
    h = layers.TimeDistributed(layers.Conv2D(2, 3, activation="relu", name="conv"), name="each")(inputs)
    h = layers.Flatten(name="flat")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4, 5, 5, 1), numbers(1))


@construct("Convolutional LSTM", SEQUENCES, partial=ONLY_SUMS)
def convolutional_lstm(kit: Kit) -> Case:
    inputs = keras.Input((3, 5, 5, 1))
    h = layers.ConvLSTM1D(2, 3, name="lstm")(layers.Reshape((3, 5, 5), name="rows")(inputs))
    h = layers.Flatten(name="flat")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(3, 5, 5, 1), numbers(1))


@construct("Recurrent encoder and decoder, states handed over", SEQUENCES, partial=ONLY_SUMS)
def encoder_decoder(kit: Kit) -> Case:
    source, target = keras.Input((4, 3)), keras.Input((3, 2))
    _, h, c = layers.LSTM(4, return_state=True, name="encoder")(source)
    out = layers.LSTM(4, return_sequences=True, name="decoder")(target, initial_state=[h, c])
    model = kit.Model([source, target], layers.Dense(1, name="head")(out))
    return Case(model, [numbers(4, 3), numbers(3, 2, seed=1)], numbers(3, 1))


# --- attention ---

ATTENTION = "Attention"


class Block(layers.Layer):
    """A transformer block."""

    def __init__(self, width: int, heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, width // heads, dropout=0.1, seed=5, name="attention")
        self.norm1 = layers.LayerNormalization(name="norm1")
        self.norm2 = layers.LayerNormalization(name="norm2")
        self.wide = layers.Dense(2 * width, activation="gelu", name="wide")
        self.narrow = layers.Dense(width, name="narrow")

    def call(self, x: Any, training: bool = False) -> Any:
        h = self.norm1(x)
        x = x + self.attention(h, h, use_causal_mask=True, training=training)
        return x + self.narrow(self.wide(self.norm2(x)))


@construct("Transformer", ATTENTION)
def transformer(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.tokens = layers.Embedding(11, 8, name="tokens")
            self.positions = layers.Embedding(6, 8, name="positions")
            self.blocks = [Block(8, 2, name=f"block{i}") for i in range(2)]
            self.norm = layers.LayerNormalization(name="norm")
            self.head = layers.Dense(11, name="head")

        def call(self, x: Any, training: bool = False) -> Any:
            h = self.tokens(x) + self.positions(ops.arange(6))
            for block in self.blocks:
                h = block(h, training=training)
            return self.head(self.norm(h))

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Case(Net(), whole(11, 6), whole(11, 6, seed=1), {"loss": loss})


@construct("Dot, additive and grouped-query attention", ATTENTION, partial=NOT_CALLED)
def attentions(kit: Kit) -> Case:
    inputs = keras.Input((5, 4))
    h = layers.Attention(use_scale=True, name="dot")([inputs, inputs])
    h = layers.AdditiveAttention(name="additive")([h, inputs])
    h = layers.GroupQueryAttention(2, 4, 2, name="grouped")(h, h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(5, 4), numbers(5, 1))


@construct("Attention scores returned, too", ATTENTION, partial=NOT_CALLED)
def attention_scores(kit: Kit) -> Case:
    inputs = keras.Input((5, 4))
    h, scores = layers.MultiHeadAttention(2, 2, name="attention")(inputs, inputs, return_attention_scores=True)
    sharp = layers.Dense(1, name="sharp")(layers.Flatten(name="flat")(scores))
    return Case(
        kit.Model(inputs, [layers.Dense(1, name="head")(h), sharp]),
        numbers(5, 4),
        [numbers(5, 1), numbers(1)],
        {"loss": ["mse", "mse"]},
    )


# --- kinds of tensors ---

TENSORS = "Kinds of tensors"


@construct("Masks: `Embedding(mask_zero=True)`, `Masking`", TENSORS, partial=ONLY_SUMS)
def masks(kit: Kit) -> Case:
    tokens, values = keras.Input((5,), dtype="int32"), keras.Input((5, 3))
    one = layers.GRU(3, name="gru")(layers.Embedding(7, 4, mask_zero=True, name="tokens")(tokens))
    two = layers.LSTM(3, name="lstm")(layers.Masking(0.0, name="masking")(values))
    h = layers.Concatenate(name="joined")([one, two])
    x = numbers(5, 3)
    x[::2, 3:] = 0
    model = kit.Model([tokens, values], layers.Dense(1, name="head")(h))
    return Case(model, [np.sort(whole(7, 5))[:, ::-1], x], numbers(1))


@construct("Embedding with repeated indices, shared by two inputs", TENSORS)
def embedding(kit: Kit) -> Case:
    one, two = keras.Input((6,), dtype="int32"), keras.Input((3,), dtype="int32")
    table = layers.Embedding(40, 4, name="table")
    pool = layers.GlobalAveragePooling1D(name="pool")
    h = layers.Concatenate(name="joined")([pool(table(one)), pool(table(two))])
    model = kit.Model([one, two], layers.Dense(1, name="head")(h))
    return Case(model, [whole(9, 6), whole(9, 3)], numbers(1))


@construct("Embedding used as the output layer as well", TENSORS)
def reversible_embedding(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.table = layers.ReversibleEmbedding(9, 4, name="table")
            self.mix = layers.Dense(4, activation="relu", name="mix")

        def call(self, x: Any) -> Any:
            return self.table(self.mix(self.table(x)), reverse=True)

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Case(Net(), whole(9, 5), whole(9, 5, seed=1), {"loss": loss})


@construct("Ragged input", TENSORS)
def ragged(kit: Kit) -> Case:
    class Twice(layers.Layer):
        def call(self, x: Any) -> Any:
            return 2.0 * x

    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.first = layers.Dense(3, name="first")
            self.twice = Twice(name="twice")
            self.head = layers.Dense(1, name="head")

        def build(self, shape: Any) -> None:
            self.first.build((None, 3))
            self.head.build((None, 3))
            self.built = True

        def call(self, x: Any) -> Any:
            scaled = self.twice(x.with_flat_values(self.first(x.flat_values)))
            return self.head(tf.ensure_shape(tf.reduce_mean(scaled, axis=1), (None, 3)))

    lengths = [1 + i % 4 for i in range(SAMPLES)]
    values = np.random.default_rng(0).normal(size=(sum(lengths), 3)).astype("float32")
    rows = tf.RaggedTensor.from_row_lengths(values, lengths)
    data = tf.data.Dataset.from_tensor_slices((rows, numbers(1))).batch(8)
    model = Net()
    model.build((None, None, 3))
    return Case(model, data)


@construct("Sparse input", TENSORS)
def sparse(kit: Kit) -> Case:
    inputs = keras.Input((6,), sparse=True)
    h = layers.Dense(4, activation="relu", name="hidden")(inputs)
    x = numbers(6)
    x[np.abs(x) < 1] = 0
    data = tf.data.Dataset.from_tensor_slices((x, numbers(1))).batch(8)
    data = data.map(lambda x, y: (tf.sparse.from_dense(x), y))
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), data)


class Split(layers.Layer):
    def __init__(self, kind: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.dense = layers.Dense(4, name=f"dense_{kind}")

    def call(self, x: Any) -> Any:
        h = self.dense(x)
        if self.kind == "tuple":
            return h[:, :2], h[:, 2:]
        return {"left": h[:, :1], "rest": (h[:, 1:2], [h[:, 2:]]), "index": ops.argmax(h, axis=-1)}


@construct("Layers that return tuples and nested dicts", TENSORS)
def structured_outputs(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.first, self.second = Split("tuple", name="first"), Split("dict", name="second")
            self.head = layers.Dense(1, name="head")

        def call(self, x: Any) -> Any:
            a, b = self.first(x)
            parts = self.second(a * b)
            return self.head(ops.concatenate([parts["left"], parts["rest"][0], parts["rest"][1][0]], axis=-1))

    return Case(Net(), numbers(4), numbers(1))


@construct("Layers that return integers, and layers of other float types", TENSORS, partial=INTEGERS)
def other_types(kit: Kit) -> Case:
    class Largest(layers.Layer):
        def call(self, x: Any) -> Any:
            return ops.argmax(x, axis=-1)

        def compute_output_spec(self, x: Any) -> Any:
            return keras.KerasTensor(x.shape[:-1], dtype="int64")

    inputs = keras.Input((4,))
    exact = layers.Dense(3, dtype="float64", name="exact")(inputs)
    code = layers.Embedding(3, 2, name="code")(Largest(name="largest")(exact))
    h = layers.Concatenate(name="joined")([layers.Activation("linear", name="rounded")(exact), code])
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4), numbers(1))


@construct("Normalisation and augmentation layers inside the model", TENSORS, partial=NO_GRADIENT)
def preprocessing(kit: Kit) -> Case:
    scale = layers.Normalization(name="scale")
    scale.adapt(numbers(6, 6, 1))
    inputs = keras.Input((6, 6, 1))
    h = layers.RandomFlip("horizontal", seed=3, name="flip")(scale(inputs))
    h = layers.Conv2D(2, 3, name="conv")(h)
    h = layers.Dense(1, name="head")(layers.Flatten(name="flat")(h))
    return Case(kit.Model(inputs, h), numbers(6, 6, 1), numbers(1))


# --- calls out of the ordinary ---

CALLS = "Calls out of the ordinary"


def _remat(kit: Kit, mode: str | None) -> Case:
    class Block(layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.wide = layers.Dense(8, activation="tanh", name="wide")
            self.narrow = layers.Dense(4, name="narrow")

        def call(self, x: Any) -> Any:
            return x + self.narrow(self.wide(x))

    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            with keras.RematScope(mode=mode):
                self.block = Block(name="block")
            self.head = layers.Dense(1, name="head")

        def build(self, shape: Any) -> None:
            self.block(np.zeros((1, 4), "float32"))
            self.head.build((None, 4))
            self.built = True

        def call(self, x: Any) -> Any:
            return self.head(self.block(x))

    model = Net()
    model.build((None, 4))
    return Case(model, numbers(4), numbers(1))


@construct("`keras.RematScope`: outputs computed again for the gradients", CALLS, oracle=lambda kit: _remat(kit, None))
def rematerialised(kit: Kit) -> Case:
    return _remat(kit, "full")


class Looping(layers.Layer):
    """Calls its layer inside control flow."""

    def __init__(self, kind: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.step = layers.Dense(4, activation="tanh", name="step")

    def build(self, shape: Any) -> None:
        self.step.build((None, 4))
        self.built = True

    def call(self, x: Any) -> Any:
        if self.kind == "while_loop":
            return ops.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, self.step(h)), (0, x))[1]
        if self.kind == "fori_loop":
            return ops.fori_loop(0, 3, lambda i, h: self.step(h), x)
        if self.kind == "cond":
            return ops.cond(ops.sum(x) > -1e9, lambda: self.step(x), lambda: x)
        if self.kind == "map":
            return ops.map(lambda row: self.step(row[None])[0], x)
        if self.kind == "all rows":
            return self.step(x)
        return ops.scan(lambda h, _: (self.step(h), h), x, xs=ops.zeros((3, 4)))[0]

    def compute_output_spec(self, x: Any) -> Any:
        return keras.KerasTensor(x.shape, dtype=x.dtype)


def _looping(kind: str) -> Callable[[Kit], Case]:
    def build(kit: Kit) -> Case:
        inputs = keras.Input((4,))
        h = Looping(kind, name="loop")(layers.Dense(4, name="first")(inputs))
        return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4), numbers(1))

    build.__name__ = kind
    return build


for _kind in ("while_loop", "fori_loop", "cond", "map", "scan"):
    # Run eagerly, keras.ops.map calls its function once more, for shapes.
    _oracle = _looping("all rows") if _kind == "map" else None
    construct(f"A layer called inside `keras.ops.{_kind}`", CALLS, partial=ONLY_SUMS, oracle=_oracle)(_looping(_kind))


@construct("A `tf.function` of the user's own around a layer", CALLS, partial="not where it can be seen")
def own_tf_function(kit: Kit) -> Case:
    class Fast(layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.inner = layers.Dense(4, activation="relu", name="inner")

        def build(self, shape: Any) -> None:
            self.inner.build(shape)
            self.built = True

        @tf.function
        def _run(self, x: Any) -> Any:
            return self.inner(x)

        def call(self, x: Any) -> Any:
            return self._run(x)

    inputs = keras.Input((4,))
    h = Fast(name="fast")(layers.Dense(4, name="first")(inputs))
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4), numbers(1))


@construct("LoRA: `enable_lora`", CALLS)
def lora(kit: Kit) -> Case:
    chain = [layers.Dense(6, activation="relu", name="hidden"), layers.Dense(1, name="head")]
    model = kit.Sequential([keras.Input((4,)), *chain], name="net")
    model.layers[0].enable_lora(2)
    return Case(model, numbers(4), numbers(1))


@construct("Quantised layers: int8, with LoRA to train", CALLS)
def quantised(kit: Kit) -> Case:
    hidden = layers.Dense(6, activation="relu", name="hidden")
    model = kit.Sequential([keras.Input((4,)), hidden, layers.Dense(1, name="head")], name="net")
    hidden.quantize("int8")
    hidden.enable_lora(2)
    return Case(model, numbers(4), numbers(1))


@construct("Frozen layers", CALLS)
def frozen(kit: Kit) -> Case:
    base_input = keras.Input((6, 6, 1))
    h = layers.Conv2D(3, 3, name="base_conv")(base_input)
    base = keras.Model(base_input, layers.BatchNormalization(name="base_norm")(h), name="base")
    base.trainable = False
    inputs = keras.Input((6, 6, 1))
    h = layers.Dense(1, name="head")(layers.Flatten(name="flat")(layers.Conv2D(1, 1, name="first")(base(inputs))))
    return Case(kit.Model(inputs, h), numbers(6, 6, 1), numbers(1))


@construct("Spectral normalisation, weight constraints", CALLS)
def constrained(kit: Kit) -> Case:
    inputs = keras.Input((4,))
    h = layers.SpectralNormalization(layers.Dense(4, name="dense"), name="spectral")(inputs)
    h = layers.Dense(4, kernel_constraint="unit_norm", activation="relu", name="constrained")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4), numbers(1))


@construct("`add_loss`, activity regularisers", CALLS)
def added_losses(kit: Kit) -> Case:
    class Sparse(layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * ops.mean(ops.abs(x)))
            return x

    inputs = keras.Input((4,))
    h = layers.Dense(4, activity_regularizer="l2", name="hidden")(inputs)
    h = Sparse(name="sparse")(h)
    return Case(kit.Model(inputs, layers.Dense(1, name="head")(h)), numbers(4), numbers(1))


@construct("Softmax head under a cross-entropy", CALLS, partial=LOGITS)
def softmax_head(kit: Kit) -> Case:
    inputs = keras.Input((4,))
    h = layers.Dense(5, activation="relu", name="hidden")(inputs)
    model = kit.Model(inputs, layers.Dense(3, activation="softmax", name="head")(h))
    return Case(model, numbers(4), whole(3), {"loss": "sparse_categorical_crossentropy"})


@construct("Layers that are not called in training", CALLS, partial=NOT_CALLED)
def not_called(kit: Kit) -> Case:
    class Net(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.used = layers.Dense(1, name="used")
            self.only_for_predict = layers.Rescaling(2.0, name="only_for_predict")

        def build(self, shape: Any) -> None:
            self.used.build(shape)
            self.built = True

        def call(self, x: Any, training: bool = False) -> Any:
            h = self.used(x)
            return h if training else self.only_for_predict(h)

    return Case(Net(), numbers(4), numbers(1))
