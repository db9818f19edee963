"""Raw values: which elements, under which budget, and what files keep of them."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
from keras_introspect.statistics import Context, Piece, TensorSpec, Values


def kept(values: Values, x: np.ndarray, batched: bool) -> np.ndarray:
    shape = (None, *x.shape[1:]) if batched else x.shape
    spec = TensorSpec("x", shape, batched=batched, channel_axis=x.ndim - 1)
    state = values.partials([Piece(tf.constant(x), spec)], Context())
    return values.result(state.numpy(), spec)["values"]


def test_which_elements() -> None:
    x = np.arange(3 * 4 * 5, dtype="float32").reshape(3, 4, 5)
    np.testing.assert_array_equal(kept(Values(20), x, True), x[0].ravel())
    np.testing.assert_array_equal(kept(Values(60), x, False), x.ravel())
    np.testing.assert_array_equal(kept(Values(5), x, True), x[0].ravel()[[0, 4, 8, 12, 16]])
    np.testing.assert_array_equal(kept(Values(7), x, False), x.ravel()[np.arange(7) * 60 // 7])
    sliced = kept(Values(8, slices=(slice(1, 3), slice(None, None, 2))), x, True)
    np.testing.assert_array_equal(sliced[:6], x[0, 1:3, ::2].ravel())
    assert np.isnan(sliced[6:]).all()
    np.testing.assert_array_equal(kept(Values(4, slices=(slice(2, 3),)), x, False), x[2:3].ravel()[[0, 5, 10, 15]])


def test_a_large_tensor() -> None:
    """The product of its size and the number of elements is more than 32 bits hold."""
    x = np.arange(3_000_000, dtype="float32")
    expected = x[np.arange(1000, dtype=np.int64) * len(x) // 1000]
    np.testing.assert_array_equal(kept(Values(1000), x, False), expected)


def test_values_that_are_not_finite_are_kept_as_they_are() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], "float32")
    np.testing.assert_array_equal(kept(Values(4), x, False), x)


@pytest.mark.parametrize("wrong", [{"elements": 0}, {"elements": 2.5}, {"budget": -1}, {"elements": True}])
def test_arguments_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.*positive"):
        Values(**wrong)


def model_of(values: Any, **options: Any) -> Any:
    keras.utils.set_random_seed(3)
    dense = keras.layers.Dense(6, activation="relu", name="dense")
    model = ki.IntrospectiveSequential([keras.Input((4,)), dense, keras.layers.Dense(1, name="head")], name="net")
    model.compile(keras.optimizers.SGD(0.1), "mse", collectors=[ki.LayerOutputs("moments", values=values, **options)])
    return model


X = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
Y = X[:, :1]
FIT: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": 0}


def test_too_little_for_one_epoch_is_an_error_at_compile() -> None:
    """8 bytes × 100 elements × 2 layers × (1 epoch + 1 step)."""
    with pytest.raises(ValueError, match=r"3,200 bytes.*budget is 3,199.*budget=3200"):
        model_of(ki.Values(100, budget=3199), per_step=True)
    assert model_of(ki.Values(100, budget=3200), per_step=True)


def test_too_little_for_a_run_is_an_error_before_it_begins() -> None:
    """8 bytes × 10 elements × 2 layers × (4 epochs + 12 steps, or each second one of them)."""
    model = model_of(ki.Values(10, budget=2559), per_step=True)
    weights = model.get_weights()
    with pytest.raises(ValueError, match="2,560 bytes"):
        model.fit(X, Y, epochs=4, **FIT)
    assert all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))
    model.fit(X, Y, epochs=3, **FIT)
    model_of(ki.Values(10, budget=2559), per_step=True, every=2).fit(X, Y, epochs=4, **FIT)
    model = model_of(ki.Values(10, budget=1600), per_step=True, layers="head")
    model.fit(X, Y, epochs=4, **FIT)
    assert model.recording["layer_outputs"].names == ("net/head",)


def test_a_model_that_its_first_step_builds_is_checked_after_its_first_epoch() -> None:
    class Net(ki.IntrospectiveModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.head = keras.layers.Dense(1, name="head")

        def call(self, x: Any) -> Any:
            return self.head(x)

    for epochs in (1, 2):
        model = Net()
        values = ki.Values(10, budget=80)
        model.compile("sgd", "mse", collectors=[ki.LayerOutputs("moments", values=values)])
        if epochs == 1:
            model.fit(X, Y, epochs=epochs, **FIT)
            continue
        with pytest.raises(ValueError, match="160 bytes"):
            model.fit(X, Y, epochs=epochs, **FIT)


def test_values_through_a_saved_model_and_a_file(tmp_path: Path) -> None:
    model = model_of(ki.Values(3, slices=(slice(1, 5),), budget=9999), per_step=True)
    model.fit(X, Y, epochs=1, **FIT)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    (collector,) = loaded.collectors
    values = collector.statistics[-1]
    assert (values.elements, values.slices, values.budget) == (3, (slice(1, 5, None),), 9999)
    before = loaded.get_weights()
    loaded.fit(X[:8], Y[:8], epochs=2, initial_epoch=1, **FIT)
    series = loaded.recording["layer_outputs"].sel("net/dense")
    assert series.epoch("values").shape == (2, 3)
    assert series.step("values").shape == (4, 3)
    first = np.maximum(X[0] @ before[0] + before[1], 0)[1:5]
    np.testing.assert_allclose(series.epoch("values")[1], first[[0, 1, 2]], rtol=1e-5)
    np.testing.assert_array_equal(series.step("values")[3], series.epoch("values")[1])
    loaded.recording.save(tmp_path / "run.npz")
    again = ki.Recording.load(tmp_path / "run.npz")["layer_outputs"].sel("net/dense")
    np.testing.assert_array_equal(again.step("values"), series.step("values"))
