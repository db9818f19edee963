"""Each statistic against NumPy, in graph, eager and XLA; merges against the whole; single steps against epochs."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_introspect.statistics import Activity, Context, Moments, Piece, Quantiles, Statistic, TensorSpec, resolve

N = 20_000


def samples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=N)
    return {
        "normal": normal,
        "half zero": np.maximum(normal, 0),
        "heavy tailed": rng.standard_cauchy(N) * 1e3,
        "bimodal": np.concatenate([rng.normal(-5, 0.1, N // 2), rng.normal(5, 0.1, N // 2)]),
        "constant": np.full(N, 3.3),
        "zero": np.zeros(N),
        "tiny": normal * 1e-30,
        "huge": normal * 1e30,
        "far from zero": 1e4 + normal,
        "one element": np.array([-2.5]),
    }


SAMPLES = samples()
MODES = ("graph", "eager", "xla")


def state_of(statistic: Statistic, values: Any, mode: str = "graph", spec: TensorSpec | None = None) -> np.ndarray:
    """The state of one tensor, computed in one of the three modes."""
    values = tf.convert_to_tensor(values)
    spec = spec or TensorSpec("x", tuple(values.shape), batched=False, channel_axis=values.shape.rank - 1)

    def compute(x: Any, step: Any) -> Any:
        return statistic.partials([Piece(x, spec)], Context(step, mode == "xla"))

    if mode != "eager":
        compute = tf.function(compute, jit_compile=mode == "xla", autograph=False)
    return compute(values, tf.constant(3, tf.int64)).numpy()


def moments_by_numpy(x: np.ndarray) -> dict[str, float]:
    x = np.asarray(x, np.float64)
    return {
        "count": x.size,
        "mean": x.mean(),
        "std": x.std(),
        "rms": np.sqrt(np.mean(x * x)),
        "l2_norm": np.sqrt(np.sum(x * x)),
        "mean_abs": np.abs(x).mean(),
        "min": x.min(),
        "max": x.max(),
        "nonfinite": 0,
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SAMPLES)
def test_moments_equal_numpy(kind: str, mode: str) -> None:
    x = SAMPLES[kind].astype(np.float32)
    result = Moments().result(state_of(Moments(), x, mode), None)
    expected = moments_by_numpy(x)
    for key, value in expected.items():
        scale = expected["rms"] if key == "mean" else 0.0
        np.testing.assert_allclose(result[key], value, rtol=1e-5, atol=1e-6 * scale, err_msg=key)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_moments_of_other_dtypes(dtype: str) -> None:
    x = tf.cast(SAMPLES["normal"] * 100, dtype)
    result = Moments().result(state_of(Moments(), x), None)
    expected = moments_by_numpy(tf.cast(x, tf.float64).numpy())
    for key, value in expected.items():
        np.testing.assert_allclose(result[key], value, rtol=1e-5, atol=1e-4 if key == "mean" else 0, err_msg=key)


@pytest.mark.parametrize("mode", MODES)
def test_moments_count_what_is_not_finite_and_keep_the_rest(mode: str) -> None:
    x = SAMPLES["normal"].astype(np.float32)
    x[[3, 50, 700]] = [np.nan, np.inf, -np.inf]
    result = Moments().result(state_of(Moments(), x, mode), None)
    expected = {**moments_by_numpy(x[np.isfinite(x)]), "nonfinite": 3}
    for key, value in expected.items():
        np.testing.assert_allclose(result[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


def test_moments_of_nothing_finite() -> None:
    result = Moments().result(state_of(Moments(), np.full(4, np.nan, np.float32)), None)
    assert result["nonfinite"] == 4
    assert result["count"] == 0
    assert np.isnan(result["mean"])
    assert np.isnan(result["min"])


@pytest.mark.parametrize("statistic", [Moments(), Activity(), Quantiles(sample=None)], ids=lambda s: s.name)
def test_merging_parts_equals_the_whole(statistic: Statistic) -> None:
    rng = np.random.default_rng(1)
    whole = np.maximum(rng.normal(3, 1, (60, 8)), 2.5).astype(np.float32)
    whole[:, 2] = 0
    spec = TensorSpec("x", (None, 8), batched=True, channel_axis=1)
    merged = statistic.empty(statistic.rows(spec))
    for part in np.split(whole, [7, 20, 21]):
        merged = statistic.merge(merged, state_of(statistic, part, spec=spec), np)
    expected = state_of(statistic, whole, spec=spec)
    for key, value in statistic.result(expected, spec).items():
        np.testing.assert_allclose(statistic.result(merged, spec)[key], value, rtol=1e-6, err_msg=key)
    on_device = statistic.merge(tf.constant(merged), tf.constant(statistic.empty(len(merged))), tf).numpy()
    np.testing.assert_allclose(on_device, merged, rtol=1e-12)


def test_moments_far_from_zero_merge_exactly() -> None:
    x = SAMPLES["far from zero"]
    merged = Moments().empty(1)
    for part in np.split(x, 40):
        merged = Moments().merge(merged, state_of(Moments(), part.astype(np.float32)), np)
    assert Moments().result(merged, None)["std"] == pytest.approx(x.std(), rel=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_activity_of_images(mode: str) -> None:
    x = np.ones((5, 4, 3, 6), np.float32)
    x[..., 1] = 0
    x[..., 4] = 0
    x[:, 2, 1] = 0
    x[0, 0, 0, 0] = 0
    spec = TensorSpec("x", (None, 4, 3, 6), batched=True, channel_axis=3)
    result = Activity().result(state_of(Activity(), x, mode, spec), spec)
    assert result["activation_rate"] == np.count_nonzero(x) / x.size
    assert result["dead_rate"] == 2 / 6
    assert result["spatial_dead_rate"] == 1 / 12


def test_activity_of_channels_first() -> None:
    x = np.ones((5, 6, 4, 3), np.float32)
    x[:, 1] = 0
    x[:, :, 3, 2] = 0
    spec = TensorSpec("x", (None, 6, 4, 3), batched=True, channel_axis=1)
    result = Activity().result(state_of(Activity(), x, spec=spec), spec)
    assert (result["dead_rate"], result["spatial_dead_rate"]) == (1 / 6, 1 / 12)


def test_activity_without_known_axes() -> None:
    for shape, axis in (((None,), None), ((None, None), 1), ((None, None, 3), 2)):
        values = np.zeros([2 if size is None else size for size in shape], np.float32)
        spec = TensorSpec("x", shape, batched=True, channel_axis=axis)
        result = Activity().result(state_of(Activity(), values, spec=spec), spec)
        assert result["activation_rate"] == 0
        assert np.isnan(result["spatial_dead_rate"])
        assert np.isnan(result["dead_rate"]) == (spec.channels is None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SAMPLES)
def test_quantiles_within_their_stated_error(kind: str, mode: str) -> None:
    x = SAMPLES[kind].astype(np.float32)
    statistic = Quantiles(sample=None)
    result = statistic.result(state_of(statistic, x, mode), None)
    width = 1 / 2 if kind in ("tiny", "huge") else 1 / 8  # the stated bins: half an octave beyond 2^±…, finer within
    for key, values in (("quantiles", x), ("magnitude_quantiles", np.abs(x))):
        lowest, highest = (np.percentile(values, np.clip(statistic.levels + d, 0, 100)) for d in (-0.5, 0.5))
        slack = width * np.maximum(np.abs(lowest), np.abs(highest)) + 1e-38
        assert np.all(result[key] >= lowest - slack), key
        assert np.all(result[key] <= highest + slack), key
    assert (result["quantiles"][0], result["quantiles"][-1]) == (x.min(), x.max())
    if np.any(x):
        signs = np.count_nonzero(x > 0), np.count_nonzero(x < 0)
        assert result["sign_balance"] == pytest.approx((signs[0] - signs[1]) / sum(signs), abs=1e-6)
        log = np.log10(np.abs(x[x != 0].astype(np.float64)))
        assert result["log_magnitude_mean"] == pytest.approx(log.mean(), abs=0.04)
        assert result["log_magnitude_std"] == pytest.approx(log.std(), abs=0.05)


@pytest.mark.parametrize("kind", ["normal", "half zero", "heavy tailed", "bimodal"])
def test_a_sample_is_within_its_rank_error(kind: str) -> None:
    x = SAMPLES[kind].astype(np.float32)
    statistic = Quantiles(sample=4096)
    result = statistic.result(state_of(statistic, x), None)
    error = 4 * 50 / np.sqrt(4096)  # four standard deviations, in percent
    lowest, highest = (np.percentile(x, np.clip(statistic.levels + d, 0, 100)) for d in (-error, error))
    slack = np.maximum(np.abs(lowest), np.abs(highest)) / 8
    assert np.all((result["quantiles"] >= lowest - slack) & (result["quantiles"] <= highest + slack))
    assert state_of(statistic, x).sum(where=np.arange(statistic.fields) < statistic.fields - 5) == pytest.approx(N)


def test_graph_eager_and_xla_draw_the_same_sample() -> None:
    states = [state_of(Quantiles(), SAMPLES["normal"].astype(np.float32), mode) for mode in MODES]
    for other in states[1:]:
        np.testing.assert_allclose(other, states[0], rtol=1e-5)


def test_quantiles_of_what_is_not_finite() -> None:
    x = SAMPLES["normal"].astype(np.float32)
    x[:3] = [np.nan, np.inf, -np.inf]
    statistic = Quantiles(sample=None)
    result = statistic.result(state_of(statistic, x), None)
    assert (result["quantiles"][0], result["quantiles"][-1]) == (x[3:].min(), x[3:].max())


@pytest.mark.parametrize("statistic", [Moments(), Activity(), Quantiles(sample=None)], ids=lambda s: s.name)
def test_single_steps_read_like_epochs(statistic: Statistic) -> None:
    rng = np.random.default_rng(2)
    specs = [
        TensorSpec("a", (None, 4), batched=True, channel_axis=1),
        TensorSpec("b", (None, 3, 2, 5), batched=True, channel_axis=3),
        TensorSpec("c", (6,), batched=False, channel_axis=0),
    ]
    tensors = [np.maximum(rng.normal(size=[7 if s is None else s for s in spec.shape]), 0) for spec in specs]
    tensors[0][:, 1] = 0
    pieces = [Piece(tf.constant(t, tf.float32), spec) for t, spec in zip(tensors, specs, strict=True)]
    state = statistic.partials(pieces, Context())
    vectors = statistic.step_state(state, specs).numpy()
    assert vectors.shape == (3, statistic.step_fields)
    steps = statistic.step_result(vectors[None].astype(np.float64))
    ends = np.cumsum([statistic.rows(spec) for spec in specs])
    for i, (spec, rows) in enumerate(zip(specs, np.split(state.numpy(), ends[:-1]), strict=True)):
        for key, value in statistic.result(rows, spec).items():
            np.testing.assert_allclose(steps[key][0, i], value, rtol=1e-4, atol=1e-6, err_msg=f"{key} of {spec.name}")


def test_zeros_beside_a_sparse_gradient_count() -> None:
    rows, spec = np.array([[1.0, -2.0], [3.0, 0.0]], np.float32), TensorSpec("e", (5, 2), False, 1)
    dense = np.concatenate([rows, np.zeros((3, 2), np.float32)])
    for statistic in (Moments(), Activity(), Quantiles()):
        sparse = statistic.partials([Piece(tf.constant(rows), spec, tf.constant(6, tf.int64))], Context()).numpy()
        np.testing.assert_allclose(sparse, state_of(statistic, dense, spec=spec), rtol=1e-6)


def test_names_resolve_or_say_what_exists() -> None:
    assert [s.name for s in resolve(["moments", Activity, Quantiles(levels=[50])])] == [
        "moments",
        "activity",
        "quantiles",
    ]
    with pytest.raises(ValueError, match=r"momnets.*Did you mean 'moments'"):
        resolve("momnets")
    with pytest.raises(ValueError, match="twice"):
        resolve(["moments", Moments()])
    with pytest.raises(TypeError, match="instances of Statistic"):
        resolve([3])
    with pytest.raises(ValueError, match="ascending"):
        Quantiles(levels=[50, 20])
    with pytest.raises(ValueError, match="sample=0"):
        Quantiles(sample=0)
