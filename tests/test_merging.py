"""Merged recordings against the recording of one run over all the data."""

import functools
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_introspect as ki
from keras_introspect.collectors import StepMetrics
from keras_introspect.statistics import NAMED, Quantiles

UNITS = 5
STATISTICS = ("moments", "activity", "per_unit")


def batches(number: int = 7, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches of different sizes, in each of which some of the features are never positive."""
    rng = np.random.default_rng(seed)
    found = []
    for size in range(2, 2 + number):
        x = rng.normal(1.0, 3.0, size=(size, UNITS)).astype("float32")
        x[:, rng.random(UNITS) < 0.6] *= 0.0
        found.append((x - 0.25 * (x == 0), rng.normal(size=(size, 1)).astype("float32")))
    return found


BATCHES = batches()


def collectors(**arguments: Any) -> list[ki.Collector]:
    pooled = [*STATISTICS, Quantiles(sample=None)]  # without a sample, which differs from step to step
    observed = [kind(pooled, **arguments) for kind in (ki.Weights, ki.Gradients, ki.LayerOutputs, ki.OutputGradients)]
    updates = ki.Updates([*pooled, "update_ratio", NAMED["implicit_learning_rate"](sample=None)], **arguments)
    return [*observed, updates, StepMetrics()]


def build(observe: Any, rate: float = 0.0, seed: int = 1) -> Any:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((UNITS,))
    hidden = keras.layers.Dense(UNITS, "relu", kernel_initializer="identity", name="hidden")(inputs)
    hidden = keras.layers.Reshape((UNITS, 1), name="places")(hidden)  # positions, some of them dead
    hidden = keras.layers.Flatten(name="flat")(hidden)
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(hidden))
    model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"], collectors=observe)
    return model


@functools.cache
def model_of(per_step: bool) -> Any:
    return build(collectors(per_step=per_step))


def recorded(model: Any, data: list[tuple[np.ndarray, np.ndarray]], epochs: int = 2) -> ki.Recording:
    """The recording of a run of its own over these batches; its learning rate is 0, so the weights stay."""
    model._introspection.recording = ki.Recording()
    model.optimizer.iterations.assign(0)
    signature = (tf.TensorSpec([None, UNITS]), tf.TensorSpec([None, 1]))
    dataset = tf.data.Dataset.from_generator(lambda: iter(data), output_signature=signature)
    model.fit(dataset.apply(tf.data.experimental.assert_cardinality(len(data))), epochs=epochs, verbose=0)
    return model.recording


def in_turn(runs: list[list[Any]]) -> list[Any]:
    return [batch for turn in itertools.zip_longest(*runs) for batch in turn if batch is not None]


def assert_same(a: ki.Recording, b: ki.Recording, steps: bool = True, **tolerance: float) -> None:
    tolerance = tolerance or {"rtol": 1e-6, "atol": 1e-12}
    assert list(a) == list(b)
    for view in a:
        s, t = a[view], b[view]
        assert (s.names, s.shapes, s.epochs.tolist()) == (t.names, t.shapes, t.epochs.tolist())
        assert set(s.statistics) == set(t.statistics)
        for key in s.statistics:
            np.testing.assert_allclose(s.epoch(key), t.epoch(key), **tolerance, err_msg=f"{view} {key}")
        assert set(s.unit_statistics) == set(t.unit_statistics)
        for key in s.unit_statistics:
            for name, values in s.unit(key).items():
                np.testing.assert_allclose(values, t.unit(key)[name], **tolerance, err_msg=f"{view} {key} {name}")
        if steps:
            assert s.steps.tolist() == t.steps.tolist()
            assert set(s.step_statistics) == set(t.step_statistics)
            for key in s.step_statistics:
                np.testing.assert_allclose(s.step(key), t.step(key), **tolerance, err_msg=f"{view} {key} by step")
    assert set(a.logs) == set(b.logs)
    for key in a.logs:
        np.testing.assert_allclose(a.logs[key], b.logs[key], rtol=1e-5, err_msg=key)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_any_split_of_the_data_is_merged_to_the_run_over_all(owner):
    runs = [[b for b, o in zip(BATCHES, owner, strict=True) if o == run] for run in sorted(set(owner))]
    model = model_of(per_step=False)
    merged = ki.Recording.merge([recorded(model, run) for run in runs])
    whole = recorded(model, in_turn(runs))
    assert_same(merged, whole, steps=len({len(run) for run in runs}) == 1)
    assert whole["layer_outputs"].sel("places").epoch("spatial_dead_rate").max() < 1
    assert "position_activation_rate" in whole["layer_outputs"].unit_statistics


@pytest.mark.parametrize("runs", [2, 3])
def test_single_steps_are_put_in_turn(runs):
    model = model_of(per_step=True)
    data = batches(6)
    merged = ki.Recording.merge([recorded(model, data[run::runs]) for run in range(runs)])
    assert_same(merged, recorded(model, data))


def test_merged_recordings_are_merged_and_saved_like_others(tmp_path: Path) -> None:
    model = model_of(per_step=False)
    runs = [recorded(model, BATCHES[run::3]) for run in range(3)]
    before = [run.to_bytes() for run in runs]
    for i, run in enumerate(runs):
        run.save(tmp_path / f"{i}.npz")
    loaded = [ki.Recording.load(tmp_path / f"{i}.npz") for i in range(3)]
    merged = ki.Recording.merge(loaded, drop=["metrics"])
    two = ki.Recording.from_bytes(ki.Recording.merge(loaded[:2], drop=["metrics"]).to_bytes())
    assert_same(ki.Recording.merge([two, loaded[2]], drop=["metrics"]), merged)
    assert [about["model"] for about in merged.metadata["merged"]] == [model.name] * 3
    assert merged.metadata["optimizer"] == "SGD"
    assert [run.to_bytes() for run in runs] == before, "merging changes what it is given"


def test_one_recording_is_itself():
    run = recorded(model_of(per_step=True), BATCHES)
    assert_same(ki.Recording.merge([run]), run)


def test_weights_of_different_runs_are_a_mixture():
    runs = [recorded(build([ki.Weights()], seed=seed), BATCHES, epochs=1) for seed in (1, 2)]
    models = [build([ki.Weights()], seed=seed) for seed in (1, 2)]
    merged = ki.Recording.merge(runs)["weights"].sel("head/kernel")
    values = np.array([model.get_layer("head").kernel.numpy().ravel() for model in models], np.float64)
    assert merged.epoch("count") == values[0].size  # not twice as many: one variable
    np.testing.assert_allclose(merged.epoch("mean"), values.mean())
    np.testing.assert_allclose(merged.epoch("std"), values.std())
    np.testing.assert_allclose(merged.epoch("l2_norm"), np.sqrt(np.sum(values**2) / 2))
    np.testing.assert_allclose(merged.epoch("quantiles")[0, [0, -1]], [values.min(), values.max()])


def test_epochs_and_logs_of_runs_of_different_lengths():
    model = model_of(per_step=False)
    long, short = recorded(model, BATCHES[:3], epochs=3), recorded(model, BATCHES[3:], epochs=1)
    merged = ki.Recording.merge([short, long])
    assert merged.epochs.tolist() == [0, 1, 2]
    for key in ("loss", "mae"):
        np.testing.assert_allclose(merged.logs[key][1:], long.logs[key][1:])
    series = merged["layer_outputs"]
    np.testing.assert_allclose(series.epoch("mean")[1:], long["layer_outputs"].epoch("mean")[1:])
    np.testing.assert_array_equal(
        series.epoch("count")[0], short["layer_outputs"].epoch("count")[0] + long["layer_outputs"].epoch("count")[0]
    )


def test_weights_of_the_mean_of_the_logs():
    runs = []
    for loss in (1.0, 4.0):
        run = ki.Recording()
        run.add_logs(0, {"loss": loss})
        runs.append(run)
    assert ki.Recording.merge(runs).logs["loss"] == 2.5
    assert ki.Recording.merge(runs, weights=[2, 1]).logs["loss"] == 2.0
    with pytest.raises(ValueError, match="a positive number for each of the 2 recordings"):
        ki.Recording.merge(runs, weights=[1])


def moments(mean: float, count: float = 4.0, nonfinite: float = 0.0, first: float = np.nan) -> dict[str, list[float]]:
    numbers = {"count": count, "mean": mean, "std": 0.0, "mean_abs": abs(mean), "min": mean, "max": mean}
    numbers |= {"rms": 0.0, "l2_norm": 0.0, "nonfinite": nonfinite, "first_nonfinite_step": first}
    return {key: [value] for key, value in numbers.items()}


def run_of(view: str = "gradients", name: str = "a", **values: Any) -> ki.Recording:
    run = ki.Recording()
    run.add_epoch(view, 0, [name], [(4,)], {**moments(1.0), **{key: [value] for key, value in values.items()}})
    return run


def test_what_is_not_finite_stays_outside_and_is_counted():
    runs = []
    for values in (moments(np.nan, 0.0, 4.0, 6.0), moments(3.0, 4.0, 2.0, 5.0), moments(5.0)):
        runs.append(ki.Recording())
        runs[-1].add_epoch("gradients", 0, ["a"], [(4,)], values)
    merged = ki.Recording.merge(runs)["gradients"].sel("a")
    assert [float(merged.epoch(key)[0]) for key in ("count", "mean", "nonfinite", "min", "max")] == [8, 4, 6, 3, 5]
    assert merged.epoch("first_nonfinite_step") == 3 * 5 + 1  # the sixth step of the second of three runs
    alone = ki.Recording.merge(runs[:1])["gradients"].sel("a")
    assert np.isnan(alone.epoch("mean")[0])
    assert alone.epoch("count")[0] == 0


def test_far_from_zero():
    runs, values = [], [1e4 + np.random.default_rng(seed).normal(size=1000) for seed in (0, 1)]
    for x in values:
        runs.append(ki.Recording())
        numbers = {"count": x.size, "mean": x.mean(), "std": x.std(), "mean_abs": abs(x).mean(), "min": x.min()}
        numbers |= {"max": x.max(), "nonfinite": 0}
        runs[-1].add_epoch("gradients", 0, ["a"], [(4,)], {key: [value] for key, value in numbers.items()})
    whole = np.concatenate(values)
    np.testing.assert_allclose(ki.Recording.merge(runs)["gradients"].sel("a").epoch("std"), whole.std(), rtol=1e-12)


@pytest.mark.parametrize(
    ("runs", "match"),
    [
        ([], "no recording"),
        ([run_of(), run_of("weights")], r"Recording 1 has no 'gradients', but others have.*It has 'weights'"),
        ([run_of(name="dense/kernel"), run_of(name="dense_1/kernel")], "only one has 'dense.*'dense_1'"),
        ([run_of(mine=1.0)] * 2, r"'mine' of 'gradients' cannot be merged: there is no rule.*drop=\['mine'\]"),
        ([run_of(dead_rate=0.5, activation_rate=0.5)] * 2, "'dead_rate' of 'gradients'.*earlier version, or by hand"),
        ([run_of(gsnr=1.0)] * 2, "'gsnr' of 'gradients' cannot be merged"),
        ([run_of("gradients_epoch_sum")] * 2, "do not tell those of their sum.*drop="),
    ],
)
def test_what_does_not_fit_is_said(runs, match):
    with pytest.raises(ValueError, match=match):
        ki.Recording.merge(runs)


def test_what_cannot_be_merged_is_left_out_on_demand():
    merged = ki.Recording.merge([run_of(mine=1.0), run_of(mine=2.0)], drop=["mine"])["gradients"]
    assert "mine" not in merged.statistics
    assert merged.sel("a").epoch("count") == 8


def test_different_levels_are_refused():
    runs = []
    for levels in ([0, 50, 100], [0, 25, 100]):
        runs.append(ki.Recording())
        runs[-1].add_epoch("gradients", 0, ["a"], [(4,)], {"quantiles": [[1, 2, 3]]}, quantile_levels=levels)
    with pytest.raises(ValueError, match=r"different levels: \[\[0.0, 50.0, 100.0\], \[0.0, 25.0, 100.0\]\]"):
        ki.Recording.merge(runs)


def test_epochs_recorded_before_states_were_kept_are_not_guessed():
    model = model_of(per_step=False)
    run = recorded(model, BATCHES, epochs=1)
    old = ki.Recording()
    series = run["layer_outputs"]
    values = {key: series.epoch(key)[0] for key in series.statistics}
    old.add_epoch("layer_outputs", 0, series.names, series.shapes, values, quantile_levels=series.quantile_levels)
    kept = run.kept("layer_outputs", 0)
    levels = series.quantile_levels
    old.add_epoch("layer_outputs", 1, series.names, series.shapes, values, quantile_levels=levels, kept=kept)
    with pytest.raises(ValueError, match="earlier version, or by hand, in epoch 0"):
        ki.Recording.merge([old])


def test_a_tensor_named_twice_is_refused():
    with pytest.raises(ValueError, match=r"'a' come twice in \['a', 'b', 'a'\]"):
        ki.Recording().add_epoch("gradients", 0, ["a", "b", "a"], [(1,)] * 3, {"rms": [1, 2, 3]})


def test_merging_needs_no_tensorflow(tmp_path: Path) -> None:
    for i in range(2):
        recorded(model_of(per_step=False), BATCHES[i::2]).save(tmp_path / f"{i}.npz")
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        "from keras_introspect import Recording\n"
        f"runs = [Recording.load(rf'{tmp_path}/{{i}}.npz') for i in range(2)]\n"
        "print(Recording.merge(runs)['layer_outputs'].epoch('quantiles').shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 4, 9)", done.stderr
