"""What TensorBoard's own reader finds in the logs."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
from keras_introspect.callbacks.tensorboard import IntrospectionTensorBoard, buckets
from keras_introspect.recording import Recording

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder: Path) -> Any:
    everything = {event_accumulator.TENSORS: 0, event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0}
    return event_accumulator.EventAccumulator(str(folder), size_guidance=everything).Reload()


def values(reader: Any, tag: str) -> dict[int, np.ndarray]:
    from tensorboard.util import tensor_util

    return {event.step: tensor_util.make_ndarray(event.tensor_proto) for event in reader.Tensors(tag)}


def plugin(reader: Any, tag: str) -> str:
    return str(reader.SummaryMetadata(tag).plugin_data.plugin_name)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Path]:
    """A model fitted in two calls, with quantiles, beside Keras's own callback in the same folder."""
    folder = tmp_path_factory.mktemp("logs")
    relu = keras.layers.Dense(8, "relu", name="hidden")
    model = ki.IntrospectiveSequential([keras.Input((4,)), relu, keras.layers.Dense(1, name="head")])
    collectors = [ki.Gradients(), ki.LayerOutputs(), ki.Weights(), ki.Updates()]
    model.compile("sgd", "mse", collectors=collectors, run_eagerly=True)
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    for first, last in ((0, 2), (2, 3)):
        callbacks = [IntrospectionTensorBoard(folder), keras.callbacks.TensorBoard(folder)]
        model.fit(x, x[:, :1], initial_epoch=first, epochs=last, verbose=0, callbacks=callbacks)
    return model.recording, folder


def test_every_scalar_is_there_with_its_value(run: tuple[Recording, Path]) -> None:
    recording, folder = run
    reader = read(folder / "introspection" / "train")
    found = 0
    for view, series in recording.items():
        for statistic in ("rms", "mean", "std", "nonfinite", "dead_rate", "update_ratio"):
            if statistic not in series.statistics:
                continue
            for i, name in enumerate(series.names):
                written = values(reader, f"{view}/{statistic}/{name}")
                expected = series.epoch(statistic)[:, i]
                seen = ~np.isnan(expected)
                assert list(written) == list(series.epochs[seen])
                np.testing.assert_array_equal(list(written.values()), expected[seen].astype(np.float32))
                assert plugin(reader, f"{view}/{statistic}/{name}") == "scalars"
                found += 1
    assert found > 40
    name = recording["gradients"].names[0]
    assert values(reader, f"gradients/rms/{name}").keys() == {0, 1, 2}


def test_histograms_have_the_quantiles_for_edges(run: tuple[Recording, Path]) -> None:
    recording, folder = run
    reader = read(folder / "introspection" / "train")
    found = 0
    for view, series in recording.items():
        if "quantiles" not in series.statistics:
            continue
        for i, name in enumerate(series.names):
            quantiles = series.epoch("quantiles")[-1, i]
            written = values(reader, f"{view}/{name}")[2]
            assert plugin(reader, f"{view}/{name}") == "histograms"
            assert written.shape == (len(quantiles) - 1, 3)
            span = quantiles[-1] - quantiles[0]
            np.testing.assert_allclose(written[:, 0], quantiles[:-1], atol=1e-3 * span)
            np.testing.assert_allclose(written[:, 1], quantiles[1:], atol=1e-3 * span)
            np.testing.assert_allclose(written[:, 2].sum(), series.epoch("count")[-1, i])
            found += 1
    assert found > 0, "no view has quantiles"


def test_kerass_own_logs_stand_beside_it_undisturbed(run: tuple[Recording, Path]) -> None:
    _, folder = run
    assert {"train", "introspection"} <= {entry.name for entry in folder.iterdir()}
    keras_run = read(folder / "train")
    assert "epoch_loss" in keras_run.Tags()["tensors"]
    # Keras writes our summary keys of the logs too; the tensors are ours alone.
    assert not any("hidden/kernel" in tag for tag in keras_run.Tags()["tensors"])


class Watched(IntrospectionTensorBoard):
    """Reads a recording that the test made."""

    def __init__(self, recording: Recording, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.made = recording

    @property
    def recording(self) -> Recording:
        return self.made


def test_validation_is_a_run_of_its_own_with_the_same_tags(tmp_path: Path) -> None:
    recording = Recording()
    for view, rms in (("layer_outputs", 1.0), ("val_layer_outputs", 2.0)):
        recording.add_epoch(view, 4, ["a", "b:1"], [(None, 2)] * 2, {"rms": [rms, np.nan]})
    recording.add_steps("metrics", [0], ["metrics"], [()], {"loss": [[1.0]]})
    callback = Watched(recording, tmp_path, steps=None)
    callback.on_epoch_end(4)
    callback.on_train_end()
    for name, rms in (("train", 1.0), ("validation", 2.0)):
        reader = read(tmp_path / "introspection" / name)
        assert reader.Tags()["tensors"] == ["layer_outputs/rms/a"]  # and nothing for what was not observed
        assert values(reader, "layer_outputs/rms/a") == {4: rms}


def in_steps(folder: Path, steps: Any = "metrics") -> tuple[Recording, Any]:
    """A model fitted in two calls with each step recorded; the second goes on in the same folder."""
    model = ki.IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(1, name="head")])
    collectors = [ki.StepMetrics(), ki.Gradients(["moments", "quantiles"], per_step=True)]
    model.compile("sgd", "mse", metrics=["mae"], collectors=collectors, run_eagerly=True)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    for first, last in ((0, 2), (2, 3)):
        callback = IntrospectionTensorBoard(folder, steps=steps)
        model.fit(x, x[:, :1], batch_size=8, initial_epoch=first, epochs=last, verbose=0, callbacks=[callback])
    return model.recording, read(folder / "introspection" / "train")


def by_step(reader: Any) -> set[str]:
    return {tag for tag in reader.Tags()["tensors"] if "_by_step/" in tag}


def test_what_was_measured_of_the_batches_is_written_by_step(tmp_path: Path) -> None:
    recording, reader = in_steps(tmp_path)
    names = {"loss", "mae", "learning_rate", "gradient_norm"}
    assert by_step(reader) == {f"metrics_by_step/{name}" for name in names}
    for name in names:
        tag = f"metrics_by_step/{name}"
        assert [event.step for event in reader.Tensors(tag)] == list(range(12))  # each once, over both calls of fit
        expected = recording["metrics"].step(name).astype(np.float32)
        np.testing.assert_array_equal(list(values(reader, tag).values()), expected)
        assert plugin(reader, tag) == "scalars"


def test_steps_of_tensors_are_written_where_asked_for(tmp_path: Path) -> None:
    recording, reader = in_steps(tmp_path, "all")
    gradients = recording["gradients"]
    assert {f"gradients_by_step/rms/{name}" for name in gradients.names} <= by_step(reader)
    assert not any("max" in tag or "quantiles" in tag for tag in by_step(reader))  # as of the epochs: what tells most
    for i, name in enumerate(gradients.names):
        written = values(reader, f"gradients_by_step/rms/{name}")
        assert list(written) == gradients.steps.tolist() == list(range(12))
        np.testing.assert_array_equal(list(written.values()), gradients.step("rms")[:, i].astype(np.float32))


def test_steps_that_are_missing_or_not_wanted_are_not_written(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_epoch("weights", 0, ["a"], [(2,)], {"rms": [1.0]})
    recording.add_steps("metrics", [0, 1, 2], ["metrics"], [()], {"loss": [[1.0], [np.nan], [np.inf]]})
    for steps, expected in (("metrics", {0: 1.0, 2: np.inf}), (None, None)):
        folder = tmp_path / str(steps)
        callback = Watched(recording, folder, steps=steps)
        callback.on_epoch_end(0)
        callback.on_train_end()
        reader = read(folder / "introspection" / "train")
        assert by_step(reader) == ({"metrics_by_step/loss"} if expected else set())
        if expected:
            assert values(reader, "metrics_by_step/loss") == expected
    with pytest.raises(ValueError, match="got steps='some'; expected 'metrics', 'all' or None"):
        IntrospectionTensorBoard(tmp_path, steps="some")  # type: ignore[arg-type]


def test_chosen_statistics_and_layers(tmp_path: Path) -> None:
    recording = Recording()
    statistics = {"rms": [1.0, 2.0], "max": [3.0, 4.0], "quantiles": [[0.0, 1.0], [0.0, 2.0]]}
    recording.add_epoch("weights", 0, ["a/kernel", "a/bias"], [(2,)] * 2, statistics, quantile_levels=[0, 100])

    def tags(**keywords: Any) -> set[str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        callback = Watched(recording, folder, **keywords)
        callback.on_epoch_end(0)
        callback.on_train_end()
        return set(read(folder / "introspection" / "train").Tags()["tensors"])

    assert tags() == {"weights/rms/a/kernel", "weights/rms/a/bias", "weights/a/kernel", "weights/a/bias"}
    assert tags(statistics="m*", layers="*/kernel", histograms=False) == {"weights/max/a/kernel"}
    assert tags(statistics="all", layers=["a/bias"]) == {"weights/rms/a/bias", "weights/max/a/bias", "weights/a/bias"}


def test_buckets_keep_a_width_where_values_pile_up() -> None:
    """Behind a ReLU half of the values are zero: a bucket of no width would be divided by."""
    made = buckets(np.array([0.0, 0.0, 0.0, 1.0, 2.0]), np.array([0.0, 25.0, 50.0, 75.0, 100.0]), 8)
    assert (made[:, 1] > made[:, 0]).all()
    np.testing.assert_array_equal(made[1:, 0], made[:-1, 1])
    np.testing.assert_allclose(made[:, 1], [0, 0, 1, 2], atol=1e-3)
    assert made[:, 2].tolist() == [2, 2, 2, 2]
    alike = buckets(np.full(3, 0.5), np.array([0.0, 50.0, 100.0]), 4)
    assert alike.tolist() == [[0.5, 0.5, 2.0], [0.5, 0.5, 2.0]]  # as TensorBoard itself writes it


def test_a_write_that_fails_warns_once_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file stands where the folder would have to")
    model = ki.IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", collectors="economy", run_eagerly=True)
    callback = IntrospectionTensorBoard(tmp_path / "file")
    with pytest.warns(UserWarning, match="IntrospectionTensorBoard cannot write to") as told:
        model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=3, verbose=0, callbacks=[callback])
    assert len(told) == 1
    assert len(model.recording.epochs) == 3
