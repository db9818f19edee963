"""What a picture tells apart by colour stays apart in grey and for the colour-blind, or has another mark.

The colours are read from what was drawn. `FAR`: six times what can just be seen. `GREY`: in print, of two areas that
border on each other.
"""

import itertools

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from keras_introspect import plots
from keras_introspect.plots import _draw
from keras_introspect.plots._panels import Panel
from keras_introspect.plots.dashboard import _MARKS
from keras_introspect.recording import Recording
from plots.colours import VISIONS, difference, lab, over, seen_by
from plots.synthetic import synthetic

FAR = 15.0
GREY = 8.0


def least(vision):
    return GREY if vision == "grey" else FAR


def fills(ax):
    """The colours of the areas, in the order in which they were drawn."""
    areas = [artist for artist in ax.collections if isinstance(artist, PolyCollection)]
    return list(dict.fromkeys(to_hex(colour) for artist in areas for colour in artist.get_facecolors()))


def test_the_simulations_are_what_was_published():
    red, green, white = np.eye(3)[0], np.eye(3)[1], np.ones(3)
    np.testing.assert_allclose(lab(white), (100, 0, 0), atol=0.01)
    np.testing.assert_allclose(lab(red), (53.24, 80.09, 67.20), atol=0.05)
    greys = np.repeat(np.linspace(0, 1, 5)[:, None], 3, axis=1)
    for vision in VISIONS:
        np.testing.assert_allclose(seen_by(vision, greys), greys, atol=2e-3)  # what has no colour stays as it is
    for vision in ("protanopia", "deuteranopia"):
        assert difference(vision, red, green) < 0.5 * difference("normal", red, green)
        assert difference(vision, "#0000ff", "#ffff00") > 0.5 * difference("normal", "#0000ff", "#ffff00")
    assert difference("tritanopia", "#0080ff", "#00c080") < 0.5 * difference("normal", "#0080ff", "#00c080")
    assert np.ptp(seen_by("grey", red)) == 0


def test_a_palette_of_red_and_green_would_fail():
    """What this file asks is not granted to every pair of colours."""
    assert difference("deuteranopia", "#b04040", "#60762a") < FAR < difference("normal", "#b04040", "#60762a")
    assert difference("grey", _draw.BLUE, _draw.RED) < GREY


@pytest.mark.parametrize("vision", VISIONS)
def test_nested_bands_differ_from_the_page_inwards(vision):
    series = synthetic(1, 20)["weights"].sel("head/kernel")
    ax = plots.value_distribution(series)
    colours = ["white", *fills(ax), ax.lines[0].get_color()]
    assert len(colours) == 6
    assert min(difference(vision, a, b) for a, b in itertools.pairwise(colours)) > GREY
    panel = plots.distribution_board(synthetic(2, 20)["weights"]).axes[2]
    colours = ["white", *fills(panel), panel.lines[0].get_color()]
    assert len(colours) == 4
    assert min(difference(vision, a, b) for a, b in itertools.pairwise(colours)) > GREY


@pytest.mark.parametrize("vision", VISIONS)
def test_neighbours_in_the_stack_differ(vision):
    first, second = fills(plots.scale_stack(synthetic(6, 20)["layer_outputs"]))
    assert difference(vision, first, second) > 2 * FAR
    assert difference(vision, "white", second) > GREY


@pytest.mark.parametrize("vision", VISIONS)
def test_active_dead_and_the_page_differ(vision):
    figure = plots.activity_board(synthetic(6, 20, sick=True)["layer_outputs"])
    panels = [ax for ax in figure.axes if isinstance(ax, Panel)]
    active, dead = fills(panels[1])
    for first, second in itertools.combinations((active, dead, "white"), 2):
        assert difference(vision, first, second) > least(vision)
    top = figure.axes[0]  # a line in its area; the areas overlap, the lines are named at their ends
    for line in top.lines:
        for area in (fills(top)[0], "white"):
            assert difference(vision, line.get_color(), area) > least(vision)
    assert len({line.get_linewidth() for line in top.lines}) == 2
    assert [text.get_text() for text in top.texts] == ["active, mean", "dead, worst"]


def lines_of(name):
    """The lines of one picture that cross each other, each with what tells it apart besides its colour."""
    recording = synthetic(6, 20, steps=5, phases=True)
    ax = {
        "training_curves": lambda: plots.training_curves(recording, "loss"),
        "phase_gap": lambda: plots.phase_gap(recording).axes[0],
        "update_board": lambda: plots.update_board(recording).axes[2],
        "scale_lines": lambda: plots.scale_lines(recording["layer_outputs"]),
        "unit_activity": lambda: plots.unit_activity(recording["layer_outputs"], layers="conv_1"),
        "comparison": lambda: plots.comparison([synthetic(3, 9, seed=i) for i in range(5)]).axes[0],
    }[name]()
    # of the steps beneath the curve there is one line, thin and without points
    return [(line.get_color(), (line.get_linestyle(), line._dash_pattern, line.get_marker())) for line in ax.lines]


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    "name", ["training_curves", "phase_gap", "update_board", "scale_lines", "unit_activity", "comparison"]
)
def test_lines_differ_by_colour_or_by_dashes(name, vision):
    lines = lines_of(name)
    assert len(lines) > 1
    for (first, mark), (second, other) in itertools.combinations(lines, 2):
        assert str(mark) != str(other) or difference(vision, first, second) > least(vision), (first, second)


@pytest.mark.parametrize("vision", VISIONS)
def test_lines_are_seen_on_the_page(vision):
    for name in ("training_curves", "phase_gap", "update_board", "scale_lines", "comparison"):
        for colour, _ in lines_of(name):
            assert difference(vision, colour, "white") > FAR, name


@pytest.mark.parametrize("vision", VISIONS)
def test_places_that_were_never_active_are_none_of_the_maps_colours(vision):
    recording = Recording()
    units = {"activation_rate": {"relu": [0.5]}, "position_activation_rate": {"relu": np.arange(12) / 11}}
    recording.add_epoch("layer_outputs", 0, ["relu"], [(None, 3, 4, 1)], {"dead_rate": [0.0]}, units=units)
    right = plots.unit_activity(recording["layer_outputs"]).figure.axes[1]
    (image,) = right.images
    shown = image.cmap(np.linspace(0, 1, 64))[:, :3]
    never = image.cmap(image.norm(0.0))[:3]
    assert min(difference(vision, colour, never) for colour in shown) > least(vision)
    assert difference(vision, right.lines[0].get_color(), never) > FAR  # the cross in it
    lightness = lab(seen_by("grey", shown))[:, 0]
    assert (np.diff(lightness) > 0).all()  # in grey, too, brighter is more active


@pytest.mark.parametrize("vision", VISIONS)
def test_dead_channels_are_shaded_visibly(vision):
    recording = Recording()
    units = {"activation_rate": {"relu": [0.0, 0.5]}}
    recording.add_epoch("layer_outputs", 0, ["relu"], [(None, 2)], {"dead_rate": [0.5]}, units=units)
    (shade,) = plots.unit_activity(recording["layer_outputs"]).patches
    assert difference(vision, over(shade.get_facecolor(), "white", shade.get_alpha()), "white") > least(vision)


@pytest.mark.parametrize("vision", VISIONS)
def test_what_is_red_for_a_reason_differs_from_ink_and_is_bold(vision):
    figure = plots.dashboard(synthetic(6, 20, sick=True))
    titles = {(t.get_color(), t.get_fontweight()) for t in (ax._left_title for ax in figure.axes) if t.get_text()}
    assert titles == {(_draw.RED, "bold"), (_draw.INK, "normal")}
    assert difference(vision, _draw.RED, _draw.INK) > FAR
    marks = [text.get_text() for ax in figure.axes for text in ax.texts if text.get_text() in "■▲○"]
    assert "■" in marks
    assert len({mark for mark, _ in _MARKS.values()}) == len(_MARKS)  # a severity has a shape, not a colour alone
