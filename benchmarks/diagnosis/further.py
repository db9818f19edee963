"""Further faults and ordinary trainings: thresholds were still being chosen while these were written."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import initializers, layers, ops, optimizers, regularizers

import keras_introspect as ki
from benchmarks.diagnosis import data
from benchmarks.diagnosis.programs import (
    Task,
    accuracy,
    classify,
    dense,
    fitting,
    healthy,
    pair,
    regress,
    stack,
)

# --- heads, losses and labels ---


@pair("head_loss_mismatch")
def softmax_over_the_batch(rng: np.random.Generator, faulty: bool) -> Task:
    """The softmax of the head runs over the samples of the batch, not over the classes."""
    model = stack(
        (64,),
        layers.Dense(64, activation="relu", name="hidden"),
        layers.Dense(10, name="scores"),
        layers.Softmax(axis=0 if faulty else -1, name="head"),
    )
    return classify(model, data.digits(rng))


@pair("probabilities_as_logits")
def softmax_twice(rng: np.random.Generator, faulty: bool) -> Task:
    """A softmax head, reshaped, under a loss that takes it for logits: two softmaxes, one over the other."""
    activation = "softmax" if faulty else None
    model = stack(
        (64,),
        layers.Dense(64, activation="relu", name="hidden"),
        layers.Dense(10, activation=activation, name="head"),
        layers.Reshape((10,), name="shape"),
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return classify(model, data.digits(rng), optimizers.SGD(0.05), loss)


@pair("logits_as_probabilities")
def linear_head_as_probabilities(rng: np.random.Generator, faulty: bool) -> Task:
    """A head without an activation under the cross-entropy by its name, which expects probabilities."""
    model = dense(64, [64, 32], 10)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=not faulty)
    return classify(model, data.digits(rng), loss=loss)


@pair("labels_out_of_range")
def labels_one_and_two(rng: np.random.Generator, faulty: bool) -> Task:
    """Two classes that are called 1 and 2, a sigmoid, binary cross-entropy: the loss falls without end."""
    found = data.cancer(rng).standardized()
    task = classify(dense(30, [16], 1, "sigmoid"), found, loss="binary_crossentropy")
    return task._replace(fit=fitting(found.with_labels(lambda y: y + 1))) if faulty else task


@pair("labels_out_of_range", "head_loss_mismatch")
def rectified_head(rng: np.random.Generator, faulty: bool) -> Task:
    """A ReLU at the end of a regression whose targets are negative as often as not."""
    model = dense(10, [32, 32], 1, "relu" if faulty else None)
    return regress(model, data.friedman(rng))


@pair("labels_out_of_range", "head_loss_mismatch", "unscaled_targets")
def bounded_head(rng: np.random.Generator, faulty: bool) -> Task:
    """A tanh at the end of a regression whose targets go from 25 to 346."""
    found = data.diabetes(rng)
    found = found if faulty else found.standardized_targets()
    return regress(dense(10, [32], 1, "tanh" if faulty else None), found, batch_size=32)


@pair("squared_error_on_classes")
def class_numbers_as_targets(rng: np.random.Generator, faulty: bool) -> Task:
    """The number of the class as the target of a linear unit, squared error; the class is its nearest number."""
    found = data.digits(rng)
    if not faulty:
        return classify(dense(64, [32], 10, "softmax"), found)
    truth = found.y_validation

    def quality(model: Any) -> float:
        return float(np.mean(np.rint(model.predict(found.x_validation, verbose=0)[:, 0]) == truth))

    return regress(dense(64, [32], 1), found)._replace(quality=quality)


# --- steps and initialisation ---


@pair("step_too_large", "nonfinite", "exploding_activations")
def momentum_at_ten(rng: np.random.Generator, faulty: bool) -> Task:
    """SGD at 10 with momentum 0.9."""
    optimizer = optimizers.SGD(10.0 if faulty else 0.02, momentum=0.9)
    return classify(dense(64, [64, 32], 10, "softmax"), data.digits(rng), optimizer)


@pair("step_too_large", "oscillation")
def rmsprop_too_fast(rng: np.random.Generator, faulty: bool) -> Task:
    """RMSprop at 0.3 on a GRU."""
    model = stack((20, 1), layers.GRU(24, name="gru"), layers.Dense(3, activation="softmax", name="head"))
    return classify(model, data.waves(rng), optimizers.RMSprop(0.3 if faulty else 3e-3))


@pair("step_too_small", "underfitting")
def sgd_too_slow(rng: np.random.Generator, faulty: bool) -> Task:
    """SGD at 1e-4 without momentum, on images."""
    model = _convolutional()
    return classify(model, data.digits(rng, images=True), optimizers.SGD(1e-4 if faulty else 0.1))


@pair("constant_initialization", "no_gradient")
def zero_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """All kernels zero to begin with."""
    start = "zeros" if faulty else "he_normal"
    return classify(dense(20, [48, 32], 4, "softmax", start=start), data.classes(rng))


@pair("saturated_units", "large_initialization")
def saturated_tanh(rng: np.random.Generator, faulty: bool) -> Task:
    """Six layers of tanh whose kernels are of standard deviation 2."""
    start = initializers.RandomNormal(stddev=2.0) if faulty else "glorot_normal"
    return classify(dense(20, [48] * 6, 4, "softmax", "tanh", start), data.classes(rng))


@pair("saturated_units", "unscaled_inputs")
def saturated_by_inputs(rng: np.random.Generator, faulty: bool) -> Task:
    """Breast cancer as it ships, areas up to 4000, into sigmoids."""
    found = data.cancer(rng) if faulty else data.cancer(rng).standardized()
    return classify(dense(30, [24], 1, "sigmoid", "sigmoid"), found, optimizers.Adam(1e-2), "binary_crossentropy")


@pair("dead_units", "dying_units")
def negative_biases(rng: np.random.Generator, faulty: bool) -> Task:
    """ReLUs whose biases were set to −10 by mistake."""
    model = dense(20, [48, 48], 4, "softmax")
    if faulty:
        model.layers[1].bias.assign(np.full(48, -10.0))
    return classify(model, data.classes(rng))


@pair("exploding_gradients", "exploding_activations", "large_initialization", "nonfinite")
def growing_recurrence(rng: np.random.Generator, faulty: bool) -> Task:
    """A recurrent layer of ReLUs whose recurrent kernel doubles the state at each of 40 steps."""
    start = initializers.Orthogonal(gain=2.0) if faulty else "orthogonal"
    layer = layers.SimpleRNN(24, activation="relu" if faulty else "tanh", recurrent_initializer=start, name="rnn")
    model = stack((40, 1), layer, layers.Dense(3, activation="softmax", name="head"))
    return classify(model, data.waves(rng, steps=40), optimizers.Adam(3e-3))


# --- what regularises, normalises, or stops the flow ---


@pair("underfitting", "over_regularized")
def dropout_nearly_all(rng: np.random.Generator, faulty: bool) -> Task:
    """Dropout of 0.95 after each of two layers."""
    rate = 0.95 if faulty else 0.3
    model = stack(
        (64,),
        layers.Dense(64, activation="relu", name="hidden1"),
        layers.Dropout(rate, name="dropout1"),
        layers.Dense(64, activation="relu", name="hidden2"),
        layers.Dropout(rate, name="dropout2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng))


@pair("over_regularized")
def heavy_penalty(rng: np.random.Generator, faulty: bool) -> Task:
    """An L2 penalty of 1.0 on every kernel."""
    penalty = regularizers.L2(1.0 if faulty else 1e-5)
    model = stack(
        (64,),
        layers.Dense(64, activation="relu", kernel_regularizer=penalty, name="hidden1"),
        layers.Dense(64, activation="relu", kernel_regularizer=penalty, name="hidden2"),
        layers.Dense(10, activation="softmax", kernel_regularizer=penalty, name="head"),
    )
    return classify(model, data.digits(rng))


@pair("normalization_phase_gap")
def slow_moving_statistics(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation whose moving statistics, at momentum 0.9999, are still those of the start."""
    momentum = 0.9999 if faulty else 0.9
    model = stack(
        (64,),
        layers.Dense(64, name="dense1"),
        layers.BatchNormalization(momentum=momentum, name="norm1"),
        layers.ReLU(name="relu1"),
        layers.Dense(64, name="dense2"),
        layers.BatchNormalization(momentum=momentum, name="norm2"),
        layers.ReLU(name="relu2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    # Inputs around 2, of which the initial statistics (mean 0, variance 1) know nothing.
    return classify(model, data.digits(rng).with_inputs(lambda x: 4 * x), epochs=6)


@pair("constant_inputs")
def blank_images(rng: np.random.Generator, faulty: bool) -> Task:
    """Pixels that were divided as whole numbers, and so are all zero."""
    found = data.digits(rng)
    model = dense(64, [32], 10, "softmax")
    return classify(model, found.with_inputs(lambda x: (x * 15 // 16).astype("float32")) if faulty else found)


class Stopped(layers.Layer):
    """Hands on what it gets, and no gradient."""

    def call(self, inputs: Any) -> Any:
        return ops.stop_gradient(inputs)


@pair("no_gradient", "unchanged_weights")
def gradient_stopped(rng: np.random.Generator, faulty: bool) -> Task:
    """A gradient that is stopped behind a narrow layer, which so stays as it was drawn."""
    between = Stopped(name="between") if faulty else layers.Identity(name="between")
    model = stack(
        (64,),
        layers.Dense(32, activation="relu", name="hidden1"),
        layers.Dense(6, activation="relu", name="hidden2"),
        between,
        layers.Dense(32, activation="relu", name="hidden3"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizers.Adam(5e-3))


# --- values that are none ---


@pair("nonfinite")
def logarithm_of_zero(rng: np.random.Generator, faulty: bool) -> Task:
    """A cross-entropy of the user's own, −Σ y log p, without a bound on p, on ReLU-sparse probabilities."""
    found = data.digits(rng).with_labels(lambda y: keras.utils.to_categorical(y, 10))

    def entropy(truth: Any, guess: Any) -> Any:
        return -ops.sum(truth * ops.log(guess), axis=-1)

    model = dense(64, [64], 10, "relu" if faulty else "softmax")
    return classify(model, found, loss=entropy if faulty else "categorical_crossentropy")


class Distance(layers.Layer):
    """The length of each row's difference to the first of the two inputs; at 0 its gradient is 0/0."""

    def __init__(self, epsilon: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.epsilon = epsilon

    def call(self, inputs: Any) -> Any:
        first, second = inputs
        return ops.sqrt(ops.sum(ops.square(first - second), axis=-1, keepdims=True) + self.epsilon)


@pair("nonfinite")
def root_of_zero(rng: np.random.Generator, faulty: bool) -> Task:
    """Twin networks that compare points; of a point with itself the distance is 0, and its gradient no number."""
    cloud = data.blobs(rng, 300, spread=0.6).standardized()
    one, two = rng.integers(len(cloud.x), size=(2, 800))
    two[::10] = one[::10]
    same = (cloud.y[one] == cloud.y[two]).astype("float32")
    inputs = keras.Input((2, 2), name="pair")
    body = keras.Sequential(
        [keras.Input((2,)), layers.Dense(16, activation="tanh", name="dense1"), layers.Dense(4, name="dense2")],
        name="body",
    )
    apart = Distance(0.0 if faulty else 1e-6, name="distance")([body(inputs[:, 0]), body(inputs[:, 1])])
    start = initializers.Constant(-1.0)  # what lies near is the same
    head = layers.Dense(1, activation="sigmoid", kernel_initializer=start, name="head")
    model = ki.IntrospectiveModel(inputs, head(apart), name="net")
    found = data.split(rng, np.stack([cloud.x[one], cloud.x[two]], axis=1), same)
    return classify(model, found, optimizers.Adam(1e-2), "binary_crossentropy", batch_size=32)


# --- how long, on how much ---


@pair("overfitting")
def learned_by_heart(rng: np.random.Generator, faulty: bool) -> Task:
    """80 noisy samples, two layers of 256 units, many epochs."""
    x = rng.normal(size=(500, 20))
    y = (x[:, :3].sum(axis=1) + rng.normal(0, 1.0, 500) > 0).astype(int)
    found = data.split(rng, x, y)
    if faulty:
        found = found._replace(x=found.x[:80], y=found.y[:80])
        model = dense(20, [256, 256], 1, "sigmoid")
        return classify(model, found, loss="binary_crossentropy", epochs=40, batch_size=16)
    return classify(dense(20, [4], 1, "sigmoid"), found, optimizers.Adam(5e-3), "binary_crossentropy", batch_size=32)


@pair("stopped_early")
def two_epochs(rng: np.random.Generator, faulty: bool) -> Task:
    """Three epochs of a training that wants twenty."""
    model = dense(64, [64], 10, "softmax")
    return classify(model, data.digits(rng), optimizers.SGD(0.05), epochs=3 if faulty else 20)


@pair("underfitting")
def too_narrow(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits through one unit."""
    return classify(dense(64, [1] if faulty else [32], 10, "softmax", "tanh"), data.digits(rng))


def _convolutional() -> Any:
    return stack(
        (8, 8, 1),
        layers.Conv2D(16, 3, padding="same", activation="relu", name="conv1"),
        layers.MaxPooling2D(name="pool"),
        layers.Conv2D(32, 3, padding="same", activation="relu", name="conv2"),
        layers.Flatten(name="flatten"),
        layers.Dense(10, activation="softmax", name="head"),
    )


# --- ordinary trainings ---


@healthy()
def bidirectional_lstm(rng: np.random.Generator) -> Task:
    """Waves, forwards and backwards."""
    layer = layers.Bidirectional(layers.LSTM(12, name="lstm"), name="both")
    model = stack((20, 1), layer, layers.Dense(3, activation="softmax", name="head"))
    return classify(model, data.waves(rng), optimizers.Adam(5e-3))


@healthy()
def convolution_in_time(rng: np.random.Generator) -> Task:
    """Waves, two one-dimensional convolutions."""
    model = stack(
        (20, 1),
        layers.Conv1D(16, 5, activation="relu", name="conv1"),
        layers.Conv1D(16, 5, activation="relu", name="conv2"),
        layers.GlobalMaxPooling1D(name="pool"),
        layers.Dense(3, activation="softmax", name="head"),
    )
    return classify(model, data.waves(rng))


@healthy()
def separable_convolutions(rng: np.random.Generator) -> Task:
    """Digits, depthwise and pointwise convolutions, ReLU6."""
    parts: list[Any] = [layers.Conv2D(16, 3, padding="same", use_bias=False, name="stem")]
    for i in (1, 2):
        parts += [
            layers.BatchNormalization(momentum=0.9, name=f"norm{i}"),
            layers.ReLU(6.0, name=f"relu{i}"),
            layers.SeparableConv2D(32, 3, strides=i, padding="same", use_bias=False, name=f"conv{i}"),
        ]
    parts += [layers.GlobalAveragePooling2D(name="pool"), layers.Dense(10, activation="softmax", name="head")]
    return classify(stack((8, 8, 1), *parts), data.digits(rng, images=True), optimizers.Adam(1e-2))


@healthy()
def denoising(rng: np.random.Generator) -> Task:
    """Digits without their noise, a small U-net, squared error."""
    found = data.digits(rng, images=True)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    found = found.with_inputs(lambda x: (x + rng.normal(0, 0.2, x.shape)).astype("float32"))
    inputs = keras.Input((8, 8, 1), name="noisy")
    wide = layers.Conv2D(12, 3, padding="same", activation="relu", name="down1")(inputs)
    deep = layers.Conv2D(24, 3, strides=2, padding="same", activation="relu", name="down2")(wide)
    up = layers.UpSampling2D(name="larger")(layers.Conv2D(24, 3, padding="same", activation="relu", name="deep")(deep))
    both = layers.Concatenate(name="skip")([up, wide])
    outputs = layers.Conv2D(1, 3, padding="same", name="clean")(both)
    return regress(ki.IntrospectiveModel(inputs, outputs, name="net"), found, optimizers.Adam(5e-3), epochs=6)


@healthy()
def two_heads(rng: np.random.Generator) -> Task:
    """Digits: which, and how much ink; two losses."""
    found = data.digits(rng)
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(48, activation="relu", name="shared")(inputs)
    which = layers.Dense(10, activation="softmax", name="which")(y)
    ink = layers.Dense(1, name="ink")(layers.Dense(16, activation="relu", name="before_ink")(y))
    model = ki.IntrospectiveModel(inputs, [which, ink], name="net")

    def targets(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return labels, ((x.mean(axis=1, keepdims=True) - 0.3) / 0.05).astype("float32")

    fit = fitting(found) | {"y": targets(found.x, found.y)}
    fit["validation_data"] = (found.x_validation, targets(found.x_validation, found.y_validation))
    losses = ["sparse_categorical_crossentropy", "mse"]
    quality = accuracy(found.x_validation, found.y_validation)
    first = lambda model: quality(keras.Model(model.inputs, model.outputs[0]))  # noqa: E731
    return Task(model, {"optimizer": optimizers.Adam(3e-3), "loss": losses, "loss_weights": [1.0, 0.3]}, fit, first)


@healthy()
def recommender(rng: np.random.Generator) -> Task:
    """Ratings as products of two embeddings."""
    users, items = rng.normal(size=(2, 60, 4))
    user, item = rng.integers(60, size=(2, 3000))
    rating = (users[user] * items[item]).sum(axis=1, keepdims=True) / 2 + rng.normal(0, 0.1, (3000, 1))
    found = data.split(rng, np.stack([user, item], axis=1), rating)
    inputs = keras.Input((2,), dtype="int32", name="pair")
    left = layers.Embedding(60, 8, embeddings_initializer=initializers.RandomNormal(stddev=0.3), name="users")
    right = layers.Embedding(60, 8, embeddings_initializer=initializers.RandomNormal(stddev=0.3), name="items")
    product = layers.Dot(1, name="rating")([left(inputs[:, 0]), right(inputs[:, 1])])
    return regress(ki.IntrospectiveModel(inputs, product, name="net"), found, optimizers.Adam(2e-2))


@healthy()
def clipped_and_averaged(rng: np.random.Generator) -> Task:
    """AdamW with clipped gradients, a cosine schedule and averaged weights; layer normalisation."""
    schedule = optimizers.schedules.CosineDecay(5e-3, 230)
    optimizer = optimizers.AdamW(schedule, weight_decay=1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.9)
    model = stack(
        (64,),
        layers.Dense(64, name="dense1"),
        layers.LayerNormalization(name="norm1"),
        layers.Activation("silu", name="silu1"),
        layers.Dense(32, name="dense2"),
        layers.LayerNormalization(name="norm2"),
        layers.Activation("silu", name="silu2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng), optimizer)


@healthy()
def mixed_float16(rng: np.random.Generator) -> Task:
    """Clusters, computed in float16 under a loss scale, which overflows at first, as it is meant to."""
    model = stack(
        (20,),
        layers.Dense(48, activation="relu", dtype="mixed_float16", name="hidden1"),
        layers.Dense(32, activation="relu", dtype="mixed_float16", name="hidden2"),
        layers.Dense(4, activation="softmax", dtype="float32", name="head"),
    )
    optimizer = optimizers.LossScaleOptimizer(optimizers.Adam(3e-3), initial_scale=2.0**15)
    return classify(model, data.classes(rng), optimizer)


@healthy()
def augmented(rng: np.random.Generator) -> Task:
    """Digits, shifted at random while training, so that training accuracy stays below that of validation."""
    model = stack(
        (8, 8, 1),
        layers.RandomTranslation(0.1, 0.1, fill_mode="constant", name="shift"),
        layers.Conv2D(24, 3, padding="same", activation="relu", name="conv1"),
        layers.MaxPooling2D(name="pool"),
        layers.Conv2D(32, 3, activation="relu", name="conv2"),
        layers.Flatten(name="flatten"),
        layers.Dropout(0.3, name="dropout"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng, images=True), optimizers.Adam(5e-3))


@healthy()
def rare_class(rng: np.random.Generator) -> Task:
    """One sample in ten is positive; the classes are weighted."""
    x = rng.normal(size=(1200, 10))
    score = x[:, :3].sum(axis=1) + rng.normal(0, 0.3, 1200)
    found = data.split(rng, x, (score > np.quantile(score, 0.9)).astype(int))
    model = dense(10, [24], 1, "sigmoid")
    return classify(model, found, loss="binary_crossentropy", class_weight={0: 0.55, 1: 5.0})


@healthy()
def counts(rng: np.random.Generator) -> Task:
    """Counts of a few events, an exponential head under the Poisson loss."""
    x = rng.normal(size=(1000, 6))
    y = rng.poisson(np.exp(0.5 * x[:, :1] - 0.3 * x[:, 1:2] + 0.5)).astype("float32")
    return regress(dense(6, [24], 1, "exponential"), data.split(rng, x, y), loss="poisson")


@healthy()
def positive_targets(rng: np.random.Generator) -> Task:
    """Targets that are never negative, a softplus head, Huber loss."""
    x = rng.uniform(-1, 1, size=(1000, 4))
    y = np.abs(x @ rng.normal(size=(4, 1))) + rng.exponential(0.1, (1000, 1))
    return regress(dense(4, [32, 16], 1, "softplus"), data.split(rng, x, y), loss="huber")


@healthy()
def noisy_labels(rng: np.random.Generator) -> Task:
    """A fifth of the labels is wrong, so that the loss levels off high; a penalty and early stopping keep it there."""
    found = data.half_spaces(rng)
    wrong = rng.random(len(found.y)) < 0.2
    found = found._replace(y=np.where(wrong, 1 - found.y, found.y))
    model = stack(
        (20,),
        layers.Dense(16, activation="relu", kernel_regularizer=regularizers.L2(3e-3), name="hidden"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    stop = keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)
    return classify(model, found, optimizers.Adam(5e-3), "binary_crossentropy", epochs=20, callbacks=[stop])


class Mixed(ki.IntrospectiveModel):
    """Trains on mixtures of two samples and of their labels, in a step of its own."""

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        x, y = 0.8 * x + 0.2 * x[::-1], 0.8 * y + 0.2 * y[::-1]
        with tf.GradientTape() as tape:
            guess = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=guess)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {**self.compute_metrics(x, y, guess), "loss": loss}


@healthy()
def mixed_samples(rng: np.random.Generator) -> Task:
    """Digits and their mixtures, labels as shares, a training step of the user's own."""
    found = data.digits(rng).with_labels(lambda y: keras.utils.to_categorical(y, 10))
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(64, activation="relu", name="hidden1")(inputs)
    y = layers.Dense(32, activation="relu", name="hidden2")(y)
    model = Mixed(inputs, layers.Dense(10, activation="softmax", name="head")(y), name="net")
    return classify(model, found, loss="categorical_crossentropy")


@healthy()
def last_layers_thawed(rng: np.random.Generator) -> Task:
    """The same digits once more after a first training: lower layers frozen, normalisation among them, small steps."""
    found = data.digits(rng)
    model = stack(
        (64,),
        layers.Dense(64, name="dense1"),
        layers.BatchNormalization(momentum=0.9, name="norm1"),
        layers.ReLU(name="relu1"),
        layers.Dense(32, activation="relu", name="dense2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    model.compile(optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    model.fit(found.x, found.y, epochs=4, verbose=0)
    for layer in model.layers[:2]:
        layer.trainable = False
    return classify(model, found, optimizers.Adam(1e-3))
