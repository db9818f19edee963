"""Acceptance of the statistics beyond moments: against NumPy, over a training loop written by hand.

The expected numbers come from `kinds.by_hand`, or, where the last digits matter, from the raw gradients, updates and
values that the same run kept, which are compared with the loop first.
"""

import functools
import itertools
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
import kinds
import oracle

EPOCHS = 2
STEPS = 3
ALL = 256  # no variable of `kinds` has more elements
FAST = [("conv", "graph"), ("recurrent", "graph"), ("transformer", "graph"), ("conv", "eager")]
SLOW = [("recurrent", "eager"), ("transformer", "eager"), *((kind, "xla") for kind in kinds.KINDS)]
modes = pytest.mark.parametrize(
    ("kind", "mode"), [*FAST, *(pytest.param(*slow, marks=pytest.mark.long) for slow in SLOW)]
)


def how(mode: str) -> dict[str, Any]:
    return {"run_eagerly": mode == "eager", "jit_compile": mode == "xla"}


def everything() -> list[Any]:
    return [
        ki.Weights("moments", per_step=True, values=ALL),
        ki.Gradients(["moments", "per_unit", "signal_to_noise"], epoch_sum=True, per_step=True, values=ALL),
        ki.Updates("moments", per_step=True, values=ALL),
        ki.LayerOutputs(["moments", "activity", "per_unit"], phase="both", values=64),
        ki.StepMetrics(),
    ]


def fitted(kind: str, mode: str, collectors: Any) -> Any:
    model = kinds.build(kind, keras.Model if collectors is None else ki.IntrospectiveModel)
    x, y = kinds.data(kind)
    model.compile(
        kinds.optimizer(),
        kinds.loss(),
        metrics=["accuracy"],
        **how(mode),
        **({} if collectors is None else {"collectors": collectors}),
    )
    validation = kinds.data(kind, 11, seed=2)
    model.history_of_fit = model.fit(
        x, y, batch_size=kinds.BATCH, epochs=EPOCHS, shuffle=False, verbose=0, validation_data=validation
    ).history
    return model


@functools.cache
def run(kind: str, mode: str) -> tuple[ki.Recording, list[np.ndarray], list[np.ndarray], dict[str, list[float]]]:
    """The recording of a run that observes everything, its weights, the optimizer's values, Keras's history."""
    model = fitted(kind, mode, everything())
    return model.recording, model.get_weights(), oracle.optimizer_values(model.optimizer), model.history_of_fit


@functools.cache
def hand(kind: str) -> tuple[list[list[kinds.Step]], list[kinds.Arrays]]:
    x, y = kinds.data(kind)
    validation, _ = kinds.data(kind, 11, seed=2)
    model = kinds.build(kind)
    return kinds.by_hand(model, kinds.optimizer(), kinds.loss(), x, y, EPOCHS, validation=validation)


def flat_steps(kind: str) -> list[kinds.Step]:
    return [step for epoch in hand(kind)[0] for step in epoch]


def raw(series: Any, name: str, whole: bool = True) -> np.ndarray:
    """The kept values of each step, without the padding: (S, elements)."""
    values = series.sel(name).step("values")
    size = int(np.prod(series.shapes[series.names.index(name)]))
    assert not whole or size <= ALL
    return values[:, :size]


def close(actual: Any, expected: Any, rtol: float = 2e-4, atol: float = 2e-6, where: Any = "") -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=str(where))


# --- the training is not disturbed ---


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.parametrize("mode", ["graph", pytest.param("eager", marks=pytest.mark.long)])
def test_no_bit_of_the_training_changes(kind: str, mode: str) -> None:
    _, weights, optimizer, history = run(kind, mode)
    plain = fitted(kind, mode, None)
    assert oracle.same_bits(weights, plain.get_weights())
    assert oracle.same_bits(optimizer, oracle.optimizer_values(plain.optimizer))
    for key, values in plain.history_of_fit.items():
        assert history[key] == values, key


# --- raw values, against the loop by hand ---


@modes
def test_values_of_each_step_are_those_of_the_loop_by_hand(kind: str, mode: str) -> None:
    recording = run(kind, mode)[0]
    for view in ("gradients", "updates", "weights"):
        series = recording[view]
        assert series.steps.tolist() == list(range(EPOCHS * STEPS))
        for s, step in enumerate(flat_steps(kind)):
            expected = step.after if view == "weights" else getattr(step, view)
            assert set(series.names) == set(expected)
            for name, array in expected.items():
                if name == "embedding/embeddings" and view == "gradients":
                    assert np.isnan(series.sel(name).step("values")).all()  # sparse: it has none
                    continue
                scale = np.abs(array).max()
                kept = series.sel(name).step("values")[s]
                close(kept[: array.size], array.ravel(), 1e-3, 1e-4 * scale + 1e-7, (view, s, name))
                assert np.isnan(kept[array.size :]).all()
        last = [EPOCHS * STEPS // EPOCHS * (e + 1) - 1 for e in range(EPOCHS)]
        for name in series.names:
            np.testing.assert_array_equal(series.sel(name).epoch("values"), series.sel(name).step("values")[last])


@modes
def test_values_of_layer_outputs_are_the_first_sample_of_the_last_step(kind: str, mode: str) -> None:
    recording = run(kind, mode)[0]
    epochs, validated = hand(kind)
    for e in range(EPOCHS):
        for view, outputs in (
            ("layer_outputs", epochs[e][-1].outputs),
            ("val_layer_outputs", {name: array[8:] for name, array in validated[e].items()}),
        ):
            for name, array in outputs.items():
                first = array[0].ravel()
                size, number = first.size, min(first.size, 64)
                expected = first[np.arange(number) * size // number]
                kept = recording[view].sel(name).epoch("values")[e]
                close(kept[:number], expected, 1e-3, 1e-4 * np.abs(first).max(), (view, name))
                assert np.isnan(kept[number:]).all()


# --- signal to noise ---


def signal_to_noise(g: np.ndarray) -> dict[str, float]:
    """By definition, of the gradients (S, elements) of one epoch."""
    g = g.astype(np.float64)
    variance, mean, total = g.var(axis=0), g.mean(axis=0), np.abs(g).sum(axis=0)
    noisy, moving = variance > 0, total > 0
    cosines = [a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in itertools.pairwise(g)]
    sample_variance = g.var(axis=0, ddof=1)
    signal = np.sum(mean**2) - np.sum(sample_variance) / len(g)
    return {
        "gsnr": np.mean(mean[noisy] ** 2 / variance[noisy]),
        "oscillation": np.mean(1 - np.abs(g.sum(axis=0))[moving] / total[moving]),
        "step_cosine": np.mean(cosines),
        "noise_scale": np.sum(sample_variance) / signal if signal > 0 else np.nan,
    }


@modes
def test_signal_to_noise(kind: str, mode: str) -> None:
    gradients = run(kind, mode)[0]["gradients"]
    known = 0
    for name in gradients.names:
        if name == "embedding/embeddings":
            assert np.isnan(gradients.sel(name).epoch("gsnr")).all()
            continue
        values = raw(gradients, name)
        for e in range(EPOCHS):
            expected = signal_to_noise(values[e * STEPS : (e + 1) * STEPS])
            for key, value in expected.items():
                if key == "gsnr" and name == "attention/key/bias":
                    continue  # its gradient is zero but for rounding
                # where the variance of an element is a small part of its mean, float32 has lost digits of it
                close(gradients.sel(name).epoch(key)[e], value, 2e-3, 1e-6, (name, key))
                known += np.isfinite(value)
    assert known > 20


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_signal_to_noise_of_every_second_step(mode: str) -> None:
    x, y = kinds.data("conv", 40)
    model = kinds.build("conv", ki.IntrospectiveModel)
    gradients = ki.Gradients("signal_to_noise", every=2, epoch_sum=True, per_step=True, values=ALL)
    model.compile(kinds.optimizer(), kinds.loss(), collectors=[gradients], **how(mode))
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    series = model.recording["gradients"]
    assert series.steps.tolist() == [0, 2, 4, 6, 8]  # 5 steps an epoch
    sums = model.recording["gradients_epoch_sum"]
    for name in series.names:
        values = raw(series, name)
        for e, rows in enumerate(([0, 1, 2], [3, 4])):
            for key, value in signal_to_noise(values[rows]).items():
                close(series.sel(name).epoch(key)[e], value, 2e-3, 1e-6, (name, key))
            np.testing.assert_allclose(
                sums.sel(name).epoch("values")[e][: values.shape[1]],
                values[rows].sum(axis=0),
                rtol=1e-5,
                atol=1e-7,
            )


# --- the gradient summed over an epoch ---


@modes
def test_statistics_of_the_gradient_summed_over_an_epoch(kind: str, mode: str) -> None:
    recording = run(kind, mode)[0]
    sums, gradients = recording["gradients_epoch_sum"], recording["gradients"]
    assert set(sums.names) == set(gradients.names) - {"embedding/embeddings"}
    assert not {"gsnr", "oscillation"} & set(sums.statistics)  # of one step there is no noise
    for name in sums.names:
        values = raw(gradients, name).astype(np.float64)
        for e in range(EPOCHS):
            total = values[e * STEPS : (e + 1) * STEPS].sum(axis=0)
            expected = oracle.moments([total])
            for key in oracle.MOMENTS:
                tolerance = 1e-6 * expected["rms"] if key == "mean" else 1e-9
                close(sums.sel(name).epoch(key)[e], expected[key], 1e-5, tolerance, (name, key))
            by_channel = total.reshape(-1, gradients.shapes[gradients.names.index(name)][-1])
            close(sums.unit("mean")[name][e], by_channel.mean(axis=0), 1e-5, 1e-8, name)


# --- updates ---


@modes
def test_update_ratio_and_implicit_rate(kind: str, mode: str) -> None:
    """From the raw values of the same run; the embedding's from the loop by hand."""
    recording = run(kind, mode)[0]
    updates = recording["updates"]
    steps = flat_steps(kind)
    log = run(kind, mode)[3]["updates/update_ratio"]
    for e in range(EPOCHS):
        ratios = updates.epoch("update_ratio")[e]
        assert log[e] == pytest.approx(np.median(ratios[np.isfinite(ratios)]))
    for name in updates.names:
        u, after = raw(updates, name).astype(np.float64), raw(recording["weights"], name).astype(np.float64)
        w = np.concatenate([steps[0].before[name].ravel()[None], after[:-1]])  # before each step
        sparse = name == "embedding/embeddings"
        g = np.array([s.gradients[name].ravel() for s in steps]) if sparse else raw(recording["gradients"], name)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt((u**2).sum(axis=1) / (w**2).sum(axis=1))
            rate = np.where(g != 0, -u / g, np.nan)
        ratio[(w**2).sum(axis=1) == 0] = np.nan  # a bias that is zero still
        one = updates.sel(name)
        close(one.step("update_ratio"), ratio, 1e-4, 1e-9, name)
        for e in range(EPOCHS):
            part = slice(e * STEPS, (e + 1) * STEPS)
            with np.errstate(divide="ignore"):
                expected = np.sqrt((u[part] ** 2).sum() / (w[part] ** 2).sum())
            close(one.epoch("update_ratio")[e], expected, 1e-4, 1e-9, name)
            if sparse or name == "attention/key/bias":  # from other roundings; zero but for rounding
                continue
            check_rates(one.epoch("implicit_learning_rate")[e], rate[part], 50.0, name)
            for level, value in zip(
                updates.quantile_levels, one.epoch("implicit_learning_rate_quantiles")[e], strict=True
            ):
                check_rates(value, rate[part], level, name)
        for s in range(EPOCHS * STEPS):
            if not sparse and name != "attention/key/bias":
                check_rates(one.step("implicit_learning_rate")[s], rate[s : s + 1], 50.0, (name, s))


def check_rates(actual: float, rates: np.ndarray, level: float, where: Any) -> None:
    """No more elements than the sample are all counted: the rank is right to one of them, the value to a bin."""
    rates = rates[np.isfinite(rates)]
    if not rates.size:
        assert np.isnan(actual), where
        return
    if level in (0, 100):
        close(actual, np.percentile(rates, level), 1e-5, 0, where)
        return
    step = 100.0 / rates.size
    low, high = np.percentile(rates, [max(level - step, 0), min(level + step, 100)])
    # a bin is 1/16 of an octave in the inner range: at most 1/16 of the value
    slack = max(abs(low), abs(high)) / 16 + 1e-9
    assert low - slack <= actual <= high + slack, (where, level, actual, low, high)


# --- channels and positions ---


@modes
def test_each_channel_and_position(kind: str, mode: str) -> None:
    recording = run(kind, mode)[0]
    epochs, validated = hand(kind)
    for view in ("layer_outputs", "val_layer_outputs"):
        series = recording[view]
        for e in range(EPOCHS):
            outputs = validated[e] if view.startswith("val_") else None
            if outputs is None:
                outputs = {
                    name: np.concatenate([step.outputs[name] for step in epochs[e]]) for name in epochs[e][0].outputs
                }
            assert set(outputs) <= set(series.names)
            for name, array in outputs.items():
                check_units(series, name, e, array)
    for name in recording["gradients"].names:
        for e in range(EPOCHS):
            array = np.stack([step.gradients[name] for step in epochs[e]])
            check_units(recording["gradients"], name, e, array.reshape(-1, array.shape[-1]))


def check_units(series: Any, name: str, epoch: int, array: np.ndarray) -> None:
    axes = tuple(range(array.ndim - 1))
    x, scale = array.astype(np.float64), np.abs(array).max()
    least = max(1e-4 * scale, 1e-9)  # the gradient of a key's bias is zero in truth: rounding noise
    close(series.unit("mean")[name][epoch], x.mean(axis=axes), 1e-3, least, name)
    close(series.unit("std")[name][epoch], x.std(axis=axes), 1e-3, least, name)
    if name == "attention/key/bias":
        return
    close(series.unit("activation_rate")[name][epoch], (x != 0).mean(axis=axes), 0, 1e-9, name)
    if array.ndim > 2:
        rates = (x != 0).mean(axis=(0, -1)).ravel()
        close(series.unit("position_activation_rate")[name][epoch], rates, 0, 1e-9, name)
    else:
        assert "position_activation_rate" not in series.unit_statistics or name not in series.unit(
            "position_activation_rate"
        )


def test_channels_first() -> None:
    """Axis 1 holds the channels; the positions are flattened in their order."""
    x = np.random.default_rng(0).normal(size=(12, 3, 5, 4)).astype("float32")
    x[:, 1] = -1  # a channel that is dead
    x[:, :, 2, 3] = -1  # and a position
    inputs = keras.Input((3, 5, 4))
    relu = keras.layers.ReLU(name="relu")(inputs)
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(keras.layers.Flatten(name="flat")(relu)))
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        model.compile("sgd", "mse", collectors=[ki.LayerOutputs("per_unit", layers="relu")])
        model.fit(x, np.zeros((12, 1)), batch_size=5, shuffle=False, verbose=0)
    finally:
        keras.config.set_image_data_format(before)
    y = np.maximum(x, 0).astype(np.float64)
    series = model.recording["layer_outputs"]
    close(series.unit("mean")["relu"][0], y.mean(axis=(0, 2, 3)), 1e-5)
    close(series.unit("std")["relu"][0], y.std(axis=(0, 2, 3)), 1e-5)
    close(series.unit("activation_rate")["relu"][0], (y != 0).mean(axis=(0, 2, 3)), 1e-9)
    rates = series.unit("position_activation_rate")["relu"][0]
    close(rates, (y != 0).mean(axis=(0, 1)).ravel(), 1e-9)
    assert (rates == 0).tolist() == [i == 2 * 4 + 3 for i in range(20)]


# --- layer outputs of the two phases ---


@modes
def test_validation_outputs_are_those_of_inference(kind: str, mode: str) -> None:
    recording = run(kind, mode)[0]
    _, validated = hand(kind)
    series = recording["val_layer_outputs"]
    assert series.epochs.tolist() == [0, 1]
    for e in range(EPOCHS):
        for name, array in validated[e].items():
            expected = oracle.statistics([array], positions=array.ndim > 2)
            for key in ("count", "nonfinite", *oracle.ACTIVITY):
                np.testing.assert_allclose(series.sel(name).epoch(key)[e], expected[key], atol=1e-7, err_msg=name)
            for key in ("mean", "std", "rms", "mean_abs", "min", "max"):
                close(series.sel(name).epoch(key)[e], expected[key], 1e-3, 1e-4 * expected["rms"], (name, key))


# --- metrics of the steps ---


@modes
def test_loss_and_accuracy_of_each_batch(kind: str, mode: str) -> None:
    metrics = run(kind, mode)[0]["metrics"]
    steps = flat_steps(kind)
    close(metrics.step("loss"), [step.loss for step in steps], 1e-4)
    right = [np.mean(step.prediction.argmax(axis=1) == step.y) for step in steps]
    close(metrics.step("accuracy"), right, 1e-6)
    norms = [np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in step.gradients.values())) for step in steps]
    close(metrics.step("gradient_norm"), norms, 1e-3)
    close(metrics.step("learning_rate"), [0.1] * len(steps), 1e-6)
    assert set(metrics.step_statistics) == {"loss", "accuracy", "gradient_norm", "learning_rate"}
    for key in metrics.step_statistics:
        quantiles = [np.percentile(part, metrics.quantile_levels) for part in metrics.step(key).reshape(EPOCHS, STEPS)]
        np.testing.assert_allclose(metrics.epoch(key), quantiles, rtol=1e-12, err_msg=key)
