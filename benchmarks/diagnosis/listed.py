"""Faults from public questions and papers, written anew, each beside its healthy twin.

Numbers are questions on Stack Overflow; AUTOTRAINER is Zhang et al. (2021), UMLAUT Schoop et al. (2021).
"""

from typing import Any

import keras
import numpy as np
from keras import initializers, layers, optimizers

import keras_introspect as ki
from benchmarks.diagnosis import data
from benchmarks.diagnosis.programs import Task, accuracy, classify, dense, fitting, on_frozen, pair, regress, stack


@pair("squared_error_on_classes", "step_too_small")
def xor(rng: np.random.Generator, faulty: bool) -> Task:
    """XOR by four sigmoids to one, mean absolute error, SGD 0.05, 1000 passes over the four points (31556268)."""
    x = np.tile(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32"), (25, 1))  # 25 passes are one epoch, to save time
    y = (x[:, :1] != x[:, 1:]).astype("float32")
    model = dense(2, [4] if faulty else [8], 1, "sigmoid", "sigmoid" if faulty else "tanh")
    fit = {"x": x, "y": y, "batch_size": 4, "epochs": 40 if faulty else 12, "shuffle": False}
    optimizer = optimizers.SGD(0.05) if faulty else optimizers.Adam(0.05)
    loss = "mean_absolute_error" if faulty else "binary_crossentropy"
    return Task(model, {"optimizer": optimizer, "loss": loss, "metrics": ["accuracy"]}, fit, accuracy(x, y))


@pair("softmax_over_one_unit")
def line_through_softmax(rng: np.random.Generator, faulty: bool) -> Task:
    """Linear regression through tanh and dropout into a softmax over one unit (33969059)."""
    x = rng.uniform(-1, 1, size=(600, 3))
    y = x @ [[1.0], [-2.0], [0.5]] + rng.normal(0, 0.1, (600, 1))
    if not faulty:
        return regress(dense(3, [32], 1), data.split(rng, x, y), optimizers.Adam(1e-2))
    model = stack(
        (3,),
        layers.Dense(64, activation="tanh", name="hidden1"),
        layers.Dropout(0.5, name="dropout1"),
        layers.Dense(64, activation="tanh", name="hidden2"),
        layers.Dropout(0.5, name="dropout2"),
        layers.Dense(1, activation="softmax", name="head"),
    )
    return regress(model, data.split(rng, x, y), optimizers.SGD(0.1, momentum=0.9))


@pair("softmax_over_one_unit")
def softmax_for_two_classes(rng: np.random.Generator, faulty: bool) -> Task:
    """Drawn data, dense 60 and 50, softmax over one unit under binary cross-entropy (45337371)."""
    model = dense(20, [60, 50], 1, "softmax" if faulty else "sigmoid")
    return classify(model, data.half_spaces(rng), loss="binary_crossentropy")


@pair("step_too_large", "unscaled_targets", "unscaled_inputs", "exploding_gradients")
def parabola(rng: np.random.Generator, faulty: bool) -> Task:
    """y = 5x² + noise for x up to 10, ReLU 50 and 30, SGD 0.1 (48934338)."""
    x = rng.uniform(-10, 10, size=(800, 1))
    found = data.split(rng, x, 5 * x**2 + rng.normal(0, 5, x.shape))
    if faulty:
        return regress(dense(1, [50, 30], 1), found, optimizers.SGD(0.1))
    return regress(dense(1, [50, 30], 1), found.standardized().standardized_targets(), optimizers.Adam(1e-2))


@pair("unscaled_targets", "unscaled_inputs")
def fourth_power(rng: np.random.Generator, faulty: bool) -> Task:
    """y = x⁴ for x from −100 to 100, neither of them scaled (52800582)."""
    x = rng.uniform(-100, 100, size=(800, 1))
    found = data.split(rng, x, x**4)
    if not faulty:
        found = found.standardized().standardized_targets()
    return regress(dense(1, [50, 50], 1), found, optimizers.Adam(3e-3), epochs=30)


@pair("head_loss_mismatch")
def iris_sigmoid_head(rng: np.random.Generator, faulty: bool) -> Task:
    """Iris, a sigmoid head of three units under categorical cross-entropy, not scaled (51930566, 59278771)."""
    found = data.iris(rng).with_labels(lambda y: keras.utils.to_categorical(y, 3))
    entropy = "categorical_crossentropy"
    if faulty:
        task = classify(dense(4, [8, 10], 3, "sigmoid"), found, optimizers.SGD(0.01), entropy, epochs=20, batch_size=16)
    else:
        found = found.standardized()
        task = classify(dense(4, [16], 3, "softmax"), found, optimizers.Adam(1e-2), entropy, epochs=20, batch_size=16)
    whole = np.concatenate([found.x, found.x_validation]), np.concatenate([found.y, found.y_validation])
    return task._replace(quality=accuracy(*whole))  # 30 flowers alone would be a noisy measure


@pair("squared_error_on_classes")
def squared_error_on_digits(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits, 30 sigmoids, squared error on ten sigmoids, SGD 3.0 (48385830)."""
    found = data.digits(rng).with_labels(lambda y: keras.utils.to_categorical(y, 10))
    if faulty:
        model = dense(64, [30], 10, "sigmoid", "sigmoid")
        return classify(model, found, optimizers.SGD(3.0), "mse", epochs=8, batch_size=100)
    model = dense(64, [30], 10, "softmax")
    return classify(model, found, optimizers.Adam(5e-3), "categorical_crossentropy")


@pair("labels_out_of_range")
def labels_scaled_with_pixels(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits, the labels divided by 255 together with the pixels (59325381)."""
    found = data.digits(rng)
    task = classify(dense(64, [32], 10, "softmax"), found)
    return task._replace(fit=fitting(found.with_labels(lambda y: y / np.float32(255)))) if faulty else task


@pair("vanishing_gradients")
def circles_vanishing(rng: np.random.Generator, faulty: bool) -> Task:
    """Concentric circles, 15 layers of 5 sigmoids, Adam 1e-3 (AUTOTRAINER)."""
    if faulty:
        return classify(_deep("sigmoid"), data.circles(rng), optimizers.Adam(1e-3), "binary_crossentropy", epochs=12)
    return _circles_twin(rng)


@pair("exploding_gradients", "exploding_activations", "large_initialization")
def circles_exponential(rng: np.random.Generator, faulty: bool) -> Task:
    """Concentric circles, 15 layers of 5 ReLUs, kernels drawn from an exponential distribution (AUTOTRAINER)."""
    if faulty:
        return classify(_deep("relu", Exponential(data.seed_of(rng))), data.circles(rng), loss="binary_crossentropy")
    return _circles_twin(rng)


@pair("exploding_gradients", "exploding_activations", "large_initialization")
def circles_large_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """Concentric circles, 15 layers of 20 ReLUs, kernels of standard deviation 3 (AUTOTRAINER)."""
    if faulty:
        start = initializers.RandomNormal(stddev=3.0)
        return classify(_deep("relu", start, 20), data.circles(rng), loss="binary_crossentropy")
    return _circles_twin(rng)


@pair("dead_units", "dying_units")
def negative_inputs(rng: np.random.Generator, faulty: bool) -> Task:
    """Inputs from −1 to 0, twelve layers of 4 ReLUs, Glorot kernels (AUTOTRAINER, Lu et al. 2020)."""
    x = rng.uniform(-1, 0, size=(800, 4))
    found = data.split(rng, x, (x[:, :2].sum(axis=1) > x[:, 2:].sum(axis=1)).astype(int))
    if faulty:
        start = initializers.RandomUniform(-0.1, 0.6)
        model = dense(4, [4] * 12, 1, "sigmoid", start=start)
    else:
        model = dense(4, [32, 32], 1, "sigmoid", "leaky_relu", "he_normal")
        found = found.standardized()
    return classify(model, found, loss="binary_crossentropy")


@pair("oscillation", "step_too_large")
def blobs_one_by_one(rng: np.random.Generator, faulty: bool) -> Task:
    """Three overlapping blobs, SGD 0.01 with momentum 0.9 on batches of one (AUTOTRAINER)."""
    found = data.blobs(rng, 200, spread=3.0)
    if faulty:
        model = dense(2, [50], 3, "softmax")
        return classify(model, found, optimizers.SGD(0.01, momentum=0.9), epochs=8, batch_size=1)
    model = dense(2, [50], 3, "softmax")
    return classify(model, found.standardized(), optimizers.SGD(0.01, momentum=0.9), epochs=15, batch_size=16)


@pair("constant_initialization")
def constant_kernels(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits, all kernels 0.01 to begin with."""
    start = initializers.Constant(0.01) if faulty else "glorot_uniform"
    return classify(dense(64, [32, 32], 10, "softmax", start=start), data.digits(rng))


@pair("step_too_large")
def adam_too_fast(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits, Adam at 0.1."""
    return _digits_by_adam(rng, 0.1 if faulty else 1e-3)


@pair("step_too_small")
def adam_too_slow(rng: np.random.Generator, faulty: bool) -> Task:
    """Digits, Adam at 1e-5."""
    return _digits_by_adam(rng, 1e-5 if faulty else 1e-3)


@pair("unscaled_inputs")
def one_large_feature(rng: np.random.Generator, faulty: bool) -> Task:
    """One feature of scale 1e4 among others of scale 1, not normalised."""
    found = data.classes(rng)
    if faulty:
        found = found.with_inputs(lambda x: np.concatenate([x[:, :-1], 1e4 * x[:, -1:]], 1).astype("float32"))
    return classify(dense(20, [32, 32], 4, "softmax"), found)


@pair("unscaled_inputs")
def wine_unscaled(rng: np.random.Generator, faulty: bool) -> Task:
    """Wine as it ships: proline in the hundreds, hue around one."""
    found = data.wine(rng) if faulty else data.wine(rng).standardized()
    return classify(dense(13, [32], 3, "softmax"), found, optimizers.Adam(2e-3), epochs=20, batch_size=16)


@pair("wrong_phase", "normalization_phase_gap")
def normalization_always_training(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation called with training=True: predictions depend on the batch, and of one sample say nothing."""
    found = data.digits(rng)
    task = classify(Normalized(True if faulty else None), found)
    return task._replace(quality=accuracy(found.x_validation, found.y_validation, batch_size=1))


@pair("wrong_phase", "normalization_phase_gap")
def normalization_never_training(rng: np.random.Generator, faulty: bool) -> Task:
    """Batch normalisation called with training=False: it never normalises, of small kernels that need it."""
    model = Normalized(False if faulty else None, 6, initializers.RandomNormal(stddev=0.04))
    return classify(model, data.digits(rng), optimizers.SGD(0.05))


@pair("normalization_phase_gap", "unscaled_inputs")
def frozen_foreign_backbone(rng: np.random.Generator, faulty: bool) -> Task:
    """A frozen backbone whose normalisation statistics belong to pixels up to 1, on pixels up to 255."""
    found = data.digits(rng)
    inputs = keras.Input((64,))
    y = inputs
    for i, width in enumerate((64, 64), 1):
        y = layers.Dense(width, use_bias=False, name=f"dense{i}")(y)
        y = layers.BatchNormalization(momentum=0.8, name=f"norm{i}")(y)
        y = layers.Activation("tanh", name=f"tanh{i}")(y)
    backbone = keras.Model(inputs, y, name="backbone")
    model = on_frozen(backbone, found)
    foreign = found.with_inputs(lambda x: x * 255) if faulty else found
    return classify(model, foreign, optimizers.Adam(3e-3))


def _deep(hidden: str, start: Any = "glorot_uniform", width: int = 5) -> Any:
    return dense(2, [width] * 15, 1, "sigmoid", hidden, start)


def _circles_twin(rng: np.random.Generator) -> Task:
    model = dense(2, [32, 32], 1, "sigmoid", start="he_normal")
    return classify(model, data.circles(rng), optimizers.Adam(5e-3), "binary_crossentropy")


def _digits_by_adam(rng: np.random.Generator, learning_rate: float) -> Task:
    model = dense(64, [64, 64, 32], 10, "softmax")
    return classify(model, data.digits(rng), optimizers.Adam(learning_rate))


class Normalized(ki.IntrospectiveModel):
    """Normalised layers and a head; the normalisation is called with the `phase` that is given, if one is."""

    def __init__(self, phase: bool | None, depth: int = 2, start: Any = "glorot_uniform") -> None:
        super().__init__(name="net")
        self.phase = phase
        self.blocks = [
            (
                layers.Dense(64, kernel_initializer=start, name=f"dense{i}"),
                layers.BatchNormalization(momentum=0.9, name=f"norm{i}"),
                layers.ReLU(name=f"relu{i}"),
            )
            for i in range(1, depth + 1)
        ]
        self.head = layers.Dense(10, activation="softmax", name="head")
        self(np.zeros((1, 64), "float32"))

    def call(self, x: Any, training: bool | None = None) -> Any:
        for dense_layer, norm, relu in self.blocks:
            x = relu(norm(dense_layer(x), training=training if self.phase is None else self.phase))
        return self.head(x)


@keras.saving.register_keras_serializable("keras_introspect_benchmarks")
class Exponential(initializers.Initializer):
    """Kernels drawn from an exponential distribution of mean 1: all positive."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return keras.ops.convert_to_tensor(self.rng.exponential(1.0, shape), dtype)

    def get_config(self) -> dict[str, Any]:
        return {"seed": 0}
