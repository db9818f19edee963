import numpy as np
import pytest

from keras_introspect.plots import training_curves
from keras_introspect.plots._data import number
from keras_introspect.recording import Recording, Series
from plots.synthetic import synthetic


def by_label(ax):
    return {line.get_label(): line for line in ax.lines}


def logs(**series):
    recording = Recording()
    for epoch, values in enumerate(zip(*series.values(), strict=True)):
        recording.add_logs(epoch, dict(zip(series, values, strict=True)))
    return recording


def test_the_logs_are_drawn_and_a_further_axes_holds_the_next_metric():
    recording = synthetic(2, 20)
    ax = training_curves(recording)
    loss, accuracy = ax.figure.axes
    assert loss is ax
    for panel, name in ((loss, "loss"), (accuracy, "accuracy")):
        lines = by_label(panel)
        np.testing.assert_array_equal(lines["training"].get_ydata(), recording.logs[name])
        np.testing.assert_array_equal(lines["validation"].get_ydata(), recording.logs[f"val_{name}"])
        assert panel.get_ylabel().startswith(name)


def test_one_metric_by_name():
    ax = training_curves(synthetic(2, 5), "accuracy")
    assert ax.figure.axes == [ax]
    assert ax.get_ylabel() == "accuracy"


def test_the_collectors_own_logs_are_no_metrics():
    recording = logs(loss=[1.0, 0.5], learning_rate=[0.1, 0.1], **{"gradients/rms": [1.0, 2.0]})
    assert len(training_curves(recording).figure.axes) == 1
    assert training_curves(recording, "gradients/rms").get_ylabel() == "gradients/rms"


def test_a_users_own_logs_are_drawn_with_or_without_a_slash():
    recording = synthetic(2, 5)
    for epoch in range(5):
        own = {"retrieval/recall": 0.1 * epoch, "seconds": 3.0, "learning_rate": 0.1, "val_layer_outputs/rms": 1.0}
        recording.add_logs(epoch, {**{key: values[epoch] for key, values in recording.logs.items()}, **own})
    panels = training_curves(recording).figure.axes
    # what was validated comes first, so that the dashboard's second axes is a metric
    assert [ax.get_ylabel() for ax in panels] == ["loss", "accuracy", "retrieval/recall", "seconds"]
    line = panels[2].lines[0]
    assert line.get_label() == "retrieval/recall"
    np.testing.assert_array_equal(line.get_ydata(), recording.logs["retrieval/recall"])
    assert [text.get_text() for text in panels[2].texts] == ["retrieval/recall"]
    assert line.get_color() != panels[0].lines[0].get_color()


def test_without_validation_every_metric_is_of_the_training():
    for ax in training_curves(logs(loss=[1.0, 0.5], accuracy=[0.1, 0.2])).figure.axes:
        assert [line.get_label() for line in ax.lines] == ["training"]


@pytest.mark.parametrize("key", ["learning_rate", "lr"])
def test_the_learning_rate_is_drawn_where_it_is_asked_for(key):
    recording = logs(loss=[1.0, 0.5, 0.4], **{key: [0.001, 0.1, 0.01]})
    loss, rate = training_curves(recording, ["loss", key]).figure.axes
    (line,) = rate.lines
    assert (line.get_label(), line.get_ydata().tolist()) == (key, [0.001, 0.1, 0.01])
    assert rate.get_yscale() == "log"  # it rises, then falls, over orders of magnitude
    assert rate.get_title(loc="left") == f"{key} 1e-3 → 0.01"
    assert loss.lines[0].get_label() == "training"


def test_metrics_are_chosen_by_globs_and_by_the_keys_of_validation():
    recording = logs(loss=[1.0, 0.5], val_loss=[1.0, 0.6], top_1_accuracy=[0.1, 0.2], top_5_accuracy=[0.2, 0.4])
    axes = training_curves(recording, "*accuracy").figure.axes
    assert [ax.get_ylabel() for ax in axes] == ["top_1_accuracy", "top_5_accuracy"]
    lines = by_label(training_curves(recording, "val_loss"))
    assert list(lines) == ["training", "validation"]
    np.testing.assert_array_equal(lines["validation"].get_ydata(), recording.logs["val_loss"])
    with pytest.raises(ValueError, match=r"Unknown metric: '\*recall'. Expected one of: 'loss', 'top_1_accuracy'"):
        training_curves(recording, "*recall")
    with pytest.raises(ValueError, match="metric of type int; expected names"):
        training_curves(recording, [3])
    with pytest.raises(ValueError, match="no metric to draw; expected some of loss"):
        training_curves(recording, [])


def test_a_metric_that_was_only_validated():
    ax = training_curves(logs(loss=[1.0, 0.5], val_recall=[0.3, 0.6]), "recall")
    assert ax.get_title(loc="left") == "recall validation 0.6, its best"
    assert [text.get_text() for text in ax.texts] == ["validation"]


def test_validation_of_every_second_epoch_is_one_line():
    recording = logs(loss=[4.0, 3.0, 2.0, 1.0], val_loss=[np.nan, 3.5, np.nan, 1.5])
    line = by_label(training_curves(recording))["validation"]
    assert line.get_xdata().tolist() == [1, 3]
    assert line.get_ydata().tolist() == [3.5, 1.5]


def test_a_loss_that_is_not_finite_is_marked_and_said():
    ax = training_curves(logs(loss=[1.0, 0.5, np.nan, np.inf], val_loss=[1.0, 0.6, 0.7, 0.8]))
    assert by_label(ax)["not finite"].get_xdata().tolist() == [2, 3]
    assert ax.get_title(loc="left") == "loss not finite from epoch 2; loss 1 → 0.5"


def test_the_title_says_where_validation_was_best():
    ax = training_curves(logs(loss=[1.0, 0.5, 0.2], val_loss=[1.0, 0.6, 0.7]))
    assert ax.get_title(loc="left") == "loss 1 → 0.2; validation 0.7, best 0.6 in epoch 1"
    ax = training_curves(logs(accuracy=[0.1, 0.5, 0.9], val_accuracy=[0.1, 0.6, 0.5]))
    assert ax.get_title(loc="left") == "accuracy 0.1 → 0.9; validation 0.5, best 0.6 in epoch 1"


def band(ax, label):
    (artist,) = [c for c in ax.collections if c.get_label() == label]
    return artist.get_paths()[0].vertices


def test_bands_come_from_the_batches_own_values():
    recording = synthetic(2, 10, steps=50)
    ax = training_curves(recording, "loss")
    batches = recording["metrics"].step("loss").reshape(10, 50)
    np.testing.assert_allclose(by_label(ax)["training"].get_ydata(), np.median(batches, axis=1))
    np.testing.assert_allclose(band(ax, "min-max")[:, 1].max(), batches.max())
    quartiles = np.percentile(batches, [25, 75], axis=1)
    np.testing.assert_allclose(band(ax, "25-75 %")[:, 1].max(), quartiles.max())
    steps = by_label(ax)["each step"]
    np.testing.assert_array_equal(steps.get_ydata(), batches.ravel())
    x = steps.get_xdata()
    assert (x[0], x[-1]) == (pytest.approx(-0.49), pytest.approx(9.49))
    assert (np.round(x) == np.repeat(np.arange(10), 50)).all()
    left, right = ax.get_xlim()
    assert left <= x[0]  # the first steps, in which a training may diverge, are in the picture
    assert right >= x[-1]
    assert ax.get_ylabel().startswith("loss, median batch")
    first, last = recording.logs["loss"][[0, -1]]
    assert ax.get_title(loc="left").startswith(f"loss {number(first)} → {number(last)}")


def test_quantiles_of_the_epoch_are_taken_where_they_were_kept():
    recording = Recording()
    for epoch in range(3):
        recording.add_logs(epoch, {"loss": 1.0})
        values = {"loss": [[0.1, 0.5, 0.9 + epoch, 1.5, 4.0]]}
        recording.add_epoch("metrics", epoch, ["metrics"], [()], values, quantile_levels=[0, 25, 50, 75, 100])
    ax = training_curves(recording)
    assert by_label(ax)["training"].get_ydata().tolist() == [0.9, 1.9, 2.9]
    assert band(ax, "min-max")[:, 1].max() == 4.0


def test_a_series_of_one_tensor_serves_as_well(monkeypatch):
    recording = synthetic(2, 4, steps=10)
    single = recording["metrics"].sel("metrics")
    assert single.step("loss").shape == (40,)
    monkeypatch.setattr(Recording, "__getitem__", lambda self, view: single)
    assert len(by_label(training_curves(recording, "loss"))["each step"].get_ydata()) == 40
    assert isinstance(single, Series)


def test_a_long_step_series_keeps_its_spikes():
    recording = logs(loss=[1.0, 1.0])
    values = np.ones(100_000)
    values[[12_345, 67_890]] = 50.0, -3.0
    recording.add_steps("metrics", np.arange(100_000), ["metrics"], [()], {"loss": values[:, None]})
    steps = by_label(training_curves(recording))["each step"].get_ydata()
    assert len(steps) <= 2000
    assert (steps.max(), steps.min()) == (50.0, -3.0)


def test_epochs_can_be_chosen():
    recording = synthetic(2, 10, steps=50)
    lines = by_label(training_curves(recording, "loss", iterations=range(4, 7)))
    assert lines["training"].get_xdata().tolist() == [4, 5, 6]
    assert len(lines["each step"].get_ydata()) == 150


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match=r"Unknown metric: 'acuracy'.*Did you mean 'accuracy'"):
        training_curves(synthetic(2, 2), "acuracy")


def test_a_recording_without_any_loss_says_what_is_missing():
    recording = Recording()
    recording.add_epoch("weights", 0, ["a"], [(2, 2)], {"rms": [1.0]})
    with pytest.raises(ValueError, match="neither logs nor the view 'metrics'"):
        training_curves(recording)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("accuracy", [1.0, 0.61, 0.0], "validation 0, best 1 in epoch 0"),  # the training falls, too
        ("accuracy", [0.561, 0.439, 0.5], "validation 0.5, best 0.561 in epoch 0"),
        ("mae", [0.1, 0.4, 0.9], "validation 0.9, best 0.1 in epoch 0"),  # the training rises, too
        ("head_top_5_error", [0.1, 0.4, 0.05], "validation 0.05, its best"),
        ("accuracy", [0.5, 0.4, 0.5], "validation 0.5, its best"),
        ("temperature", [1.0, 0.61, 0.0], "validation 0"),  # who knows
    ],
)
def test_what_is_best_is_told_by_the_name_of_the_metric_not_by_the_trend(name, values, said):
    ax = training_curves(logs(**{name: values, f"val_{name}": values}))
    assert ax.get_title(loc="left").split("; ")[1] == said


def test_an_accuracy_that_collapses_is_not_drawn_on_a_log_axis():
    values = [0.9, 0.01, 0.001]
    assert training_curves(logs(accuracy=values)).get_yscale() == "linear"
    assert training_curves(logs(mae=values)).get_yscale() == "log"


def test_metrics_that_are_no_names_are_refused():
    with pytest.raises(ValueError, match="metric of type int; expected names"):
        training_curves(logs(loss=[1.0]), 3)
