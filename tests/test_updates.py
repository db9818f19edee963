"""`update_ratio` and the implicit learning rate under every kind of optimizer, against formulas in NumPy."""

import itertools
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
import kinds
from keras_introspect.statistics import Quantiles

MODES = ("graph", "eager", pytest.param("xla", marks=pytest.mark.long))
RATE = 0.3
ALL = 64


def how(mode: str) -> dict[str, Any]:
    return {"run_eagerly": mode == "eager", "jit_compile": mode == "xla"}


def dense(base: Any = ki.IntrospectiveModel) -> Any:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", name="hidden")(inputs)
    return base(inputs, keras.layers.Dense(2, name="head")(hidden), name="net")


def collectors() -> list[Any]:
    return [
        ki.Updates("moments", per_step=True, values=ALL),
        ki.Gradients("moments", per_step=True, values=ALL),
        ki.Weights("moments", per_step=True, values=ALL),
    ]


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 4)).astype("float32"), rng.normal(size=(20, 2)).astype("float32")


class Run:
    """A fit of 2 epochs of 3 steps, and its raw numbers: name → (S, elements), float64."""

    def __init__(self, optimizer: Any, mode: str, model: Any = None, x: Any = None, y: Any = None) -> None:
        model = dense() if model is None else model
        start = {v.path: v.numpy().ravel() for v in model.trainable_variables}
        model.compile(optimizer, "mse", collectors=collectors(), **how(mode))
        given = data() if x is None else (x, y)
        model.fit(*given, batch_size=8, epochs=2, shuffle=False, verbose=0)
        self.model = model
        self.series = model.recording["updates"]
        self.names = self.series.names
        self.update, self.gradient, self.after = (self._raw(v) for v in ("updates", "gradients", "weights"))
        self.before = {name: np.concatenate([start[name][None], self.after[name][:-1]]) for name in self.names}

    def _raw(self, view: str) -> dict[str, np.ndarray]:
        series = self.model.recording[view]
        sizes = [int(np.prod(shape)) for shape in series.shapes]
        return {
            name: series.sel(name).step("values")[:, :size].astype(np.float64)
            for name, size in zip(series.names, sizes, strict=True)
        }

    def assert_ratios(self, moved: Any = slice(None)) -> None:
        """Of the steps `moved`; the others have none."""
        which = np.zeros(6, bool)
        which[moved] = True
        for name in self.names:
            u2, w2 = (self.update[name] ** 2).sum(axis=1), (self.before[name] ** 2).sum(axis=1)
            ratio = np.sqrt(u2 / np.where(w2 > 0, w2, np.nan))
            np.testing.assert_allclose(
                self.series.sel(name).step("update_ratio"), np.where(which, ratio, np.nan), rtol=1e-4, err_msg=name
            )
            for e in range(2):
                rows = np.flatnonzero(which[3 * e : 3 * e + 3]) + 3 * e
                expected = np.sqrt(u2[rows].sum() / w2[rows].sum()) if w2[rows].any() else np.nan
                got = self.series.sel(name).epoch("update_ratio")[e]
                np.testing.assert_allclose(got, expected, rtol=1e-4, err_msg=name)

    def assert_rates(self, expected: dict[str, np.ndarray], moved: Any = slice(None)) -> None:
        """The medians, from the rate of each element in each step, (S, elements)."""
        which = np.zeros(6, bool)
        which[moved] = True
        for name in self.names:
            one = self.series.sel(name)
            for s in range(6):
                got = one.step("implicit_learning_rate")[s]
                if which[s]:
                    assert_median(got, expected[name][s], f"{name} in step {s}")
                else:
                    assert np.isnan(got), (name, s)
            for e in range(2):
                rows = np.flatnonzero(which[3 * e : 3 * e + 3]) + 3 * e
                assert_median(one.epoch("implicit_learning_rate")[e], expected[name][rows], name)


def assert_median(actual: float, rates: np.ndarray, where: str) -> None:
    """To one element in rank, and to a bin, 1/16, in value."""
    rates = rates[np.isfinite(rates)]
    step = 100 / rates.size
    low, high = np.percentile(rates, [50 - step, 50 + step] if step < 50 else [0, 100])
    slack = max(abs(low), abs(high)) / 16
    assert low - slack <= actual <= high + slack, (where, actual, low, high)


@pytest.mark.parametrize("mode", MODES)
def test_plain_sgd_has_its_own_learning_rate(mode: str) -> None:
    run = Run(keras.optimizers.SGD(RATE), mode)
    run.assert_ratios()
    np.testing.assert_allclose(run.series.epoch("implicit_learning_rate"), RATE, rtol=1e-3)
    np.testing.assert_allclose(run.series.step("implicit_learning_rate"), RATE, rtol=1e-3)
    inner = run.series.epoch("implicit_learning_rate_quantiles")[..., 1:-1]
    np.testing.assert_allclose(inner, RATE, rtol=1 / 16)


@pytest.mark.parametrize("mode", MODES)
def test_momentum(mode: str) -> None:
    """v ← 0.9 v − rate · g; w ← w + v."""
    run = Run(keras.optimizers.SGD(0.05, momentum=0.9), mode)
    run.assert_ratios()
    expected = {}
    for name in run.names:
        velocity, rates = 0.0, []
        for g in run.gradient[name]:
            velocity = 0.9 * velocity - 0.05 * g
            rates.append(-velocity / g)
        expected[name] = np.array(rates)
        np.testing.assert_allclose(run.update[name], -expected[name] * run.gradient[name], rtol=1e-3, atol=1e-6)
    run.assert_rates(expected)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("mode", MODES)
def test_adam_and_its_weight_decay(mode: str, decay: float) -> None:
    """Kingma and Ba (2015), with the bias correction folded into the rate; decay as in Loshchilov and Hutter (2019)."""
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=decay) if decay else keras.optimizers.Adam(0.01)
    run = Run(optimizer, mode)
    run.assert_ratios()
    expected = {}
    for name in run.names:
        m = v = 0.0
        rates = []
        for t, (g, w) in enumerate(zip(run.gradient[name], run.before[name], strict=True), 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            rate = 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            update = -rate * m / (np.sqrt(v) + 1e-7) - 0.01 * decay * w
            rates.append(-update / g)
        expected[name] = np.array(rates)
        np.testing.assert_allclose(run.update[name], -expected[name] * run.gradient[name], rtol=2e-3, atol=1e-6)
    run.assert_rates(expected)


@pytest.mark.parametrize("mode", MODES)
def test_clipping(mode: str) -> None:
    """The gradient is the one before clipping: so the rate is that of the optimizer, times what was clipped away."""
    run = Run(keras.optimizers.SGD(RATE, global_clipnorm=0.01), mode)
    run.assert_ratios()
    norms = np.sqrt(sum((g**2).sum(axis=1) for g in run.gradient.values()))
    assert np.all(norms > 0.05)
    rates = RATE * 0.01 / norms
    run.assert_rates({name: np.repeat(rates[:, None], g.shape[1], axis=1) for name, g in run.gradient.items()})


@pytest.mark.parametrize("mode", MODES)
def test_gradient_accumulation(mode: str) -> None:
    """Every second step moves, by the mean gradient of the round; the steps in between are none."""
    run = Run(keras.optimizers.SGD(RATE, gradient_accumulation_steps=2), mode)
    for name in run.names:
        np.testing.assert_array_equal(run.update[name][[0, 2, 4]], 0)
        mean = (run.gradient[name][[0, 2, 4]] + run.gradient[name][[1, 3, 5]]) / 2
        np.testing.assert_allclose(run.update[name][[1, 3, 5]], -RATE * mean, rtol=1e-3, atol=1e-7)
    run.assert_ratios(moved=[1, 3, 5])
    run.assert_rates({n: np.full(g.shape, RATE) for n, g in run.gradient.items()}, moved=[1, 3, 5])


@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_the_loss_scale_skips(mode: str) -> None:
    """In float16 the scaled gradient of the first batch overflows: no update, and no number of that step."""
    x, y = data()
    y[:8] *= 50
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = dense()
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**16)
        run = Run(optimizer, mode, model, x, y / 5)
    finally:
        keras.config.set_dtype_policy("float32")
    gradients = model.recording["gradients"]
    skipped = gradients.step("nonfinite").sum(axis=1) > 0
    moved = np.flatnonzero(~skipped)
    assert skipped[0]
    assert len(moved) >= 3
    for name in run.names:
        np.testing.assert_array_equal(run.update[name][skipped], 0)
        assert np.all(np.abs(run.update[name][moved]).max(axis=1) > 0)
    run.assert_ratios(moved)
    for s in moved:
        np.testing.assert_allclose(run.series.step("implicit_learning_rate")[s], 0.01, rtol=0.05)
    first = gradients.epoch("first_nonfinite_step")[0]
    assert np.nanmin(first) == 0


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_an_embedding(mode: str) -> None:
    """Of the rows looked up: the others have no gradient, and no rate."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (20, 6)).astype("int32"), rng.normal(size=(20, 1)).astype("float32")
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,), dtype="int32")
    h = keras.layers.GlobalAveragePooling1D(name="pool")(keras.layers.Embedding(9, 4, name="embedding")(inputs))
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(h), name="net")
    start = model.get_layer("embedding").get_weights()[0]
    model.compile(keras.optimizers.SGD(RATE), "mse", collectors=[ki.Updates("moments", per_step=True)], **how(mode))
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    one = model.recording["updates"].sel("embedding/embeddings")
    np.testing.assert_allclose(one.epoch("implicit_learning_rate"), RATE, rtol=1e-3)
    np.testing.assert_allclose(one.step("implicit_learning_rate"), RATE, rtol=1e-3)
    plain = keras.Model(model.inputs[0], model.outputs[0])
    plain.get_layer("embedding").set_weights([start])
    assert np.isfinite(one.epoch("update_ratio")).all()


def test_other_levels_follow_the_quantiles() -> None:
    """A view has one set of levels: that of the quantiles, where they are asked for."""
    model = dense()
    model.compile("sgd", "mse", collectors=[ki.Updates([Quantiles(levels=[0, 50, 100])])])
    model.fit(*data(), batch_size=8, epochs=1, verbose=0)
    series = model.recording["updates"]
    assert series.quantile_levels.tolist() == [0, 50, 100]
    assert series.epoch("implicit_learning_rate_quantiles").shape == (1, 4, 3)


def test_updates_and_gradients_alone_have_them() -> None:
    with pytest.raises(ValueError, match=r"signal_to_noise.*gradients and updates"):
        ki.LayerOutputs("signal_to_noise")
    with pytest.raises(ValueError, match=r"update_ratio.*updates only"):
        ki.Gradients("update_ratio")


def test_noise_scale_of_known_noise() -> None:
    """Gradients of a linear model at rest: the scale is trace(Σ) / |g|² of the batches' gradients."""
    model = dense()
    model.compile(
        keras.optimizers.SGD(0.0), "mse", collectors=[ki.Gradients("signal_to_noise", per_step=True, values=ALL)]
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 4)).astype("float32"), 1 + rng.normal(size=(400, 2)).astype("float32")
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    series = model.recording["gradients"]
    steps, _ = kinds.by_hand(dense(keras.Model), keras.optimizers.SGD(0.0), keras.losses.MeanSquaredError(), x, y, 1)
    name = "head/bias"
    g = np.array([s.gradients[name] for s in steps[0]], np.float64)
    trace = g.var(axis=0, ddof=1).sum()
    expected = trace / ((g.mean(axis=0) ** 2).sum() - trace / len(g))
    np.testing.assert_allclose(series.sel(name).epoch("noise_scale"), [expected], rtol=2e-2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", ["plain", "scaled"])
def test_noise_scale_from_accumulation_steps(optimizer: str, mode: str) -> None:
    """The estimators of McCandlish et al., appendix A.1: of the parts of a round, and what is applied at its end."""
    parts, seen = 3, 7  # two whole rounds, and a part of a third

    def make() -> Any:
        inner = keras.optimizers.SGD(0.1, gradient_accumulation_steps=parts)
        return keras.optimizers.LossScaleOptimizer(inner, 2.0**4) if optimizer == "scaled" else inner

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8 * seen, 4)).astype("float32"), 1 + rng.normal(size=(8 * seen, 2)).astype("float32")
    model = dense()
    model.compile(make(), "mse", collectors=[ki.Gradients("signal_to_noise")], **how(mode))
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    plain = keras.optimizers.SGD(0.1, gradient_accumulation_steps=parts)
    (steps,), _ = kinds.by_hand(dense(keras.Model), plain, keras.losses.MeanSquaredError(), x, y, 1)
    series = model.recording["gradients"]
    for name in series.names:
        g = np.array([step.gradients[name].ravel() for step in steps], np.float64)
        complete = g[: seen // parts * parts]
        part = (complete**2).sum(axis=1).mean()
        whole = np.mean([(r.mean(axis=0) ** 2).sum() for r in complete.reshape(-1, parts, g.shape[1])])
        noise, signal = (part - whole) / (1 - 1 / parts), (parts * whole - part) / (parts - 1)
        expected = noise / signal if signal > 0 else np.nan
        np.testing.assert_allclose(series.sel(name).epoch("noise_scale"), [expected], rtol=1e-3, err_msg=name)
        cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.pairwise(g)]
        np.testing.assert_allclose(series.sel(name).epoch("step_cosine"), [np.mean(cosines)], rtol=1e-3, atol=1e-5)


def test_noise_scale_where_there_is_no_noise() -> None:
    """The same batch again and again; the second epoch begins in the midst of a round, which does not count."""
    x, y = (np.tile(part[:4], (5, 1)) for part in data())
    model = dense()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse", collectors=[ki.Gradients("signal_to_noise")])
    model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
    scale = model.recording["gradients"].epoch("noise_scale")
    np.testing.assert_allclose(scale, np.zeros_like(scale), atol=1e-5)
