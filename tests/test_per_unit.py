"""Channels by themselves: unit series of a run, streaks and revivals, and what files keep of them."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki


def rates(*rows: tuple[float, ...]) -> ki.Recording:
    recording = ki.Recording()
    for epoch, row in enumerate(rows):
        units = {"activation_rate": {"relu": list(row)}}
        recording.add_epoch("layer_outputs", epoch, ["relu"], [(None, len(row))], {"rms": [1.0]}, units=units)
    return recording


def test_streaks_and_revivals_by_hand() -> None:
    nan = np.nan
    recording = rates((0.5, 0, 0, nan, 0.1), (0, 0, 0.2, 0, 0.1), (0, nan, 0, 0, 0.1), (0.1, 0, 0.3, 0.4, 0.1))
    series = recording["layer_outputs"]
    assert {"activation_rate", "dead_streak", "revivals"} <= set(series.unit_statistics)
    streak = [[0, 1, 1, nan, 0], [1, 2, 0, 1, 0], [2, nan, 1, 2, 0], [0, 3, 0, 0, 0]]
    revivals = [[0, 0, 0, nan, 0], [0, 0, 1, 0, 0], [0, nan, 1, 0, 0], [1, 0, 2, 1, 0]]
    np.testing.assert_array_equal(series.unit("dead_streak")["relu"], streak)
    np.testing.assert_array_equal(series.unit("revivals")["relu"], revivals)
    again = ki.Recording.from_bytes(recording.to_bytes())["layer_outputs"]
    np.testing.assert_array_equal(again.unit("dead_streak")["relu"], streak)
    np.testing.assert_array_equal(again.sel("relu").unit("revivals")["relu"], revivals)


def test_without_rates_there_are_no_streaks() -> None:
    recording = ki.Recording()
    recording.add_epoch("layer_outputs", 0, ["relu"], [(None, 2)], {"rms": [1.0]}, units={"mean": {"relu": [1, 2]}})
    assert recording["layer_outputs"].unit_statistics == ("mean",)
    with pytest.raises(ValueError, match="dead_streak"):
        recording["layer_outputs"].unit("dead_streak")


class Kill(keras.callbacks.Callback):
    """Sets the bias of unit 1 before each epoch: low, and it is dead; high, and it fires always."""

    def __init__(self, plan: str, first: int = 0) -> None:
        super().__init__()
        self.plan, self.first = plan, first

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        layer = self.model.get_layer("relu")
        kernel, bias = layer.get_weights()
        bias[1] = -1e3 if self.plan[epoch - self.first] == "0" else 1e3
        layer.set_weights([kernel, bias])


@pytest.mark.parametrize("eager", [False, True])
def test_in_a_run_saved_in_between(eager: bool, tmp_path: Path) -> None:
    keras.utils.set_random_seed(3)
    relu = keras.layers.Dense(3, activation="relu", name="relu")
    model = ki.IntrospectiveSequential([keras.Input((4,)), relu, keras.layers.Dense(1, name="head")], name="net")
    collectors = [ki.LayerOutputs("per_unit", layers="relu")]
    model.compile(keras.optimizers.SGD(0.0), "mse", collectors=collectors, run_eagerly=eager)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)).astype("float32"), rng.normal(size=(20, 1)).astype("float32")
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    model.fit(x, y, epochs=3, callbacks=[Kill("100")], **options)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    loaded.fit(x, y, epochs=6, initial_epoch=3, callbacks=[Kill("010", 3)], **options)
    series = loaded.recording["layer_outputs"]
    assert series.unit("dead_streak")["net/relu"][:, 1].tolist() == [0, 1, 2, 3, 0, 1]
    assert series.unit("revivals")["net/relu"][:, 1].tolist() == [0, 0, 0, 0, 1, 1]
    kernel, bias = loaded.get_layer("relu").get_weights()
    outputs = np.maximum(x.astype(np.float64) @ kernel + bias, 0)
    np.testing.assert_allclose(series.unit("mean")["net/relu"][5], outputs.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(series.unit("std")["net/relu"][5], outputs.std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(series.unit("activation_rate")["net/relu"][5], (outputs != 0).mean(axis=0))
    loaded.recording.save(tmp_path / "run.npz")
    again = ki.Recording.load(tmp_path / "run.npz")["layer_outputs"]
    for key in series.unit_statistics:
        np.testing.assert_array_equal(again.unit(key)["net/relu"], series.unit(key)["net/relu"])


@pytest.mark.parametrize("eager", [False, True])
def test_images_whose_size_varies_have_channels_and_no_positions(eager: bool) -> None:
    inputs = keras.Input((None, None, 2))
    relu = keras.layers.ReLU(name="relu")(inputs)
    outputs = keras.layers.Dense(1, name="head")(keras.layers.GlobalAveragePooling2D(name="pool")(relu))
    model = ki.IntrospectiveModel(inputs, outputs)
    model.compile("sgd", "mse", collectors=[ki.LayerOutputs(["activity", "per_unit"])], run_eagerly=eager)
    rng = np.random.default_rng(0)
    images = [rng.normal(size=(4, size, 5, 2)).astype("float32") for size in (4, 6, 4)]
    for image in images:
        image[..., 1] = -np.abs(image[..., 1])

    def batches() -> Any:
        for image in images:
            yield image, np.zeros((4, 1), "float32")

    model.fit(batches(), steps_per_epoch=3, verbose=0)
    flat = np.concatenate([np.maximum(image, 0).reshape(-1, 2) for image in images]).astype(np.float64)
    series = model.recording["layer_outputs"]
    np.testing.assert_allclose(series.unit("mean")["relu"], [flat.mean(axis=0)], rtol=1e-5)
    np.testing.assert_allclose(series.unit("std")["relu"], [flat.std(axis=0)], rtol=1e-5)
    np.testing.assert_allclose(series.unit("activation_rate")["relu"], [(flat != 0).mean(axis=0)])
    assert series.unit("dead_streak")["relu"].tolist() == [[0, 1]]
    assert "relu" not in series._unit_values.get("position_activation_rate", {})


def test_a_recurrent_cell_has_channels_in_graphs_too() -> None:
    """The cell runs inside a loop; its channels are pooled over the time steps."""
    x = np.random.default_rng(0).normal(size=(12, 5, 3)).astype("float32")
    found = {}
    for eager in (False, True):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((5, 3))
        lstm = keras.layers.LSTM(4, return_sequences=True, name="lstm")
        model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(lstm(inputs)))
        collectors = [ki.LayerOutputs(["moments", "per_unit"], values=ki.Values(4))]
        model.compile(keras.optimizers.SGD(0.0), "mse", collectors=collectors, run_eagerly=eager)
        model.fit(x, np.zeros((12, 5, 1)), batch_size=12, epochs=1, shuffle=False, verbose=0)
        found[eager] = model.recording["layer_outputs"]
        states = np.asarray(lstm(x), np.float64).reshape(-1, 4)
        if not eager:  # eagerly Keras calls a cell once more, to learn a shape
            np.testing.assert_allclose(found[eager].unit("mean")["lstm/lstm_cell"], [states.mean(axis=0)], rtol=1e-4)
            np.testing.assert_allclose(found[eager].unit("std")["lstm/lstm_cell"], [states.std(axis=0)], rtol=1e-4)
            last = np.asarray(lstm(x))[0, -1]
            np.testing.assert_allclose(found[eager].sel("lstm/lstm_cell").epoch("values"), [last], rtol=1e-4)
    assert set(found[False].unit("mean")) == set(found[True].unit("mean"))
