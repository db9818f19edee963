"""All tensors of one view on one page."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from keras_introspect.plots._data import (
    Chosen,
    Iterations,
    Layers,
    counted,
    latest,
    number,
    over_layers,
    shape_text,
    shorten,
)
from keras_introspect.plots._draw import bands, epoch_axis, extremes, log_axis, name_levels, nothing, thin_bands, title
from keras_introspect.plots._panels import panels
from keras_introspect.plots.scale_stack import scale_stack
from keras_introspect.recording import Series


def distribution_board(
    series: Series,
    layers: Layers = None,
    iterations: Iterations = None,
    figsize: tuple[float, float] | None = None,
    kind: Literal["value", "magnitude"] | None = None,
) -> Figure:
    """Draws the distribution of every tensor of a view, and above them the view as a whole.

    Above: bands over the layers of each layer's median magnitude, and the scale stack, both of the kernels where there
    are biases beside them and no `layers` are chosen. Below: a panel a tensor with its
    name and shape: median, the band from 25 % to 75 %, and that from the minimum (of magnitudes the 12.5 % level) to
    the maximum. Magnitudes share one log axis, so that a tensor that is larger or smaller than the others is seen;
    values have an axis each, whose reach is written in.

    Args:
        series: a view with the statistic `quantiles` or `magnitude_quantiles`.
        layers: names or globs of the tensors to draw, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        figsize: width and height in inches; chosen by the number of tensors if `None`.
        kind: draw the values or their magnitudes; by default the magnitudes of gradients and updates, else the values.

    Returns:
        The figure.

    Raises:
        ValueError: no Series, nothing in it, quantiles not collected, an unknown layer, epoch or kind.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> values = {"quantiles": [[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0]], "rms": [0.5, 1.0]}
    >>> names, shapes = ["a/kernel", "b/kernel"], [(2, 3), (3, 1)]
    >>> recording.add_epoch("weights", 0, names, shapes, values, quantile_levels=[0, 50, 100])
    >>> figure = distribution_board(recording["weights"])
    >>> [ax.get_title(loc="left") for ax in figure.axes[2:]]
    ['a/kernel', 'b/kernel']
    """
    chosen = Chosen(series, "distribution_board", (), layers, iterations)
    if kind is None:
        kind = "magnitude" if "gradients" in chosen.view or "updates" in chosen.view else "value"
    if kind not in ("value", "magnitude"):
        raise ValueError(f"distribution_board() got kind={kind!r}; expected 'value', 'magnitude' or None.")
    statistic = "quantiles" if kind == "value" else "magnitude_quantiles"
    chosen = Chosen(series, "distribution_board", [statistic], layers, iterations)
    board = panels(chosen, 2, figsize)
    _model(board.top[0], chosen, chosen.kernels() if layers is None else None)
    if chosen.has("rms"):
        whole = layers is None or len(chosen.names) == 1
        scale_stack(chosen.series, None if whole else "*", iterations, board.top[1])
    else:
        board.top[1].set_axis_off()
        nothing(board.top[1], "no scale stack: rms was not collected")
    levels, values = chosen.levels, chosen.epoch(statistic)
    # The smallest magnitude is as good as zero: it would take most of a log axis and say nothing.
    lowest = 0 if kind == "value" else 12.5
    pick = [int(np.argmin(np.abs(levels - level))) for level in (lowest, 25, 50, 75, 100)]
    values = values[:, :, pick]
    ends = extremes(values)
    short = shorten(chosen.names, board.characters)
    for place, (i, ax) in enumerate(zip(board.shown, board.small, strict=True)):
        own = values[:, i]
        if kind == "magnitude":
            floor = log_axis(ax, ends, ticks=4)
            own = np.where(own == 0, floor, own)
            remark = f"median {number(float(latest(own)[2]))}"
        else:
            last = latest(own)
            ax.yaxis.set_major_locator(NullLocator())
            if np.isfinite(own).any():
                ax.set_ylim(*padded(np.nanmin(own), np.nanmax(own)))
            remark = f"{number(float(last[0]))} … {number(float(last[4]))}"
        thin_bands(ax, chosen.epochs, own)
        if not np.isfinite(own).any():
            remark = "not observed"
        board.caption(place, short[i], shape_text(chosen.shapes[i]), remark)
        board.epochs(place, chosen.epochs)
        if kind == "magnitude":
            board.heights(place)
    board.fit_titles()
    return board.figure


def padded(low: float, high: float) -> tuple[float, float]:
    """Limits a little wider than the values."""
    pad = 0.05 * (high - low) or max(0.05 * abs(high), 1e-12)
    return float(low - pad), float(high + pad)


def _model(ax: Axes, every: Chosen, kernels: Chosen | None) -> None:
    """Bands over the layers of each layer's median magnitude, or of its rms where no magnitudes were collected."""
    chosen = kernels or every
    if chosen.has("magnitude_quantiles"):
        middle = int(np.argmin(np.abs(chosen.levels - 50)))
        values, what = chosen.epoch("magnitude_quantiles")[:, :, middle], "median magnitude"
    elif chosen.has("rms"):
        values, what = chosen.epoch("rms"), "rms"
    else:
        nothing(ax, "neither magnitudes nor rms were collected")
        ax.set_axis_off()
        return
    floor = log_axis(ax, values)
    levels = over_layers(values)
    drawn = np.where(levels == 0, floor, levels)
    bands(ax, chosen.epochs, drawn)
    epoch_axis(ax, chosen.epochs)
    name_levels(ax, latest(drawn.T))
    ax.set_ylabel(what)
    low, _, high = latest(levels.T)[[0, 2, 4]]
    title(ax, f"{every.view}: {counted(every, kernels)}, {what} {number(low)} … {number(high)}")
