import numpy as np
import pytest

from keras_introspect.plots import value_distribution
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def test_nested_bands_around_the_median():
    series = synthetic(3, 20)["weights"]
    quantiles = series.sel("conv_0/kernel").epoch("quantiles")
    ax = value_distribution(series, layers="conv_0/kernel")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), quantiles[:, 4])
    assert len(ax.collections) == 4
    for i, band in enumerate(ax.collections):
        heights = band.get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max()) == (quantiles[:, i].min(), quantiles[:, -1 - i].max())
    grey = ax.collections[0].get_facecolor()[0, :3]
    assert np.ptp(grey) < 0.01
    names = {text.get_text() for text in ax.texts}
    assert {"minimum", "median", "maximum", "25 %", "75 %"} <= names


def test_a_selected_series_needs_no_name():
    ax = value_distribution(synthetic(3, 2)["weights"].sel("head/bias"))
    assert ax.get_title(loc="left").startswith("head/bias 64: median 0, half within -0.0")


def test_an_even_number_of_levels_has_a_median_between():
    recording = Recording()
    for epoch in range(2):
        values = {"quantiles": [[-2.0, -1.0, 3.0, 4.0]]}
        recording.add_epoch("weights", epoch, ["a"], [(2, 2)], values, quantile_levels=[0, 25, 75, 100])
    assert value_distribution(recording["weights"]).lines[0].get_ydata().tolist() == [1.0, 1.0]


def test_more_than_one_tensor_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"draws one tensor, got 6.*layers='conv_0/kernel'.*distribution_board"):
        value_distribution(synthetic(3, 2)["weights"])


def test_quantiles_are_needed():
    series = synthetic(3, 2)["weights"]
    series.quantile_levels = None
    with pytest.raises(ValueError, match="no quantile_levels"):
        value_distribution(series, layers="head/bias")
