"""Ordinary trainings of many kinds, in which there is nothing to find."""

from typing import Any

import keras
import numpy as np
from keras import layers, ops, optimizers, regularizers

import keras_introspect as ki
from benchmarks.diagnosis import data
from benchmarks.diagnosis.programs import Task, classify, dense, healthy, on_frozen, regress, stack

# --- plain networks ---


@healthy()
def relu_network(rng: np.random.Generator) -> Task:
    """Digits, two hidden layers, Adam."""
    return classify(dense(64, [64, 32], 10, "softmax"), data.digits(rng))


@healthy()
def a_fifth_quiet(rng: np.random.Generator) -> Task:
    """A ReLU network in which a fifth of the units never fire, as is usual in trained ones."""
    model = dense(64, [80, 40], 10, "softmax")
    for layer in model.layers[:2]:
        bias = np.zeros(layer.units)
        bias[: layer.units // 5] = -20
        layer.bias.assign(bias)
    return classify(model, data.digits(rng))


@healthy()
def tanh_network(rng: np.random.Generator) -> Task:
    """Half moons, tanh."""
    return classify(
        dense(2, [32, 32], 1, "sigmoid", "tanh"), data.moons(rng), optimizers.Adam(5e-3), "binary_crossentropy"
    )


@healthy()
def sigmoid_network(rng: np.random.Generator) -> Task:
    """Digits through one hidden layer of sigmoids."""
    return classify(dense(64, [64], 10, "softmax", "sigmoid"), data.digits(rng), optimizers.Adam(3e-3))


@healthy()
def selu_network(rng: np.random.Generator) -> Task:
    """Six layers of SELU with the kernels that they ask for."""
    model = dense(64, [48] * 6, 10, "softmax", "selu", "lecun_normal")
    return classify(model, data.digits(rng), optimizers.Adam(1e-3))


@healthy()
def gelu_network(rng: np.random.Generator) -> Task:
    """Clusters, GELU, logits under a loss that is told so."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return classify(dense(20, [64, 64], 4, None, "gelu"), data.classes(rng), loss=loss)


@healthy()
def logistic_regression(rng: np.random.Generator) -> Task:
    """Digits, no hidden layer."""
    return classify(dense(64, [], 10, "softmax"), data.digits(rng), optimizers.SGD(0.5))


@healthy()
def linear_regression(rng: np.random.Generator) -> Task:
    """A plane with noise, no hidden layer, SGD."""
    x = rng.normal(size=(600, 5))
    y = x @ rng.normal(size=(5, 1)) + rng.normal(0, 0.3, (600, 1))
    return regress(dense(5, [], 1), data.split(rng, x, y), optimizers.SGD(0.05))


@healthy()
def wide_network(rng: np.random.Generator) -> Task:
    """Clusters, one layer of 512 units."""
    return classify(dense(20, [512], 4, "softmax"), data.classes(rng))


# --- optimizers and batches ---


@healthy()
def sgd(rng: np.random.Generator) -> Task:
    """Digits, SGD 0.1."""
    return classify(dense(64, [64], 10, "softmax"), data.digits(rng), optimizers.SGD(0.1))


@healthy()
def sgd_with_momentum(rng: np.random.Generator) -> Task:
    """Digits, SGD 0.02 with Nesterov's momentum."""
    optimizer = optimizers.SGD(0.02, momentum=0.9, nesterov=True)
    return classify(dense(64, [64, 32], 10, "softmax"), data.digits(rng), optimizer)


@healthy()
def rmsprop(rng: np.random.Generator) -> Task:
    """Digits, RMSprop at its defaults."""
    return classify(dense(64, [64, 32], 10, "softmax"), data.digits(rng), optimizers.RMSprop())


@healthy()
def small_batches(rng: np.random.Generator) -> Task:
    """Iris in batches of 4."""
    found = data.iris(rng).standardized()
    return classify(dense(4, [16], 3, "softmax"), found, optimizers.SGD(0.02), epochs=15, batch_size=4)


@healthy()
def large_batches(rng: np.random.Generator) -> Task:
    """Digits in batches of 512."""
    model = dense(64, [64, 32], 10, "softmax")
    return classify(model, data.digits(rng), optimizers.Adam(5e-3), epochs=25, batch_size=512)


# --- regularised ---


@healthy()
def dropout_half(rng: np.random.Generator) -> Task:
    """Digits, dropout of 0.5 after each hidden layer."""
    model = stack(
        (64,),
        layers.Dense(128, activation="relu", name="hidden1"),
        layers.Dropout(0.5, name="dropout1"),
        layers.Dense(128, activation="relu", name="hidden2"),
        layers.Dropout(0.5, name="dropout2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng))


@healthy()
def sparse_autoencoder(rng: np.random.Generator) -> Task:
    """Digits through 96 units of which few are to be active at a time."""
    model = stack(
        (64,),
        layers.Dense(96, activation="relu", activity_regularizer=regularizers.L1(1e-4), name="code"),
        layers.Dense(64, activation="sigmoid", name="pixels"),
    )
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    return regress(model, found, optimizers.Adam(3e-3), "binary_crossentropy")


@healthy()
def light_weight_decay(rng: np.random.Generator) -> Task:
    """Breast cancer, an L2 penalty of 1e-4, a sigmoid head."""
    model = stack(
        (30,),
        layers.Dense(32, activation="relu", kernel_regularizer=regularizers.L2(1e-4), name="hidden1"),
        layers.Dense(16, activation="relu", kernel_regularizer=regularizers.L2(1e-4), name="hidden2"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, data.cancer(rng).standardized(), loss="binary_crossentropy")


# --- deep and convolutional ---


@healthy()
def deep_residual(rng: np.random.Generator) -> Task:
    """Eight residual blocks with batch normalisation before each."""
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(32, name="stem")(inputs)
    for i in range(8):
        z = layers.BatchNormalization(momentum=0.9, name=f"norm{i}")(y)
        z = layers.Dense(32, activation="relu", kernel_initializer="he_normal", name=f"dense{i}")(z)
        y = layers.Add(name=f"add{i}")([y, z])
    y = layers.LayerNormalization(name="last_norm")(y)
    model = ki.IntrospectiveModel(inputs, layers.Dense(10, activation="softmax", name="head")(y), name="net")
    return classify(model, data.digits(rng))


@healthy()
def convolutional(rng: np.random.Generator) -> Task:
    """Digits as images, two convolutions, pooling."""
    model = stack(
        (8, 8, 1),
        layers.Conv2D(16, 3, padding="same", activation="relu", name="conv1"),
        layers.MaxPooling2D(name="pool1"),
        layers.Conv2D(32, 3, padding="same", activation="relu", name="conv2"),
        layers.Flatten(name="flatten"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng, images=True), optimizers.Adam(3e-3))


@healthy()
def convolutional_normalized(rng: np.random.Generator) -> Task:
    """The same with batch normalisation and global pooling."""
    model = stack(
        (8, 8, 1),
        layers.Conv2D(24, 3, padding="same", use_bias=False, name="conv1"),
        layers.BatchNormalization(momentum=0.9, name="norm1"),
        layers.ReLU(name="relu1"),
        layers.Conv2D(48, 3, strides=2, padding="same", use_bias=False, name="conv2"),
        layers.BatchNormalization(momentum=0.9, name="norm2"),
        layers.ReLU(name="relu2"),
        layers.GlobalAveragePooling2D(name="pool"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng, images=True), optimizers.Adam(5e-3))


# --- sequences and tokens ---


@healthy()
def simple_rnn(rng: np.random.Generator) -> Task:
    """Waves, a plain recurrent layer."""
    return _recurrent(rng, layers.SimpleRNN(24, name="rnn"))


@healthy()
def gru(rng: np.random.Generator) -> Task:
    """Waves, a GRU."""
    return _recurrent(rng, layers.GRU(24, name="gru"))


@healthy()
def lstm(rng: np.random.Generator) -> Task:
    """Waves, an LSTM."""
    return _recurrent(rng, layers.LSTM(24, name="lstm"))


@healthy()
def embedding(rng: np.random.Generator) -> Task:
    """Tokens, embedded and averaged."""
    model = stack(
        (16,),
        layers.Embedding(200, 16, name="embedding"),
        layers.GlobalAveragePooling1D(name="mean"),
        layers.Dense(16, activation="relu", name="hidden"),
        layers.Dense(1, activation="sigmoid", name="head"),
    )
    return classify(model, data.tokens(rng), optimizers.Adam(5e-3), "binary_crossentropy")


@healthy()
def transformer(rng: np.random.Generator) -> Task:
    """Tokens, one block of attention."""
    inputs = keras.Input((16,), dtype="int32", name="tokens")
    y = layers.Embedding(200, 32, name="embedding")(inputs)
    z = layers.LayerNormalization(name="norm1")(y)
    y = layers.Add(name="add1")([y, layers.MultiHeadAttention(2, 16, name="attention")(z, z)])
    z = layers.LayerNormalization(name="norm2")(y)
    z = layers.Dense(64, activation="gelu", name="wide")(z)
    y = layers.Add(name="add2")([y, layers.Dense(32, name="narrow")(z)])
    y = layers.GlobalAveragePooling1D(name="mean")(layers.LayerNormalization(name="norm3")(y))
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, activation="sigmoid", name="head")(y), name="net")
    return classify(model, data.tokens(rng), optimizers.Adam(2e-3), "binary_crossentropy", epochs=6)


def _recurrent(rng: np.random.Generator, layer: Any) -> Task:
    model = stack((20, 1), layer, layers.Dense(3, activation="softmax", name="head"))
    return classify(model, data.waves(rng), optimizers.Adam(5e-3))


# --- heads ---


@healthy()
def regression(rng: np.random.Generator) -> Task:
    """Friedman's problem, a linear head."""
    return regress(dense(10, [32, 32], 1), data.friedman(rng), optimizers.Adam(3e-3))


@healthy()
def regression_absolute_error(rng: np.random.Generator) -> Task:
    """Diabetes, targets standardised, mean absolute error; a third of the variance is all there is to explain."""
    found = data.diabetes(rng).standardized_targets()
    return regress(dense(10, [16], 1), found, optimizers.Adam(3e-3), "mae")


@healthy()
def multi_label(rng: np.random.Generator) -> Task:
    """Five labels at once, five sigmoids."""
    x = rng.normal(size=(1000, 12))
    y = (x @ rng.normal(size=(12, 5)) + rng.normal(0, 0.5, (1000, 5)) > 0.5).astype("float32")
    task = classify(dense(12, [32], 5, "sigmoid"), data.split(rng, x, y), optimizers.Adam(3e-3), "binary_crossentropy")
    task.compile["metrics"] = ["binary_accuracy"]
    found = task.fit["validation_data"]
    return task._replace(quality=lambda model: float(np.mean((model.predict(found[0], verbose=0) > 0.5) == found[1])))


@healthy()
def fine_tuning(rng: np.random.Generator) -> Task:
    """Layers that were trained on another task, frozen; a new head."""
    found = data.digits(rng)
    backbone = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(96, activation="relu", name="dense1"),
            layers.Dense(64, activation="relu", name="dense2"),
        ],
        name="backbone",
    )
    model = on_frozen(backbone, found)
    return classify(model, found, optimizers.Adam(5e-3))


# --- generative ---


class Gan(ki.IntrospectiveModel):
    """A generator of points in the plane against a discriminator; two optimizers."""

    def __init__(self) -> None:
        super().__init__(name="gan")
        self.generator = keras.Sequential(
            [keras.Input((4,)), layers.Dense(32, activation="leaky_relu", name="g1"), layers.Dense(2, name="g2")],
            name="generator",
        )
        self.discriminator = keras.Sequential(
            [keras.Input((2,)), layers.Dense(32, activation="leaky_relu", name="d1"), layers.Dense(1, name="d2")],
            name="discriminator",
        )
        self.seeds = keras.random.SeedGenerator(0)

    def compile(self, generator_optimizer: Any, discriminator_optimizer: Any, **arguments: Any) -> None:
        super().compile(optimizer=generator_optimizer, **arguments)
        self.discriminator_optimizer = discriminator_optimizer

    def call(self, noise: Any) -> Any:
        return self.generator(noise)

    def train_step(self, points: Any) -> dict[str, Any]:
        import tensorflow as tf

        entropy = keras.losses.BinaryCrossentropy(from_logits=True)
        noise = keras.random.normal((ops.shape(points)[0], 4), seed=self.seeds)
        with tf.GradientTape() as tape:
            real, fake = self.discriminator(points), self.discriminator(self.generator(noise))
            critic = entropy(ops.ones_like(real), real) + entropy(ops.zeros_like(fake), fake)
        variables = self.discriminator.trainable_variables
        self.discriminator_optimizer.apply(tape.gradient(critic, variables), variables)
        with tf.GradientTape() as tape:
            fake = self.discriminator(self.generator(noise))
            loss = entropy(ops.ones_like(fake), fake)
        variables = self.generator.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"discriminator_loss": critic, "loss": loss}


@healthy()
def gan(rng: np.random.Generator) -> Task:
    """A generative adversarial network that learns an ellipse of points."""
    points = (rng.normal(size=(1000, 2)) * [1.0, 0.4] + [0.5, -0.5]).astype("float32")
    noise = rng.normal(size=(500, 4)).astype("float32")
    return Task(
        Gan(),
        {
            "generator_optimizer": optimizers.Adam(1e-3, beta_1=0.5),
            "discriminator_optimizer": optimizers.Adam(1e-3, beta_1=0.5),
        },
        {"x": points, "epochs": 10, "batch_size": 32},
        lambda model: -float(np.abs(model.predict(noise, verbose=0).mean(axis=0) - points.mean(axis=0)).max()),
    )


class Sampling(layers.Layer):
    """Draws the code of a variational autoencoder, and adds its divergence from the standard normal to the loss."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, inputs: Any) -> Any:
        mean, log_variance = inputs
        divergence = -0.5 * ops.mean(ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=-1))
        self.add_loss(divergence / 64)
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seeds)


@healthy()
def variational_autoencoder(rng: np.random.Generator) -> Task:
    """Digits through four normal variables."""
    inputs = keras.Input((64,), name="pixels")
    y = layers.Dense(48, activation="relu", name="encoder")(inputs)
    code = Sampling(name="code")([layers.Dense(4, name="mean")(y), layers.Dense(4, name="log_variance")(y)])
    y = layers.Dense(48, activation="relu", name="decoder")(code)
    model = ki.IntrospectiveModel(inputs, layers.Dense(64, activation="sigmoid", name="reconstruction")(y), name="net")
    found = data.digits(rng)
    found = found._replace(y=found.x, y_validation=found.x_validation)
    return regress(model, found, optimizers.Adam(3e-3), "binary_crossentropy")


# --- the machinery of Keras ---


@healthy()
def mixed_bfloat16(rng: np.random.Generator) -> Task:
    """Digits, computed in bfloat16."""
    model = stack(
        (64,),
        layers.Dense(64, activation="relu", dtype="mixed_bfloat16", name="hidden1"),
        layers.Dense(32, activation="relu", dtype="mixed_bfloat16", name="hidden2"),
        layers.Dense(10, activation="softmax", name="head"),
    )
    return classify(model, data.digits(rng))


@healthy()
def long_converged(rng: np.random.Generator) -> Task:
    """Clouds that lie well apart, trained until gradients are small everywhere."""
    found = data.blobs(rng, 300, spread=0.5).standardized()
    return classify(dense(2, [16, 16], 3, "softmax"), found, optimizers.Adam(1e-2), epochs=20, batch_size=16)
