import numpy as np

from keras_introspect.plots import scale_lines
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def test_a_line_an_epoch_over_the_layers():
    series = synthetic(6, 20)["layer_outputs"]
    ax = scale_lines(series)
    assert [line.get_label() for line in ax.lines] == [f"epoch {e}" for e in (0, 5, 10, 14, 19)]
    for line, row in zip(ax.lines, (0, 5, 10, 14, 19), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), series.epoch("rms")[row])
    assert ax.get_yscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == list(series.names)


def test_epochs_can_be_chosen():
    ax = scale_lines(synthetic(6, 20)["layer_outputs"], iterations=[3, 4])
    assert [line.get_label() for line in ax.lines] == ["epoch 3", "epoch 4"]


def test_zeros_lie_on_the_floor():
    recording = Recording()
    recording.add_epoch("gradients", 0, ["a", "b"], [(2, 2)] * 2, {"rms": [0.0, 1.0]})
    ax = scale_lines(recording["gradients"])
    assert ax.lines[0].get_ydata()[0] == ax.get_ylim()[0] > 0


def test_many_layers_are_numbered_and_the_ends_named():
    ax = scale_lines(synthetic(160, 2)["layer_outputs"])
    assert len(ax.get_xticks()) == 6
    assert ax.get_xlabel().endswith("to head (159)")


def test_the_title_says_how_far_first_and_last_are_apart():
    recording = Recording()
    recording.add_epoch("gradients", 0, ["a", "b", "c"], [(2, 2)] * 3, {"rms": [1e-4, 0.01, 0.1]})
    assert scale_lines(recording["gradients"]).get_title(loc="left") == "first/last layer 1e-3, spread ×1,000"
