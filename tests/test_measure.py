"""`phase_gap` and `measure_activity`: what they find, by NumPy, and that they leave the model as it was."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_introspect as ki
import kinds
import oracle


def state_of(model: Any) -> list[np.ndarray]:
    """Every variable: weights, seeds, metrics, optimizer."""
    variables = [*model.variables, *(v for metric in model.metrics for v in metric.variables)]
    optimizer = getattr(model, "optimizer", None)
    variables += [] if optimizer is None else optimizer.variables
    return [np.array(keras.ops.convert_to_numpy(v)) for v in variables]


def noisy_net() -> Any:
    """Dropout, noise, normalisation, a nested model, a shared layer, an LSTM with dropout."""
    keras.utils.set_random_seed(3)
    inside = keras.Input((6, 4))
    inner = keras.Model(
        inside,
        layers.Dropout(0.5, seed=2, name="inner_drop")(layers.Dense(4, name="inner_dense")(inside)),
        name="inner",
    )
    inputs = keras.Input((6, 4))
    h = inner(inputs)
    norm = layers.BatchNormalization(name="norm")
    shared = layers.Dense(4, activation="relu", name="shared")
    h = layers.Add(name="add")([shared(norm(h)), shared(inputs)])
    h = layers.GaussianNoise(0.3, seed=5, name="noise")(h)
    h = layers.LSTM(5, dropout=0.4, seed=6, name="lstm")(h)
    return keras.Model(inputs, layers.Dense(1, name="head")(layers.Dropout(0.25, seed=4, name="drop")(h)), name="net")


def x_of(samples: int = 16) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(samples, 6, 4)).astype("float32")


# --- phase_gap ---


def test_it_changes_nothing_and_the_training_that_follows_is_the_same() -> None:
    x, y = x_of(), np.zeros((16, 1), "float32")
    ends = []
    for look in (False, True):
        model = noisy_net()
        model.compile("adam", "mse", metrics=["mae"])
        model.fit(x, y, batch_size=8, epochs=1, verbose=0, shuffle=False)
        before = state_of(model)
        if look:
            ki.phase_gap(model, x)
            ki.measure_activity(model, x, phase="train")
            ki.measure_activity(model, x)
            assert oracle.same_bits(before, state_of(model))
            assert not any("call" in layer.__dict__ for layer in model._flatten_layers())
        model.fit(x, y, batch_size=8, epochs=1, verbose=0, shuffle=False)
        ends.append(state_of(model))
    assert oracle.same_bits(*ends)


def test_gaps_are_relative_distances_of_the_two_passes() -> None:
    """Of a model without chance: a normalisation alone tells the phases apart."""
    model, x = kinds.build("conv"), kinds.data("conv", 12)[0]
    for _ in range(3):
        model(x + 1, training=True)  # so that the moving statistics are neither new nor those of the batch
    gap = ki.phase_gap(model, x)
    layer = model.get_layer("norm")
    moving_mean, moving_variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    probe = kinds.probe(model)
    state = model.get_weights()
    inference = {name: np.asarray(v, np.float64) for name, v in probe(x, training=False).items()}
    train = {name: np.asarray(v, np.float64) for name, v in probe(x, training=True).items()}
    model.set_weights(state)
    assert gap.names == tuple(train)
    for i, name in enumerate(gap.names):
        expected = np.linalg.norm(train[name] - inference[name]) / np.linalg.norm(train[name])
        np.testing.assert_allclose(gap.gap[i], expected, rtol=1e-4, atol=1e-6, err_msg=name)
    assert gap.gap[gap.names.index("conv")] == 0
    assert gap.gap[gap.names.index("head")] > 0.01
    # the same input in both phases: only the normalisation differs
    own = dict(zip(gap.names, gap.own_gap, strict=True))
    np.testing.assert_allclose(own["norm"], gap.gap[gap.names.index("norm")], rtol=1e-5)
    assert not own["relu"] > 0
    into = train["conv"]
    mean, variance = into.mean(axis=(0, 1, 2)), into.var(axis=(0, 1, 2))
    found = gap.normalisation["norm"]
    distance = (mean - moving_mean) / np.sqrt(moving_variance + layer.epsilon)
    np.testing.assert_allclose(found["mean_distance"], np.sqrt(np.mean(distance**2)), rtol=1e-4)
    ratio = (variance + layer.epsilon) / (moving_variance + layer.epsilon)
    np.testing.assert_allclose(found["variance_ratio"], np.exp(np.mean(np.log(ratio))), rtol=1e-4)
    for view, outputs in (("layer_outputs", train), ("val_layer_outputs", inference)):
        series = gap.recording[view]
        np.testing.assert_allclose(
            series.epoch("rms")[0], [np.sqrt(np.mean(outputs[n] ** 2)) for n in gap.names], rtol=1e-4
        )
        np.testing.assert_allclose(series.epoch("std")[0], [np.std(outputs[n]) for n in gap.names], rtol=1e-4)
    assert not gap.ignoring
    assert "norm" in str(gap)


def test_statistics_that_agree_leave_no_gap() -> None:
    model, x = kinds.build("conv"), kinds.data("conv", 12)[0]
    into = np.asarray(model.get_layer("conv")(x), np.float64)
    layer = model.get_layer("norm")
    layer.set_weights([layer.gamma.numpy(), layer.beta.numpy(), into.mean(axis=(0, 1, 2)), into.var(axis=(0, 1, 2))])
    gap = ki.phase_gap(model, x)
    found = gap.normalisation["norm"]
    assert found["mean_distance"] < 1e-4
    assert found["variance_ratio"] == pytest.approx(1, abs=1e-3)
    assert np.all(gap.gap < 1e-4)
    layer.moving_mean.assign(layer.moving_mean + 5 * np.sqrt(layer.moving_variance))
    gap = ki.phase_gap(model, x)
    assert gap.normalisation["norm"]["mean_distance"] == pytest.approx(5, rel=0.05)  # epsilon is in the deviation
    assert gap.gap[gap.names.index("norm")] > 1


class Fixed(keras.Model):
    """Its layers are called with a fixed phase; one of them by keyword."""

    def __init__(self, training: bool) -> None:
        super().__init__(name="fixed")
        self.fixed = training
        self.norm = layers.BatchNormalization(name="norm")
        self.drop = layers.Dropout(0.5, seed=1, name="drop")
        self.right = layers.Dropout(0.5, seed=2, name="right")
        self.head = layers.Dense(2, name="head")

    def call(self, x: Any, training: bool = False) -> Any:
        h = self.norm(inputs=x, training=self.fixed)
        return self.head(self.right(self.drop(h, training=self.fixed), training=training))


@pytest.mark.parametrize("fixed", [True, False])
def test_layers_with_a_fixed_phase_are_named(fixed: bool) -> None:
    model = Fixed(fixed)
    x = 1 + np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    model(x)
    gap = ki.phase_gap(model, x)
    assert set(gap.ignoring) == {"fixed/norm", "fixed/drop"}
    for reason in gap.ignoring.values():
        assert reason == f"it is called with training={fixed} in both phases"
    assert gap.own_gap[gap.names.index("fixed/right")] > 0.5


def test_a_frozen_normalisation_ignores_the_phase_as_it_should() -> None:
    """It is not accused of that; that its statistics are far from the data shows in its distance."""
    model, x = kinds.build("conv"), kinds.data("conv", 12)[0]
    model.get_layer("norm").trainable = False
    gap = ki.phase_gap(model, 10 + x)
    assert not gap.ignoring
    assert gap.gap[gap.names.index("norm")] == 0
    assert gap.normalisation["norm"]["mean_distance"] > 2


def test_dropout_that_drops_nothing_is_right_to_be_the_same() -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dropout(0.0, name="drop")(inputs))
    assert not ki.phase_gap(model, np.ones((4, 4), "float32")).ignoring


def test_nested_models_shared_layers_and_loops() -> None:
    model, x = noisy_net(), x_of()
    gap = ki.phase_gap(model, x)
    own = dict(zip(gap.names, gap.own_gap, strict=True))
    assert {"inner_drop", "inner", "norm", "shared", "noise", "lstm", "drop"} <= set(gap.names)
    for name, value in own.items():
        if name.endswith(("drop", "noise")):
            assert value > 0.1, name
    assert not gap.ignoring
    assert list(gap.normalisation) == ["norm"]
    assert np.isfinite(gap.gap).all()


def test_several_inputs_and_mixed_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        one, two = keras.Input((4,), name="one"), keras.Input((3,), name="two")
        h = layers.Concatenate(name="joined")([one, two])
        h = layers.Dropout(0.5, seed=1, name="drop")(layers.BatchNormalization(name="norm")(h))
        model = keras.Model({"one": one, "two": two}, layers.Dense(2, name="head")(h))
    finally:
        keras.config.set_dtype_policy("float32")
    rng = np.random.default_rng(0)
    x = {"one": rng.normal(size=(8, 4)).astype("float32"), "two": rng.normal(size=(8, 3)).astype("float32")}
    gap = ki.phase_gap(model, x)
    assert gap.own_gap[gap.names.index("drop")] > 0.3
    series = ki.measure_activity(model, x, batch_size=3)
    assert series.epoch("count")[0][series.names.index("joined")] == 56


def test_what_is_no_built_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a keras\.Model"):
        ki.phase_gap(layers.Dense(2), np.ones((2, 2)))
    for function in (ki.phase_gap, ki.measure_activity):
        with pytest.raises(ValueError, match="built"):
            function(Fixed(True), np.ones((2, 2)))


# --- measure_activity ---


def expected_activity(model: Any, x: Any, training: bool = False) -> dict[str, np.ndarray]:
    state = [v.numpy() for v in model.variables]
    outputs = [
        {name: np.asarray(v, np.float64) for name, v in kinds.probe(model)(part, training=training).items()}
        for part, _ in kinds.batches(x, np.zeros(len(keras.tree.flatten(x)[0])), 5)
    ]
    for variable, value in zip(model.variables, state, strict=True):
        variable.assign(value)
    return {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0]}


def assert_activity(series: Any, outputs: dict[str, np.ndarray]) -> None:
    assert set(series.names) == set(outputs)
    for name, array in outputs.items():
        one = series.sel(name)
        expected = oracle.statistics([array], positions=array.ndim > 2)
        for key in ("count", *oracle.ACTIVITY):
            np.testing.assert_allclose(one.epoch(key), [expected[key]], atol=1e-7, err_msg=f"{name} {key}")
        for key in ("mean", "std", "rms", "min", "max"):
            np.testing.assert_allclose(one.epoch(key), [expected[key]], rtol=1e-3, atol=1e-4 * expected["rms"])
        axes = tuple(range(array.ndim - 1))
        np.testing.assert_allclose(series.unit("activation_rate")[name], [(array != 0).mean(axis=axes)], atol=1e-9)
        np.testing.assert_allclose(series.unit("mean")[name], [array.mean(axis=axes)], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(series.unit("std")[name], [array.std(axis=axes)], rtol=1e-3, atol=1e-5)
        if array.ndim > 2:
            rates = (array != 0).mean(axis=(0, -1)).ravel()
            np.testing.assert_allclose(series.unit("position_activation_rate")[name], [rates], atol=1e-9)


class Sequence(keras.utils.PyDataset):
    def __init__(self, x: np.ndarray) -> None:
        super().__init__()
        self.x = x

    def __len__(self) -> int:
        return -(-len(self.x) // 5)

    def __getitem__(self, i: int) -> Any:
        part = self.x[5 * i : 5 * i + 5]
        return part, np.zeros(len(part))


def every_kind_of_data(x: np.ndarray) -> dict[str, Any]:
    def batches() -> Iterator[Any]:
        for part, _ in kinds.batches(x, np.zeros(len(x)), 5):
            yield part

    return {
        "array": x,
        "tensor": tf.constant(x),
        "dataset": tf.data.Dataset.from_tensor_slices((x, np.zeros(len(x)))).batch(5),
        "dataset of inputs": tf.data.Dataset.from_tensor_slices(x).batch(5),
        "PyDataset": Sequence(x),
        "generator": batches(),
    }


@pytest.mark.parametrize("source", ["array", "tensor", "dataset", "dataset of inputs", "PyDataset", "generator"])
def test_activity_over_every_kind_of_data(source: str) -> None:
    model, x = kinds.build("conv"), kinds.data("conv", 13)[0]
    model.get_layer("conv2").set_weights(
        [w - 1e3 * (np.arange(6) == 2) * (w.ndim == 1) for w in model.get_layer("conv2").get_weights()]
    )
    series = ki.measure_activity(model, every_kind_of_data(x)[source], batch_size=5)
    assert_activity(series, expected_activity(model, x))
    assert series.sel("conv2").epoch("dead_rate")[0] >= 1 / 6
    assert series.unit("dead_streak")["conv2"][0, 2] == 1


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_activity_of_other_models(kind: str) -> None:
    model, x = kinds.build(kind), kinds.data(kind, 13)[0]
    series = ki.measure_activity(model, x, batch_size=5)
    outputs = expected_activity(model, x)
    assert_activity(series.sel(list(outputs)), outputs)


def test_activity_in_training() -> None:
    """With the statistics of the batch in a normalisation; afterwards all is as before."""
    model, x = kinds.build("conv"), kinds.data("conv", 13)[0]
    before = state_of(model)
    series = ki.measure_activity(model, x, phase="train", batch_size=5)
    assert oracle.same_bits(before, state_of(model))
    assert_activity(series, expected_activity(model, x, training=True))


def test_activity_of_a_model_that_runs_eagerly_only() -> None:
    class Eager(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="eager")
            self.relu = layers.ReLU(name="relu")

        def call(self, x: Any) -> Any:
            return self.relu(x * float(np.sign(x.numpy().sum())))

    model = Eager()
    x = -np.ones((4, 3), "float32")
    model(x)
    model.compile(run_eagerly=True)
    assert ki.measure_activity(model, x).sel("relu").epoch("activation_rate") == [1]


def test_activity_of_an_introspective_model_leaves_its_recording(capsys: Any) -> None:
    model = kinds.build("conv", ki.IntrospectiveModel)
    x, y = kinds.data("conv")
    model.compile("sgd", kinds.loss(), collectors=[ki.LayerOutputs("moments", phase="both")])
    model.fit(x, y, epochs=1, verbose=0)
    before = model.recording.to_bytes()
    ki.measure_activity(model, x, layers="conv*", verbose=True, batch_size=5)
    assert "4/" in capsys.readouterr().out
    assert model.recording.to_bytes() == before
    model.fit(x, y, epochs=1, verbose=0)
    assert model.recording["layer_outputs"].epochs.tolist() == [0, 1]


def test_chosen_layers_phases_and_data_are_checked() -> None:
    model, x = kinds.build("conv"), kinds.data("conv", 5)[0]
    assert ki.measure_activity(model, x, layers="conv*").names == ("conv", "conv2")
    with pytest.raises(ValueError, match="cnov"):
        ki.measure_activity(model, x, layers="cnov")
    with pytest.raises(ValueError, match=r"trian.*Did you mean 'train'"):
        ki.measure_activity(model, x, phase="trian")
    with pytest.raises(ValueError, match="no data"):
        ki.measure_activity(model, iter(()))
