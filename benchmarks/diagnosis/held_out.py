"""Faults and ordinary trainings that no threshold was ever chosen by.

SO are questions on Stack Overflow, Keras issues and pull requests of keras-team/keras; the papers are AUTOTRAINER
(Zhang et al. 2021), UMLAUT (Schoop et al. 2021), TheDeepChecker (Ben Braiek and Khomh 2023), DeepFD (Cao et al. 2022)
and the taxonomy of real faults by Humbatova et al. (2020).
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import initializers, layers, ops, optimizers, regularizers
from keras.callbacks import EarlyStopping, LearningRateScheduler, ReduceLROnPlateau

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

ONE = "binary_crossentropy"
SPARSE = "sparse_categorical_crossentropy"
ONE_HOT = "categorical_crossentropy"

# --- data that only these programs use ---


def _tagged(rng: np.random.Generator, size: int = 500, steps: int = 14) -> Split:
    """Sequences of three values; the label of a step is which of them was largest, this step and the last added."""
    x = rng.normal(size=(size, steps, 3))
    both = x.copy()
    both[:, 1:] += x[:, :-1]
    return data.split(rng, x, both.argmax(axis=-1))


def _discs(rng: np.random.Generator, size: int = 360, side: int = 12) -> Split:
    """Noisy images of a disc somewhere; which pixels belong to it."""
    centre, radius = rng.uniform(3, side - 3, size=(size, 2)), rng.uniform(1.5, 3.5, size)
    rows, columns = np.mgrid[:side, :side]
    away = np.hypot(rows - centre[:, :1, None], columns - centre[:, 1:, None])
    mask = (away < radius[:, None, None]).astype("float32")[..., None]
    return data.split(rng, mask + rng.normal(0, 0.5, mask.shape), mask)


def _labelled(rng: np.random.Generator, size: int = 1000, noise: float = 0.5) -> Split:
    """Twelve features, and five labels of which any number may apply."""
    x = rng.normal(size=(size, 12))
    y = x @ rng.normal(size=(12, 5)) + rng.normal(0, noise, (size, 5)) > 0.8
    return data.split(rng, x, y.astype("float32"))


def _many(rng: np.random.Generator, size: int = 1500, kinds: int = 20) -> Split:
    """Clouds of twenty kinds, told apart by half of the features."""
    y = rng.integers(kinds, size=size)
    x = rng.normal(size=(size, 24))
    x[:, :12] += rng.normal(0, 1.2, size=(kinds, 12))[y]
    return data.split(rng, x, y).standardized()


def _seasons(rng: np.random.Generator, size: int = 500, steps: int = 18) -> Split:
    """Stretches of a seasonal series, each around a level of its own, and what comes next."""
    phase, level = rng.uniform(0, 2 * np.pi, (size, 1)), rng.normal(0, 0.7, (size, 1))
    series = level + np.sin(phase + 0.5 * np.arange(steps + 1)) + rng.normal(0, 0.1, (size, steps + 1))
    return data.split(rng, series[:, :-1, None], series[:, -1:])


def _spectra(rng: np.random.Generator, size: int = 700, bands: int = 32) -> Split:
    """Spectra in decibels, from −80 to 0; the label is where, of three parts, the tone lies."""
    y = rng.integers(3, size=size)
    tone = y * (bands // 3) + rng.integers(1, bands // 3, size=size)
    power = rng.exponential(1e-5, size=(size, bands))
    power += 10 ** rng.uniform(-4.5, -3.5, (size, 1)) * np.exp(-((np.arange(bands) - tone[:, None]) ** 2) / 2)
    return data.split(rng, np.clip(10 * np.log10(power), -80, 0)[..., None], y)


def _ordered(rng: np.random.Generator, size: int = 900, length: int = 10) -> Split:
    """Two words among others, each once; the label is whether the first of them comes first."""
    x = rng.integers(3, 40, size=(size, length))
    places = np.argsort(rng.random((size, length)), axis=1)[:, :2]
    x[np.arange(size), places[:, 0]], x[np.arange(size), places[:, 1]] = 1, 2
    found = data.split(rng, x, (places[:, 0] < places[:, 1]).astype(int))
    return found.with_inputs(lambda tokens: tokens.astype("int64"))


# --- models and measures that several of them share ---


def _pixels(head: Any, hidden: Any = "relu", first: list[Any] | None = None, **arguments: Any) -> Any:
    """Two convolutions with pooling between, and a head, for images of 8×8."""
    return stack(
        (8, 8, 1),
        *(first or []),
        layers.Conv2D(16, 3, padding="same", activation=hidden, name="conv1", **arguments),
        layers.MaxPooling2D(name="pool"),
        layers.Conv2D(32, 3, padding="same", activation=hidden, name="conv2", **arguments),
        layers.Flatten(name="flatten"),
        layers.Dense(10, activation=head, name="head"),
    )


def _sequences(layer: Any, shape: tuple[int, ...], units: int, activation: str | None) -> Any:
    return stack(shape, layer, layers.Dense(units, activation=activation, name="head"))


def _each_right(found: Split, threshold: float = 0.5) -> Callable[[Any], float]:
    """The share of labels that are right, of several a sample."""

    def quality(model: Any) -> float:
        output = np.nan_to_num(model.predict(found.x_validation, verbose=0))
        return float(np.mean((output > threshold) == (found.y_validation > 0.5)))

    return quality


def _balanced(found: Split) -> Callable[[Any], float]:
    """The mean of the shares found of either class."""

    def quality(model: Any) -> float:
        guess = np.nan_to_num(model.predict(found.x_validation, verbose=0)) > 0.5
        truth = found.y_validation.reshape(guess.shape) > 0.5
        return float((guess[truth].mean() + (~guess)[~truth].mean()) / 2)

    return quality


def _overlap(found: Split) -> Callable[[Any], float]:
    """Intersection over union of masks."""

    def quality(model: Any) -> float:
        guess = np.nan_to_num(model.predict(found.x_validation, verbose=0)) > 0.5
        truth = found.y_validation > 0.5
        return float((guess & truth).sum() / max(1, (guess | truth).sum()))

    return quality


def _whole(found: Split) -> Callable[[Any], float]:
    """The accuracy on all there is, where the validation part alone would be a noisy measure."""
    return accuracy(np.concatenate([found.x, found.x_validation]), np.concatenate([found.y, found.y_validation]))


def _of_output(index: int, quality: Callable[[Any], float]) -> Callable[[Any], float]:
    """Measures one of several outputs."""
    return lambda model: quality(keras.Model(model.inputs, model.outputs[index]))


def _masks(head: str | None) -> Any:
    return stack(
        (12, 12, 1),
        layers.Conv2D(12, 5, padding="same", activation="relu", name="conv1"),
        layers.Conv2D(12, 5, padding="same", activation="relu", name="conv2"),
        layers.Conv2D(1, 1, activation=head, name="mask"),
    )


# --- heads, losses and labels ---


@pair("softmax_over_one_unit", development=False)
def one_unit_at_every_step(rng: np.random.Generator, faulty: bool) -> Task:
    """A tagger of sequences: at every step a softmax over the one unit that says yes or no."""
    found = _tagged(rng, 400).with_labels(lambda y: (y == 0).astype("float32")[..., None])
    model = stack(
        (14, 3),
        layers.GRU(20, return_sequences=True, name="gru"),
        layers.TimeDistributed(layers.Dense(1, activation="softmax" if faulty else "sigmoid", name="yes"), name="head"),
    )
    return classify(model, found, optimizers.Adam(1e-2), ONE, epochs=15)._replace(quality=_each_right(found))


@pair("softmax_over_one_unit", development=False)
def softmax_in_one_of_two_heads(rng: np.random.Generator, faulty: bool) -> Task:
    """A value and a yes or no from one body; the second by a softmax over one unit, as for more classes (UMLAUT)."""
    found = data.half_spaces(rng, 1200)
    inputs = keras.Input((20,), name="features")
    y = layers.Dense(64, activation="relu", name="shared1")(inputs)
    y = layers.Dense(32, activation="relu", name="shared2")(y)
    side = layers.Dense(1, activation="softmax" if faulty else "sigmoid", name="side")(y)
    model = ki.IntrospectiveModel(inputs, [layers.Dense(1, name="value")(y), side], name="net")

    def targets(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[:, :3].mean(axis=1, keepdims=True), labels[:, None].astype("float32")

    fit = fitting(found, epochs=15, y=targets(found.x, found.y))
    fit["validation_data"] = (found.x_validation, targets(found.x_validation, found.y_validation))
    score = _of_output(1, accuracy(found.x_validation, found.y_validation))
    return Task(model, {"optimizer": optimizers.Adam(5e-3), "loss": ["mse", ONE]}, fit, score)


@pair("head_loss_mismatch", "labels_out_of_range", development=False)
def softmax_over_several_labels(rng: np.random.Generator, faulty: bool) -> Task:
    """Any number of five labels may apply, and a softmax under categorical cross-entropy shares one out among them
    (SO 55660172).
    """
    found = _labelled(rng)
    model = dense(12, [32], 5, "softmax" if faulty else "sigmoid")
    task = classify(model, found, optimizers.Adam(5e-3), ONE_HOT if faulty else ONE)
    return task._replace(quality=_each_right(found))


@pair("head_loss_mismatch", development=False)
def softmax_over_the_steps(rng: np.random.Generator, faulty: bool) -> Task:
    """The softmax of a tagger runs over the steps of the sequence, not over the three tags of each."""
    found = _tagged(rng)
    model = stack(
        (14, 3),
        layers.Conv1D(24, 3, padding="causal", activation="relu", name="conv"),
        layers.Dense(3, name="scores"),
        layers.Softmax(axis=1 if faulty else -1, name="head"),
    )
    truth = found.y_validation
    score = lambda model: float(np.mean(model.predict(found.x_validation, verbose=0).argmax(-1) == truth))  # noqa: E731
    return classify(model, found, optimizers.Adam(5e-3))._replace(quality=score)


@pair("head_loss_mismatch", development=False)
def shares_by_sigmoids(rng: np.random.Generator, faulty: bool) -> Task:
    """Shares of four parties under the Kullback–Leibler divergence, from sigmoids that need not add up to one."""
    x = rng.normal(size=(900, 10))
    shares = np.exp(x @ rng.normal(0, 0.5, size=(10, 4)) + rng.normal(0, 0.2, (900, 4)))
    found = data.split(rng, x, shares / shares.sum(axis=1, keepdims=True))
    model = dense(10, [24], 4, "sigmoid" if faulty else "softmax", "tanh")

    def score(model: Any) -> float:
        return 1 - float(np.abs(model.predict(found.x_validation, verbose=0) - found.y_validation).sum(axis=1).mean())

    return regress(model, found, optimizers.Adam(5e-3), "kl_divergence")._replace(quality=score)


@pair("logits_as_probabilities", "head_loss_mismatch", development=False)
def pixels_from_linear_units(rng: np.random.Generator, faulty: bool) -> Task:
    """An autoencoder without an activation at its end, under binary cross-entropy by its name."""
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    model = stack(
        (64,),
        layers.Dense(40, activation="relu", name="encoder"),
        layers.Dense(12, activation="relu", name="code"),
        layers.Dense(40, activation="relu", name="decoder"),
        layers.Dense(64, activation=None if faulty else "sigmoid", name="pixels"),
    )
    return regress(model, found, optimizers.Adam(5e-3), ONE, epochs=15)


@pair("logits_as_probabilities", "head_loss_mismatch", development=False)
def waves_without_softmax(rng: np.random.Generator, faulty: bool) -> Task:
    """An LSTM, a head without activation, one-hot labels under categorical cross-entropy that is not told."""
    found = data.waves(rng).with_labels(lambda y: keras.utils.to_categorical(y, 3))
    model = _sequences(layers.LSTM(20, name="lstm"), (20, 1), 3, None)
    loss = keras.losses.CategoricalCrossentropy(from_logits=not faulty)
    return classify(model, found, optimizers.Adam(5e-3), loss)


@pair("probabilities_as_logits", "head_loss_mismatch", development=False)
def tags_squashed_twice(rng: np.random.Generator, faulty: bool) -> Task:
    """Five labels from five heads, each a sigmoid, and a binary cross-entropy that squashes them once more;
    how likely each is, is what matters."""
    found = _labelled(rng, noise=1.5)
    inputs = keras.Input((12,), name="features")
    y = layers.Dense(24, activation="gelu", name="hidden")(inputs)
    heads = [layers.Dense(1, activation="sigmoid", name=f"label{i}")(y) for i in range(5)]
    model = ki.IntrospectiveModel(inputs, layers.Concatenate(name="labels")(heads), name="net")
    task = classify(model, found, optimizers.Adam(5e-3), keras.losses.BinaryCrossentropy(from_logits=faulty))
    return task._replace(quality=r_squared(found.x_validation, found.y_validation))


@pair("probabilities_as_logits", "head_loss_mismatch", development=False)
def two_opinions_squashed_twice(rng: np.random.Generator, faulty: bool) -> Task:
    """Two softmaxes are averaged to one opinion on twenty kinds, and from_logits was copied with the loss."""
    inputs = keras.Input((24,), name="features")
    heads = []
    for i in (1, 2):
        y = layers.Dense(32, activation="relu", name=f"hidden{i}")(inputs)
        heads.append(layers.Dense(20, activation="softmax", name=f"opinion{i}")(y))
    model = ki.IntrospectiveModel(inputs, layers.Average(name="both")(heads), name="net")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=faulty)
    return classify(model, _many(rng), optimizers.SGD(0.1, momentum=0.9), loss)


@pair("labels_out_of_range", development=False)
def masks_of_0_and_255(rng: np.random.Generator, faulty: bool) -> Task:
    """Masks as the file has them, 0 and 255, under binary cross-entropy."""
    found = _discs(rng)
    task = classify(_masks("sigmoid"), found, optimizers.Adam(3e-3), ONE, batch_size=32)
    task = task._replace(quality=_overlap(found))
    return task._replace(fit=fitting(found.with_labels(lambda y: 255 * y), batch_size=32)) if faulty else task


@pair("labels_out_of_range", "head_loss_mismatch", "unscaled_targets", development=False)
def percent_behind_a_sigmoid(rng: np.random.Generator, faulty: bool) -> Task:
    """Shares were given in percent, the head is a sigmoid that ends at one."""
    x = rng.normal(size=(900, 8))
    share = 1 / (1 + np.exp(-(x[:, :1] + x[:, 1:2] * x[:, 2:3]))) + rng.normal(0, 0.03, (900, 1))
    found = data.split(rng, x, share.clip(0, 1))
    found = found.with_labels(lambda y: 100 * y) if faulty else found
    return regress(dense(8, [32, 32], 1, "sigmoid"), found, optimizers.Adam(5e-3))


@pair("labels_out_of_range", "head_loss_mismatch", development=False)
def three_wines_behind_one_sigmoid(rng: np.random.Generator, faulty: bool) -> Task:
    """Three classes, 0, 1 and 2, of which one sigmoid under binary cross-entropy is to say which (DeepFD)."""
    found = data.wine(rng).standardized()
    model = dense(13, [16], 1, "sigmoid") if faulty else dense(13, [16], 3, "softmax")
    loss = ONE if faulty else SPARSE
    return classify(model, found, optimizers.Adam(5e-3), loss, epochs=15, batch_size=16)._replace(quality=_whole(found))


@pair("squared_error_on_classes", development=False)
def squared_error_of_many(rng: np.random.Generator, faulty: bool) -> Task:
    """Twenty kinds, a softmax, and the mean squared error, by which every kind alone hardly counts."""
    found = _many(rng).with_labels(lambda y: keras.utils.to_categorical(y, 20))
    optimizer = optimizers.SGD(0.05, momentum=0.9)
    return classify(dense(24, [64], 20, "softmax"), found, optimizer, "mse" if faulty else ONE_HOT)


@pair("squared_error_on_classes", development=False)
def absolute_error_of_images(rng: np.random.Generator, faulty: bool) -> Task:
    """Ten digits as images, one-hot, a softmax, the mean absolute error."""
    found = data.digits(rng, images=True).with_labels(lambda y: keras.utils.to_categorical(y, 10))
    optimizer = optimizers.SGD(0.02, momentum=0.9)
    return classify(_pixels("softmax"), found, optimizer, "mae" if faulty else ONE_HOT, epochs=8)


# --- scales of inputs and targets ---


@pair("unscaled_inputs", development=False)
def pixels_up_to_255(rng: np.random.Generator, faulty: bool) -> Task:
    """Images with pixels up to 255 into convolutions, SGD with momentum."""
    found = data.digits(rng, images=True)
    found = found.with_inputs(lambda x: 255 * x) if faulty else found
    return classify(_pixels("softmax"), found, optimizers.SGD(0.02, momentum=0.9))


@pair("unscaled_inputs", development=False)
def divided_by_the_largest(rng: np.random.Generator, faulty: bool) -> Task:
    """A table divided by its one largest number: all columns but one are all but zero."""
    found = data.wine(rng)
    found = found.with_inputs(lambda x: x / found.x.max()) if faulty else found.standardized()
    model = dense(13, [24], 3, "softmax")
    return classify(model, found, optimizers.Adam(3e-3), epochs=20, batch_size=16)._replace(quality=_whole(found))


@pair("unscaled_inputs", "saturated_units", development=False)
def levels_of_an_index(rng: np.random.Generator, faulty: bool) -> Task:
    """An LSTM on the levels of an index around 18000; the label is whether it comes back up."""
    found = _seasons(rng, 700)
    found = found.with_labels(lambda y: y[:, 0])
    found = found._replace(
        y=(found.y > found.x[:, -1, 0]).astype("int64"),
        y_validation=(found.y_validation > found.x_validation[:, -1, 0]).astype("int64"),
    )
    found = found.with_inputs(lambda x: 18000 + 400 * x) if faulty else found
    model = _sequences(layers.LSTM(20, name="lstm"), (18, 1), 1, "sigmoid")
    return classify(model, found, optimizers.Adam(5e-3), ONE)


@pair("unscaled_inputs", "dead_units", development=False)
def decibels(rng: np.random.Generator, faulty: bool) -> Task:
    """Spectra in decibels, from −80 to 0, into convolutions with ReLUs."""
    found = _spectra(rng)
    found = found if faulty else found.with_inputs(lambda x: (x + 50) / 10)
    model = stack(
        (32, 1),
        layers.Conv1D(12, 5, strides=2, activation="relu", name="conv1"),
        layers.Conv1D(24, 5, strides=2, activation="relu", name="conv2"),
        layers.Flatten(name="flatten"),
        layers.Dense(3, activation="softmax", name="head"),
    )
    return classify(model, found, optimizers.Adam(2e-3))


@pair("unscaled_targets", development=False)
def price_beside_a_class(rng: np.random.Generator, faulty: bool) -> Task:
    """One body, two heads: of what class, and at which price in cents; the second loss is all that counts."""
    found = data.classes(rng)
    inputs = keras.Input((20,), name="features")
    y = layers.Dense(48, activation="relu", name="shared")(inputs)
    kind = layers.Dense(4, activation="softmax", name="kind")(y)
    model = ki.IntrospectiveModel(inputs, [kind, layers.Dense(1, name="price")(y)], name="net")

    def targets(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        price = np.tanh(x[:, :1]) * x[:, 1:2]
        return labels, 20000 + 5000 * price if faulty else price

    fit = fitting(found, epochs=15, y=targets(found.x, found.y))
    fit["validation_data"] = (found.x_validation, targets(found.x_validation, found.y_validation))
    score = _of_output(0, accuracy(found.x_validation, found.y_validation))
    return Task(model, {"optimizer": optimizers.Adam(5e-3), "loss": [SPARSE, "mse"]}, fit, score)


@pair("unscaled_targets", development=False)
def lengths_in_metres(rng: np.random.Generator, faulty: bool) -> Task:
    """Lengths of some hundred micrometres, given in metres: the squared error is nothing from the start."""
    found = data.friedman(rng)
    found = found.with_labels(lambda y: 2e-4 * y) if faulty else found
    return regress(dense(10, [32, 32], 1), found, optimizers.Adam(3e-3), epochs=15)


@pair("unscaled_targets", development=False)
def passengers(rng: np.random.Generator, faulty: bool) -> Task:
    """A GRU is to say how many passengers there will be next, some 50000, from standardized numbers so far."""
    found = _seasons(rng)
    found = found.with_labels(lambda y: 50000 + 9000 * y) if faulty else found
    return regress(_sequences(layers.GRU(24, name="gru"), (18, 1), 1, None), found, optimizers.Adam(5e-3), epochs=12)


@pair("constant_inputs", development=False)
def no_word_known(rng: np.random.Generator, faulty: bool) -> Task:
    """The vocabulary was built from other texts: every word is the unknown one."""
    found = data.tokens(rng)
    found = found.with_inputs(np.ones_like) if faulty else found
    model = stack(
        (16,),
        layers.Embedding(200, 12, name="embedding"),
        layers.Conv1D(16, 3, activation="relu", name="conv"),
        layers.GlobalMaxPooling1D(name="pool"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, found, optimizers.Adam(5e-3), ONE)


@pair("constant_inputs", development=False)
def clipped_to_white(rng: np.random.Generator, faulty: bool) -> Task:
    """Bright images, from 60 to 255, that were clipped to 0 and 1 before they were divided: all white."""
    found = data.digits(rng, images=True).with_inputs(lambda x: 60 + 195 * x)
    found = found.with_inputs(lambda x: np.clip(x, 0, 1) if faulty else x / 255)
    return classify(_pixels("softmax"), found, optimizers.Adam(3e-3))


@pair("constant_inputs", development=False)
def nothing_but_padding(rng: np.random.Generator, faulty: bool) -> Task:
    """Waves were padded behind to 40 steps, and of those the last 20 were kept."""
    found = data.waves(rng)
    found = found.with_inputs(lambda x: np.pad(x, ((0, 0), (0, 20), (0, 0)))[:, 20:] if faulty else x)
    return classify(_sequences(layers.GRU(16, name="gru"), (20, 1), 3, "softmax"), found, optimizers.Adam(1e-2))


# --- steps and schedules ---


@pair("step_too_large", "dying_units", "dead_units", development=False)
def thawed_at_full_speed(rng: np.random.Generator, faulty: bool) -> Task:
    """A trained net is thawed and goes on with Adam at 0.1: what it had learned is gone after some steps."""
    found = data.digits(rng, images=True)
    model = _pixels("softmax")
    model.compile(optimizers.Adam(3e-3), SPARSE)
    model.fit(found.x, found.y, epochs=4, verbose=0)
    return classify(model, found, optimizers.Adam(0.1 if faulty else 3e-4), epochs=6)


@pair("step_too_large", "exploding_gradients", "oscillation", development=False)
def weighted_by_counts(rng: np.random.Generator, faulty: bool) -> Task:
    """Classes are weighted by how many there are of the other, in the hundreds, which the step has to bear."""
    x = rng.normal(size=(1200, 10))
    score = x[:, :3].sum(axis=1) + x[:, 3] * x[:, 4] + rng.normal(0, 0.3, 1200)
    found = data.split(rng, x, (score > np.quantile(score, 0.85)).astype(int))
    negative, positive = np.bincount(found.y).tolist()
    weights = {0: positive, 1: negative} if faulty else {0: 0.6, 1: 3.0}
    model, optimizer = dense(10, [32, 16], 1, "sigmoid", "tanh"), optimizers.SGD(0.1, momentum=0.9)
    return classify(model, found, optimizer, ONE, class_weight=weights)._replace(quality=_balanced(found))


@pair("step_too_large", "nonfinite", "exploding_gradients", "exploding_activations", development=False)
def line_that_diverges(rng: np.random.Generator, faulty: bool) -> Task:
    """A linear regression of features that go together, SGD at 0.2: beyond what their curvature allows."""
    common = rng.normal(size=(800, 1))
    x = (0.8 * common + 0.6 * rng.normal(size=(800, 15))).astype("float32")
    found = data.split(rng, x, x @ rng.normal(size=(15, 1)) + rng.normal(0, 0.3, (800, 1)))
    found = found.standardized().standardized_targets()
    return regress(dense(15, [], 1), found, optimizers.SGD(0.2 if faulty else 0.02))


@pair("step_too_large", "oscillation", "dying_units", "dead_units", development=False)
def peak_of_the_cycle(rng: np.random.Generator, faulty: bool) -> Task:
    """A step that rises and falls once, to a peak of 2 that was found for another net."""
    peak = 2.0 if faulty else 0.05
    rate = LearningRateScheduler(lambda epoch: peak * (0.05 + 0.95 * np.sin(np.pi * (epoch + 0.5) / 10)))
    optimizer = optimizers.SGD(peak, momentum=0.9)
    return classify(_pixels("softmax", "elu"), data.digits(rng, images=True), optimizer, callbacks=[rate])


@pair("oscillation", "step_too_large", development=False)
def two_by_two(rng: np.random.Generator, faulty: bool) -> Task:
    """Batches of two, SGD at 0.3: each pair of samples throws the net elsewhere."""
    x = rng.normal(size=(400, 8))
    found = data.split(rng, x, (x[:, :3].sum(axis=1) + rng.normal(0, 0.8, 400) > 0).astype(int))
    step, size = (0.3, 2) if faulty else (0.1, 32)
    model = dense(8, [24, 24], 1, "sigmoid", "tanh")
    return classify(model, found, optimizers.SGD(step, momentum=0.8), ONE, epochs=6 if faulty else 12, batch_size=size)


@pair("step_too_small", development=False)
def adagrad_as_it_comes(rng: np.random.Generator, faulty: bool) -> Task:
    """Adagrad at Keras's default of 0.001, on an LSTM."""
    optimizer = optimizers.Adagrad() if faulty else optimizers.Adagrad(0.1)
    model = _sequences(layers.LSTM(20, name="lstm"), (20, 1), 3, "softmax")
    return classify(model, data.waves(rng), optimizer, batch_size=32)


@pair("step_too_small", "unchanged_weights", "stopped_early", development=False)
def decay_counted_in_steps(rng: np.random.Generator, faulty: bool) -> Task:
    """A step that falls to nothing within ten steps, where ten epochs were meant."""
    schedule = optimizers.schedules.PolynomialDecay(0.05, 10 if faulty else 230, 1e-6)
    return classify(_pixels("softmax"), data.digits(rng, images=True), optimizers.SGD(schedule, momentum=0.9))


@pair("step_too_small", development=False)
def clipped_to_nothing(rng: np.random.Generator, faulty: bool) -> Task:
    """Gradients are clipped to a norm of 0.001 under SGD, against an explosion that was none."""
    optimizer = optimizers.SGD(0.1, momentum=0.9, clipnorm=1e-3 if faulty else 1.0)
    return classify(dense(64, [48, 32], 10, "softmax", "elu"), data.digits(rng), optimizer)


@pair("step_too_small", "unchanged_weights", development=False)
def plateau_at_every_turn(rng: np.random.Generator, faulty: bool) -> Task:
    """The step is to be divided where the validation loss no longer falls; with mode="max" it is wherever it falls."""
    slower = ReduceLROnPlateau("val_loss", factor=0.2, patience=1 if faulty else 2, mode="max" if faulty else "min")
    model = dense(64, [40, 40], 10, "softmax", "tanh")
    return classify(model, data.digits(rng), optimizers.SGD(0.05), epochs=18, callbacks=[slower])


# --- initialisation ---


@pair("constant_initialization", development=False)
def filters_all_alike(rng: np.random.Generator, faulty: bool) -> Task:
    """Every kernel of a convolutional net starts at 0.05, so that one filter does what all others do."""
    start = initializers.Constant(0.05) if faulty else "glorot_uniform"
    return classify(_pixels("softmax", kernel_initializer=start), data.digits(rng, images=True))


@pair("constant_initialization", development=False)
def recurrence_all_alike(rng: np.random.Generator, faulty: bool) -> Task:
    """A recurrent layer whose kernels all start at 0.1, as somebody wanted the run to be repeatable."""
    start = initializers.Constant(0.1)
    kernels = {"kernel_initializer": start, "recurrent_initializer": start} if faulty else {}
    model = _sequences(layers.SimpleRNN(20, name="rnn", **kernels), (20, 1), 3, "softmax")
    return classify(model, data.waves(rng), optimizers.Adam(3e-3))


class Own(layers.Layer):
    """A dense layer of the user's own, with a start and perhaps not to be trained."""

    def __init__(self, units: int, start: Any = "glorot_uniform", trained: bool = True, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.units, self.start, self.trained = units, start, trained

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(
            shape=(shape[-1], self.units), initializer=self.start, trainable=self.trained, name="kernel"
        )
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", trainable=self.trained, name="bias")

    def call(self, inputs: Any) -> Any:
        return ops.relu(ops.matmul(inputs, self.kernel) + self.bias)


@pair("constant_initialization", development=False)
def own_layers_of_ones(rng: np.random.Generator, faulty: bool) -> Task:
    """Two layers of the user's own, whose weights were made by ones."""
    start = "ones" if faulty else "glorot_uniform"
    head = layers.Dense(4, activation="softmax", name="head")
    model = stack((20,), Own(32, start, name="own1"), Own(32, start, name="own2"), head)
    return classify(model, data.classes(rng))


@pair("large_initialization", "saturated_units", development=False)
def attention_over_large_embeddings(rng: np.random.Generator, faulty: bool) -> Task:
    """Embeddings that start at a standard deviation of 8, under attention, which then looks at one word alone."""
    start = initializers.RandomNormal(stddev=8.0) if faulty else "uniform"
    inputs = keras.Input((16,), dtype="int32", name="words")
    y = layers.Embedding(200, 16, embeddings_initializer=start, name="embedding")(inputs)
    y = layers.Add(name="add")([y, layers.MultiHeadAttention(2, 8, name="attention")(y, y)])
    y = layers.GlobalAveragePooling1D(name="mean")(y)
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, activation="sigmoid", name="head")(y), name="net")
    return classify(model, data.tokens(rng), optimizers.Adam(3e-3), ONE, epochs=8)


@pair("large_initialization", "saturated_units", development=False)
def autoencoder_of_large_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """An autoencoder of tanh whose kernels are drawn evenly from −3 to 3."""
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    start = initializers.RandomUniform(-3, 3) if faulty else "glorot_uniform"
    widths = {"encoder": 40, "code": 10, "decoder": 40}
    hidden = [
        layers.Dense(width, activation="tanh", kernel_initializer=start, name=name) for name, width in widths.items()
    ]
    return regress(stack((64,), *hidden, layers.Dense(64, name="pixels")), found, optimizers.Adam(5e-3))


# --- units that are dead or saturated, gradients that vanish or explode ---


@pair("dead_units", "no_gradient", development=False)
def threshold_for_maximum(rng: np.random.Generator, faulty: bool) -> Task:
    """ReLUs with threshold=6, where max_value=6 was meant: what is below six is zero."""
    parts: list[Any] = []
    for i in (1, 2):
        relu = layers.ReLU(threshold=6.0, name=f"relu{i}") if faulty else layers.ReLU(max_value=6.0, name=f"relu{i}")
        parts += [layers.Conv2D(20, 3, strides=i, padding="same", name=f"conv{i}"), relu]
    head = layers.Dense(10, activation="softmax", name="head")
    model = stack((8, 8, 1), *parts, layers.Flatten(name="flatten"), head)
    return classify(model, data.digits(rng, images=True))


@pair("dying_units", "dead_units", "step_too_large", development=False)
def killed_by_the_first_steps(rng: np.random.Generator, faulty: bool) -> Task:
    """A deep net of ReLUs for a regression, Adam at 0.2: few units outlive the first steps."""
    optimizer = optimizers.Adam(0.2 if faulty else 3e-3)
    return regress(dense(10, [32] * 4, 1, start="he_normal"), data.friedman(rng), optimizer)


@pair("vanishing_gradients", development=False)
def convolutions_of_sigmoids(rng: np.random.Generator, faulty: bool) -> Task:
    """Eight convolutions with sigmoids, one after the other (AUTOTRAINER)."""
    hidden = "sigmoid" if faulty else "relu"
    parts = [layers.Conv2D(12, 3, padding="same", activation=hidden, name=f"conv{i}") for i in range(1, 9)]
    head = layers.Dense(10, activation="softmax", name="head")
    model = stack((8, 8, 1), *parts, layers.Flatten(name="flatten"), head)
    return classify(model, data.digits(rng, images=True), optimizers.Adam(2e-3), epochs=6)


@pair("vanishing_gradients", "saturated_units", development=False)
def deep_autoencoder_of_sigmoids(rng: np.random.Generator, faulty: bool) -> Task:
    """An autoencoder of seven layers of sigmoids, which gives the mean image whatever it is shown."""
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    hidden = "sigmoid" if faulty else "elu"
    widths = (48, 32, 16, 12, 16, 32, 48)
    parts = [layers.Dense(width, activation=hidden, name=f"dense{i}") for i, width in enumerate(widths, 1)]
    model = stack((64,), *parts, layers.Dense(64, activation="sigmoid", name="pixels"))
    return regress(model, found, optimizers.Adam(3e-3), ONE)


@pair("vanishing_gradients", "dead_units", development=False)
def twenty_layers(rng: np.random.Generator, faulty: bool) -> Task:
    """Twenty layers of ReLUs from Glorot's kernels, without a way around them."""
    inputs = keras.Input((20,), name="features")
    y = layers.Dense(20, name="stem")(inputs)
    for i in range(20):
        z = layers.Dense(20, activation="relu", name=f"dense{i}")(y)
        y = z if faulty else layers.Add(name=f"add{i}")([y, layers.Rescaling(0.3, name=f"part{i}")(z)])
    model = ki.IntrospectiveModel(inputs, layers.Dense(4, activation="softmax", name="head")(y), name="net")
    return classify(model, data.classes(rng), optimizers.SGD(0.02, momentum=0.9), epochs=10)


@pair("exploding_gradients", "nonfinite", "exploding_activations", development=False)
def lstm_of_relus(rng: np.random.Generator, faulty: bool) -> Task:
    """An LSTM with ReLUs for its tanh, on sequences that it sums over 60 steps (Keras 2194)."""
    size, steps = 500, 60
    rate = rng.uniform(0.5, 2.0, size=(size, 1))
    x = rng.exponential(rate, size=(size, steps)) * 2
    found = data.split(rng, x[..., None], rate).standardized_targets()
    layer = layers.LSTM(24, activation="relu" if faulty else "tanh", name="lstm")
    model = _sequences(layer, (steps, 1), 1, None)
    return regress(model, found, optimizers.SGD(0.05, momentum=0.9), epochs=8, batch_size=32)


@pair("exploding_gradients", "step_too_large", "head_loss_mismatch", "nonfinite", development=False)
def percentages_of_nothing(rng: np.random.Generator, faulty: bool) -> Task:
    """The mean absolute percentage error of targets around zero, of some of which any error is a thousand percent."""
    optimizer = optimizers.SGD(0.01, momentum=0.9)
    model = dense(10, [32], 1, hidden="tanh")
    return regress(model, data.friedman(rng), optimizer, "mean_absolute_percentage_error" if faulty else "mse")


@pair("exploding_activations", "exploding_gradients", "nonfinite", development=False)
def squares_of_squares(rng: np.random.Generator, faulty: bool) -> Task:
    """Five layers that square what they get, in place of ReLUs, and nothing between that normalises."""
    model = dense(20, [32] * 5, 4, "softmax", ops.square if faulty else "relu")
    return classify(model, data.classes(rng), optimizers.Adam(2e-3), epochs=12)


@pair("saturated_units", "vanishing_gradients", development=False)
def steep_sigmoids(rng: np.random.Generator, faulty: bool) -> Task:
    """Sigmoids made thirty times as steep, to come near a step from 0 to 1."""
    slope = 30.0 if faulty else 1.0
    model = dense(64, [24, 16, 16], 10, "softmax", lambda x: ops.sigmoid(slope * x))
    return classify(model, data.digits(rng), optimizers.Adam(1e-2), epochs=15)


@pair("saturated_units", "large_initialization", development=False)
def stretched_before_tanh(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation before tanh whose scale starts at 40."""
    parts: list[Any] = []
    for i in range(1, 5):
        scale = initializers.Constant(40.0 if faulty else 1.0)
        parts += [
            layers.Dense(20, use_bias=False, name=f"dense{i}"),
            layers.BatchNormalization(momentum=0.9, gamma_initializer=scale, name=f"norm{i}"),
            layers.Activation("tanh", name=f"tanh{i}"),
        ]
    model = stack((20,), *parts, layers.Dense(4, activation="softmax", name="head"))
    return classify(model, data.classes(rng), optimizers.Adam(3e-3))


# --- where no gradient comes, and what does not change ---


class Chosen(layers.Layer):
    """The largest of the scores: its number, looked up, or softly, all of them by their shares."""

    def __init__(self, hard: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.hard = hard

    def build(self, shape: Any) -> None:
        self.words = self.add_weight(shape=(shape[-1], 16), initializer="glorot_uniform", name="words")

    def call(self, scores: Any) -> Any:
        if self.hard:
            return ops.take(self.words, ops.argmax(scores, axis=-1), axis=0)
        return ops.matmul(ops.softmax(scores), self.words)


@pair("no_gradient", "unchanged_weights", development=False)
def largest_of_the_codes(rng: np.random.Generator, faulty: bool) -> Task:
    """The number of the largest score is looked up in a table: what gave the scores learns nothing (Keras 11157)."""
    model = stack(
        (64,),
        layers.Dense(32, activation="relu", name="hidden"),
        layers.Dense(12, name="scores"),
        Chosen(faulty, name="chosen"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(1e-2))


@pair("no_gradient", "unchanged_weights", development=False)
def one_loss_forgotten(rng: np.random.Generator, faulty: bool) -> Task:
    """Two branches, two outputs, and the loss of the second is None."""
    found = data.classes(rng)
    inputs = keras.Input((20,), name="features")
    y = layers.Dense(24, activation="relu", name="before_kind")(inputs)
    z = layers.Dense(24, activation="relu", name="before_amount")(inputs)
    kind, amount = layers.Dense(4, activation="softmax", name="kind")(y), layers.Dense(1, name="amount")(z)
    model = ki.IntrospectiveModel(inputs, [kind, amount], name="net")

    def targets(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return labels, x[:, :1] - 0.5 * x[:, 1:2] + 0.5 * np.abs(x[:, 2:3])

    held = targets(found.x_validation, found.y_validation)
    fit = fitting(found, y=targets(found.x, found.y)) | {"validation_data": (found.x_validation, held)}
    score = _of_output(1, r_squared(found.x_validation, held[1]))
    losses = [SPARSE, None if faulty else "mse"]
    return Task(model, {"optimizer": optimizers.Adam(5e-3), "loss": losses}, fit, score)


class EncodedBefore(ki.IntrospectiveModel):
    """A training step of the user's own, in which the encoder may run before the tape is on."""

    before = False

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        encoder, rest = self.get_layer("encoder"), self.get_layer("decoder")
        code = encoder(x, training=True) if self.before else None
        with tf.GradientTape() as tape:
            guess = rest(code if self.before else encoder(x, training=True), training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=guess)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {**self.compute_metrics(x, y, guess), "loss": loss}


@pair("no_gradient", "unchanged_weights", development=False)
def encoder_outside_the_tape(rng: np.random.Generator, faulty: bool) -> Task:
    """An autoencoder with a training step of its own, which encodes before it opens the tape."""
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    first, second = layers.Dense(32, activation="relu", name="dense1"), layers.Dense(6, name="code")
    encoder = keras.Sequential([keras.Input((64,)), first, second], name="encoder")
    third, last = layers.Dense(32, activation="relu", name="dense2"), layers.Dense(64, name="pixels")
    decoder = keras.Sequential([keras.Input((6,)), third, last], name="decoder")
    inputs = keras.Input((64,), name="image")
    model = EncodedBefore(inputs, decoder(encoder(inputs)), name="net")
    model.before = faulty
    return regress(model, found, optimizers.Adam(5e-3), epochs=12)


@pair("unchanged_weights", "no_gradient", development=False)
def backbone_never_trained(rng: np.random.Generator, faulty: bool) -> Task:
    """Transfer from a backbone that was frozen, but made with weights=None: its kernels are as they were drawn."""
    found = data.digits(rng, images=True)
    parts: list[Any] = []
    for i in range(1, 5):
        parts += [
            layers.Conv2D(12, 3, padding="same", activation="relu", name=f"conv{i}"),
            *([layers.MaxPooling2D(name=f"pool{i}")] if i % 2 == 0 else []),
        ]
    parts += [layers.GlobalAveragePooling2D(name="mean")]
    backbone = keras.Sequential([keras.Input((8, 8, 1)), *parts], name="backbone")
    if not faulty:
        before = keras.Sequential([backbone, layers.Dense(10, activation="softmax")])
        before.compile(optimizers.Adam(1e-2), SPARSE)
        before.fit(found.x, found.y, epochs=6, verbose=0)
    backbone.trainable = False
    inputs = keras.Input((8, 8, 1), name="image")
    head = layers.Dense(10, activation="softmax", name="head")(backbone(inputs))
    return classify(ki.IntrospectiveModel(inputs, head, name="net"), found, optimizers.Adam(1e-2), epochs=8)


@pair("unchanged_weights", "no_gradient", development=False)
def own_layer_not_trainable(rng: np.random.Generator, faulty: bool) -> Task:
    """A layer of the user's own, whose weights were added as not trainable."""
    own = Own(7, "he_normal", trained=not faulty, name="own")
    model = stack((64,), own, layers.Dense(10, activation="softmax", name="head"))
    return classify(model, data.digits(rng), optimizers.Adam(1e-2))


# --- what normalises, drops and penalises ---


class AlwaysDropping(layers.Layer):
    """Drops of the user's own, which does not ask whether this is training."""

    def __init__(self, always: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.always = always
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return keras.random.dropout(inputs, 0.6, seed=self.seeds) if training or self.always else inputs


@pair("wrong_phase", development=False)
def own_dropout_asks_nothing(rng: np.random.Generator, faulty: bool) -> Task:
    """A dropout layer of the user's own that drops of predictions too."""
    model = stack(
        (8, 8, 1),
        layers.Conv2D(12, 3, strides=2, padding="same", activation="relu", name="conv"),
        layers.Flatten(name="flatten"),
        layers.Dense(20, activation="relu", name="hidden"),
        AlwaysDropping(faulty, name="drop"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng, images=True), optimizers.Adam(5e-3), epochs=12)


@pair("wrong_phase", "normalization_phase_gap", "unchanged_weights", development=False)
def normalization_frozen_at_the_start(rng: np.random.Generator, faulty: bool) -> Task:
    """All normalisation layers were frozen as one does to fine-tune, but the net had never been trained."""
    parts: list[Any] = []
    for i in range(1, 6):
        norm = layers.BatchNormalization(momentum=0.9, trainable=not faulty, name=f"norm{i}")
        conv = layers.Conv2D(12, 3, strides=1 + (i == 3), padding="same", use_bias=False, name=f"conv{i}")
        parts += [conv, norm, layers.ReLU(name=f"relu{i}")]
    pool, head = layers.GlobalAveragePooling2D(name="pool"), layers.Dense(10, activation="softmax", name="head")
    model = stack((8, 8, 1), *parts, pool, head)
    return classify(model, data.digits(rng, images=True), optimizers.SGD(0.05, momentum=0.9), epochs=6)


class Careless(ki.IntrospectiveModel):
    """Evaluates and predicts as if it trained, if `careless`."""

    careless = False

    def test_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        guess = self(x, training=self.careless)
        loss = self.compute_loss(x=x, y=y, y_pred=guess, training=False)
        return {**self.compute_metrics(x, y, guess), "loss": loss}

    def predict_step(self, batch: Any) -> Any:
        return self(keras.utils.unpack_x_y_sample_weight(batch)[0], training=self.careless)


@pair("wrong_phase", development=False)
def evaluated_while_dropping(rng: np.random.Generator, faulty: bool) -> Task:
    """Evaluation and prediction of the user's own call the model with training=True."""
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(40, activation="relu", name="hidden1")(inputs)
    y = layers.Dropout(0.5, name="dropout1")(y)
    y = layers.Dense(24, activation="relu", name="hidden2")(y)
    y = layers.Dropout(0.5, name="dropout2")(y)
    model = Careless(inputs, layers.Dense(10, activation="softmax", name="head")(y), name="net")
    model.careless = faulty
    return classify(model, data.digits(rng), optimizers.Adam(5e-3), epochs=15)


@pair("normalization_phase_gap", "validation_mismatch", "oscillation", development=False)
def batches_of_one_class(rng: np.random.Generator, faulty: bool) -> Task:
    """A table sorted by class and not shuffled: batch normalisation sees one class at a time."""
    found = data.classes(rng)
    if faulty:
        order = np.argsort(found.y, kind="stable")
        found = found._replace(x=found.x[order], y=found.y[order])
    parts: list[Any] = []
    for i in (1, 2):
        norm = layers.BatchNormalization(momentum=0.9, name=f"norm{i}")
        parts += [layers.Dense(32, use_bias=False, name=f"dense{i}"), norm, layers.ReLU(name=f"relu{i}")]
    model = stack((20,), *parts, layers.Dense(4, activation="softmax", name="head"))
    return classify(model, found, optimizers.Adam(3e-3), batch_size=32, shuffle=not faulty)


@pair("normalization_phase_gap", development=False)
def statistics_of_the_old_domain(rng: np.random.Generator, faulty: bool) -> Task:
    """Trained on dark digits, trained on for bright ones: normalisation at momentum 0.999 keeps the statistics of the
    dark (Keras 9965).
    """
    found = data.digits(rng)
    norms = [layers.BatchNormalization(momentum=0.9, name=f"norm{i}") for i in (1, 2)]
    parts: list[Any] = []
    for i, norm in enumerate(norms, 1):
        parts += [layers.Dense(40, use_bias=False, name=f"dense{i}"), norm, layers.ReLU(name=f"relu{i}")]
    model = stack((64,), *parts, layers.Dense(10, activation="softmax", name="head"))
    model.compile(optimizers.Adam(3e-3), SPARSE)
    model.fit(found.x / 4, found.y, epochs=3, verbose=0)
    for norm in norms:
        norm.momentum = 0.999 if faulty else 0.9
    bright = found.with_inputs(lambda x: 3 - 2 * x)
    return classify(model, bright, optimizers.Adam(3e-3), epochs=6)


class Drawn(layers.Layer):
    """Draws a code around its mean; adds the divergence from the standard normal to the loss, times a weight."""

    def __init__(self, weight: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.weight = weight
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        mean, spread = inputs
        divergence = ops.sum(ops.square(mean) + ops.exp(spread) - 1 - spread, axis=-1) / 2
        self.add_loss(self.weight * ops.mean(divergence))
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(spread / 2) * noise if training else mean


def _variational(weight: float) -> Any:
    inputs = keras.Input((64,), name="image")
    y = layers.Dense(48, activation="relu", name="encoder")(inputs)
    code = Drawn(weight, name="code")([layers.Dense(5, name="mean")(y), layers.Dense(5, name="spread")(y)])
    y = layers.Dense(48, activation="relu", name="decoder")(code)
    return ki.IntrospectiveModel(inputs, layers.Dense(64, activation="sigmoid", name="pixels")(y), name="net")


@pair("over_regularized", "underfitting", development=False)
def divergence_of_all_against_one_pixel(rng: np.random.Generator, faulty: bool) -> Task:
    """A variational autoencoder that adds up its divergence, and averages its error over 64 pixels: the code says
    nothing.
    """
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    return regress(_variational(1.0 if faulty else 2e-3), found, optimizers.Adam(5e-3), ONE, epochs=12)


@pair("over_regularized", development=False)
def recurrence_penalised(rng: np.random.Generator, faulty: bool) -> Task:
    """An LSTM with an L2 penalty of 0.1 on what it takes in and on what it keeps."""
    penalty = regularizers.L2(0.1 if faulty else 1e-6)
    layer = layers.LSTM(20, kernel_regularizer=penalty, recurrent_regularizer=penalty, name="lstm")
    return regress(_sequences(layer, (18, 1), 1, None), _seasons(rng), optimizers.Adam(1e-2))


@pair("over_regularized", "underfitting", development=False)
def kernels_held_small(rng: np.random.Generator, faulty: bool) -> Task:
    """Each unit's kernel is held to a length of 0.1, where 3 is usual."""
    limit = keras.constraints.MaxNorm(0.1 if faulty else 3.0)
    model = stack(
        (64,),
        layers.Dense(48, activation="relu", kernel_constraint=limit, name="hidden1"),
        layers.Dense(32, activation="relu", kernel_constraint=limit, name="hidden2"),
        layers.Dense(10, activation="softmax", kernel_constraint=limit, name="head"),
    )
    return classify(model, data.digits(rng))


# --- how long, on how much, by how large a net, and against what it is held ---


@pair("underfitting", development=False)
def order_lost(rng: np.random.Generator, faulty: bool) -> Task:
    """Which of two words comes first, from the average of all: the order is lost."""
    reader = layers.GlobalAveragePooling1D(name="mean") if faulty else layers.GRU(24, name="gru")
    model = stack((10,), layers.Embedding(40, 12, name="embedding"), reader, layers.Dense(1, "sigmoid", name="head"))
    return classify(model, _ordered(rng), optimizers.Adam(1e-2), ONE, epochs=12)


@pair("underfitting", development=False)
def code_of_one_value(rng: np.random.Generator, faulty: bool) -> Task:
    """An autoencoder of digits through a code of one value."""
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    model = stack(
        (64,),
        layers.Dense(40, activation="relu", name="encoder"),
        layers.Dense(1 if faulty else 12, name="code"),
        layers.Dense(40, activation="relu", name="decoder"),
        layers.Dense(64, name="pixels"),
    )
    return regress(model, found, optimizers.Adam(5e-3), epochs=12)


@pair("overfitting", development=False)
def sixty_images(rng: np.random.Generator, faulty: bool) -> Task:
    """Convolutions and a wide layer on 60 noisy images, 30 epochs."""
    found = data.digits(rng, images=True).with_inputs(lambda x: x + rng.normal(0, 0.3, x.shape).astype("float32"))
    found = found._replace(x=found.x[:60], y=found.y[:60]) if faulty else found
    model = stack(
        (8, 8, 1),
        layers.Conv2D(16, 3, padding="same", activation="relu", name="conv"),
        layers.Flatten(name="flatten"),
        layers.Dense(96 if faulty else 32, activation="relu", name="wide"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    epochs, size = (30, 16) if faulty else (5, 64)
    return classify(model, found, optimizers.Adam(3e-3), epochs=epochs, batch_size=size)


@pair("overfitting", development=False)
def more_columns_than_rows(rng: np.random.Generator, faulty: bool) -> Task:
    """Ninety patients, a hundred measurements of which six tell anything, a wide net, 30 epochs."""
    x = rng.normal(size=(1500, 100))
    y = (x[:, :6].sum(axis=1) + rng.normal(0, 0.8, 1500) > 0).astype(int)
    found = data.split(rng, x, y)
    found = found._replace(x=found.x[:90], y=found.y[:90]) if faulty else found
    model = dense(100, [64 if faulty else 4], 1, "sigmoid", "tanh")
    epochs, size = (30, 16) if faulty else (8, 32)
    return classify(model, found, optimizers.Adam(3e-3 if faulty else 2e-3), ONE, epochs=epochs, batch_size=size)


@pair("overfitting", development=False)
def attention_by_heart(rng: np.random.Generator, faulty: bool) -> Task:
    """A net with attention on 36 short texts, 25 epochs."""
    found = data.tokens(rng, 1200)
    found = found._replace(x=found.x[:36], y=found.y[:36]) if faulty else found
    inputs = keras.Input((16,), dtype="int32", name="words")
    y = layers.Embedding(200, 24, name="embedding")(inputs)
    y = layers.Add(name="add")([y, layers.MultiHeadAttention(2, 12, name="attention")(y, y)])
    y = layers.GlobalAveragePooling1D(name="mean")(layers.LayerNormalization(name="norm")(y))
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, activation="sigmoid", name="head")(y), name="net")
    epochs, size = (25, 16) if faulty else (4, 32)
    return classify(model, found, optimizers.Adam(3e-3), ONE, epochs=epochs, batch_size=size)


@pair("stopped_early", development=False)
def wants_much_progress(rng: np.random.Generator, faulty: bool) -> Task:
    """Early stopping that takes for progress only what betters the loss by 0.3 in an epoch (Keras 10924)."""
    stop = EarlyStopping("loss", min_delta=0.3 if faulty else 1e-3, patience=1 if faulty else 3)
    model = dense(24, [48], 20, "softmax", "tanh")
    return classify(model, _many(rng), optimizers.SGD(0.02, momentum=0.8), epochs=25, callbacks=[stop])


@pair("stopped_early", "underfitting", development=False)
def few_batches_an_epoch(rng: np.random.Generator, faulty: bool) -> Task:
    """Two steps an epoch, as if batches were counted in hundreds: ten epochs have seen hardly one."""
    more = {"steps_per_epoch": 2} if faulty else {}
    model = _pixels("softmax")
    return classify(model, data.digits(rng, images=True), optimizers.Adam(3e-3), epochs=8, **more)


@pair("validation_mismatch", "unscaled_inputs", development=False)
def validation_as_measured(rng: np.random.Generator, faulty: bool) -> Task:
    """The training part was standardized, the validation part was not."""
    raw = data.cancer(rng)
    found = raw.standardized()
    found = found._replace(x_validation=raw.x_validation) if faulty else found
    return classify(dense(30, [24, 12], 1, "sigmoid"), found, optimizers.Adam(3e-3), ONE, batch_size=32)


@pair("validation_mismatch", development=False)
def labels_numbered_apart(rng: np.random.Generator, faulty: bool) -> Task:
    """The names of the classes were numbered in each part for itself, in the order in which they came."""
    found = data.digits(rng)
    if faulty:
        order = np.roll(np.arange(10), 3)
        found = found._replace(y_validation=order[found.y_validation])
    return classify(dense(64, [48], 10, "softmax", "swish"), found, optimizers.Adam(5e-3))


@pair("validation_mismatch", development=False)
def last_fifth_of_a_sorted_table(rng: np.random.Generator, faulty: bool) -> Task:
    """Validation is the last fifth of a table that is sorted by class (Keras 4298, 8346)."""
    found = data.classes(rng, 1200, kinds=5)
    x, y = np.concatenate([found.x, found.x_validation]), np.concatenate([found.y, found.y_validation])
    if faulty:
        order = np.argsort(y, kind="stable")
        x, y = x[order], y[order]
    cut = int(0.8 * len(x))
    fit = {"x": x, "y": y, "validation_split": 0.2, "epochs": 10, "batch_size": 64}
    task = classify(dense(20, [32, 16], 5, "softmax"), found)
    return task._replace(fit=fit, quality=accuracy(x[cut:], y[cut:]))


# --- values that are none ---


@pair("nonfinite", development=False)
def missing_ages(rng: np.random.Generator, faulty: bool) -> Task:
    """One value in three hundred is missing, and stands as NaN in the table (Keras 2134)."""
    found = data.classes(rng)
    gaps = [rng.random(x.shape) < 1 / 300 for x in (found.x, found.x_validation)]
    blank = np.float32(np.nan if faulty else 0)
    found = found._replace(
        x=np.where(gaps[0], blank, found.x), x_validation=np.where(gaps[1], blank, found.x_validation)
    )
    return classify(dense(20, [32], 4, "softmax", "tanh"), found, optimizers.Adam(5e-3))


@pair("nonfinite", development=False)
def logarithms_of_empty_bins(rng: np.random.Generator, faulty: bool) -> Task:
    """Logarithms of counts, some of which are zero."""
    y = rng.integers(3, size=700)
    rate = 3 * np.exp(rng.normal(size=(3, 12)))[y]
    found = data.split(rng, rng.poisson(rate), y)
    with np.errstate(divide="ignore"):
        found = found.with_inputs(lambda x: np.log(x) if faulty else np.log1p(x))
    return classify(dense(12, [24], 3, "softmax"), found, optimizers.Adam(5e-3))


@pair("nonfinite", "unscaled_inputs", development=False)
def own_softmax_overflows(rng: np.random.Generator, faulty: bool) -> Task:
    """A softmax of the user's own, exp(x) by its sum, of pixels up to 255."""

    def own(scores: Any) -> Any:
        return ops.exp(scores) / ops.sum(ops.exp(scores), axis=-1, keepdims=True)

    found = data.digits(rng)
    found = found.with_inputs(lambda x: 255 * x) if faulty else found
    return classify(dense(64, [48], 10, own if faulty else "softmax"), found)


@pair("nonfinite", development=False)
def own_entropy_without_bound(rng: np.random.Generator, faulty: bool) -> Task:
    """A binary cross-entropy of the user's own: 0 times the logarithm of 0 (SO 48951109)."""

    def entropy(truth: Any, guess: Any) -> Any:
        return -ops.mean(truth * ops.log(guess) + (1 - truth) * ops.log(1 - guess), axis=-1)

    found = data.cancer(rng).standardized().with_labels(lambda y: y[:, None].astype("float32"))
    model = dense(30, [48, 48], 1, "sigmoid")
    return classify(model, found, optimizers.Adam(1e-2), entropy if faulty else ONE, epochs=12, batch_size=16)


# --- ordinary trainings ---


class Triplets(ki.IntrospectiveModel):
    """Learns to lay two of a kind nearer to each other than to a third of another kind, by a margin."""

    def train_step(self, batch: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            anchor, same, other = (self(batch[:, i], training=True) for i in range(3))
            near, far = (ops.sum(ops.square(anchor - one), axis=-1) for one in (same, other))
            loss = ops.mean(ops.relu(near - far + 0.4))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@healthy(development=False)
def triplets(rng: np.random.Generator) -> Task:
    """Digits laid on a sphere by a triplet loss, of which most triplets soon say nothing any more."""
    found = data.digits(rng)
    anchor = rng.integers(len(found.x), size=1800)
    same, other = anchor.copy(), anchor.copy()
    for i, label in enumerate(found.y[anchor]):
        same[i] = rng.choice(np.flatnonzero(found.y == label))
        other[i] = rng.choice(np.flatnonzero(found.y != label))
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(48, activation="relu", name="hidden")(inputs)
    y = layers.UnitNormalization(name="sphere")(layers.Dense(8, name="place")(y))

    def nearest(model: Any) -> float:
        known, asked = model.predict(found.x, verbose=0), model.predict(found.x_validation, verbose=0)
        return float(np.mean(found.y[(asked @ known.T).argmax(axis=1)] == found.y_validation))

    fit = {"x": np.stack([found.x[anchor], found.x[same], found.x[other]], axis=1), "epochs": 10, "batch_size": 64}
    return Task(Triplets(inputs, y, name="net"), {"optimizer": optimizers.Adam(3e-3)}, fit, nearest)


@healthy(development=False)
def warmed_up_attention(rng: np.random.Generator) -> Task:
    """Attention over tokens with their places; the step rises for two epochs, then falls to zero."""
    inputs = keras.Input((10,), dtype="int32", name="words")
    y = layers.Embedding(40, 24, name="embedding")(inputs)
    places = np.random.default_rng(0).normal(0, 0.3, (1, 10, 24)).astype("float32")
    y = layers.Lambda(lambda y: y + places, name="places")(y)
    y = layers.Add(name="add1")([y, layers.MultiHeadAttention(3, 8, name="attention")(y, y)])
    z = layers.Dense(48, activation="gelu", name="wide")(layers.LayerNormalization(name="norm1")(y))
    y = layers.Add(name="add2")([y, layers.Dense(24, name="narrow")(z)])
    y = layers.GlobalAveragePooling1D(name="mean")(layers.LayerNormalization(name="norm2")(y))
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, activation="sigmoid", name="head")(y), name="net")
    schedule = optimizers.schedules.CosineDecay(0.0, 200, warmup_target=5e-3, warmup_steps=50)
    return classify(model, _ordered(rng, 1000), optimizers.Adam(schedule), ONE, batch_size=32)


@healthy(development=False)
def residuals_that_start_at_zero(rng: np.random.Generator) -> Task:
    """Residual blocks whose last normalisation starts at a scale of zero, so that at first they add nothing."""
    inputs = keras.Input((8, 8, 1), name="image")
    y = layers.Conv2D(16, 3, padding="same", name="stem")(inputs)
    for i in (1, 2):
        z = layers.Conv2D(16, 3, padding="same", use_bias=False, name=f"conv{i}a")(y)
        z = layers.ReLU(name=f"relu{i}a")(layers.BatchNormalization(momentum=0.9, name=f"norm{i}a")(z))
        z = layers.Conv2D(16, 3, padding="same", use_bias=False, name=f"conv{i}b")(z)
        z = layers.BatchNormalization(momentum=0.9, gamma_initializer="zeros", name=f"norm{i}b")(z)
        y = layers.ReLU(name=f"relu{i}b")(layers.Add(name=f"add{i}")([y, z]))
    y = layers.Flatten(name="flatten")(layers.MaxPooling2D(name="pool")(y))
    model = ki.IntrospectiveModel(inputs, layers.Dense(10, activation="softmax", name="head")(y), name="net")
    return classify(model, data.digits(rng, images=True), optimizers.Adam(3e-3), epochs=5)


@healthy(development=False)
def head_that_starts_at_zero(rng: np.random.Generator) -> Task:
    """The kernel of the head, and of it alone, starts at zero, so that at first nothing below it learns."""
    model = stack(
        (64,),
        layers.Dense(64, activation="silu", name="hidden1"),
        layers.Dense(32, activation="silu", name="hidden2"),
        layers.Dense(10, activation="softmax", kernel_initializer="zeros", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(5e-3))


@healthy(development=False)
def whole_net_in_small_steps(rng: np.random.Generator) -> Task:
    """A net trained on nine tenths of the digits, then all of it in steps of 1e-4: hardly anything moves, as it should
    be.
    """
    found = data.digits(rng)
    model = dense(64, [64, 32], 10, "softmax", "elu")
    model.compile(optimizers.Adam(3e-3), SPARSE)
    model.fit(found.x[:1200], found.y[:1200], epochs=7, verbose=0)
    return classify(model, found, optimizers.Adam(1e-4), epochs=5)


@healthy(development=False)
def quantiles(rng: np.random.Generator) -> Task:
    """The lower and upper tenth and the median of a noisy value, by the pinball loss."""
    x = rng.uniform(-2, 2, size=(1500, 3))
    y = np.sin(2 * x[:, :1]) + x[:, 1:2] + rng.normal(0, 0.2 + 0.2 * np.abs(x[:, 2:]))
    found = data.split(rng, x, y)
    levels = np.array([0.1, 0.5, 0.9], "float32")

    def pinball(truth: Any, guess: Any) -> Any:
        return ops.mean(ops.maximum(levels * (truth - guess), (levels - 1) * (truth - guess)), axis=-1)

    score = r_squared(found.x_validation, found.y_validation)
    median = lambda model: score(keras.Sequential([model, layers.Lambda(lambda all_: all_[:, 1:2])]))  # noqa: E731
    return regress(dense(3, [32, 32], 3), found, optimizers.Adam(5e-3), pinball, epochs=12)._replace(quality=median)


@healthy(development=False)
def mean_and_deviation(rng: np.random.Generator) -> Task:
    """A mean and a logarithm of the variance under the normal likelihood: a loss that goes below zero."""

    def likelihood(truth: Any, guess: Any) -> Any:
        mean, spread = guess[:, :1], ops.clip(guess[:, 1:], -8.0, 8.0)
        return (ops.square(truth - mean) * ops.exp(-spread) + spread) / 2

    found = data.friedman(rng)
    score = r_squared(found.x_validation, found.y_validation)
    mean = lambda model: score(keras.Sequential([model, layers.Lambda(lambda both: both[:, :1])]))  # noqa: E731
    return regress(dense(10, [32, 32], 2, hidden="silu"), found, optimizers.Adam(5e-3), likelihood)._replace(
        quality=mean
    )


@healthy(development=False)
def masks_by_dice(rng: np.random.Generator) -> Task:
    """Discs are marked, under the Dice loss and cross-entropy together; one pixel in eight is of a disc."""

    def loss(truth: Any, guess: Any) -> Any:
        return keras.losses.dice(truth, guess, axis=(1, 2, 3)) + ops.mean(
            keras.losses.binary_crossentropy(truth, guess)
        )

    found = _discs(rng)
    return classify(_masks("sigmoid"), found, optimizers.Adam(1e-2), loss, batch_size=32)._replace(
        quality=_overlap(found)
    )


@healthy(development=False)
def gated_convolutions(rng: np.random.Generator) -> Task:
    """Causal convolutions further and further apart, a tanh times a sigmoid each, as for sound."""
    inputs = keras.Input((20, 1), name="wave")
    y = layers.Conv1D(16, 1, name="stem")(inputs)
    for i, apart in enumerate((1, 2, 4), 1):
        value = layers.Conv1D(16, 2, padding="causal", dilation_rate=apart, activation="tanh", name=f"value{i}")(y)
        gate = layers.Conv1D(16, 2, padding="causal", dilation_rate=apart, activation="sigmoid", name=f"gate{i}")(y)
        z = layers.Conv1D(16, 1, name=f"narrow{i}")(layers.Multiply(name=f"gated{i}")([value, gate]))
        y = layers.Add(name=f"add{i}")([y, z])
    y = layers.GlobalAveragePooling1D(name="mean")(layers.ReLU(name="relu")(y))
    model = ki.IntrospectiveModel(inputs, layers.Dense(3, activation="softmax", name="head")(y), name="net")
    return classify(model, data.waves(rng), optimizers.Adam(1e-2), epochs=5)


class Adapted(layers.Layer):
    """A dense layer that is kept as it is, and a low product beside it that is trained; one factor starts at zero."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, rank: int = 4, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.kept, self.rank = (kernel, bias), rank

    def build(self, shape: Any) -> None:
        kernel, bias = self.kept
        constant = initializers.Constant
        self.kernel = self.add_weight(shape=kernel.shape, initializer=constant(kernel), trainable=False, name="kernel")
        self.bias = self.add_weight(shape=bias.shape, initializer=constant(bias), trainable=False, name="bias")
        self.down = self.add_weight(shape=(kernel.shape[0], self.rank), initializer="glorot_uniform", name="down")
        self.up = self.add_weight(shape=(self.rank, kernel.shape[1]), initializer="zeros", name="up")

    def call(self, inputs: Any) -> Any:
        return ops.matmul(inputs, self.kernel) + ops.matmul(ops.matmul(inputs, self.down), self.up) + self.bias


@healthy(development=False)
def low_rank_adapters(rng: np.random.Generator) -> Task:
    """A net for digits is brought to their negatives by products of low rank beside its frozen kernels."""
    found = data.digits(rng)
    before = dense(64, [48, 48], 10, "softmax")
    before.compile(optimizers.Adam(3e-3), SPARSE)
    before.fit(found.x, found.y, epochs=6, verbose=0)
    parts: list[Any] = []
    for i in (1, 2):
        kernel, bias = before.get_layer(f"hidden{i}").get_weights()
        parts += [Adapted(kernel, bias, name=f"adapted{i}"), layers.ReLU(name=f"relu{i}")]
    model = stack((64,), *parts, layers.Dense(10, activation="softmax", name="head"))
    return classify(model, found.with_inputs(lambda x: 0.8 - x), optimizers.Adam(1e-2), epochs=12)


@healthy(development=False)
def tagger(rng: np.random.Generator) -> Task:
    """Every step of a sequence is tagged, by a GRU that reads both ways."""
    found = _tagged(rng)
    layer = layers.Bidirectional(layers.GRU(16, return_sequences=True, name="gru"), name="both")
    model = _sequences(layer, (14, 3), 3, "softmax")
    truth = found.y_validation
    score = lambda model: float(np.mean(model.predict(found.x_validation, verbose=0).argmax(-1) == truth))  # noqa: E731
    return classify(model, found, optimizers.Adam(1e-2), epochs=8)._replace(quality=score)


@healthy(development=False)
def forecast(rng: np.random.Generator) -> Task:
    """What comes next in a seasonal series, by two LSTMs with dropout between."""
    model = stack(
        (18, 1),
        layers.LSTM(16, return_sequences=True, name="lstm1"),
        layers.Dropout(0.1, name="dropout"),
        layers.LSTM(16, name="lstm2"),
        layers.Dense(1, name="head"),
    )
    return regress(model, _seasons(rng, 400), optimizers.Adam(1e-2, clipnorm=1.0), epochs=9)


@healthy(development=False)
def rare_and_hard(rng: np.random.Generator) -> Task:
    """One in twelve is positive, under the focal loss: a small loss from the start."""
    x = rng.normal(size=(1600, 8))
    score = x[:, :3].sum(axis=1) + rng.normal(0, 0.3, 1600)
    found = data.split(rng, x, (score > np.quantile(score, 11 / 12)).astype(int))
    loss = keras.losses.BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.8)
    model = dense(8, [24], 1, "sigmoid")
    return classify(model, found, optimizers.Adam(5e-3), loss, epochs=12)._replace(quality=_balanced(found))


@healthy(development=False)
def bag_of_words(rng: np.random.Generator) -> Task:
    """Which of 300 words occur in a text: nearly all inputs are zero, some words never occur."""
    found = data.tokens(rng, 1200)

    def bag(tokens: np.ndarray) -> np.ndarray:
        counted = np.zeros((len(tokens), 300), "float32")
        counted[np.arange(len(tokens))[:, None], tokens] = 1
        return counted

    model = dense(300, [16], 1, "sigmoid")
    return classify(model, found.with_inputs(bag), optimizers.Adam(3e-3), ONE, epochs=5)


@healthy(development=False)
def linear_autoencoder(rng: np.random.Generator) -> Task:
    """Thirty measurements through six linear units, as principal components."""
    found = data.cancer(rng).standardized()
    found = found._replace(y=found.x, y_validation=found.x_validation)
    model = stack((30,), layers.Dense(6, use_bias=False, name="code"), layers.Dense(30, name="measurements"))
    return regress(model, found, optimizers.Adam(1e-2), epochs=20, batch_size=32)


class Distilled(ki.IntrospectiveModel):
    """Learns from the labels and from the softened answers of a teacher that stays as it is."""

    teacher: Any = None

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        wise = ops.softmax(self.teacher(x, training=False) / 2)
        with tf.GradientTape() as tape:
            guess = self(x, training=True)
            soft = ops.mean(keras.losses.categorical_crossentropy(wise, guess / 2, from_logits=True))
            loss = self.compute_loss(x=x, y=y, y_pred=guess) + 2 * soft
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {**self.compute_metrics(x, y, guess), "loss": loss}


@healthy(development=False)
def distilled(rng: np.random.Generator) -> Task:
    """A small net learns from a larger one, which is frozen: the loss stays high, however good it gets."""
    found = data.digits(rng)
    teacher = dense(64, [96], 10)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    teacher.compile(optimizers.Adam(5e-3), entropy)
    teacher.fit(found.x, found.y, epochs=6, verbose=0)
    teacher.trainable = False
    inputs = keras.Input((64,), name="pixels")
    model = Distilled(inputs, layers.Dense(10, name="head")(layers.Dense(20, "relu", name="hidden")(inputs)))
    model.teacher = teacher
    return classify(model, found, optimizers.Adam(5e-3), entropy, epochs=12)


@healthy(development=False)
def gathered_gradients(rng: np.random.Generator) -> Task:
    """Gradients of four batches are gathered before each step: weights stay the same three times in four."""
    optimizer = optimizers.Adam(1e-2, gradient_accumulation_steps=4)
    return classify(dense(64, [48], 10, "softmax"), data.digits(rng), optimizer, epochs=9, batch_size=16)


@healthy(development=False)
def long_tail_of_classes(rng: np.random.Generator) -> Task:
    """Ten digits, of which the ninth occurs a tenth as often as the first; nothing is weighted."""
    found = data.digits(rng, images=True)
    kept = rng.random(len(found.y)) < np.geomspace(1, 0.1, 10)[found.y]
    found = found._replace(x=found.x[kept], y=found.y[kept])
    return classify(_pixels("softmax", "leaky_relu"), found, optimizers.Adam(5e-3), epochs=12, batch_size=32)


@healthy(development=False)
def long_tail_of_targets(rng: np.random.Generator) -> Task:
    """Incomes with a long tail, whose logarithm is the target; Huber's loss."""
    x = rng.normal(size=(1200, 6))
    income = 3e4 * np.exp(0.8 * np.tanh(x[:, :1] + x[:, 1:2] * x[:, 2:3]) + 0.15 * rng.standard_t(3, (1200, 1)))
    found = data.split(rng, x, np.log(income)).standardized_targets()
    return regress(dense(6, [32, 16], 1, hidden="elu"), found, optimizers.Adam(5e-3), "huber", epochs=12)


@healthy(development=False)
def attention_to_steps(rng: np.random.Generator) -> Task:
    """A GRU whose steps are weighed by a softmax over the steps, of one score each."""
    inputs = keras.Input((20, 1), name="wave")
    y = layers.GRU(20, return_sequences=True, name="gru")(inputs)
    weights = layers.Softmax(axis=1, name="weights")(layers.Dense(1, name="score")(y))
    y = layers.Lambda(lambda both: ops.sum(both[0] * both[1], axis=1), name="weighed")([y, weights])
    model = ki.IntrospectiveModel(inputs, layers.Dense(3, activation="softmax", name="head")(y), name="net")
    return classify(model, data.waves(rng), optimizers.Adam(1e-2), epochs=8)


class Experts(layers.Layer):
    """Four small nets, of which each sample is answered by the two that a gate likes best."""

    def build(self, shape: Any) -> None:
        self.gate = self.add_weight(shape=(shape[-1], 4), initializer="glorot_uniform", name="gate")
        self.kernel = self.add_weight(shape=(4, shape[-1], 16), initializer="glorot_uniform", name="kernel")

    def call(self, inputs: Any) -> Any:
        liking = ops.softmax(ops.matmul(inputs, self.gate))
        second = ops.top_k(liking, 2)[0][:, -1:]
        liking = ops.where(liking >= second, liking, 0.0)
        return ops.sum(ops.relu(ops.einsum("bi,eio->beo", inputs, self.kernel)) * liking[..., None], axis=1)


@healthy(development=False)
def experts(rng: np.random.Generator) -> Task:
    """A mixture of experts, each of which sees a part of the samples."""
    model = stack(
        (64,),
        layers.Dense(32, activation="relu", name="hidden"),
        Experts(name="experts"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(1e-2))


@healthy(development=False)
def letters_to_come(rng: np.random.Generator) -> Task:
    """The next of twelve letters, of which two or three are always possible: a loss that cannot fall far."""
    size, steps, letters = 500, 16, 12
    follow = np.stack([rng.permutation(letters)[:3] for _ in range(letters)])
    text = np.zeros((size, steps + 1), "int64")
    text[:, 0] = rng.integers(letters, size=size)
    for step in range(steps):
        text[:, step + 1] = follow[text[:, step], rng.choice(3, size=size, p=[0.6, 0.3, 0.1])]
    found = data.split(rng, text[:, :-1], text[:, 1:]).with_inputs(lambda x: x.astype("int64"))
    model = stack(
        (steps,),
        layers.Embedding(letters, 10, name="embedding"),
        layers.SimpleRNN(24, return_sequences=True, name="rnn"),
        layers.Dense(letters, activation="softmax", name="head"),
    )
    truth = found.y_validation
    score = lambda model: float(np.mean(model.predict(found.x_validation, verbose=0).argmax(-1) == truth))  # noqa: E731
    return classify(model, found, optimizers.Adam(1e-2))._replace(quality=score)


@healthy(development=False)
def soft_labels(rng: np.random.Generator) -> Task:
    """How many of five people said yes, as a share under binary cross-entropy, which stays high."""
    x = rng.normal(size=(1200, 8))
    share = rng.binomial(5, 1 / (1 + np.exp(-2 * x[:, :1] + x[:, 1:2]))) / 5
    return regress(dense(8, [16], 1, "sigmoid"), data.split(rng, x, share), optimizers.Adam(5e-3), ONE)


@healthy(development=False)
def learned_slopes(rng: np.random.Generator) -> Task:
    """Convolutions with PReLUs, whose slopes are learned, and spatial dropout; Adamax."""
    parts: list[Any] = []
    for i in (1, 2):
        parts += [
            layers.Conv2D(24, 3, strides=i, padding="same", name=f"conv{i}"),
            layers.PReLU(shared_axes=[1, 2], name=f"slope{i}"),
            layers.SpatialDropout2D(0.1, name=f"drop{i}"),
        ]
    head = layers.Dense(10, activation="softmax", name="head")
    model = stack((8, 8, 1), *parts, layers.Flatten(name="flatten"), head)
    return classify(model, data.digits(rng, images=True), optimizers.Adamax(1e-2), epochs=8)


@healthy(development=False)
def noisy_inputs(rng: np.random.Generator) -> Task:
    """Noise on the inputs and half of the first layer dropped: training loss stays well above that of validation."""
    model = stack(
        (64,),
        layers.GaussianNoise(0.3, name="noise"),
        layers.Dense(192, activation="relu", name="hidden1"),
        layers.Dropout(0.5, name="dropout"),
        layers.Dense(48, activation="relu", name="hidden2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(3e-3), epochs=12)


class LeastSquares(ki.IntrospectiveModel):
    """A generator of curves against a critic, by least squares; the critic learns twice as fast."""

    critic: Any = None

    def compile(self, critic_optimizer: Any, **arguments: Any) -> None:
        super().compile(**arguments)
        self.critic_optimizer = critic_optimizer
        self.seeds = keras.random.SeedGenerator(1)

    def train_step(self, real: Any) -> dict[str, Any]:
        noise = keras.random.normal((ops.shape(real)[0], 3), seed=self.seeds)
        with tf.GradientTape() as tape:
            told = self.critic(self(noise, training=True))
            critic = ops.mean(ops.square(self.critic(real) - 1)) + ops.mean(ops.square(told))
        variables = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(critic, variables), variables)
        variables = [v for v in self.trainable_variables if not any(v is other for other in variables)]
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self.critic(self(noise, training=True)) - 1))
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"critic_loss": critic, "loss": loss}


@healthy(development=False)
def curves_against_a_critic(rng: np.random.Generator) -> Task:
    """A least-squares GAN that draws parabolas: neither loss falls, as they are at odds."""
    high = rng.uniform(0.5, 1.5, size=(1200, 1))
    curves = (high * np.linspace(-1, 1, 10) ** 2 - 0.5 * high).astype("float32")
    inputs = keras.Input((3,), name="noise")
    y = layers.Dense(32, activation="leaky_relu", name="hidden")(inputs)
    model = LeastSquares(inputs, layers.Dense(10, name="curve")(y), name="net")
    first, last = layers.Dense(32, activation="leaky_relu", name="critic_hidden"), layers.Dense(1, name="critic_head")
    model.critic = keras.Sequential([keras.Input((10,)), first, last], name="critic")
    noise = rng.normal(size=(400, 3)).astype("float32")
    compiled = {"optimizer": optimizers.Adam(1e-3, beta_1=0.5), "critic_optimizer": optimizers.Adam(2e-3, beta_1=0.5)}
    off = lambda model: -float(np.abs(model.predict(noise, verbose=0).mean(axis=0) - curves.mean(axis=0)).max())  # noqa: E731
    return Task(model, compiled, {"x": curves, "epochs": 20, "batch_size": 32}, off)


@healthy(development=False)
def two_towers(rng: np.random.Generator) -> Task:
    """A picture and five measurements of a thing, each through layers of its own, and what they are together."""
    found = data.digits(rng, images=True)
    values_of = lambda y: (y[:, None] // 5 + rng.normal(0, 0.5, (len(y), 5))).astype("float32")  # noqa: E731
    known = [found.x, values_of(found.y)]
    held = [found.x_validation, values_of(found.y_validation)]
    image, values = keras.Input((8, 8, 1), name="image"), keras.Input((5,), name="values")
    y = layers.Conv2D(16, 3, strides=2, activation="relu", name="conv")(image)
    z = layers.Dense(16, activation="tanh", name="of_values")(values)
    y = layers.Concatenate(name="both")([layers.Flatten(name="flatten")(y), z])
    model = ki.IntrospectiveModel([image, values], layers.Dense(10, activation="softmax", name="head")(y), name="net")
    fit = fitting(found) | {"x": known, "validation_data": (held, found.y_validation)}
    compiled = {"optimizer": optimizers.Adam(5e-3), "loss": SPARSE, "metrics": ["accuracy"]}
    return Task(model, compiled, fit, accuracy(held, found.y_validation))
