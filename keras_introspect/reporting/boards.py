"""Which boards a recording has the data for, and how each is read."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from keras_introspect import plots
from keras_introspect.diagnosis.places import judged_for_death, latest, values_of
from keras_introspect.plots.training_curves import metric_names
from keras_introspect.plots.update_board import with_ratio
from keras_introspect.recording import Recording

NAMES = (
    "training_curves",
    "activity_board",
    "unit_activity",
    "distribution_board",
    "update_board",
    "phase_gap",
)
_ON_THE_DASHBOARD = 2  # metrics
_MOST_LAYERS = 3  # whose channels are drawn
_DEAD_DRAWN = 0.05  # of its channels: then they are worth a picture


class Board(NamedTuple):
    """A board that can be drawn.

    Attributes:
        picture: what draws it: a name in `keras_introspect.plots`.
        view: what it is drawn of; empty where it is of the whole recording.
        question: what it answers.
        reading: how it is read.
        points: about how many data points it shows.
        draw: makes the figure.
    """

    picture: str
    view: str
    question: str
    reading: str
    points: int
    draw: Callable[[], Figure]


def available_boards(recording: Recording) -> Iterator[Board]:
    """The boards that a recording has the data for, the most telling first.

    Example:

    >>> recording = Recording()
    >>> recording.add_epoch("layer_outputs", 0, ["a"], [(None, 4)], {"activation_rate": [0.5], "dead_rate": [0.0]})
    >>> [(board.picture, board.view) for board in available_boards(recording)]
    [('activity_board', 'layer_outputs')]
    """
    if len(metric_names(recording)) > _ON_THE_DASHBOARD:
        yield _curves(recording)
    for view, series in recording.items():
        if len(series.epochs) and {"activation_rate", "dead_rate"} <= set(series.statistics):
            zero = np.nan_to_num(latest(values_of(series, "dead_rate")))
            if view.endswith("layer_outputs") or zero.max(initial=0) >= _DEAD_DRAWN:  # weights are hardly ever zero
                yield _activity(recording, view)
    yield from _units(recording)
    for view, series in recording.items():
        if view != "metrics" and len(series.epochs) and _kind(recording, view) in series.statistics:
            yield _distribution(recording, view)
    if "updates" in recording and "update_ratio" in with_ratio(recording).statistics:
        yield _updates(recording)
    if _has_both_phases(recording):
        yield _phases(recording)


def _points(recording: Recording, view: str) -> int:
    return len(recording[view].names) * len(recording[view].epochs)


def _curves(recording: Recording) -> Board:
    def draw() -> Figure:
        figure = plots.training_curves(recording).figure
        assert isinstance(figure, Figure)
        return figure

    return Board(
        "training_curves",
        "",
        "Is it learning, and how restlessly?",
        "Every metric over the epochs; validation is dashed. Where the batches' own values were collected, bands show "
        "how widely they scatter: a learning rate slightly too high widens them long before the mean moves.",
        sum(len(series.steps) for series in recording.values()),
        draw,
    )


def _activity(recording: Recording, view: str) -> Board:
    if view.endswith("layer_outputs"):
        question = "Which layers work, which are dead?"
        reading = (
            "Blue: the share of elements that are not zero. Red: the share of channels that were zero in every element "
            "of a whole epoch; these do not come back. A ReLU near 50 % blue is at work; dropout lowers the blue."
        )
    else:
        question = "How much is exactly zero?"
        reading = (
            "Blue: the share of elements that are not zero. Red: the share of channels (the last axis) that were zero "
            "in every element of a whole epoch. Of gradients these are units that learned nothing; of weights, units "
            "that were set to zero, as by pruning, or began there."
        )
    return Board(
        "activity_board",
        view,
        question,
        reading,
        3 * _points(recording, view),
        lambda: plots.activity_board(recording[view]),
    )


def _units(recording: Recording) -> Iterator[Board]:
    """The channels of the layers with the worst dead rates."""
    for view in ("layer_outputs", "val_layer_outputs"):
        if view in recording and {"dead_rate"} <= set(recording[view].statistics) and len(recording[view].epochs):
            break
    else:
        return
    series = recording[view]
    if "activation_rate" not in series.unit_statistics:
        return
    rates = np.where(judged_for_death(recording, view), np.nan_to_num(latest(values_of(series, "dead_rate"))), 0.0)
    known = series.unit("activation_rate")
    worst = [series.names[i] for i in np.argsort(-rates, kind="stable") if rates[i] >= _DEAD_DRAWN]
    for name in [name for name in worst if name in known][:_MOST_LAYERS]:
        chosen = series.sel(name)

        def draw(chosen: object = chosen) -> Figure:
            figure = plots.unit_activity(chosen).figure  # type: ignore[arg-type]
            assert isinstance(figure, Figure)
            return figure

        yield Board(
            "unit_activity",
            view,
            f"Which channels of {name} work?",
            "The activation rate of each channel, sorted. The stretch on zero at the left is as long as channels are "
            "dead.",
            1000,
            draw,
        )


def _kind(recording: Recording, view: str) -> str:
    """The statistic that `distribution_board` draws by default."""
    return "magnitude_quantiles" if "gradients" in view or "updates" in view else "quantiles"


def _distribution(recording: Recording, view: str) -> Board:
    if _kind(recording, view) == "quantiles":
        question = "Where do the values lie, over time?"
        reading = (
            "A panel a tensor: the median, the band from 25 % to 75 % of its values, and that from the smallest to the "
            "largest. Each panel has its own scale, written above it."
        )
    else:
        question = "How large are they, over orders of magnitude?"
        reading = (
            "A panel a tensor, all on one logarithmic scale: the median magnitude, the band from 25 % to 75 %, and "
            "that from 12.5 % to the largest. A panel that lies lower than the others is "
        )
        reading += "a layer that hardly any gradient reaches." if "output" in view else "a tensor that hardly moves."
    reading += (
        " Above at the right, the scale stack: a band a layer, thick where it is large. Smooth is calm, jagged swings."
    )
    return Board(
        "distribution_board",
        view,
        question,
        reading,
        5 * _points(recording, view),
        lambda: plots.distribution_board(recording[view]),
    )


def _updates(recording: Recording) -> Board:
    return Board(
        "update_board",
        "updates",
        "Is the step size right?",
        "rms of the update over rms of the variable; the customary 1e-3 is dotted. Far above, a step overwrites what "
        "was learned; far below, the variable hardly moves. Dashed: the implicit learning rate, −update / gradient.",
        2 * _points(recording, "updates"),
        lambda: plots.update_board(recording),
    )


def _has_both_phases(recording: Recording) -> bool:
    if not {"layer_outputs", "val_layer_outputs"} <= set(recording):
        return False
    train, held = recording["layer_outputs"], recording["val_layer_outputs"]
    has_rms = all("rms" in series.statistics and len(series.epochs) for series in (train, held))
    return has_rms and bool(set(train.names) & set(held.names))


def _phases(recording: Recording) -> Board:
    return Board(
        "phase_gap",
        "layer_outputs",
        "Does a layer behave otherwise at inference?",
        "The rms of each layer's output in training and at inference, and how far its mean is shifted. Dropout and "
        "batch normalisation make a small gap; a batch normalisation whose moving averages lag tears them apart.",
        2 * len(recording["layer_outputs"].names),
        lambda: plots.phase_gap(recording),
    )
