"""Which units work, which are dead?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from keras_introspect.plots._data import Chosen, Iterations, Layers, latest, over_layers, percent, shape_text, shorten
from keras_introspect.plots._draw import (
    BLUE,
    INK,
    MID_RED,
    PALE_BLUE,
    RED,
    beside,
    epoch_axis,
    fill,
    line,
    nothing,
    spread,
    title,
)
from keras_introspect.plots._panels import panels
from keras_introspect.recording import Series

_DEAD = "dead"
_SHARES = ((0.0, 0.5, 1.0), ("0 %", "50 %", "100 %"))


def activity_board(
    series: Series,
    layers: Layers = None,
    iterations: Iterations = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draws the activation rate and the dead rate of every layer, and of the model above them.

    Blue: the fraction of elements that are not zero. Red: the fraction of channels that were zero in every element
    of every observed step of the epoch. Dotted: the same of positions. A ReLU near 50 % blue is at work; dropout
    lowers the blue, batch normalisation keeps it level; red that grows does not come back. Of weights, gradients and
    updates the picture says "not zero" and "all zero" instead: a weight is neither active nor dead.

    Args:
        series: a view with the statistics `activation_rate` and `dead_rate`.
        layers: names or globs of the tensors to draw, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        figsize: width and height in inches; chosen by the number of layers if `None`.

    Returns:
        The figure.

    Raises:
        ValueError: no Series, nothing in it, the statistics not collected, an unknown layer or epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> recording.add_epoch("layer_outputs", 0, ["relu_1", "relu_2"], [(None, 8), (None, 4)],
    ...     {"activation_rate": [0.5, 0.4], "dead_rate": [0.0, 0.25]})
    >>> figure = activity_board(recording["layer_outputs"])
    >>> figure.axes[0].get_title(loc="left")
    'layer_outputs: 2 tensors, worst dead rate 25 % (relu_2)'
    """
    chosen = Chosen(series, "activity_board", ["activation_rate", "dead_rate"], layers, iterations)
    board = panels(chosen, 1, figsize)
    plural = "s" if len(chosen.names) > 1 else ""
    model_activity(chosen, board.top[0], f"{chosen.view}: {len(chosen.names)} tensor{plural}, ")
    active, dead = chosen.epoch("activation_rate"), chosen.epoch("dead_rate")
    spatial = chosen.epoch("spatial_dead_rate") if chosen.has("spatial_dead_rate") else None
    last = latest(dead)
    short = shorten(chosen.names, board.characters)
    for place, (i, ax) in enumerate(zip(board.shown, board.small, strict=True)):
        _panel(ax, chosen.epochs, active[:, i], dead[:, i], None if spatial is None else spatial[:, i])
        bad = last[i] >= 0.05 and chosen.view != "weights"  # which may have been pruned
        text = f"{_words(chosen.view)[1]} {percent(last[i])}" if np.isfinite(last[i]) else "not observed"
        board.caption(place, short[i], shape_text(chosen.shapes[i]), text, bad)
        board.epochs(place, chosen.epochs)
        board.heights(place, *_SHARES)
    if spatial is not None and np.nanmax(spatial, initial=0) > 0:
        places = Line2D([], [], color=INK, linewidth=0.9, linestyle=":", label="in the panels: dead places")
        board.legend([places], below=True)
    board.fit_titles()
    return board.figure


def model_activity(chosen: Chosen, ax: Axes, prefix: str = "", judged: np.ndarray | None = None) -> None:
    """The activity of all layers in one axes: mean with min-max of the activation rate, and the worst dead rate."""
    active = chosen.epoch("activation_rate")
    low, high = over_layers(active, (0, 100))
    seen = np.isfinite(active).any(axis=1)
    mean = np.full(len(active), np.nan)
    mean[seen] = np.nanmean(active[seen], axis=1)
    x, rows = spread(chosen.epochs, np.column_stack([low, mean, high]))
    ax.fill_between(x, rows[:, 0], rows[:, 2], color=PALE_BLUE, linewidth=0)
    ax.plot(x, rows[:, 1], color=BLUE, linewidth=1.1)
    alive, gone = _words(chosen.view)
    heights, texts, colors = [_last(mean)], [f"{alive}, mean".replace("zero", "0")], [BLUE]
    finding = f"{alive} {percent(heights[0])} on average"
    if chosen.has("dead_rate"):
        dead = chosen.epoch("dead_rate")
        if judged is not None:
            dead = np.where(judged, dead, np.nan)
        worst = over_layers(dead, (100,))[0]
        x, height = spread(chosen.epochs, worst)
        ax.fill_between(x, 0, height, color=RED, alpha=0.15, linewidth=0)
        ax.plot(x, height, color=RED, linewidth=2.2)
        heights, texts, colors = (
            [*heights, _last(worst)],
            [*texts, f"{gone}, worst".replace("zero", "0")],
            [*colors, RED],
        )
        last = latest(dead)
        if np.isfinite(last).any():
            name = shorten(chosen.names, 20)[int(np.nanargmax(last))]
            rate = float(np.nanmax(last))
            what = "worst dead rate" if gone == _DEAD else "channels that are all zero: at most"
            finding = f"{what} {percent(rate)}" + (f" ({name})" if rate > 0 else "")
    epoch_axis(ax, chosen.epochs)
    ax.set_ylim(0, 1.02)
    ax.set_yticks(*_SHARES)
    beside(ax, np.nan_to_num(np.array(heights)) / 1.02, texts, colors)
    title(ax, prefix + finding)


def _words(view: str) -> tuple[str, str]:
    """What elements that are not zero are called, and channels that are nothing but zero."""
    return ("active", _DEAD) if view.endswith("layer_outputs") else ("not zero", "all zero")


def _last(values: np.ndarray) -> float:
    return float(latest(values[:, None])[0])


def _panel(ax: Axes, epochs: np.ndarray, active: np.ndarray, dead: np.ndarray, spatial: np.ndarray | None) -> None:
    x, rows = spread(epochs, np.column_stack([active, dead] if spatial is None else [active, dead, spatial]))
    if not np.isfinite(rows).any():
        nothing(ax, "no values")
    fill(ax, x, np.zeros(len(x)), rows[:, 0], PALE_BLUE)
    if np.nanmax(rows[:, 1], initial=0) > 0:
        fill(ax, x, np.zeros(len(x)), rows[:, 1], MID_RED)
    line(ax, x, rows[:, 0], color=BLUE, linewidth=0.9)
    line(ax, x, rows[:, 1], color=RED, linewidth=1.2)
    if spatial is not None and np.nanmax(rows[:, 2], initial=0) > 0:
        line(ax, x, rows[:, 2], color=INK, linewidth=0.9, linestyle=":")
    ax.set_ylim(0, 1)
