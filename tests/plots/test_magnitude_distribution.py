import numpy as np
import pytest

from keras_introspect.plots import magnitude_distribution
from keras_introspect.recording import Recording
from plots.synthetic import LEVELS, synthetic


def test_percentiles_on_a_log_axis_and_the_sign_balance_on_its_own():
    series = synthetic(3, 20)["gradients"].sel("conv_0/kernel")
    ax = magnitude_distribution(series)
    assert ax.get_yscale() == "log"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), series.epoch("magnitude_quantiles")[:, 4])
    (right,) = [other for other in ax.figure.axes if other is not ax]
    np.testing.assert_array_equal(right.lines[0].get_ydata(), series.epoch("sign_balance"))
    assert right.get_ylim() == (-1, 1)
    assert [t.get_text() for t in right.get_yticklabels()] == ["−100 %", "−50 %", "0 %", "+50 %", "+100 %"]


def magnitudes(values, **more):
    recording = Recording()
    for epoch in range(2):
        statistics = {"magnitude_quantiles": [values], **more}
        recording.add_epoch("gradients", epoch, ["a"], [(2, 2)], statistics, quantile_levels=LEVELS)
    return recording["gradients"]


@pytest.mark.parametrize(
    ("zeros", "text"), [(0, "0 %"), (1, "0 % to 12.5 %"), (4, "37.5 % to 50 %"), (8, "87.5 % to 100 %"), (9, "100 %")]
)
def test_the_share_of_zeros_is_written(zeros, text):
    ax = magnitude_distribution(magnitudes([0.0] * zeros + [0.5] * (9 - zeros)))
    assert ax.get_title(loc="left").endswith(f"exactly zero {text}")
    assert ax.figure.axes == [ax]  # no sign balance was collected
    assert (ax.collections[0].get_paths()[0].vertices[:, 1] > 0).all()


def test_the_share_of_zeros_is_exact_where_the_activity_is_known():
    ax = magnitude_distribution(magnitudes([0.0] * 4 + [0.5] * 5, activation_rate=[0.58]))
    assert ax.get_title(loc="left").endswith("exactly zero 42 %")


def test_bands_of_zeros_reach_the_floor():
    ax = magnitude_distribution(magnitudes([0.0] * 4 + [0.5] * 5))
    assert ax.collections[0].get_paths()[0].vertices[:, 1].min() == ax.get_ylim()[0]
