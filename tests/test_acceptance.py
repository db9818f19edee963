"""Acceptance: every number of every collector equals the oracle's, for every kind of Keras model.

The expected values come from `oracle.py`: a training loop written by hand on a plain Keras model, and NumPy.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_introspect as ki
import models
import oracle

UPDATES = ("update_ratio", "implicit_learning_rate", "implicit_learning_rate_quantiles")  # come with them
COLLECTORS = {
    "weights": ki.Weights,
    "gradients": ki.Gradients,
    "updates": ki.Updates,
    "layer_outputs": ki.LayerOutputs,
    "output_gradients": ki.OutputGradients,
}
STATISTICS = ["moments", "activity"]

# kind, head, run_eagerly, optimizer
RUNS = [
    ("functional", "softmax", False, "sgd"),
    ("functional", "softmax_layer", True, "adam"),
    ("functional", "logits", True, "clipped"),
    ("sequential", "softmax", False, "clipped"),
    ("sequential", "logits", True, "sgd"),
    ("subclassed", "softmax", False, "sgd"),
    ("subclassed", "softmax", True, "adam"),
    ("subclassed", "softmax_layer", True, "sgd"),
    ("instrumented", "softmax", False, "adam"),
    ("instrumented", "logits", True, "clipped"),
]
EPOCHS = 2


def every_collector(**arguments: Any) -> list[Any]:
    return [collector(statistics=STATISTICS, **arguments) for collector in COLLECTORS.values()]


@functools.cache
def expected_run(kind: str, head: str, eager: bool, optimizer: str) -> oracle.Run:
    x, y = models.data()
    model = models.build_for_oracle(kind, head)
    by_hand = models.optimizer(optimizer)
    return oracle.train(model, models.FORWARDS[kind], models.loss(head), by_hand, x, y, 32, EPOCHS, eager)


def fitted(kind: str, head: str, eager: bool, optimizer: str, **compile_args: Any) -> Any:
    """A trained model: plain without `collectors`."""
    x, y = models.data()
    model = models.build(kind, head, introspective="collectors" in compile_args)
    compile_args |= {"optimizer": models.optimizer(optimizer), "loss": models.loss(head), "run_eagerly": eager}
    models.compile_and_fit(model, x, y, epochs=EPOCHS, compile_args=compile_args)
    return model


def last_bits(run: oracle.Run, epoch: int) -> dict[str, float]:
    """By how much an update may differ in a graph: the oracle keeps gradients, and so rounds a weight otherwise."""
    return {name: float(np.spacing(np.abs(value).max())) for name, value in run.epochs[epoch][-1].weights.items()}


def mismatches(
    series: Any,
    expected: dict[str, dict[str, float]],
    epoch: int,
    resolutions: Mapping[str, float] = MappingProxyType({}),
) -> list[str]:
    """Every value of one epoch that differs from the oracle's."""
    found = []
    for name, statistics in expected.items():
        if name not in series.names:
            found.append(f"{name} is not among {series.names}")
            continue
        for statistic in statistics:
            actual = series.sel(name).epoch(statistic)[epoch]
            try:
                oracle.assert_statistic(statistic, actual, statistics, name, resolutions.get(name, 0.0))
            except AssertionError as error:
                found.append(str(error))
    return found


# --- the oracle itself ---


@pytest.mark.parametrize(("kind", "head", "eager", "optimizer"), [RUNS[i] for i in (0, 1, 2, 3, 4, 5, 6)])
def test_oracle_trains_as_fit_does(kind: str, head: str, eager: bool, optimizer: str) -> None:
    x, y = models.data()
    model = models.build_for_oracle(kind, head)
    by_hand = models.optimizer(optimizer)
    oracle.train(model, models.FORWARDS[kind], models.loss(head), by_hand, x, y, 32, EPOCHS, eager, keep=False)
    plain = fitted(kind, head, eager, optimizer)
    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    assert oracle.same_bits(oracle.optimizer_values(by_hand), oracle.optimizer_values(plain.optimizer))


def test_oracle_statistics_on_numbers_done_by_hand() -> None:
    first = np.array([[0.0, 3.0, 0.0], [0.0, -4.0, 0.0]])
    second = np.array([[0.0, np.inf, 0.0], [1.0, np.nan, 0.0]])
    found = oracle.statistics([first, second], positions=True)
    assert (found["count"], found["nonfinite"], found["min"], found["max"]) == (10, 2, -4, 3)
    assert found["mean"] == 0
    assert found["l2_norm"] == np.sqrt(26)
    assert found["rms"] == found["std"] == np.sqrt(2.6)
    assert found["mean_abs"] == 0.8
    assert found["activation_rate"] == 5 / 12  # inf and NaN are not zero
    assert found["dead_rate"] == 1 / 3
    assert np.isnan(found["spatial_dead_rate"])
    image = np.zeros((2, 2, 2, 3))
    image[0, 1, 0, 2] = 5
    assert oracle.statistics([image], positions=True)["spatial_dead_rate"] == 3 / 4
    assert oracle.statistics([image], positions=True)["dead_rate"] == 2 / 3


# --- the numbers ---


def name_problems(series: Any, expected: dict[str, list[np.ndarray]], without: tuple[str, ...]) -> list[str]:
    """What is wrong with the names and shapes of a series; `without` may be absent or all NaN."""
    found = []
    names = set(series.names)
    if names - set(without) != set(expected):
        missing, surplus = sorted(set(expected) - names), sorted(names - set(without) - set(expected))
        found.append(f"{series.view}: missing {missing}, surplus {surplus}")
    for name in names & set(without):
        if not np.isnan(series.sel(name).epoch("rms")).all():
            found.append(f"{series.view}: {name} has values, although the loss takes the logits")
    for name, shape in zip(series.names, series.shapes, strict=True):
        if name in expected:
            whole = expected[name][0].shape
            varies = series.view in ("layer_outputs", "output_gradients")
            if shape != ((None, *whole[1:]) if varies else whole):
                found.append(f"{series.view}: {name} has shape {shape}, expected {whole}")
    return found


@pytest.mark.parametrize(("kind", "head", "eager", "optimizer"), RUNS)
def test_a_run_equals_the_oracle_and_does_not_disturb(kind: str, head: str, eager: bool, optimizer: str) -> None:
    """All names, shapes, values; what is unobserved and why; and the same weights as plain Keras, bit for bit."""
    run = expected_run(kind, head, eager, optimizer)
    without = run.epochs[0][0].without_gradient
    assert bool(without) == (head != "logits")

    model = fitted(kind, head, eager, optimizer, collectors=every_collector())
    recording = model.recording
    found = []
    for collector in COLLECTORS:
        series = recording[collector]
        further = UPDATES if collector == "updates" else ()
        assert set(series.statistics) == {*oracle.MOMENTS, *oracle.ACTIVITY, *further}
        np.testing.assert_array_equal(series.epochs, range(EPOCHS))
        found += name_problems(series, run.arrays(collector, 0), without if collector == "output_gradients" else ())
        for epoch in range(EPOCHS):
            resolutions = last_bits(run, epoch) if collector == "updates" and not eager else {}
            lines = mismatches(series, run.expected(collector, epoch), epoch, resolutions)
            found += [f"{collector}, epoch {epoch}: {line}" for line in lines]
    for name in without:
        reasons = " ".join(reason for key, reason in recording.unobserved.items() if name in key)
        if "logits" not in reasons:
            found.append(f"{name} is not named with its reason in unobserved: {recording.unobserved}")
    if not without and recording.unobserved:
        found.append(f"everything is observable, but unobserved says {recording.unobserved}")

    plain = fitted(kind, head, eager, optimizer)
    if not oracle.same_bits(model.get_weights(), plain.get_weights()):
        found.append("the weights are not those of plain Keras")
    ours, theirs = oracle.optimizer_values(model.optimizer), oracle.optimizer_values(plain.optimizer)
    if not oracle.same_bits(ours, theirs):
        found.append("the optimizer's variables are not those of plain Keras")
    assert not found, f"{len(found)} problems:\n" + "\n".join(found[:40])


class Blocks(ki.IntrospectiveModel):
    """Two blocks whose parts share their names, written as users write them: without a `build`."""

    def __init__(self) -> None:
        super().__init__(name="blocks")
        self.first = self.Block(2.0, name="first")
        self.second = self.Block(3.0, name="second")
        self.head = layers.Dense(1, name="head")

    class Block(layers.Layer):
        def __init__(self, factor: float, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.scale = layers.Rescaling(factor, name="scale")
            self.relu = layers.ReLU(name="relu")

        def call(self, x: Any) -> Any:
            return self.relu(self.scale(x))

    def call(self, x: Any) -> Any:
        return self.head(self.second(self.first(x)))


@pytest.mark.parametrize("eager", [False, True])
def test_layers_of_one_name_in_two_blocks_are_two_rows(eager: bool) -> None:
    x = np.random.default_rng(1).normal(size=(20, 3)).astype("float32")
    model = Blocks()
    compile_args = {"loss": "mse", "run_eagerly": eager, "collectors": every_collector()}
    models.compile_and_fit(model, x, x[:, :1], batch_size=8, epochs=1, compile_args=compile_args)
    twice, six = np.float32(2) * x, np.float32(6) * np.maximum(x, 0)
    arrays = {
        "blocks/first/scale": twice,
        "blocks/first/relu": np.maximum(twice, 0),
        "blocks/first": np.maximum(twice, 0),
        "blocks/second/scale": six,
        "blocks/second/relu": six,
        "blocks/second": six,
    }
    series = model.recording["layer_outputs"]
    assert set(series.names) == {*arrays, "blocks/head"}
    assert not mismatches(series, {name: oracle.statistics([a], True) for name, a in arrays.items()}, 0)


@pytest.mark.parametrize("eager", [False, True])
def test_sigmoid_head_under_binary_crossentropy(eager: bool) -> None:
    def build(base: Any) -> Any:
        keras.utils.set_random_seed(5)
        inputs = keras.Input((4,))
        hidden = layers.Dense(6, activation="relu", name="hidden")(inputs)
        return base(inputs, layers.Dense(1, activation="sigmoid", name="head")(hidden))

    def forward(model: Any, x: Any) -> Any:
        hidden = model.get_layer("hidden")(x)
        head = model.get_layer("head")(hidden)
        return {"hidden": hidden, "head": head}, head

    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 4)).astype("float32")
    y = (x[:, :1] > 0).astype("float32")
    bce = keras.losses.BinaryCrossentropy()
    run = oracle.train(build(keras.Model), forward, bce, models.optimizer("sgd"), x, y, 8, 1, eager)
    model = build(ki.IntrospectiveModel)
    compile_args = {"loss": "binary_crossentropy", "run_eagerly": eager, "collectors": every_collector()}
    models.compile_and_fit(model, x, y, batch_size=8, epochs=1, compile_args=compile_args)
    assert run.epochs[0][0].without_gradient == ("head",)
    for collector in COLLECTORS:
        assert not mismatches(model.recording[collector], run.expected(collector, 0), 0)
    assert any("head" in name for name in model.recording.unobserved)


def test_a_probability_head_under_another_loss_has_its_gradient() -> None:
    """Mean squared error reads the probabilities: then their gradient exists and is recorded."""

    def build(base: Any) -> Any:
        keras.utils.set_random_seed(5)
        inputs = keras.Input((4,))
        return base(inputs, layers.Dense(3, activation="softmax", name="head")(inputs))

    def forward(model: Any, x: Any) -> Any:
        head = model.get_layer("head")(x)
        return {"head": head}, head

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(20, 4)).astype("float32"), rng.uniform(size=(20, 3)).astype("float32")
    mse = keras.losses.MeanSquaredError()
    run = oracle.train(build(keras.Model), forward, mse, models.optimizer("sgd"), x, y, 8, 1, False)
    model = build(ki.IntrospectiveModel)
    models.compile_and_fit(
        model, x, y, batch_size=8, epochs=1, compile_args={"loss": "mse", "collectors": every_collector()}
    )
    for collector in COLLECTORS:
        assert not mismatches(model.recording[collector], run.expected(collector, 0), 0)
    assert not model.recording.unobserved


def test_gradients_of_an_embedding_are_the_summed_rows() -> None:
    def build(base: Any) -> Any:
        keras.utils.set_random_seed(5)
        inputs = keras.Input((6,), dtype="int32")
        h = layers.Embedding(9, 4, name="embedding")(inputs)
        h = layers.GlobalAveragePooling1D(name="pool")(h)
        return base(inputs, layers.Dense(1, name="head")(h))

    def forward(model: Any, x: Any) -> Any:
        outputs = {}
        for name in ("embedding", "pool", "head"):
            outputs[name] = x = model.get_layer(name)(x)
        return outputs, x

    rng = np.random.default_rng(1)
    x = rng.integers(0, 7, (20, 6)).astype("int32")  # rows 7 and 8 are never looked up
    y = rng.normal(size=(20, 1)).astype("float32")
    mse = keras.losses.MeanSquaredError()
    run = oracle.train(build(keras.Model), forward, mse, keras.optimizers.SGD(0.1), x, y, 8, 2, False)
    model = build(ki.IntrospectiveModel)
    watched = ("weights", "gradients", "updates")
    collectors = [COLLECTORS[name](statistics=STATISTICS) for name in watched]
    compile_args = {"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", "collectors": collectors}
    models.compile_and_fit(model, x, y, batch_size=8, compile_args=compile_args)
    for collector in watched:
        for epoch in range(2):
            assert not mismatches(model.recording[collector], run.expected(collector, epoch), epoch)


def test_a_shared_layer_pools_its_calls() -> None:
    def build(base: Any) -> Any:
        keras.utils.set_random_seed(5)
        one, two = keras.Input((4,)), keras.Input((4,))
        shared = layers.Dense(3, activation="relu", name="shared")
        joined = layers.Concatenate(name="joined")([shared(one), shared(two)])
        return base([one, two], layers.Dense(1, name="head")(joined))

    rng = np.random.default_rng(1)
    x = [rng.normal(size=(16, 4)).astype("float32") for _ in range(2)]
    y = rng.normal(size=(16, 1)).astype("float32")
    plain = build(keras.Model)
    outputs = [plain.get_layer("shared")(part) for part in x]
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        loss = tf.reduce_mean((plain.get_layer("head")(tf.concat(outputs, -1)) - y) ** 2)
    gradients = tape.gradient(loss, outputs)
    model = build(ki.IntrospectiveModel)
    collectors = [ki.LayerOutputs(statistics=STATISTICS), ki.OutputGradients(statistics=STATISTICS)]
    models.compile_and_fit(model, x, y, batch_size=16, epochs=1, compile_args={"loss": "mse", "collectors": collectors})
    for collector, arrays in (("layer_outputs", outputs), ("output_gradients", gradients)):
        expected = {"shared": oracle.statistics([np.asarray(a) for a in arrays], positions=True)}
        assert not mismatches(model.recording[collector], expected, 0)


# --- every ---


@pytest.mark.parametrize("eager", [False, True])
def test_every_second_step(eager: bool) -> None:
    run = expected_run("functional", "logits", True, "clipped")
    x, y = models.data()
    model = models.build("functional", "logits", introspective=True)
    collectors = [COLLECTORS[name](statistics=STATISTICS, every=2) for name in COLLECTORS if name != "weights"]
    compile_args = {
        "optimizer": models.optimizer("clipped"),
        "loss": models.loss("logits"),
        "run_eagerly": eager,
        "collectors": collectors,
    }
    models.compile_and_fit(model, x, y, epochs=EPOCHS, compile_args=compile_args)
    flat = [step for epoch in run.epochs for step in epoch]
    for name in COLLECTORS:
        if name == "weights":
            continue
        positions = name in ("layer_outputs", "output_gradients")
        for epoch, seen in enumerate(([0, 2], [4])):  # optimizer.iterations 0…2, then 3…5
            arrays = {key: [getattr(flat[i], name)[key] for i in seen] for key in getattr(flat[0], name)}
            expected = {key: oracle.statistics(value, positions) for key, value in arrays.items()}
            assert not mismatches(model.recording[name], expected, epoch)


# --- hard numbers ---


class Guard(layers.Layer):
    """Puts zero in place of what is not finite, so that training goes on."""

    def call(self, x: Any) -> Any:
        return tf.where(tf.math.is_finite(x), x, tf.zeros_like(x))


@pytest.mark.parametrize("eager", [False, True])
def test_nonfinite_elements_are_counted_and_kept_out(eager: bool) -> None:
    keras.utils.set_random_seed(5)
    model = ki.IntrospectiveSequential(
        [
            keras.Input((6,)),
            layers.Rescaling(2.0, name="scale"),
            Guard(name="guard"),
            layers.Dense(3, name="dense"),
            layers.Dense(1, name="head"),
        ],
        name="model",
    )
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 6)).astype("float32")
    x[1, 2], x[9, 0], x[9, 1], x[10, 3], x[19, 5] = np.nan, np.inf, -np.inf, np.nan, np.nan
    y = rng.normal(size=(20, 1)).astype("float32")
    compile_args = {"loss": "mse", "run_eagerly": eager, "collectors": every_collector()}
    models.compile_and_fit(model, x, y, batch_size=8, epochs=1, compile_args=compile_args)
    outputs = model.recording["layer_outputs"]
    guarded = np.where(np.isfinite(x), 2 * x, 0)
    expected = {"model/scale": oracle.moments([2 * x]), "model/guard": oracle.moments([guarded])}
    assert expected["model/scale"]["nonfinite"] == 5
    assert not mismatches(outputs, expected, 0)
    for collector in COLLECTORS:
        series = model.recording[collector]
        for name, number in zip(series.names, series.epoch("nonfinite")[0], strict=True):
            assert number == (5 if name == "model/scale" and collector == "layer_outputs" else 0)


@pytest.mark.parametrize("eager", [False, True])
def test_gradients_that_are_nan_in_one_step(eager: bool) -> None:
    """One NaN label makes one step's gradients NaN; the epoch's statistics are those of the other steps."""

    def build(base: Any) -> Any:
        keras.utils.set_random_seed(5)
        inputs = keras.Input((4,))
        return base(inputs, layers.Dense(3, name="head")(inputs))

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(24, 4)).astype("float32"), rng.normal(size=(24, 3)).astype("float32")
    y[-1, 1] = np.nan
    model = build(ki.IntrospectiveModel)
    collectors = [ki.Gradients(statistics=["moments"]), ki.Updates(statistics=["moments"])]
    compile_args = {"loss": "mse", "run_eagerly": eager, "collectors": collectors}
    models.compile_and_fit(model, x, y, batch_size=8, epochs=1, compile_args=compile_args)

    def forward(model: Any, x: Any) -> Any:
        head = model.get_layer("head")(x)
        return {"head": head}, head

    mse = keras.losses.MeanSquaredError()
    run = oracle.train(build(keras.Model), forward, mse, models.optimizer("sgd"), x, y, 8, 1, eager)
    for collector in ("gradients", "updates"):
        expected = {name: oracle.moments(a) for name, a in run.arrays(collector, 0).items()}
        assert expected["head/bias"]["nonfinite"] >= 1
        assert not mismatches(model.recording[collector], expected, 0)


class Shifted(layers.Layer):
    """Has a weight of mean 1e4 and deviation 1, and gives a constant and zeros as well."""

    def build(self, shape: Any) -> None:
        far = keras.initializers.RandomNormal(1e4, 1.0, seed=4)
        self.far = self.add_weight(shape=(40, shape[-1]), initializer=far, name="far")
        self.constant = self.add_weight(shape=(7, 3), initializer=keras.initializers.Constant(0.3), name="constant")
        self.zero = self.add_weight(shape=(5,), initializer="zeros", name="zero")

    def call(self, x: Any) -> Any:
        used = keras.ops.sum(self.far - 1e4) + keras.ops.sum(self.constant) + keras.ops.sum(self.zero)
        return x + 0.0 * used


class Fill(layers.Layer):
    """Gives one value everywhere."""

    def __init__(self, value: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value

    def call(self, x: Any) -> Any:
        return keras.ops.full_like(x, self.value)


@pytest.mark.parametrize("eager", [False, True])
def test_mean_ten_thousand_times_the_deviation_and_constants(eager: bool) -> None:
    keras.utils.set_random_seed(5)
    inputs = keras.Input((6, 5))
    far = layers.Rescaling(1.0, offset=1e4, name="far_output")(inputs)
    h = layers.Rescaling(1.0, offset=-1e4, name="near")(far)
    constant = Fill(0.3, name="constant")(h)
    zero = Fill(0.0, name="zero")(h)
    h = layers.Add(name="sum")([Shifted(name="shifted")(h), constant, zero])
    outputs = layers.Dense(1, name="head")(layers.Flatten(name="flat")(h))
    model = ki.IntrospectiveModel(inputs, outputs, name="model")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(70, 6, 5)).astype("float32")
    x += np.linspace(-1, 1, 70, dtype="float32")[:, None, None]  # the steps' means differ, too
    y = rng.normal(size=(70, 1)).astype("float32")
    compile_args = {"loss": "mse", "run_eagerly": eager, "collectors": every_collector()}
    models.compile_and_fit(model, x, y, batch_size=16, epochs=2, compile_args=compile_args)

    outputs = model.recording["layer_outputs"]
    true = np.float32(x + np.float32(1e4)).astype(np.float64)
    for epoch in range(2):
        assert outputs.sel("far_output").epoch("std")[epoch] == pytest.approx(np.std(true), rel=1e-3)
        assert outputs.sel("far_output").epoch("mean")[epoch] == pytest.approx(np.mean(true), rel=1e-6)
        weights = model.recording["weights"]
        value = model.get_layer("shifted").far.numpy().astype(np.float64)
        assert weights.sel("shifted/far").epoch("std")[epoch] == pytest.approx(np.std(value), rel=1e-3)
        for series, name, level in (
            (outputs, "constant", 0.3),
            (weights, "shifted/constant", 0.3),
            (outputs, "zero", 0.0),
            (weights, "shifted/zero", 0.0),
        ):
            one = series.sel(name)
            assert one.epoch("std")[epoch] == 0, name
            assert one.epoch("min")[epoch] == one.epoch("max")[epoch] == np.float32(level)
            for statistic in ("mean", "rms", "mean_abs"):
                assert one.epoch(statistic)[epoch] == pytest.approx(np.float32(level), rel=1e-5)
            assert one.epoch("activation_rate")[epoch] == (level != 0)
            assert one.epoch("dead_rate")[epoch] == (level == 0)
    gradients = model.recording["gradients"]
    for name in ("shifted/far", "shifted/constant", "shifted/zero"):
        for statistic in ("mean", "std", "rms", "l2_norm", "mean_abs", "min", "max", "activation_rate"):
            assert gradients.sel(name).epoch(statistic)[0] == 0
        assert gradients.sel(name).epoch("dead_rate")[0] == 1


# --- dead units and positions ---


def dead_model(eager: bool) -> Any:
    keras.utils.set_random_seed(5)
    model = ki.IntrospectiveSequential(
        [keras.Input((4,)), layers.Dense(8, activation="relu", name="units"), layers.Dense(1, name="head")],
        name="model",
    )
    units = model.get_layer("units")
    # |x| ≤ 1: units 0, 1 and 2 never fire; units 3 to 6 always do; unit 7 only where x[0] is near 1
    kernel, bias = np.zeros((4, 8), "float32"), np.full(8, 1.0, "float32")
    kernel[:, 3:7] = 0.1
    bias[:3] = -1e3
    kernel[0, 7], bias[7] = 1.0, -0.99
    units.set_weights([kernel, bias])
    units.trainable = False
    model.compile(
        models.optimizer("sgd"),
        "mse",
        run_eagerly=eager,
        collectors=[ki.LayerOutputs(statistics=["moments", "activity"])],
    )
    return model


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("fires_in", [None, 0, 1, 2])
def test_dead_units_are_counted_exactly(eager: bool, fires_in: int | None) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-0.5, 0.5, (24, 4)).astype("float32")
    if fires_in is not None:
        x[8 * fires_in + 3, 0] = 1.0
    model = dead_model(eager)
    model.fit(x, np.zeros((24, 1), "float32"), batch_size=8, epochs=1, shuffle=False, verbose=0)
    series = model.recording["layer_outputs"].sel("model/units")
    assert series.epoch("dead_rate")[0] == (4 if fires_in is None else 3) / 8
    assert series.epoch("activation_rate")[0] == pytest.approx((4 * 24 + (fires_in is not None)) / (8 * 24), rel=1e-6)
    assert np.isnan(series.epoch("spatial_dead_rate")[0])


def test_a_unit_that_dies_is_alive_in_the_epoch_in_which_it_fired() -> None:
    """Each epoch is judged on its own."""
    x = np.random.default_rng(1).uniform(-0.5, 0.5, (24, 4)).astype("float32")
    y = np.zeros((24, 1), "float32")
    model = dead_model(False)
    lit = x.copy()
    lit[0, 0] = 1.0
    for batch in (x, lit, x):
        model.fit(batch, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    rates = model.recording["layer_outputs"].sel("model/units").epoch("dead_rate")
    np.testing.assert_array_equal(rates, [4 / 8, 3 / 8, 4 / 8])


@pytest.mark.parametrize("eager", [False, True])
def test_dead_positions_are_counted_exactly(eager: bool) -> None:
    inputs = keras.Input((4, 5, 3))
    relu = layers.ReLU(name="relu")(inputs)
    rows = layers.Reshape((20, 3), name="rows")(relu)
    flat = layers.Flatten(name="flat")(rows)
    model = ki.IntrospectiveModel(inputs, layers.Dense(1, name="head")(flat))
    x = -np.ones((24, 4, 5, 3), "float32")
    x[:, 1:3, 2:4, 1] = 1.0  # four positions, one channel
    x[17, 3, 4, 1] = 1.0  # one more in one sample of the last step
    compile_args = {"loss": "mse", "run_eagerly": eager, "collectors": [ki.LayerOutputs(statistics=["activity"])]}
    models.compile_and_fit(model, x, np.zeros((24, 1), "float32"), batch_size=8, epochs=1, compile_args=compile_args)
    outputs = model.recording["layer_outputs"]
    for name in ("relu", "rows"):
        assert outputs.sel(name).epoch("spatial_dead_rate")[0] == 15 / 20
        assert outputs.sel(name).epoch("dead_rate")[0] == pytest.approx(2 / 3, rel=1e-7)
    assert np.isnan(outputs.sel("flat").epoch("spatial_dead_rate")[0])


# --- a step written by the user ---


def _dense_net(name: str, sizes: tuple[int, ...], inputs: int) -> Any:
    chain = [layers.Dense(n, activation="tanh", name=f"d{i}") for i, n in enumerate(sizes[:-1])]
    return keras.Sequential([keras.Input((inputs,)), *chain, layers.Dense(sizes[-1], name="out")], name=name)


@functools.cache
def gan_class(base: type) -> type:
    class GAN(base):  # type: ignore[misc]
        """Two networks, two optimizers, a step of its own; the batch's noise is part of the data."""

        def __init__(self, discriminator: Any, generator: Any) -> None:
            super().__init__()
            self.discriminator = discriminator
            self.generator = generator

        def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any, **kwargs: Any) -> None:
            super().compile(**kwargs)
            self.d_optimizer = d_optimizer
            self.g_optimizer = g_optimizer
            self.loss_fn = loss_fn

        def train_step(self, data: Any) -> Any:
            real, noise = data
            images = keras.ops.concatenate([self.generator(noise, training=True), real], axis=0)
            one = keras.ops.ones_like(noise[:, :1])
            labels = keras.ops.concatenate([one, 0 * one], axis=0)
            with tf.GradientTape() as tape:
                d_loss = self.loss_fn(labels, self.discriminator(images, training=True))
            grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
            self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights, strict=True))
            with tf.GradientTape() as tape:
                fake = self.discriminator(self.generator(noise, training=True), training=True)
                g_loss = self.loss_fn(keras.ops.zeros_like(fake), fake)
            grads = tape.gradient(g_loss, self.generator.trainable_weights)
            self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights, strict=True))
            return {"d_loss": d_loss, "g_loss": g_loss}

    return GAN


def _gan(base: type) -> Any:
    keras.utils.set_random_seed(9)
    return gan_class(base)(_dense_net("discriminator", (6, 1), 4), _dense_net("generator", (5, 4), 3))


def _compile_gan(model: Any, eager: bool, **kwargs: Any) -> None:
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.optimizers.SGD(0.2, momentum=0.5),
        keras.losses.BinaryCrossentropy(from_logits=True),
        run_eagerly=eager,
        **kwargs,
    )


@pytest.mark.parametrize("eager", [False, True])
def test_a_step_with_two_optimizers(eager: bool) -> None:
    rng = np.random.default_rng(1)
    real, noise = rng.normal(size=(20, 4)).astype("float32"), rng.normal(size=(20, 3)).astype("float32")
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}

    seen: dict[str, list[np.ndarray]] = {}
    updates: dict[str, list[np.ndarray]] = {}

    class Spy(keras.optimizers.SGD):
        """Notes what the plain model's steps apply."""

        def apply_gradients(self, pairs: Any) -> Any:
            pairs = list(pairs)
            before = [v.numpy() for _, v in pairs]
            for g, v in pairs:
                seen.setdefault(v.path, []).append(g.numpy())
            result = super().apply_gradients(pairs)
            for old, (_, v) in zip(before, pairs, strict=True):
                updates.setdefault(v.path, []).append(v.numpy() - old)
            return result

    spied = _gan(keras.Model)
    spied.compile(Spy(0.1), Spy(0.2, momentum=0.5), keras.losses.BinaryCrossentropy(from_logits=True), run_eagerly=True)
    spied.fit(real, noise, **fit)

    plain = _gan(keras.Model)
    _compile_gan(plain, eager)
    plain.fit(real, noise, **fit)

    model = _gan(ki.IntrospectiveModel)
    _compile_gan(model, eager, collectors=every_collector())
    history = model.fit(real, noise, **fit)

    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    assert {"d_loss", "g_loss", "gradients/rms"} <= set(history.history)
    names = {v.path for v in model.discriminator.trainable_variables + model.generator.trainable_variables}
    assert len(names) == 8
    for collector, arrays in (("gradients", seen), ("updates", updates)):
        series = model.recording[collector]
        assert set(series.names) == names
        for epoch in range(2):
            expected = {name: oracle.statistics(arrays[name][3 * epoch : 3 * epoch + 3], False) for name in names}
            assert not mismatches(series, expected, epoch)
    assert set(model.recording["weights"].names) == names
    assert {"discriminator/d0", "discriminator/out", "generator/d0", "generator/out"} <= set(
        model.recording["layer_outputs"].names
    )


@pytest.mark.parametrize("eager", [False, True])
def test_a_step_with_the_users_own_tape(eager: bool) -> None:
    class Custom(ki.IntrospectiveModel):
        """The train step of Keras's guide, as it stands there."""

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    x, y = models.data()
    keras.utils.set_random_seed(3)
    inputs, outputs = models._functional_graph("softmax")
    model = Custom(inputs, outputs)
    watched = ("gradients", "output_gradients")
    compile_args = {
        "loss": models.loss("softmax"),
        "run_eagerly": eager,
        "metrics": ["accuracy"],
        "collectors": [COLLECTORS[name](statistics=["moments"]) for name in watched],
    }
    models.compile_and_fit(model, x, y, compile_args=compile_args)
    run = expected_run("functional", "softmax", False, "sgd")
    for collector in watched:
        for epoch in range(EPOCHS):
            expected = {name: oracle.moments(a) for name, a in run.arrays(collector, epoch).items()}
            found = mismatches(model.recording[collector], expected, epoch)
            assert not found, "\n".join(found[:20])
