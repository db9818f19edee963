import numpy as np
import pytest

from keras_introspect.plots import _panels, activity_board
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_a_panel_a_layer_with_both_rates():
    series = synthetic(6, 20, sick=True)["layer_outputs"]
    model, *small = activity_board(series).axes
    assert [ax.get_title(loc="left") for ax in small] == list(series.names)
    for i, ax in enumerate(small):
        active, dead = ax.lines[:2]
        np.testing.assert_array_equal(active.get_ydata(), series.epoch("activation_rate")[:, i])
        np.testing.assert_array_equal(dead.get_ydata(), series.epoch("dead_rate")[:, i])
        assert ax.get_ylim() == (0, 1)
    assert texts(small[1]) == ["14×14×64", "dead 90 %"]
    assert len(small[1].lines) == 3  # the spatial dead rate too
    np.testing.assert_allclose(model.lines[0].get_ydata(), series.epoch("activation_rate").mean(axis=1))
    np.testing.assert_array_equal(model.lines[1].get_ydata(), series.epoch("dead_rate").max(axis=1))
    assert model.get_title(loc="left") == "layer_outputs: 6 tensors, worst dead rate 90 % (conv_1)"


def test_a_layer_that_was_not_observed_says_so():
    recording = Recording()
    values = {"activation_rate": [0.5, np.nan], "dead_rate": [0.0, np.nan]}
    recording.add_epoch("layer_outputs", 0, ["a", "b"], [(None, 4)] * 2, values)
    small = activity_board(recording["layer_outputs"]).axes[1:]
    assert texts(small[0])[:2] == ["4", "dead 0 %"]
    assert "not observed" in texts(small[1])


@pytest.mark.parametrize("view", ["weights", "gradients", "updates", "output_gradients"])
def test_what_is_no_layer_output_is_neither_active_nor_dead(view):
    recording = Recording()
    values = {"activation_rate": [0.9, 0.5], "dead_rate": [0.0, 0.5]}
    recording.add_epoch(view, 0, ["a/kernel", "b/kernel"], [(4, 4)] * 2, values)
    figure = activity_board(recording[view])
    model, _, second = figure.axes
    assert model.get_title(loc="left") == f"{view}: 2 tensors, channels that are all zero: at most 50 % (b/kernel)"
    assert texts(model) == ["not 0, mean", "all 0, worst"]
    assert texts(second)[:2] == ["4×4", "all zero 50 %"]
    assert second.texts[1].get_fontweight() == ("normal" if view == "weights" else "bold")
    said = " ".join(text.get_text() for ax in figure.axes for text in [*ax.texts, ax.title, ax._left_title])
    assert not {"active", "dead"} & set(said.replace(",", "").split())


def test_only_so_many_panels_and_the_figure_says_it(monkeypatch):
    monkeypatch.setattr(_panels, "MAX_PANELS", 8)
    names = [f"layer_{i}" for i in range(9)]
    recording = Recording()
    values = {"activation_rate": np.full(9, 0.5), "dead_rate": np.zeros(9)}
    recording.add_epoch("layer_outputs", 0, names, [(None, 4)] * 9, values)
    figure = activity_board(recording["layer_outputs"])
    assert len(figure.axes) == 1 + 8
    assert figure.texts[0].get_text() == "8 of 9 tensors shown; choose others with layers="


def test_activity_is_needed():
    with pytest.raises(ValueError, match=r"'activation_rate'.*statistics=\[\"activity\""):
        activity_board(synthetic(2, 2)["gradients"])


@pytest.mark.parametrize("sick", [True, False])
def test_the_dotted_line_of_dead_places_is_named_where_there_is_one(sick):
    figure = activity_board(synthetic(6, 20, sick=sick)["layer_outputs"])
    texts = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert texts == (["in the panels: dead places"] if sick else [])
