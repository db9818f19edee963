"""Is the step size right?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from keras_introspect.diagnosis.places import is_kernel
from keras_introspect.errors import a_type
from keras_introspect.plots._data import (
    Chosen,
    Iterations,
    Layers,
    check_recording,
    counted,
    latest,
    number,
    over_layers,
    shape_text,
    shorten,
    views_of,
)
from keras_introspect.plots._draw import (
    BLUE,
    INK,
    ORANGE,
    band_samples,
    bands,
    epoch_axis,
    extremes,
    line,
    line_width,
    log_axis,
    spread,
    title,
)
from keras_introspect.plots._panels import panels
from keras_introspect.recording import Recording, Series

CUSTOMARY = 1e-3  # update-to-weight ratio of a well-chosen learning rate (Karpathy, CS231n)


def update_board(
    recording: Recording | Series,
    layers: Layers = None,
    iterations: Iterations = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draws the update-to-weight ratio and the implicit learning rate of every variable on log axes.

    rms(update) / rms(variable), with the customary 1e-3 dotted: far above, a step overwrites what was learned; far
    below, the variable hardly moves. The implicit learning rate, −update / gradient, is what the optimizer made of the
    learning rate for that variable (dashed). The picture of all together is of the kernels where there are biases
    beside them and no `layers` are chosen: a bias begins at zero, so that its ratio is no sign of a wrong step.

    Beside the upper axes stands what the lines and bands are.

    Args:
        recording: a recording with the view `updates`, or that view. Where it has no `update_ratio`, the ratio is taken
            from the rms of `updates` and of `weights`.
        layers: names or globs of the variables to draw, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        figsize: width and height in inches; chosen by the number of variables if `None`.

    Returns:
        The figure.

    Raises:
        ValueError: neither a Recording nor a Series, nothing in it, no updates, an unknown layer or epoch.

    Example:

    >>> recording = Recording()
    >>> recording.add_epoch("updates", 0, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"update_ratio": [1e-3, 2e-3]})
    >>> update_board(recording).axes[0].get_title(loc="left")
    'update-to-weight ratio of 2 variables: 1e-3 … 2e-3'
    """
    if isinstance(recording, Series):
        series = recording
    elif isinstance(recording, Recording):
        check_recording(recording, "update_board")
        series = with_ratio(recording)
    else:
        raise ValueError(f"update_board() got {a_type(recording)}; expected a Recording or its view 'updates'.")
    chosen = Chosen(series, "update_board", ["update_ratio"], layers, iterations)
    ratio, rate = chosen.epoch("update_ratio"), _implicit_rate(chosen)
    board = panels(chosen, 1 if rate is None else 2, figsize)
    kernels = chosen.kernels() if layers is None else None
    judged = (kernels or chosen).epoch("update_ratio")
    _model(board.top[0], chosen, judged, f"update-to-weight ratio of {counted(chosen, kernels, 'variable')}")
    board.top[0].axhline(CUSTOMARY, color=INK, linewidth=0.9, linestyle=":")
    if rate is not None:
        _model(board.top[1], chosen, rate, "implicit learning rate")
    short = shorten(chosen.names, board.characters)
    ends = extremes(np.r_[ratio.ravel(), np.zeros(0) if rate is None else rate.ravel(), CUSTOMARY])
    last = latest(ratio)
    span = np.array([chosen.epochs[0] - 0.5, chosen.epochs[-1] + 0.5])
    for place, (i, ax) in enumerate(zip(board.shown, board.small, strict=True)):
        floor = log_axis(ax, ends, ticks=4)
        line(ax, span, np.full(2, CUSTOMARY), color=INK, linewidth=0.7, linestyle=":", label="customary")
        if rate is not None:
            x, y = spread(chosen.epochs, rate[:, i])
            line(ax, x, np.where(y <= 0, np.nan, y), color=ORANGE, linewidth=1.0, linestyle="--", label="rate")
        x, y = spread(chosen.epochs, ratio[:, i])
        line(ax, x, np.where(y == 0, floor, y), color=BLUE, linewidth=line_width(chosen.epochs) * 0.8, label="ratio")
        bad = is_kernel(chosen.names[i], chosen.shapes[i]) and bool(last[i] > 0.1)
        board.caption(place, short[i], shape_text(chosen.shapes[i]), number(float(last[i])), bad)
        board.epochs(place, chosen.epochs)
        board.heights(place)
    lines = [Line2D([], [], color=BLUE, label="ratio")]
    if rate is not None:
        lines.append(Line2D([], [], color=ORANGE, linestyle="--", label="implicit rate"))
    lines.append(Line2D([], [], color=INK, linestyle=":", label=f"{number(CUSTOMARY)}, customary"))
    board.legend([*lines, *band_samples()] if len(chosen.names) > 1 else lines)
    board.fit_titles()
    return board.figure


def with_ratio(recording: Recording) -> Series:
    """The view `updates` with `update_ratio`: as it was collected, else from the rms of updates and weights."""
    (series,) = views_of(recording, ["updates"], "update_board", "Add the collector Updates() to compile().")
    if "update_ratio" in series.statistics or "weights" not in recording:
        return series
    weights = recording["weights"]
    if not len(series.epochs) or "rms" not in series.statistics or "rms" not in weights.statistics:
        return series
    column = {name: i for i, name in enumerate(weights.names)}
    row = {int(epoch): i for i, epoch in enumerate(weights.epochs)}
    size = np.full((len(series.epochs), len(series.names)), np.nan)
    both = [(i, row[int(epoch)]) for i, epoch in enumerate(series.epochs) if int(epoch) in row]
    rms = weights.epoch("rms")
    for j, name in enumerate(series.names):
        if name in column and both:
            here, there = np.array(both).T
            size[here, j] = rms[there, column[name]]
    update = series.epoch("rms")
    ratio = np.divide(update, size, out=np.full_like(update, np.nan), where=size > 0)
    values = {**{name: series.epoch(name) for name in series.statistics}, "update_ratio": ratio}
    return Series(
        series.names, series.shapes, series.epochs, values, quantile_levels=series.quantile_levels, view="updates"
    )


def _implicit_rate(chosen: Chosen) -> np.ndarray | None:
    """Shape (T, L); of quantiles the median; `None` where it was not collected."""
    found = [name for name in chosen.series.statistics if name.startswith("implicit")]
    if not found:
        return None
    values = chosen.epoch(found[0])
    if values.ndim == 3:
        values = values[:, :, int(np.argmin(np.abs(chosen.levels - 50)))]
    return values


def _model(ax: Axes, chosen: Chosen, values: np.ndarray, what: str) -> None:
    floor = log_axis(ax, np.append(values.ravel(), CUSTOMARY))
    levels = over_layers(np.where(values < 0, np.nan, values))
    bands(ax, chosen.epochs, np.where(levels == 0, floor, levels))
    epoch_axis(ax, chosen.epochs)
    low, high = latest(levels.T)[[0, 4]]
    title(ax, f"{what}: {number(low)} … {number(high)}" if values.shape[1] > 1 else f"{what}: {number(high)}")
