import numpy as np
import pytest

from keras_introspect.plots import unit_activity
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def test_channels_are_sorted_by_rate_for_a_few_epochs():
    series = synthetic(3, 20)["layer_outputs"]
    ax = unit_activity(series, layers="conv_1")
    rates = series.unit("activation_rate")["conv_1"]
    assert [line.get_label() for line in ax.lines] == ["epoch 0", "epoch 10", "epoch 19"]
    for line, row in zip(ax.lines, (0, 10, 19), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), np.sort(rates[row]))


def test_dead_channels_are_counted_and_shaded():
    recording = Recording()
    rates = {"activation_rate": {"relu": [0.5, 0.0, 0.6, 0.0]}}
    recording.add_epoch("layer_outputs", 0, ["relu"], [(None, 4)], {"dead_rate": [0.5]}, units=rates)
    ax = unit_activity(recording["layer_outputs"])
    assert ax.get_title(loc="left") == "relu: 2 of 4 channels dead (50 %), median rate 25 %"
    (shade,) = ax.patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == (-0.5, 1.5)


def test_unit_series_are_needed():
    series = synthetic(3, 2)["gradients"]
    with pytest.raises(ValueError, match='need the statistic "per_unit"'):
        unit_activity(series, layers="head/kernel")


def test_a_layer_without_channels_is_named():
    recording = Recording()
    rates = {"activation_rate": {"relu": [0.5]}}
    recording.add_epoch("layer_outputs", 0, ["relu", "head"], [(None, 1)] * 2, {"dead_rate": [0, 0]}, units=rates)
    with pytest.raises(ValueError, match=r"'head'.*'relu'"):
        unit_activity(recording["layer_outputs"], layers="head")
