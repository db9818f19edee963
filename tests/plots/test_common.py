"""What all pictures have in common: what they take, what they refuse, and what they leave alone."""

import io
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from keras_introspect import plots
from keras_introspect.plots import _draw
from keras_introspect.plots._panels import Panel
from keras_introspect.plots.comparison import _STYLES
from keras_introspect.recording import Recording, Series
from plots.cases import AXES, BOARDS, OF_ONE_TENSOR, OF_RECORDING, VIEW, argument, draw
from plots.synthetic import VIEWS, synthetic

SIZES = [(1, 1), (1, 20), (2, 3), (6, 1), (6, 20)]


def render(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


@pytest.mark.parametrize("name", AXES)
def test_axes_level_pictures_draw_into_the_axes_given_and_return_it(name):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert draw(name, synthetic(), ax=left) is left
    assert left.has_data()
    assert not right.has_data()


@pytest.mark.parametrize("name", AXES)
def test_axes_level_pictures_make_an_axes_of_their_own(name):
    ax = draw(name, synthetic())
    assert isinstance(ax, Axes)
    assert render(ax.figure)


@pytest.mark.parametrize("name", BOARDS)
def test_boards_return_their_figure_in_the_size_asked_for(name):
    figure = draw(name, synthetic(), figsize=(9.0, 7.0))
    assert isinstance(figure, Figure)
    assert figure.get_size_inches().tolist() == [9.0, 7.0]


@pytest.mark.parametrize("sick", [False, True])
@pytest.mark.parametrize(("layers", "epochs"), SIZES)
@pytest.mark.parametrize("name", plots.__all__)
def test_every_size_is_drawn_without_a_warning(name, layers, epochs, sick):
    drawn = draw(name, synthetic(layers, epochs, sick=sick, steps=5, gaps=epochs > 3))
    assert render(drawn if isinstance(drawn, Figure) else drawn.figure)


@pytest.mark.parametrize("name", plots.__all__)
def test_values_that_are_all_missing_or_zero_are_drawn_without_a_warning(name):
    for fill in (np.nan, 0.0, np.inf):
        recording, model = Recording(), synthetic(2, 2)
        for epoch in range(2):
            recording.add_logs(epoch, {"loss": fill})
            for view, series in model.items():
                values = {key: np.full_like(series.epoch(key)[epoch], fill) for key in series.statistics}
                units = {
                    key: {n: np.full(v.shape[1], fill) for n, v in series.unit(key).items()}
                    for key in series.unit_statistics
                }
                recording.add_epoch(view, epoch, series.names, series.shapes, values, units, series.quantile_levels)
        drawn = draw(name, recording)
        assert render(drawn if isinstance(drawn, Figure) else drawn.figure)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in BOARDS and n != "dashboard" else n for n in plots.__all__]
)
def test_a_large_run_stays_small(name):
    drawn = draw(name, large())
    figure = drawn if isinstance(drawn, Figure) else drawn.figure
    assert len(render(figure)) < 3_000_000
    # What takes the time: an axes with ticks takes three times that of a panel.
    assert sum(not isinstance(ax, Panel) for ax in figure.axes) < 20
    assert max(figure.get_size_inches()) < 30


def large(made: list[Recording] = []) -> Recording:  # noqa: B006
    if not made:
        made.append(synthetic(160, 500, sick=True))
    return made[0]


@pytest.mark.parametrize("name", plots.__all__)
@pytest.mark.parametrize("wrong", [None, 3, {"loss": [1.0]}, "run.npz", np.zeros(3)])
def test_other_input_is_refused(name, wrong):
    with pytest.raises(ValueError, match=rf"{name}\(\).*expected"):
        getattr(plots, name)(wrong)


@pytest.mark.parametrize("name", plots.__all__)
def test_recording_and_series_are_not_mixed_up(name):
    recording = synthetic(2, 2)
    with pytest.raises(ValueError, match=rf"{name}\(\)"):
        getattr(plots, name)(
            recording["weights"]
            if name in OF_RECORDING - {"update_board"}
            else recording
            if name not in OF_RECORDING
            else 1
        )


@pytest.mark.parametrize("name", sorted(set(plots.__all__) - OF_RECORDING))
def test_of_a_recording_that_has_views_one_is_proposed(name):
    recording = synthetic(2, 2)
    with pytest.raises(ValueError, match=rf"got a Recording; expected a Series.*such as {name}\(recording") as caught:
        getattr(plots, name)(recording)
    view = str(caught.value).split('["')[1].split('"]')[0]
    series = recording[view]
    getattr(plots, name)(series.sel(series.names[0]) if name in OF_ONE_TENSOR else series)  # what it proposes works


@pytest.mark.parametrize("steps_only", [False, True])
@pytest.mark.parametrize("name", sorted(set(plots.__all__) - (OF_RECORDING - {"phase_gap", "update_board"})))
def test_a_recording_of_batches_alone_has_no_tensors_to_draw(name, steps_only):
    """What there is, what was expected, how to mend it: whether the recording comes or its only view."""
    recording = synthetic(2, 2, views=(), steps=5)
    if not steps_only:
        recording.add_epoch("metrics", 0, ["metrics"], [()], {"loss": [0.5]})
    if name in ("phase_gap", "update_board"):
        with pytest.raises(ValueError, match=rf"{name}\(\) needs the views? .*: it has 'metrics'\. .*(Collect|Add)"):
            getattr(plots, name)(recording)
    else:
        for given in (recording, recording["metrics"]):
            with pytest.raises(
                ValueError, match=rf"{name}\(\).*expected a .*training_curves\(recording\).*Gradients\(\)"
            ):
                getattr(plots, name)(given)


@pytest.mark.parametrize("name", plots.__all__)
def test_nothing_recorded_is_said(name):
    empty = Recording() if name in OF_RECORDING else Series([], [], [], {}, view="gradients")
    with pytest.raises(ValueError, match=r"(empty|0 tensors)"):
        getattr(plots, name)([empty, empty] if name == "comparison" else empty)


@pytest.mark.parametrize("name", plots.__all__)
def test_an_unknown_epoch_is_named_with_those_recorded(name):
    with pytest.raises(ValueError, match="epoch 99 was not recorded; recorded are 4 epochs, 0 to 3"):
        draw(name, synthetic(2, 4), iterations=[1, 99])


@pytest.mark.parametrize("name", [n for n in plots.__all__ if n != "training_curves"])
def test_an_unknown_layer_is_named_with_those_recorded(name):
    recording = synthetic(2, 2)
    series = recording[{"activity_board": "layer_outputs", "unit_activity": "layer_outputs"}.get(name, "gradients")]
    given = argument(name, recording) if name in OF_RECORDING else series
    with pytest.raises(ValueError, match=r"'cnov_0'.*(conv_0|head)"):
        getattr(plots, name)(given, layers="cnov_0")


@pytest.mark.parametrize("name", AXES)
def test_no_axes_is_refused(name):
    with pytest.raises(ValueError, match="expected a matplotlib Axes"):
        draw(name, synthetic(2, 2), ax="left")


@pytest.mark.parametrize("name", plots.__all__)
def test_matplotlibs_state_is_left_alone(name):
    before = dict(matplotlib.rcParams)
    draw(name, synthetic(2, 2))
    assert dict(matplotlib.rcParams) == before


def test_neither_tensorflow_nor_pyplot_is_imported():
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "import keras_introspect.plots as plots\n"
        "from plots.synthetic import synthetic\n"
        "plots.dashboard(synthetic(2, 2))\n"
        "assert not {'tensorflow', 'keras', 'matplotlib.pyplot', 'pandas'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_picture_is_exported_and_documented():
    for name in plots.__all__:
        text = getattr(plots, name).__doc__
        assert all(part in text for part in ("Args:", "Returns:", "Raises:", "Example:", ">>>")), name


def lightness(color):
    """Of CIE 1976, from 0, black, to 100, white: what is left of a colour in grey."""
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)])
    y = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * np.cbrt(y) - 16 if y > 0.008856 else 903.3 * y


@pytest.mark.parametrize(
    "colors",
    [
        (_draw.BLUE, _draw.MID_BLUE, _draw.PALE_BLUE, _draw.PALE, "white"),  # a median in its bands
        _draw.STACK,  # two layers beside each other
        (_draw.BLUE, _draw.ORANGE),  # training and validation, ratio and rate
        (_draw.RED, _draw.PALE_BLUE),  # dead and active
        tuple(_draw.depth_colors(5)),  # the first epoch to the last
    ],
)
def test_what_lies_side_by_side_differs_in_grey(colors):
    levels = [lightness(color) for color in colors]
    assert levels == sorted(levels)
    assert min(np.diff(levels)) > 8


def test_runs_that_are_compared_differ_without_their_colours():
    assert len({str(dashes) for _, dashes in _STYLES}) == len(_STYLES)


@pytest.mark.parametrize("view", VIEWS)
def test_one_view_alone_is_enough_for_the_dashboard(view):
    """No gradients, say: what was not collected has no row, and the rest is drawn."""
    recording = synthetic(3, 4, views=(view,))
    titles = [ax.get_title(loc="left") for ax in plots.dashboard(recording).axes]
    assert sum(title.startswith(view) for title in titles) == 1
    assert not any(title.startswith(other) for other in VIEWS if other != view for title in titles)


@pytest.mark.parametrize("name", plots.__all__)
def test_an_empty_recording_says_how_something_is_observed(name):
    given = Recording() if name in OF_RECORDING else Series([], [], [], {}, view="gradients")
    with pytest.raises(ValueError, match=r'collectors="default"\), then train for an epoch'):
        getattr(plots, name)([given, given] if name == "comparison" else given)


@pytest.mark.parametrize("name", [n for n in plots.__all__ if n != "training_curves"])
def test_layers_that_are_no_names_are_refused(name):
    recording = synthetic(2, 2, phases=True)
    given = argument(name, recording) if name in OF_RECORDING else recording[VIEW.get(name, "gradients")]
    for wrong in (3, [0], {"conv_0": True}):
        with pytest.raises(ValueError, match=r"layers.* was given .*expected a name \(str\), a glob"):
            getattr(plots, name)(given, layers=wrong)


def test_what_came_has_its_article():
    class Introspective:
        pass

    with pytest.raises(ValueError, match="got an Introspective; expected a Recording"):
        plots.dashboard(Introspective())
    with pytest.raises(ValueError, match="got a Recording; expected a Series"):
        plots.norm(synthetic(2, 2))


@pytest.mark.parametrize("name", ["scale_lines", "unit_activity", "histogram_ridges", "dashboard"])
def test_the_oldest_epoch_is_dark_and_the_newest_bright_in_every_picture(name):
    recording = synthetic(3, 12)
    if name == "unit_activity":
        lines = plots.unit_activity(recording["layer_outputs"], layers="conv_1").lines
    elif name == "dashboard":
        axes = plots.dashboard(recording).axes
        lines = [line for ax in axes[:6] for line in ax.lines if line.get_label().startswith("epoch")]
    else:
        ax = draw(name, recording)
        lines = ax.lines if name == "scale_lines" else []
    colours = [line.get_color() for line in lines] or [area.get_facecolor()[0, :3] for area in ax.collections]
    levels = [lightness(colour[:3]) for colour in colours]
    assert len(levels) > 2
    assert levels == sorted(levels)
