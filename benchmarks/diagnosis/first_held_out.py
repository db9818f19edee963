"""Faults and ordinary trainings by which the first thresholds were judged, and the later ones chosen."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import initializers, layers, ops, optimizers, regularizers
from keras.callbacks import EarlyStopping, LearningRateScheduler

import keras_introspect as ki
from benchmarks.diagnosis import data
from benchmarks.diagnosis.data import Split
from benchmarks.diagnosis.programs import (
    Task,
    accuracy,
    classify,
    dense,
    fitting,
    healthy,
    pair,
    r_squared,
    regress,
    stack,
)

BINARY = "binary_crossentropy"

# --- data that only these programs use ---


def _houses(rng: np.random.Generator, size: int = 1200) -> Split:
    """Three measurements, standardized, and the number of one of twelve districts; prices around 250000."""
    numbers, district = rng.normal(size=(size, 3)), rng.integers(12, size=(size, 1))
    worth = rng.normal(0, 40e3, size=12)
    price = 250e3 + numbers @ [[60e3], [-20e3], [15e3]] + worth[district] + rng.normal(0, 10e3, (size, 1))
    return data.split(rng, np.concatenate([numbers, district], axis=1), price)


def _weather(rng: np.random.Generator, size: int = 700, steps: int = 16) -> Split:
    """Sequences of pressure in hPa, temperature in °C and humidity from 0 to 1; the label: the pressure rises."""
    y = rng.integers(2, size=size)
    rise = np.linspace(-1, 1, steps) * (2.0 * y - 1)[:, None] * 3
    pressure = 1013 + rng.normal(0, 4, (size, 1)) + rise + rng.normal(0, 1, (size, steps))
    temperature = 15 + rng.normal(0, 6, (size, steps))
    humidity = rng.uniform(0.2, 1.0, (size, steps))
    return data.split(rng, np.stack([pressure, temperature, humidity], axis=-1), y)


def _first_step(rng: np.random.Generator, size: int = 800, steps: int = 40) -> Split:
    """Noise, but for its first step, whose sign is the label."""
    y = rng.integers(2, size=size)
    x = rng.normal(0, 0.1, (size, steps, 1))
    x[:, 0, 0] = 2.0 * y - 1
    return data.split(rng, x, y)


def _words(rng: np.random.Generator, size: int = 1200, vocabulary: int = 1500) -> Split:
    """Twelve words a text, most of them seldom, as in a language; the label is whether the first or second half of the
    ten most frequent words was used more often.
    """
    ranks = np.arange(1, vocabulary + 1)
    x = rng.choice(vocabulary, size=(size, 12), p=(1 / ranks) / (1 / ranks).sum())
    lean = ((x < 5).sum(axis=1) - ((x >= 5) & (x < 10)).sum(axis=1)) * 1.0
    return data.split(rng, x, (lean > 1).astype(int)).with_inputs(lambda tokens: tokens.astype("int64"))


def _convolutional(head: str | None = "softmax", **arguments: Any) -> Any:
    return stack(
        (8, 8, 1),
        layers.Conv2D(16, 3, padding="same", activation="relu", name="conv1", **arguments),
        layers.Conv2D(24, 3, strides=2, padding="same", activation="relu", name="conv2", **arguments),
        layers.Flatten(name="flatten"),
        layers.Dense(10, activation=head, name="head"),
    )


def _recurrent(layer: Any, steps: int, features: int, units: int, activation: str | None) -> Any:
    return stack((steps, features), layer, layers.Dense(units, activation=activation, name="head"))


# --- heads, losses and labels ---


@pair("labels_out_of_range")
def numbered_from_one(rng: np.random.Generator, faulty: bool) -> Task:
    """Ten classes numbered 1 to 10, ten units under the sparse cross-entropy."""
    found = data.digits(rng, images=True)
    task = classify(_convolutional(), found)
    return task._replace(fit=fitting(found.with_labels(lambda y: y + 1))) if faulty else task


@pair("labels_out_of_range")
def plus_and_minus_one(rng: np.random.Generator, faulty: bool) -> Task:
    """Classes called −1 and 1, as a support vector machine has them, under binary cross-entropy; they overlap."""
    x = rng.normal(size=(1200, 8))
    found = data.split(rng, x, (x[:, :3].sum(axis=1) + rng.normal(0, 1.2, 1200) > 0).astype(int))
    task = classify(dense(8, [24], 1, "sigmoid"), found, loss=BINARY)
    return task._replace(fit=fitting(found.with_labels(lambda y: 2 * y - 1))) if faulty else task


@pair("labels_out_of_range", "head_loss_mismatch")
def standardized_pixels_behind_sigmoids(rng: np.random.Generator, faulty: bool) -> Task:
    """An autoencoder that ends in sigmoids under binary cross-entropy, of images of mean 0 and deviation 1."""
    found = data.digits(rng)
    if faulty:
        found = found.with_inputs(lambda x: (x - found.x.mean()) / found.x.std())
    found = found._replace(y=found.x, y_validation=found.x_validation)
    model = stack(
        (64,),
        layers.Dense(48, activation="relu", name="encoder"),
        layers.Dense(12, activation="relu", name="code"),
        layers.Dense(48, activation="relu", name="decoder"),
        layers.Dense(64, activation="sigmoid", name="pixels"),
    )
    return regress(model, found, optimizers.Adam(5e-3), BINARY)


@pair("head_loss_mismatch")
def tanh_under_entropy(rng: np.random.Generator, faulty: bool) -> Task:
    """A tanh at the end of a recurrent net, under binary cross-entropy, which has no use for what is below zero."""
    model = _recurrent(layers.GRU(16, name="gru"), 16, 3, 1, "tanh" if faulty else "sigmoid")
    return classify(model, _weather(rng).standardized(), optimizers.Adam(5e-3), BINARY)


@pair("head_loss_mismatch", "dead_units", "dying_units")
def rectified_scores(rng: np.random.Generator, faulty: bool) -> Task:
    """A ReLU at the head of a convolutional net, under cross-entropy."""
    return classify(_convolutional("relu" if faulty else "softmax"), data.digits(rng, images=True))


@pair("logits_as_probabilities", "head_loss_mismatch")
def linear_units_under_entropy(rng: np.random.Generator, faulty: bool) -> Task:
    """Five labels at once from linear units, and binary cross-entropy is not told so."""
    x = rng.normal(size=(1000, 12))
    y = (x @ rng.normal(size=(12, 5)) + rng.normal(0, 0.5, (1000, 5)) > 0.5).astype("float32")
    found = data.split(rng, x, y)
    loss = keras.losses.BinaryCrossentropy(from_logits=not faulty)
    fit, compiled = fitting(found), {"optimizer": optimizers.SGD(0.1, momentum=0.9), "loss": loss}
    threshold, truth = 0.5 if faulty else 0.0, found.y_validation > 0.5  # of logits the threshold is 0

    def right(model: Any) -> float:
        return float(np.mean((model.predict(found.x_validation, verbose=0) > threshold) == truth))

    return Task(dense(12, [24], 5), compiled, fit, right)


@pair("probabilities_as_logits")
def averaged_votes_as_logits(rng: np.random.Generator, faulty: bool) -> Task:
    """Each step of a sequence votes by a sigmoid, votes are averaged, and the loss takes the average for a logit."""
    model = stack(
        (16, 3),
        layers.Conv1D(16, 5, activation="relu", name="conv"),
        layers.Dense(1, activation="sigmoid", name="votes"),
        layers.GlobalAveragePooling1D(name="mean"),
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=faulty)
    return classify(model, _weather(rng).standardized(), optimizers.Adam(3e-3), loss, epochs=15)


@pair("squared_error_on_classes")
def absolute_error_of_a_rare_class(rng: np.random.Generator, faulty: bool) -> Task:
    """One sample in eight is positive; by the mean absolute error of a sigmoid it pays to call none so."""
    x = rng.normal(size=(1200, 10))
    score = x[:, :4].sum(axis=1) + rng.normal(0, 2.0, 1200)
    found = data.split(rng, x, (score > np.quantile(score, 0.875)).astype(int))
    task = classify(dense(10, [24], 1, "sigmoid"), found, loss="mae" if faulty else BINARY)
    truth = found.y_validation

    def balanced(model: Any) -> float:
        guess = model.predict(found.x_validation, verbose=0)[:, 0] > (0.5 if faulty else 0.125)
        return float((guess[truth == 1].mean() + (~guess)[truth == 0].mean()) / 2)

    return task._replace(quality=balanced)


@pair("softmax_over_one_unit")
def one_softmax_behind_two_inputs(rng: np.random.Generator, faulty: bool) -> Task:
    """Whether two digits are the same: two inputs, one body, a softmax over the one unit of the head."""
    found = data.digits(rng)
    body = keras.Sequential(
        [keras.Input((64,)), layers.Dense(48, activation="relu", name="dense1"), layers.Dense(16, name="dense2")],
        name="body",
    )
    left, right = keras.Input((64,), name="left"), keras.Input((64,), name="right")
    apart = ops.square(ops.subtract(body(left), body(right)))
    head = layers.Dense(1, activation="softmax" if faulty else "sigmoid", name="head")
    model = ki.IntrospectiveModel([left, right], head(apart), name="net")

    def pairs(x: np.ndarray, y: np.ndarray, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        one = rng.integers(len(x), size=count)
        same = np.array([rng.choice(np.flatnonzero(y == y[i])) for i in one[: count // 2]])
        two = np.concatenate([same, rng.integers(len(x), size=count - count // 2)])
        return [x[one], x[two]], (y[one] == y[two]).astype("float32")

    x, y = pairs(found.x, found.y, 2000)
    held = pairs(found.x_validation, found.y_validation, 400)
    fit = {"x": x, "y": y, "validation_data": held, "epochs": 10, "batch_size": 64}
    return Task(model, {"optimizer": optimizers.Adam(3e-3), "loss": BINARY}, fit, accuracy(*held))


# --- scales of inputs and targets ---


@pair("unscaled_targets")
def prices_in_dollars(rng: np.random.Generator, faulty: bool) -> Task:
    """Prices around 250000 from numbers and an embedded district, by Adam at its default step."""
    found = _houses(rng) if faulty else _houses(rng).standardized_targets()
    inputs = keras.Input((4,), name="house")
    district = layers.Flatten(name="flat")(layers.Embedding(12, 4, name="district")(inputs[:, 3:]))
    y = layers.Concatenate(name="all")([inputs[:, :3], district])
    y = layers.Dense(32, activation="relu", name="hidden1")(y)
    y = layers.Dense(16, activation="relu", name="hidden2")(y)
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, name="price")(y), name="net")
    return regress(model, found, optimizers.Adam(1e-3), epochs=20, batch_size=32)


@pair("unscaled_targets")
def temperatures_in_kelvin(rng: np.random.Generator, faulty: bool) -> Task:
    """Temperatures of 288 ± 10 K from ten measurements: the offset alone costs the whole training."""
    found = data.friedman(rng)
    if faulty:
        found = found.with_labels(lambda y: 288 + 10 * y)
    return regress(dense(10, [32, 16], 1, hidden="silu"), found, optimizers.Adam(1e-2), epochs=15)


@pair("unscaled_inputs", "saturated_units")
def weather_in_mixed_units(rng: np.random.Generator, faulty: bool) -> Task:
    """A GRU on pressure in hPa, temperature in °C and humidity as a share, as they were measured."""
    found = _weather(rng) if faulty else _weather(rng).standardized()
    model = _recurrent(layers.GRU(16, name="gru"), 16, 3, 1, "sigmoid")
    return classify(model, found, optimizers.Adam(5e-3), BINARY)


@pair("unscaled_inputs", "step_too_small")
def divided_twice(rng: np.random.Generator, faulty: bool) -> Task:
    """Pixels that the loader had scaled to 1 already, divided by 255 once more."""
    found = data.digits(rng, images=True)
    found = found.with_inputs(lambda x: x / 255) if faulty else found
    return classify(_convolutional(), found, optimizers.SGD(0.05, momentum=0.9))


@pair("unscaled_inputs")
def time_in_seconds(rng: np.random.Generator, faulty: bool) -> Task:
    """The time of each row, in seconds since 1970, stands beside twenty standardized features."""
    found = data.classes(rng)
    early, late = (rng.uniform(1.60e9, 1.70e9, size=(len(x), 1)) for x in (found.x, found.x_validation))
    if not faulty:
        early, late = (early - 1.65e9) / 3e7, (late - 1.65e9) / 3e7
    found = found._replace(
        x=np.concatenate([found.x, early], axis=1).astype("float32"),
        x_validation=np.concatenate([found.x_validation, late], axis=1).astype("float32"),
    )
    return classify(dense(21, [32, 16], 4, "softmax", "gelu"), found)


@pair("constant_inputs")
def one_of_two_inputs_blank(rng: np.random.Generator, faulty: bool) -> Task:
    """Two tables were joined by a key that never matched: the second input, which tells more, is zero in all rows."""
    found = data.classes(rng, features=16)
    first, second = keras.Input((6,), name="first"), keras.Input((10,), name="second")
    y = layers.Concatenate(name="both")(
        [
            layers.Dense(24, activation="relu", name="of_first")(first),
            layers.Dense(24, activation="relu", name="of_second")(second),
        ]
    )
    model = ki.IntrospectiveModel([first, second], layers.Dense(4, activation="softmax", name="head")(y), name="net")

    def parts(x: np.ndarray) -> list[np.ndarray]:
        return [x[:, :6], 0 * x[:, 6:] if faulty else x[:, 6:]]

    fit = fitting(found) | {"x": parts(found.x), "validation_data": (parts(found.x_validation), found.y_validation)}
    compiled = {"optimizer": optimizers.Adam(5e-3), "loss": "sparse_categorical_crossentropy"}
    return Task(model, compiled, fit, accuracy(parts(found.x_validation), found.y_validation))


@pair("constant_inputs", "no_gradient")
def normalized_over_one_feature(rng: np.random.Generator, faulty: bool) -> Task:
    """Layer normalisation over the one feature of a sequence, of which nothing is left."""
    norm = layers.LayerNormalization(axis=-1 if faulty else 1, name="norm")
    model = stack((20, 1), norm, layers.GRU(16, name="gru"), layers.Dense(3, activation="softmax", name="head"))
    return classify(model, data.waves(rng), optimizers.Adam(5e-3))


# --- steps and schedules ---


@pair("step_too_large", "exploding_gradients")
def summed_over_the_batch(rng: np.random.Generator, faulty: bool) -> Task:
    """A loss of the user's own that sums over the batch: gradients are 64 times those of the mean."""

    def entropy(truth: Any, guess: Any) -> Any:
        each = keras.losses.sparse_categorical_crossentropy(truth, guess)
        return ops.sum(each) if faulty else ops.mean(each)

    return classify(_convolutional(), data.digits(rng, images=True), optimizers.SGD(0.1), entropy)


@pair("step_too_large", "dying_units", "dead_units")
def convolutions_killed(rng: np.random.Generator, faulty: bool) -> Task:
    """SGD 0.4 with momentum 0.9 on a convolutional net of ReLUs."""
    optimizer = optimizers.SGD(0.4 if faulty else 0.03, momentum=0.9)
    return classify(_convolutional(), data.digits(rng, images=True), optimizer)


@pair("step_too_large", "oscillation")
def growing_step(rng: np.random.Generator, faulty: bool) -> Task:
    """A scheduler that multiplies the step by 1.5 after each epoch where it was to divide."""
    callback = LearningRateScheduler(lambda epoch, rate: rate * 1.5 if faulty else rate / 1.2)
    model = dense(64, [48, 48], 10, "softmax", "elu")
    return classify(model, data.digits(rng), optimizers.Adam(2e-3), epochs=12, callbacks=[callback])


@pair("step_too_large", "oscillation")
def momentum_of_999(rng: np.random.Generator, faulty: bool) -> Task:
    """SGD 0.1 with momentum 0.999, on Friedman's regression."""
    optimizer = optimizers.SGD(0.1 if faulty else 0.03, momentum=0.999 if faulty else 0.9)
    return regress(dense(10, [32], 1, hidden="tanh"), data.friedman(rng), optimizer)


@pair("step_too_large", "oscillation")
def fast_attention(rng: np.random.Generator, faulty: bool) -> Task:
    """Attention over tokens, Adam at 0.2: far too fast for it."""
    inputs = keras.Input((16,), dtype="int32", name="tokens")
    y = layers.Embedding(200, 24, name="embedding")(inputs)
    y = layers.Add(name="add")([y, layers.MultiHeadAttention(2, 12, name="attention")(y, y)])
    y = layers.Dense(32, activation="relu", name="wide")(layers.LayerNormalization(name="norm")(y))
    y = layers.GlobalAveragePooling1D(name="mean")(y)
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, activation="sigmoid", name="head")(y), name="net")
    return classify(model, data.tokens(rng), optimizers.Adam(0.2 if faulty else 2e-3), BINARY, epochs=6)


@pair("step_too_small", "unchanged_weights")
def decayed_at_once(rng: np.random.Generator, faulty: bool) -> Task:
    """A step that is halved after every batch, where it was to be after every epoch."""
    schedule = optimizers.schedules.ExponentialDecay(0.1, 1 if faulty else 46, 0.5 if faulty else 0.9, staircase=True)
    return classify(dense(64, [48], 10, "softmax"), data.digits(rng), optimizers.SGD(schedule), batch_size=32)


@pair("step_too_small")
def adadelta_as_it_comes(rng: np.random.Generator, faulty: bool) -> Task:
    """Adadelta at Keras's default of 0.001, where its authors have 1."""
    optimizer = optimizers.Adadelta() if faulty else optimizers.Adadelta(1.0)
    return classify(_convolutional(), data.digits(rng, images=True), optimizer, batch_size=32)


@pair("step_too_small", "unchanged_weights")
def whole_number_warmup(rng: np.random.Generator, faulty: bool) -> Task:
    """A warm-up by `epoch // 10`, which is 0 through the first ten epochs; there are ten."""
    rise = LearningRateScheduler(lambda epoch: 5e-3 * ((epoch + 1) // 11 if faulty else (epoch + 1) / 10))
    model = dense(20, [32, 32], 4, "softmax", "silu")
    return classify(model, data.classes(rng), optimizers.Adam(5e-3), callbacks=[rise])


@pair("step_too_small")
def large_epsilon(rng: np.random.Generator, faulty: bool) -> Task:
    """Adam with an epsilon of 1, as for another net, on a recurrent one."""
    optimizer = optimizers.Adam(5e-3, epsilon=1.0 if faulty else 1e-7)
    return classify(_recurrent(layers.LSTM(16, name="lstm"), 20, 1, 3, "softmax"), data.waves(rng), optimizer)


# --- initialisation ---


@pair("large_initialization", "saturated_units")
def lstm_of_large_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """An LSTM whose kernels are of standard deviation 3."""
    start = {"kernel_initializer": initializers.RandomNormal(stddev=3.0)} if faulty else {}
    start |= {"recurrent_initializer": initializers.RandomNormal(stddev=3.0)} if faulty else {}
    model = _recurrent(layers.LSTM(16, name="lstm", **start), 20, 1, 3, "softmax")
    return classify(model, data.waves(rng), optimizers.Adam(5e-3))


@pair("large_initialization", "exploding_activations")
def unit_normal_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """Three wide layers of ReLUs whose kernels are of standard deviation 1, as a first tutorial draws them."""
    start = initializers.RandomNormal(stddev=1.0) if faulty else "he_normal"
    return classify(dense(20, [96, 96, 96], 4, "softmax", start=start), data.classes(rng), optimizers.Adam(1e-3))


@pair("constant_initialization", "no_gradient")
def embeddings_of_zero(rng: np.random.Generator, faulty: bool) -> Task:
    """Ratings as products of two embeddings that both start at zero: neither gives the other a gradient."""
    users, items = rng.normal(size=(2, 40, 3))
    user, item = rng.integers(40, size=(2, 2400))
    rating = (users[user] * items[item]).sum(axis=1, keepdims=True) + rng.normal(0, 0.1, (2400, 1))
    found = data.split(rng, np.stack([user, item], axis=1), rating)
    start = "zeros" if faulty else initializers.RandomNormal(stddev=0.3)
    inputs = keras.Input((2,), dtype="int32", name="pair")
    left = layers.Embedding(40, 6, embeddings_initializer=start, name="users")(inputs[:, 0])
    right = layers.Embedding(40, 6, embeddings_initializer=start, name="items")(inputs[:, 1])
    model = ki.IntrospectiveModel(inputs, layers.Dot(1, name="rating")([left, right]), name="net")
    return regress(model, found, optimizers.Adam(2e-2))


@pair("dead_units", "dying_units")
def negative_start(rng: np.random.Generator, faulty: bool) -> Task:
    """A convolutional net whose biases start at −0.2 instead of 0."""
    model = _convolutional(bias_initializer=initializers.Constant(-0.2 if faulty else 0.0))
    return classify(model, data.digits(rng, images=True), optimizers.SGD(0.05, momentum=0.9))


@pair("vanishing_gradients")
def small_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """Six layers of tanh whose kernels are of standard deviation 0.08."""
    start = initializers.RandomNormal(stddev=0.08) if faulty else "glorot_normal"
    model = dense(64, [32] * 6, 10, "softmax", "tanh", start)
    return classify(model, data.digits(rng), optimizers.SGD(0.05, momentum=0.9))


@pair("vanishing_gradients")
def forgotten_first_step(rng: np.random.Generator, faulty: bool) -> Task:
    """What the first of forty steps says, through a recurrent layer of sigmoids."""
    layer = layers.SimpleRNN(16, activation="sigmoid" if faulty else "tanh", name="rnn")
    return classify(_recurrent(layer, 40, 1, 1, "sigmoid"), _first_step(rng), optimizers.Adam(3e-3), BINARY)


@pair("exploding_activations", "exploding_gradients")
def sums_without_normalisation(rng: np.random.Generator, faulty: bool) -> Task:
    """Fourteen residual blocks; nothing normalises what they add."""
    inputs = keras.Input((20,), name="features")
    y = layers.Dense(32, name="stem")(inputs)
    for i in range(14):
        z = y if faulty else layers.LayerNormalization(name=f"norm{i}")(y)
        z = layers.Dense(32, activation="relu", kernel_initializer="he_normal", name=f"dense{i}")(z)
        y = layers.Add(name=f"add{i}")([y, z])
    y = y if faulty else layers.LayerNormalization(name="last_norm")(y)
    model = ki.IntrospectiveModel(inputs, layers.Dense(4, activation="softmax", name="head")(y), name="net")
    return classify(model, data.classes(rng), optimizers.SGD(0.02, momentum=0.9), epochs=6)


# --- where no gradient comes ---


class Detached(ki.IntrospectiveModel):
    """Tokens, embedded, averaged, classified; the embedding may be cut off from the gradient."""

    def __init__(self, cut: bool) -> None:
        super().__init__(name="net")
        self.cut = cut
        self.embedding = layers.Embedding(200, 3, name="embedding")
        self.mean = layers.GlobalAveragePooling1D(name="mean")
        self.head = layers.Dense(1, activation="sigmoid", name="head")
        self(np.zeros((1, 16), "int64"))

    def call(self, tokens: Any) -> Any:
        found = self.embedding(tokens)
        return self.head(self.mean(ops.stop_gradient(found) if self.cut else found))


@pair("no_gradient", "unchanged_weights")
def embedding_detached(rng: np.random.Generator, faulty: bool) -> Task:
    """A subclassed model that stops the gradient in front of its embedding."""
    return classify(Detached(faulty), data.tokens(rng), optimizers.Adam(2e-2), BINARY)


class PartlyApplied(ki.IntrospectiveModel):
    """A training step of the user's own, which may ask for the gradients of the last layer alone."""

    only_last = False

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        variables = self.layers[-1].trainable_variables if self.only_last else self.trainable_variables
        with tf.GradientTape() as tape:
            guess = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=guess)
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {**self.compute_metrics(x, y, guess), "loss": loss}


@pair("unchanged_weights", "no_gradient")
def only_the_head_applied(rng: np.random.Generator, faulty: bool) -> Task:
    """A training step that applies the gradients of the head and forgets all other layers."""
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(16, activation="relu", name="hidden1")(inputs)
    y = layers.Dense(8, activation="relu", name="hidden2")(y)
    model = PartlyApplied(inputs, layers.Dense(10, activation="softmax", name="head")(y), name="net")
    model.only_last = faulty
    return classify(model, data.digits(rng), optimizers.Adam(5e-3))


class Rounded(layers.Layer):
    """Codes of zeros and ones; with `through`, the gradient passes as if they had not been rounded."""

    def __init__(self, through: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.through = through

    def call(self, inputs: Any) -> Any:
        rounded = ops.round(inputs)
        return inputs + ops.stop_gradient(rounded - inputs) if self.through else rounded


@pair("no_gradient", "unchanged_weights")
def rounded_codes(rng: np.random.Generator, faulty: bool) -> Task:
    """Codes of eight bits, rounded: a gradient does not get through."""
    model = stack(
        (64,),
        layers.Dense(32, activation="relu", name="hidden"),
        layers.Dense(8, activation="sigmoid", name="code"),
        Rounded(not faulty, name="rounded"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(1e-2), epochs=12)


@pair("unchanged_weights", "no_gradient")
def all_frozen(rng: np.random.Generator, faulty: bool) -> Task:
    """A model that was frozen while something was tried, and never thawed."""
    model = dense(64, [32], 10, "softmax")
    model.trainable = not faulty
    return classify(model, data.digits(rng), optimizers.Adam(5e-3), epochs=6)


# --- what normalises, drops and penalises ---


class Dropping(ki.IntrospectiveModel):
    """Digits through one hidden layer and dropout, which is told the phase, or always that it trains."""

    def __init__(self, always: bool) -> None:
        super().__init__(name="net")
        self.always = always
        self.hidden = layers.Dense(32, activation="relu", name="hidden")
        self.dropout = layers.Dropout(0.6, name="dropout")
        self.head = layers.Dense(10, activation="softmax", name="head")
        self(np.zeros((1, 64), "float32"))

    def call(self, x: Any, training: bool | None = None) -> Any:
        return self.head(self.dropout(self.hidden(x), training=True if self.always else training))


@pair("wrong_phase")
def dropout_while_predicting(rng: np.random.Generator, faulty: bool) -> Task:
    """Dropout that is called with training=True, and so drops of predictions too."""
    return classify(Dropping(faulty), data.digits(rng))


class Untold(ki.IntrospectiveModel):
    """A training step of the user's own, which may forget to say that it is one."""

    told = True

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        with tf.GradientTape() as tape:
            guess = self(x, training=True) if self.told else self(x, training=False)
            loss = self.compute_loss(x=x, y=y, y_pred=guess)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {**self.compute_metrics(x, y, guess), "loss": loss}


@pair("wrong_phase", "normalization_phase_gap")
def step_in_inference(rng: np.random.Generator, faulty: bool) -> Task:
    """A training step that calls the model as for inference: batch normalisation does nothing in it."""
    inputs = keras.Input((8, 8, 1), name="image")
    y = inputs
    for i in range(1, 5):
        y = layers.Conv2D(12, 3, padding="same", use_bias=False, name=f"conv{i}")(y)
        y = layers.ReLU(name=f"relu{i}")(layers.BatchNormalization(momentum=0.9, name=f"norm{i}")(y))
    y = layers.GlobalAveragePooling2D(name="pool")(y)
    model = Untold(inputs, layers.Dense(10, activation="softmax", name="head")(y), name="net")
    model.told = not faulty
    return classify(model, data.digits(rng, images=True), optimizers.Adam(5e-3), epochs=6)


@pair("normalization_phase_gap", "no_gradient")
def normalized_one_by_one(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation over batches of one sample, of which nothing is left."""
    model = stack(
        (13,),
        layers.Dense(16, use_bias=False, name="dense"),
        layers.BatchNormalization(momentum=0.9, name="norm"),
        layers.ReLU(name="relu"),
        layers.Dense(3, activation="softmax", name="head"),
    )
    found, size = data.wine(rng).standardized(), 1 if faulty else 16
    task = classify(model, found, optimizers.Adam(1e-3 if faulty else 5e-3), epochs=8, batch_size=size)
    whole = np.concatenate([found.x, found.x_validation]), np.concatenate([found.y, found.y_validation])
    return task._replace(quality=accuracy(*whole))  # 36 wines alone would be a noisy measure


@pair("normalization_phase_gap")
def momentum_of_another_library(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation at momentum 0.01, which elsewhere means 0.99, on batches of 6: its statistics are the last
    batch's.
    """
    parts: list[Any] = []
    for i in (1, 2):
        parts += [
            layers.Dense(32, use_bias=False, name=f"dense{i}"),
            layers.BatchNormalization(momentum=0.01 if faulty else 0.99, name=f"norm{i}"),
            layers.ReLU(name=f"relu{i}"),
        ]
    model = stack((20,), *parts, layers.Dense(4, activation="softmax", name="head"))
    return classify(model, data.classes(rng), optimizers.Adam(3e-3), epochs=5, batch_size=6)


@pair("normalization_phase_gap")
def few_steps_at_default_momentum(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation at Keras's momentum of 0.99 and large batches: 18 steps are too few for its
    statistics to reach those of pixels up to 16.
    """
    parts: list[Any] = []
    for i in (1, 2):
        parts += [
            layers.Conv2D(24, 3, strides=i, padding="same", use_bias=False, name=f"conv{i}"),
            layers.BatchNormalization(momentum=0.99 if faulty else 0.5, name=f"norm{i}"),
            layers.ReLU(name=f"relu{i}"),
        ]
    model = stack(
        (8, 8, 1), *parts, layers.Flatten(name="flatten"), layers.Dense(10, activation="softmax", name="head")
    )
    found = data.digits(rng, images=True).with_inputs(lambda x: 16 * x)
    return classify(model, found, optimizers.Adam(1e-2), epochs=6, batch_size=512)


@pair("over_regularized")
def decoupled_decay(rng: np.random.Generator, faulty: bool) -> Task:
    """AdamW with a weight decay of 5, where 0.01 was meant."""
    optimizer = optimizers.AdamW(3e-3, weight_decay=5.0 if faulty else 0.01)
    return classify(dense(64, [48, 32], 10, "softmax"), data.digits(rng), optimizer)


@pair("over_regularized")
def activities_penalised(rng: np.random.Generator, faulty: bool) -> Task:
    """An L2 penalty of 20 on what the hidden layer puts out."""
    penalty = regularizers.L2(20.0 if faulty else 1e-4)
    model = stack(
        (16,),
        layers.Embedding(200, 16, name="embedding"),
        layers.GlobalAveragePooling1D(name="mean"),
        layers.Dense(16, activation="tanh", activity_regularizer=penalty, name="hidden"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, data.tokens(rng), optimizers.Adam(5e-3), BINARY)


@pair("over_regularized")
def lasso_on_convolutions(rng: np.random.Generator, faulty: bool) -> Task:
    """An L1 penalty of 0.03 on the kernels of a convolutional net."""
    penalty = regularizers.L1(0.03 if faulty else 1e-5)
    return classify(_convolutional(kernel_regularizer=penalty), data.digits(rng, images=True), optimizers.Adam(2e-3))


# --- values that are none ---


@pair("nonfinite")
def divided_by_no_deviation(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits, standardized pixel by pixel; those at the edge never vary, and 0/0 is no number."""
    found = data.digits(rng)
    mean, std = found.x.mean(axis=0), found.x.std(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = found.with_inputs(lambda x: (x - mean) / (std if faulty else std + 0.1))
    return classify(dense(64, [32], 10, "softmax"), found)


@pair("nonfinite")
def likelihood_without_bound(rng: np.random.Generator, faulty: bool) -> Task:
    """A mean and a deviation are learned by the normal likelihood; the deviation is a ReLU's, and may be 0."""

    def likelihood(truth: Any, guess: Any) -> Any:
        raw = guess[:, 1:]
        deviation = ops.relu(raw) if faulty else ops.softplus(raw) + 0.05
        return ops.log(deviation) + ops.square((truth - guess[:, :1]) / deviation) / 2

    found = data.friedman(rng)
    task = regress(dense(10, [32, 32], 2, hidden="tanh"), found, loss=likelihood)
    score = r_squared(found.x_validation, found.y_validation)
    return task._replace(
        quality=lambda model: score(keras.Sequential([model, layers.Lambda(lambda both: both[:, :1])]))
    )


@pair("nonfinite", "unscaled_inputs")
def beyond_half_precision(rng: np.random.Generator, faulty: bool) -> Task:
    """Incomes in the ten and hundred thousands, computed in float16, which ends at 65504."""
    x = rng.normal(size=(1000, 6))
    found = data.split(rng, x, (x[:, 0] - x[:, 1] * x[:, 2] > 0).astype(int))
    if faulty:
        found = found.with_inputs(
            lambda x: np.concatenate([55e3 * np.exp(x[:, :1] / 2), x[:, 1:]], 1).astype("float32")
        )
    model = stack(
        (6,),
        layers.Dense(32, activation="relu", dtype="mixed_float16", name="hidden1"),
        layers.Dense(32, activation="relu", dtype="mixed_float16", name="hidden2"),
        layers.Dense(1, activation="sigmoid", dtype="float32", name="head"),
    )
    return classify(model, found, loss=BINARY, epochs=15)


# --- how long, on how much, by how large a net ---


@pair("overfitting")
def few_texts(rng: np.random.Generator, faulty: bool) -> Task:
    """An LSTM on 80 texts, 20 epochs."""
    found = data.tokens(rng, 1200)
    if faulty:
        found = found._replace(x=found.x[:80], y=found.y[:80])
    model = stack(
        (16,),
        layers.Embedding(200, 16, name="embedding"),
        layers.LSTM(16, name="lstm"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    epochs, size = (20, 16) if faulty else (5, 32)
    return classify(model, found, optimizers.Adam(5e-3), BINARY, epochs=epochs, batch_size=size)


@pair("overfitting")
def patients_by_heart(rng: np.random.Generator, faulty: bool) -> Task:
    """Diabetes: 353 patients, two layers of 96 units, 30 epochs."""
    found = data.diabetes(rng).standardized_targets()
    if faulty:
        return regress(dense(10, [96, 96], 1), found, optimizers.Adam(5e-3), epochs=30, batch_size=32)
    return regress(dense(10, [8], 1), found, optimizers.Adam(5e-3), epochs=12, batch_size=32)


@pair("underfitting")
def activations_forgotten(rng: np.random.Generator, faulty: bool) -> Task:
    """Concentric circles, two layers of 32 units without any activation."""
    model = dense(2, [32, 32], 1, "sigmoid", "linear" if faulty else "relu")
    return classify(model, data.circles(rng), optimizers.Adam(1e-2), BINARY)


@pair("underfitting")
def one_filter(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits as images through a single filter and global pooling."""
    model = stack(
        (8, 8, 1),
        layers.Conv2D(1 if faulty else 48, 3, activation="relu", name="conv1"),
        layers.Conv2D(2 if faulty else 48, 3, activation="relu", name="conv2"),
        layers.GlobalMaxPooling2D(name="pool"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng, images=True), optimizers.Adam(1e-2))


@pair("stopped_early")
def stopped_by_the_wrong_sign(rng: np.random.Generator, faulty: bool) -> Task:
    """Early stopping that waits for the validation loss to grow."""
    stop = EarlyStopping(monitor="val_loss", mode="max" if faulty else "min", patience=3)
    model = dense(64, [48, 32], 10, "softmax")
    return classify(model, data.digits(rng), optimizers.SGD(0.05), epochs=20, callbacks=[stop])


# --- ordinary trainings ---


@healthy()
def seldom_words(rng: np.random.Generator) -> Task:
    """A vocabulary of which most words are seldom or never seen, so that most of the embedding stays as drawn."""
    model = stack(
        (12,),
        layers.Embedding(1500, 8, name="embedding"),
        layers.GlobalAveragePooling1D(name="mean"),
        layers.Dense(16, activation="relu", name="hidden"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, _words(rng), optimizers.Adam(1e-2), BINARY)


@healthy()
def dropout_of_most(rng: np.random.Generator) -> Task:
    """Digits, a wide layer of which seven in ten are dropped; training accuracy stays below that of validation."""
    model = stack(
        (64,),
        layers.Dense(384, activation="relu", name="hidden"),
        layers.Dropout(0.7, name="dropout"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(2e-3))


@healthy()
def one_in_fifteen(rng: np.random.Generator) -> Task:
    """One sample in fifteen is positive; nothing is weighted, and the bias of the head starts at its log odds."""
    x = rng.normal(size=(1500, 8))
    score = x[:, 0] + x[:, 1] + rng.normal(0, 0.2, 1500)
    found = data.split(rng, x, (score > np.quantile(score, 1 - 1 / 15)).astype(int))
    model = dense(8, [16], 1, "sigmoid")
    model.layers[-1].bias.assign([-np.log(14)])
    return classify(model, found, optimizers.Adam(5e-3), BINARY)


@healthy()
def scaled_down_loss(rng: np.random.Generator) -> Task:
    """The loss is weighted by 1e-4, and gradients are tiny; Adam does not mind."""
    task = classify(dense(64, [48, 32], 10, "softmax"), data.digits(rng), optimizers.Adam(3e-3, epsilon=1e-12))
    return task._replace(compile=task.compile | {"loss_weights": 1e-4})


@healthy()
def pixels_rescaled_inside(rng: np.random.Generator) -> Task:
    """Pixels up to 255, which the first layer of the model itself scales."""
    model = stack(
        (8, 8, 1),
        layers.Rescaling(1 / 127.5, offset=-1, name="scale"),
        layers.Conv2D(16, 3, padding="same", name="conv1"),
        layers.LeakyReLU(0.1, name="leaky1"),
        layers.MaxPooling2D(name="pool"),
        layers.Conv2D(32, 3, padding="same", name="conv2"),
        layers.LeakyReLU(0.1, name="leaky2"),
        layers.Flatten(name="flatten"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng, images=True).with_inputs(lambda x: 255 * x))


@healthy()
def measurements_normalized_inside(rng: np.random.Generator) -> Task:
    """Breast cancer as it ships, behind a normalisation layer that was adapted to it; SiLU."""
    found = data.cancer(rng)
    norm = layers.Normalization(name="scale")
    norm.adapt(found.x)
    model = stack(
        (30,),
        norm,
        layers.Dense(24, activation="silu", name="hidden"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, found, optimizers.Adam(3e-3), BINARY, epochs=12, batch_size=32)


@healthy()
def shares(rng: np.random.Generator) -> Task:
    """Targets that are shares from 0 to 1, a sigmoid, squared error: a regression, whatever its head."""
    x = rng.normal(size=(1000, 6))
    y = 1 / (1 + np.exp(-(x[:, :1] - x[:, 1:2] * x[:, 2:3]))) + rng.normal(0, 0.03, (1000, 1))
    return regress(dense(6, [32, 32], 1, "sigmoid"), data.split(rng, x, y.clip(0, 1)), optimizers.Adam(5e-3))


@healthy()
def smoothed_labels(rng: np.random.Generator) -> Task:
    """Labels smoothed by 0.2, so that the loss ends far above 0; Nadam."""
    found = data.digits(rng).with_labels(lambda y: keras.utils.to_categorical(y, 10))
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.2)
    return classify(dense(64, [64, 32], 10, "softmax", "gelu"), found, optimizers.Nadam(3e-3), loss)


@healthy()
def clipped_recurrence(rng: np.random.Generator) -> Task:
    """Two GRUs, one on the other, and gradients clipped to a small norm at every step."""
    model = stack(
        (20, 1),
        layers.GRU(16, return_sequences=True, name="gru1"),
        layers.GRU(16, name="gru2"),
        layers.Dense(3, activation="softmax", name="head"),
    )
    return classify(model, data.waves(rng), optimizers.Adam(1e-2, clipnorm=0.05), epochs=6)


@healthy()
def warm_restarts(rng: np.random.Generator) -> Task:
    """A step that falls and starts again, three times."""
    schedule = optimizers.schedules.CosineDecayRestarts(0.1, 92, t_mul=1.0, m_mul=0.9)
    optimizer = optimizers.SGD(schedule, momentum=0.9)
    return classify(dense(64, [48, 48], 10, "softmax"), data.digits(rng), optimizer, epochs=12)


@healthy()
def random_features(rng: np.random.Generator) -> Task:
    """Cosines of random projections, which are never trained, and a linear head on them."""
    width = 200

    def phase(shape: Any, dtype: Any = None) -> Any:
        return ops.convert_to_tensor(np.random.default_rng(0).uniform(0, 2 * np.pi, shape), dtype)

    projection = layers.Dense(
        width,
        activation=ops.cos,
        kernel_initializer=initializers.RandomNormal(stddev=2.0),
        bias_initializer=phase,
        trainable=False,
        name="projection",
    )
    model = stack((2,), projection, layers.Dense(1, activation="sigmoid", name="head"))
    return classify(model, data.moons(rng), optimizers.Adam(1e-2), BINARY)


@healthy()
def unequal_tasks(rng: np.random.Generator) -> Task:
    """A class, which is what matters, and three values beside it whose loss is weighted by 0.01."""
    found = data.classes(rng)
    inputs = keras.Input((20,), name="features")
    y = layers.Dense(48, activation="relu", name="shared")(inputs)
    kind = layers.Dense(4, activation="softmax", name="kind")(y)
    values = layers.Dense(3, name="values")(layers.Dense(16, activation="relu", name="before_values")(y))
    model = ki.IntrospectiveModel(inputs, [kind, values], name="net")
    losses = ["sparse_categorical_crossentropy", "mse"]

    def targets(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return labels, x[:, :3] * x[:, 3:6]

    fit = fitting(found) | {"y": targets(found.x, found.y)}
    fit["validation_data"] = (found.x_validation, targets(found.x_validation, found.y_validation))
    score = accuracy(found.x_validation, found.y_validation)
    return Task(
        model,
        {"optimizer": optimizers.Adam(5e-3), "loss": losses, "loss_weights": [1.0, 0.01]},
        fit,
        lambda model: score(keras.Model(model.inputs, model.outputs[0])),
    )


@healthy()
def two_epochs_suffice(rng: np.random.Generator) -> Task:
    """Many rows of an easy task, two epochs."""
    found = data.blobs(rng, 4000, spread=0.8).standardized()
    return classify(dense(2, [16], 3, "softmax", "mish"), found, optimizers.Adam(1e-2), epochs=2, batch_size=32)


@healthy()
def much_noise(rng: np.random.Generator) -> Task:
    """A regression of whose variance four fifths are noise; what there is to learn is learned."""
    x = rng.normal(size=(3000, 5))
    y = x @ [[1.0], [-1.0], [0.5], [0.0], [0.0]] + rng.normal(0, 3.0, (3000, 1))
    found = data.split(rng, x, y).standardized_targets()
    return regress(dense(5, [8], 1), found, optimizers.Adam(2e-3), epochs=6)


@healthy()
def margin_between_classes(rng: np.random.Generator) -> Task:
    """Classes −1 and 1, a linear unit, the hinge loss, as a support vector machine has it."""
    found = data.cancer(rng).standardized()
    task = classify(dense(30, [16], 1), found, optimizers.Adam(2e-3), "hinge", batch_size=32)
    truth = found.y_validation == 1
    score = lambda model: float(np.mean((model.predict(found.x_validation, verbose=0)[:, 0] > 0) == truth))  # noqa: E731
    task.compile.pop("metrics")
    return task._replace(fit=fitting(found.with_labels(lambda y: 2 * y - 1), batch_size=32), quality=score)


@healthy()
def angles(rng: np.random.Generator) -> Task:
    """Vectors whose direction is to be told, by the cosine similarity: a loss that falls to −1."""
    x = rng.normal(size=(1000, 8))
    y = np.tanh(x @ rng.normal(size=(8, 4))) + rng.normal(0, 0.1, (1000, 4))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    model = stack(
        (8,),
        layers.Dense(32, activation="relu", name="hidden"),
        layers.Dense(4, name="direction"),
        layers.UnitNormalization(name="length"),
    )
    return regress(model, data.split(rng, x, y), optimizers.Adam(5e-3), "cosine_similarity")


@healthy()
def degrees_rescaled_at_the_end(rng: np.random.Generator) -> Task:
    """Targets of 150 ± 40, and a last layer that brings what the net says to their scale."""
    found = data.friedman(rng).with_labels(lambda y: 150 + 40 * y)
    model = stack(
        (10,),
        layers.Dense(32, activation="relu", name="hidden1"),
        layers.Dense(32, activation="relu", name="hidden2"),
        layers.Dense(1, name="head"),
        layers.Rescaling(40.0, offset=150.0, name="degrees"),
    )
    return regress(model, found, optimizers.Adam(5e-3))


@healthy()
def padded_texts(rng: np.random.Generator) -> Task:
    """Texts of ten to sixteen tokens, filled up with zeros that a mask hides; an LSTM."""
    found = data.tokens(rng)
    lengths = {len(x): rng.integers(10, 17, size=(len(x), 1)) for x in (found.x, found.x_validation)}
    found = found.with_inputs(lambda x: np.where(np.arange(16) < lengths[len(x)], x + 1, 0))
    model = stack(
        (16,),
        layers.Embedding(201, 16, mask_zero=True, name="embedding"),
        layers.LSTM(16, name="lstm"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, found, optimizers.Adam(5e-3), BINARY, epochs=7)


@healthy()
def signs_alone(rng: np.random.Generator) -> Task:
    """Lion, whose steps are all of one size, and group normalisation in a convolutional net."""
    parts: list[Any] = []
    for i in (1, 2):
        parts += [
            layers.Conv2D(24, 3, strides=i, padding="same", name=f"conv{i}"),
            layers.GroupNormalization(4, name=f"norm{i}"),
            layers.Activation("silu", name=f"silu{i}"),
        ]
    model = stack(
        (8, 8, 1), *parts, layers.Flatten(name="flatten"), layers.Dense(10, activation="softmax", name="head")
    )
    return classify(model, data.digits(rng, images=True), optimizers.Lion(5e-4), epochs=8)


@healthy()
def winners_alone(rng: np.random.Generator) -> Task:
    """Of 128 units the twelve largest of each sample are kept, and all others are zero."""

    class Winners(layers.Layer):
        def call(self, inputs: Any) -> Any:
            least = ops.min(ops.top_k(inputs, 12)[0], axis=-1, keepdims=True)
            return ops.where(inputs >= least, inputs, 0.0)

    model = stack(
        (64,),
        layers.Dense(128, activation="relu", name="hidden"),
        Winners(name="winners"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(5e-3))
