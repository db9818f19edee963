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


def with_places(shape, rates):
    recording = Recording()
    units = {"activation_rate": {"relu": [0.5, 0.0, 0.6, 0.1, 0.2]}, "position_activation_rate": {"relu": rates}}
    recording.add_epoch("layer_outputs", 0, ["relu"], [shape], {"dead_rate": [0.2]}, units=units)
    return recording["layer_outputs"]


@pytest.mark.parametrize("shape", [(None, 3, 4, 5), (None, 5, 3, 4)])
def test_a_map_of_the_places(shape):
    """As the feature map lies, whichever axis holds the channels; dead places have a colour of their own."""
    rates = np.arange(12) / 12
    ax = unit_activity(with_places(shape, rates))
    left, right = ax.figure.axes
    assert left is ax
    (image,) = right.images
    np.testing.assert_allclose(image.get_array(), rates.reshape(3, 4))
    assert right.get_xlabel() == "1 of 12 positions dead (×)\nepoch 0"
    assert image.cmap(image.norm(0.0)) == (1, 1, 1, 1)
    assert image.cmap(image.norm(0.01)) != (1, 1, 1, 1)
    (crosses,) = right.lines
    assert (crosses.get_marker(), crosses.get_xydata().tolist()) == ("x", [[0, 0]])
    assert right.get_xlim() == (-0.5, 3.5)
    ax.figure.draw_without_rendering()
    assert right.get_position().x0 > left.get_position().x1


@pytest.mark.parametrize(("shape", "places"), [((None, 12, 5), 12), ((None, None, None, 5), 12), ((None, 5), 0)])
def test_without_two_axes_of_known_size_there_is_no_map(shape, places):
    ax = unit_activity(with_places(shape, np.ones(places)))
    assert ax.figure.axes == [ax]
