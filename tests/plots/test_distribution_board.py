import numpy as np
import pytest

from keras_introspect.plots import _panels, distribution_board
from plots.synthetic import synthetic


def test_a_panel_a_tensor_below_the_view():
    series = synthetic(6, 20)["gradients"]
    model, stack, *small = distribution_board(series).axes
    medians = series.epoch("magnitude_quantiles")[:, :, 4]
    np.testing.assert_allclose(model.lines[0].get_ydata(), np.median(medians[:, ::2], axis=1))  # of the kernels
    assert len(stack.collections[0].get_paths()) == 6
    assert [ax.get_title(loc="left") for ax in small] == list(series.names)
    for i, ax in enumerate(small):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), medians[:, i])
        assert ax.texts[0].get_text() == ("3×3×32×64" if i % 2 == 0 else "64")
    assert len({ax.get_ylim() for ax in small}) == 1  # magnitudes share an axis
    assert len({ax.get_xlim() for ax in small}) == 1
    assert {ax.get_yscale() for ax in small} == {"log"}


def test_weights_are_drawn_by_value_with_their_reach_written_in():
    series = synthetic(6, 20)["weights"]
    small = distribution_board(series).axes[2:]
    last = series.epoch("quantiles")[-1]
    for i, ax in enumerate(small):
        low, high = ax.get_ylim()
        assert low < series.epoch("quantiles")[:, i].min() < series.epoch("quantiles")[:, i].max() < high
        assert ax.texts[1].get_text() == f"{last[i, 0]:.3g} … {last[i, -1]:.3g}"


def test_the_kind_can_be_chosen():
    axes = distribution_board(synthetic(2, 3)["weights"], kind="magnitude").axes
    assert axes[2].get_yscale() == "log"
    with pytest.raises(ValueError, match="kind='raw'; expected 'value', 'magnitude' or None"):
        distribution_board(synthetic(2, 3)["weights"], kind="raw")


def test_layer_outputs_show_values():
    assert distribution_board(synthetic(2, 3)["layer_outputs"]).axes[2].get_yscale() == "linear"


def test_of_very_many_tensors_kernels_come_first(monkeypatch):
    monkeypatch.setattr(_panels, "MAX_PANELS", 10)
    figure = distribution_board(synthetic(6, 2)["weights"])
    names = [ax.get_title(loc="left") for ax in figure.axes[2:]]
    assert names == [
        *(f"conv_{i}/{kind}" for i in range(4) for kind in ("kernel", "bias")),
        "conv_4/kernel",
        "head/kernel",
    ]
    assert figure.texts[0].get_text().startswith("10 of 12 tensors shown")


def test_many_epochs_keep_the_extremes_of_a_panel():
    series = synthetic(1, 500, seed=1)["weights"]
    ax = distribution_board(series).axes[2]
    outer = ax.collections[0].get_paths()[0].vertices[:, 1]
    quantiles = series.epoch("quantiles")[:, 0]
    assert (outer.min(), outer.max()) == (quantiles.min(), quantiles.max())
    assert len(ax.lines[0].get_ydata()) <= 200


def test_the_bands_are_named():
    texts = [text.get_text() for text in distribution_board(synthetic(6, 20)["weights"]).axes[0].texts]
    assert texts == ["smallest", "25 %", "median", "75 %", "largest"]
