import numpy as np
import pytest

from keras_introspect.plots import update_board
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def labelled(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


@pytest.mark.parametrize("as_series", [False, True])
def test_ratio_and_implicit_rate_of_every_variable(as_series):
    recording = synthetic(6, 20)
    series = recording["updates"]
    model, rate, *small = update_board(series if as_series else recording).axes
    np.testing.assert_allclose(model.lines[0].get_ydata(), np.median(series.epoch("update_ratio"), axis=1))
    np.testing.assert_allclose(rate.lines[0].get_ydata(), 1e-3)
    assert [ax.get_title(loc="left") for ax in small] == list(series.names)
    for i, ax in enumerate(small):
        np.testing.assert_array_equal(labelled(ax, "ratio").get_ydata(), series.epoch("update_ratio")[:, i])
        np.testing.assert_array_equal(labelled(ax, "rate").get_ydata(), np.full(20, 1e-3))
        assert set(labelled(ax, "customary").get_ydata()) == {1e-3}
        assert ax.get_ylim()[0] < 1e-3 < ax.get_ylim()[1]
    assert len({ax.get_ylim() for ax in small}) == 1


def test_without_a_ratio_it_is_taken_from_updates_and_weights():
    recording = Recording()
    for epoch in range(2):
        recording.add_epoch("weights", epoch, ["b", "a"], [(2, 2)] * 2, {"rms": [0.5, 2.0]})
        recording.add_epoch("updates", epoch, ["a", "b", "c"], [(2, 2)] * 3, {"rms": [0.002, 0.0, 1.0]})
    model, first, second, third = update_board(recording).axes
    assert labelled(first, "ratio").get_ydata().tolist() == [0.001, 0.001]
    assert labelled(second, "ratio").get_ydata()[0] == second.get_ylim()[0]  # zero lies on the floor
    assert not np.isfinite(labelled(third, "ratio").get_ydata()).any()
    assert "3 variables" in model.get_title(loc="left")


def test_only_a_kernel_that_jumps_is_red():
    recording = Recording()
    names, shapes = ["a/kernel", "a/bias"], [(4, 4), (4,)]
    recording.add_epoch("updates", 0, names, shapes, {"update_ratio": [0.5, 3.0]})
    kernel, bias = update_board(recording).axes[1:]
    assert kernel.texts[1].get_fontweight() == "bold"
    assert bias.texts[1].get_fontweight() == "normal"


def test_quantiles_of_the_implicit_rate_give_their_median():
    recording = Recording()
    values = {"update_ratio": [1e-3], "implicit_learning_rate": [[1e-4, 1e-3, 1e-2]]}
    recording.add_epoch("updates", 0, ["a"], [(2, 2)], values, quantile_levels=[0, 50, 100])
    assert set(update_board(recording).axes[1].lines[0].get_ydata()) == {1e-3}


def test_updates_are_needed():
    with pytest.raises(ValueError, match=r"needs the view 'updates'.*it has 'weights'\. .*Updates\(\)"):
        update_board(synthetic(2, 2, views=("weights",)))
    with pytest.raises(ValueError, match="'update_ratio'"):
        update_board(synthetic(2, 2)["weights"])


def test_a_legend_names_the_lines_and_bands_as_they_are_drawn():
    figure = update_board(synthetic(6, 20))
    (legend,) = figure.legends
    samples = dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))
    assert list(samples) == ["ratio", "implicit rate", "1e-3, customary", "the middle half", "smallest to largest"]
    panel = figure.axes[2]
    for label, said in (("ratio", "ratio"), ("rate", "implicit rate"), ("customary", "1e-3, customary")):
        drawn = labelled(panel, label)
        assert (drawn.get_color(), drawn.get_linestyle()) == (samples[said].get_color(), samples[said].get_linestyle())
    outer, inner = (area.get_facecolor()[0] for area in figure.axes[0].collections[:2])
    assert tuple(outer) == samples["smallest to largest"].get_facecolor()
    assert tuple(inner) == samples["the middle half"].get_facecolor()


def test_the_legend_holds_what_is_there_and_stays_on_the_page():
    recording = Recording()
    recording.add_epoch("updates", 0, ["a"], [(2, 2)], {"update_ratio": [1e-3]})
    figure = update_board(recording)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ratio", "1e-3, customary"]
    figure.draw_without_rendering()
    assert legend.get_window_extent().x1 <= figure.bbox.x1
