"""`LayerOutputs(phase=...)`: when the inference phase is recorded, and when not."""

from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
import oracle

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 4)).astype("float32"), RNG.normal(size=(20, 1)).astype("float32")
XV, YV = RNG.normal(size=(11, 4)).astype("float32"), RNG.normal(size=(11, 1)).astype("float32")
FIT: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": 0}


def net(base: Any = ki.IntrospectiveModel, eager: bool = False, metrics: Any = None, **observed: Any) -> Any:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,))
    h = keras.layers.Dropout(0.5, seed=1, name="drop")(keras.layers.Dense(6, activation="relu", name="dense")(inputs))
    model = base(inputs, keras.layers.Dense(1, name="head")(h), name="net")
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=metrics, run_eagerly=eager, **observed)
    return model


def outputs(model: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    found = keras.Model(model.input, {layer.name: layer.output for layer in model.layers[1:]})(x, training=False)
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def assert_epoch(series: Any, row: int, expected: dict[str, np.ndarray]) -> None:
    assert series.names == tuple(expected)
    for name, array in expected.items():
        numbers = oracle.moments([array])
        for key in ("count", "mean", "std", "rms", "min", "max"):
            got = series.sel(name).epoch(key)[row]
            np.testing.assert_allclose(got, numbers[key], rtol=1e-4, atol=1e-6, err_msg=f"{name} {key}")


class After(keras.callbacks.Callback):
    """Keeps what the model gives for the validation data at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[dict[str, np.ndarray]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.outputs.append(outputs(self.model, XV))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("phase", ["both", "inference"])
def test_validation_of_every_second_epoch(phase: str, eager: bool) -> None:
    """Several steps of validation, the last one partial; epochs without have no row."""
    model = net(eager=eager, collectors=[ki.LayerOutputs("moments", phase=phase)])
    after = After()
    history = model.fit(
        X, Y, epochs=4, validation_data=(XV, YV), validation_freq=2, validation_batch_size=4, callbacks=[after], **FIT
    )
    series = model.recording["val_layer_outputs"]
    assert series.epochs.tolist() == [1, 3]
    for row, epoch in enumerate((1, 3)):
        assert_epoch(series, row, after.outputs[epoch])
    assert ("layer_outputs" in model.recording) == (phase == "both")
    logged = history.history["val_layer_outputs/rms"]
    assert np.isfinite(logged).tolist() == [False, True, False, True]
    # dropout is on in training only
    if phase == "both":
        rates = [model.recording[view].sel("drop").epoch("rms") for view in ("layer_outputs", "val_layer_outputs")]
        assert rates[0][1] > rates[1][0]
    plain = net(keras.Model, eager)
    history_plain = plain.fit(
        X, Y, epochs=4, validation_data=(XV, YV), validation_freq=2, validation_batch_size=4, **FIT
    )
    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    assert history.history["val_loss"] == history_plain.history["val_loss"]


@pytest.mark.parametrize("eager", [False, True])
def test_an_evaluate_outside_of_fit_is_of_the_last_epoch(eager: bool) -> None:
    model = net(eager=eager, collectors=[ki.LayerOutputs("moments", phase="both")])
    model.evaluate(XV, YV, verbose=0)
    assert_epoch(model.recording["val_layer_outputs"], 0, outputs(model, XV))
    assert model.recording["val_layer_outputs"].epochs.tolist() == [0]
    model.fit(X, Y, epochs=2, validation_data=(XV, YV), **FIT)
    assert model.recording["val_layer_outputs"].epochs.tolist() == [0, 1]
    assert_epoch(model.recording["val_layer_outputs"], 1, outputs(model, XV))
    model.evaluate(X, Y, batch_size=7, verbose=0)
    series = model.recording["val_layer_outputs"]
    assert series.epochs.tolist() == [0, 1]
    assert_epoch(series, 1, outputs(model, X))


@pytest.mark.parametrize("eager", [False, True])
def test_the_phase_that_each_layer_was_called_in(eager: bool) -> None:
    """Keras hands `training` on by name; what a model fixes is seen in the pass where it is out of place."""

    class Fixed(ki.IntrospectiveModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.always = keras.layers.Dropout(0.5, name="always")
            self.never = keras.layers.BatchNormalization(name="never")
            self.both = keras.layers.Dropout(0.5, name="both")
            self.plain = keras.layers.GaussianNoise(0.1, name="plain")
            self.head = keras.layers.Dense(1, name="head")

        def call(self, x: Any, training: bool | None = None) -> Any:
            x = self.plain(x)
            x = self.never(self.always(x, training=True), training=False)
            return self.head(self.both(self.both(x, training=True), training=False), training=training)

    model = Fixed()
    model.compile("sgd", "mse", run_eagerly=eager, collectors=[ki.LayerOutputs("moments", phase="both")])
    model.fit(X, Y, **FIT)
    seen = model.recording.metadata["phases"]
    assert seen["net/plain"] == {"train": True}
    model.evaluate(XV, YV, verbose=0)
    seen = model.recording.metadata["phases"]
    assert seen["net/plain"] == {"train": True, "inference": False}
    assert seen["net/always"] == {"train": True, "inference": True}
    assert seen["net/never"] == {"train": False, "inference": False}
    assert seen["net/head"] == {"train": True, "inference": False}
    assert not seen.get("net/both")


@pytest.mark.parametrize("when", ["on_epoch_end", "on_epoch_begin", "on_train_batch_end"])
def test_an_evaluate_of_a_callback_does_not_get_among_the_validation(when: str) -> None:
    class Evaluates(keras.callbacks.Callback):
        pass

    def evaluate(self: Any, *_: Any, **__: Any) -> None:
        self.model.evaluate(X, Y, verbose=0)

    setattr(Evaluates, when, evaluate)
    model = net(collectors=[ki.LayerOutputs("moments", phase="both")])
    after = After()
    model.fit(X, Y, epochs=2, validation_data=(XV, YV), callbacks=[Evaluates(), after], **FIT)
    series = model.recording["val_layer_outputs"]
    assert series.epochs.tolist() == [0, 1]
    for row in range(2):
        assert_epoch(series, row, after.outputs[row])
    assert model.recording["layer_outputs"].sel("dense").epoch("count").tolist() == [120, 120]


def test_without_validation_there_is_no_view() -> None:
    model = net(collectors=[ki.LayerOutputs("moments", phase="both")])
    history = model.fit(X, Y, epochs=2, **FIT)
    assert list(model.recording) == ["layer_outputs"]
    assert np.isnan(history.history["val_layer_outputs/rms"]).all()


def test_an_early_stopping_may_watch_the_validation() -> None:
    model = net(collectors=[ki.LayerOutputs(["activity"], phase="both")])
    stop = keras.callbacks.EarlyStopping("val_layer_outputs/dead_rate", mode="min", patience=1)
    model.fit(X, Y, epochs=2, validation_data=(XV, YV), callbacks=[stop], **FIT)
    assert np.isfinite(stop.best)


def test_a_layer_that_inference_alone_calls_and_one_that_yields_no_floats() -> None:
    class Net(ki.IntrospectiveModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.head = keras.layers.Dense(1, name="head")
            self.only = keras.layers.ReLU(name="only")

        def build(self, shape: Any) -> None:
            self.head.build(shape)
            self.built = True

        def call(self, x: Any, training: bool = False) -> Any:
            return self.head(x) if training else self.only(self.head(x))

    model = Net()
    model.build((None, 4))
    model.compile("sgd", "mse", collectors=[ki.LayerOutputs("moments", phase="both")])
    model.fit(X, Y, epochs=1, validation_data=(XV, YV), **FIT)
    assert model.recording["layer_outputs"].names == ("net/head",)
    assert set(model.recording["val_layer_outputs"].names) == {"net/head", "net/only"}
    assert "net/only" in model.recording.unobserved

    inputs = keras.Input((4,))
    codes = keras.layers.Discretization(bin_boundaries=[0.0], name="codes")(inputs)
    floats = keras.layers.Rescaling(1.0, name="floats")(codes)
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(floats))
    model.compile("sgd", "mse", collectors=[ki.LayerOutputs("moments", phase="inference")])
    model.fit(X, Y, epochs=1, validation_data=(XV, YV), **FIT)
    assert "codes" not in model.recording["val_layer_outputs"].names
    assert "no floating-point tensor" in model.recording.unobserved["codes"]


def test_single_steps_of_the_validation() -> None:
    """Counted over the steps of all evaluations."""
    model = net(collectors=[ki.LayerOutputs("moments", phase="both", per_step=True)])
    after = After()
    model.fit(X, Y, epochs=2, validation_data=(XV, YV), validation_batch_size=4, callbacks=[after], **FIT)
    series = model.recording["val_layer_outputs"]
    assert series.steps.tolist() == list(range(6))
    for e in range(2):
        head = after.outputs[e]["head"]
        expected = [np.sqrt(np.mean(head[i : i + 4] ** 2)) for i in (0, 4, 8)]
        np.testing.assert_allclose(series.sel("head").step("rms")[3 * e : 3 * e + 3], expected, rtol=1e-4)
    assert model.recording["layer_outputs"].steps.tolist() == list(range(6))


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(ValueError, match=r"phase= of LayerOutputs.*Did you mean 'both'"):
        ki.LayerOutputs(phase="bth")
