"""NaN or infinity in one step: the rest is right, step, layer and view are named, nothing else changes."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
import oracle

RNG = np.random.default_rng(1)
X = RNG.normal(size=(6, 8, 4)).astype("float32")  # six batches of 8: two epochs of 3 steps
Y = RNG.normal(size=(6, 8, 1)).astype("float32")


class Guard(keras.layers.Layer):
    """Puts zero in place of what is not finite, so that training goes on."""

    def call(self, x: Any) -> Any:
        return tf.where(tf.math.is_finite(x), x, tf.zeros_like(x))


def guarded(base: Any) -> Any:
    keras.utils.set_random_seed(3)
    scale, dense = keras.layers.Rescaling(2.0, name="scale"), keras.layers.Dense(3, name="dense")
    return base([keras.Input((4,)), scale, Guard(name="guard"), dense, keras.layers.Dense(1, name="head")], name="net")


def fit(model: Any, x: np.ndarray, y: np.ndarray, eager: bool, epochs: int = 2, **observed: Any) -> Any:
    def batches() -> Iterator[Any]:
        yield from zip(x, y, strict=True)

    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", run_eagerly=eager, **observed)
    model.fit(batches(), epochs=epochs, steps_per_epoch=len(x) // epochs, verbose=0)
    return model


def first_steps(series: Any) -> np.ndarray:
    """A view that had no such step has no such series."""
    known = "first_nonfinite_step" in series.statistics
    return series.epoch("first_nonfinite_step") if known else np.full_like(series.epoch("nonfinite"), np.nan)


def collectors() -> list[Any]:
    return [
        ki.LayerOutputs(["moments", "activity", "quantiles", "per_unit"], per_step=True, values=4),
        ki.Gradients(["moments", "signal_to_noise", "per_unit"], epoch_sum=True, per_step=True, values=16),
        ki.Updates("moments", per_step=True),
        ki.Weights("moments"),
        ki.StepMetrics(),
    ]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("what", [np.nan, np.inf])
def test_a_layer_output_in_one_step(what: float, eager: bool) -> None:
    x = X.copy()
    x[4, 2, 1] = what
    model = fit(guarded(ki.IntrospectiveSequential), x, Y, eager, collectors=collectors())
    plain = fit(guarded(keras.Sequential), x, Y, eager)
    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    assert oracle.same_bits(oracle.optimizer_values(model.optimizer), oracle.optimizer_values(plain.optimizer))
    series = model.recording["layer_outputs"]
    first = first_steps(series)
    assert first[1, series.names.index("net/scale")] == 4
    assert np.isfinite(first).sum() == 1
    one = series.sel("net/scale")
    assert one.epoch("nonfinite").tolist() == [0, 1]
    assert one.step("nonfinite").tolist() == [0, 0, 0, 0, 1, 0]
    expected = oracle.moments([2 * x[3:].astype(np.float64)])
    for key in ("count", "mean", "std", "rms", "mean_abs", "min", "max"):
        np.testing.assert_allclose(one.epoch(key)[1], expected[key], rtol=1e-5, atol=1e-6, err_msg=key)
    flat = 2 * x[3:].reshape(-1, 4).astype(np.float64)
    inside = np.where(np.isfinite(flat), flat, np.nan)
    np.testing.assert_allclose(series.unit("mean")["net/scale"][1], np.nanmean(inside, axis=0), rtol=1e-5)
    np.testing.assert_allclose(series.unit("std")["net/scale"][1], np.nanstd(inside, axis=0), rtol=1e-5)
    assert one.epoch("quantiles")[1][-1] == np.float32(expected["max"])
    for view in ("gradients", "updates", "weights", "gradients_epoch_sum"):
        assert np.isnan(first_steps(model.recording[view])).all()


@pytest.mark.parametrize("eager", [False, True])
def test_gradients_in_the_last_step(eager: bool) -> None:
    """A label makes them NaN, and what comes of them, the weights too."""
    y = Y.copy()
    y[5, 3] = np.nan
    model = fit(guarded(ki.IntrospectiveSequential), X, y, eager, collectors=collectors())
    plain = fit(guarded(keras.Sequential), X, y, eager)
    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    recording = model.recording
    for view in ("gradients", "updates"):
        first = first_steps(recording[view])
        assert np.isnan(first[0]).all()
        assert (first[1] == 5).all()
    gradients, updates = recording["gradients"], recording["updates"]
    assert np.isnan(first_steps(recording["layer_outputs"])).all()
    assert (recording["weights"].epoch("nonfinite")[1] > 0).all()
    size = 12
    values = gradients.sel("net/dense/kernel").step("values")[:, :size].astype(np.float64)
    assert np.isfinite(values[:5]).all()
    assert np.isnan(values[5]).all()
    good = values[3:5]
    one = gradients.sel("net/dense/kernel")
    np.testing.assert_allclose(one.epoch("rms")[1], np.sqrt(np.mean(good**2)), rtol=1e-5)
    with np.errstate(divide="ignore"):
        gsnr = good.mean(axis=0) ** 2 / good.var(axis=0)
    np.testing.assert_allclose(one.epoch("gsnr")[1], gsnr.mean(), rtol=1e-3)
    cosine = good[0] @ good[1] / np.linalg.norm(good[0]) / np.linalg.norm(good[1])
    np.testing.assert_allclose(one.epoch("step_cosine")[1], cosine, rtol=1e-4)
    oscillation = 1 - np.abs(good.sum(axis=0)) / np.abs(good).sum(axis=0)
    np.testing.assert_allclose(one.epoch("oscillation")[1], oscillation.mean(), atol=1e-6)
    sums = recording["gradients_epoch_sum"].sel("net/dense/kernel")
    np.testing.assert_allclose(sums.epoch("rms")[1], np.sqrt(np.mean(good.sum(axis=0) ** 2)), rtol=1e-5)
    ratio = updates.sel("net/dense/kernel")
    assert np.isnan(ratio.step("update_ratio")[5])
    steps = ratio.step("update_ratio")[3:5]
    assert steps.min() <= ratio.epoch("update_ratio")[1] <= steps.max()
    assert np.isfinite(ratio.epoch("implicit_learning_rate")).all()
    loss = recording["metrics"].step("loss")
    assert np.isfinite(loss[:5]).all()
    assert np.isnan(loss[5])
    np.testing.assert_allclose(
        recording["metrics"].epoch("loss")[1], np.percentile(loss[3:5], recording["metrics"].quantile_levels)
    )


@pytest.mark.parametrize("eager", [False, True])
def test_a_step_of_a_recurrent_cell(eager: bool) -> None:
    """The cell is in a loop, in graphs: its outputs and their gradients are named with the step all the same."""
    x = np.random.default_rng(0).normal(size=(3, 8, 5, 2)).astype("float32")
    x[1, 3, 2, 0] = np.nan
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5, 2))
    lstm = keras.layers.LSTM(3, return_sequences=True, name="lstm")(inputs)
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(Guard(name="guard")(lstm)))
    statistics = [ki.LayerOutputs("moments"), ki.OutputGradients("moments")]
    fit(model, x, np.zeros((3, 8, 5, 1), "float32"), eager, epochs=1, collectors=statistics)
    outputs = model.recording["layer_outputs"]
    assert outputs.sel("lstm/lstm_cell").epoch("nonfinite")[0] > 0
    assert outputs.sel("lstm/lstm_cell").epoch("first_nonfinite_step")[0] == 1
    assert outputs.sel("lstm").epoch("first_nonfinite_step")[0] == 1
    gradients = model.recording["output_gradients"].sel("lstm/lstm_cell:1")  # the state that it hands on
    assert gradients.epoch("nonfinite")[0] > 0
    assert gradients.epoch("first_nonfinite_step")[0] == 1
