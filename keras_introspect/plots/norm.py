"""One number for the size of each tensor."""

import numpy as np
from matplotlib.axes import Axes

from keras_introspect.plots._data import Chosen, Iterations, Layers, kernel_rows, latest, number, shorten
from keras_introspect.plots._draw import axes_of, depth_colors, epoch_axis, label_ends, log_axis, spread, title
from keras_introspect.recording import Series


def norm(series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None) -> Axes:
    """Draws the size-independent norm of each tensor over the epochs, on a log axis.

    rms = l2 norm / √count, so that tensors of any size can be compared. Lines run from dark (first layer) to bright
    (last); those of biases, scales and embeddings beside kernels are dotted. Tensors that are exactly zero lie on the
    floor of the axis.

    Args:
        series: a view with the statistic `rms`.
        layers: names or globs of the tensors to draw, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes.

    Raises:
        ValueError: no Series, nothing in it, `rms` not collected, an unknown layer or epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> recording.add_epoch("weights", 0, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.5, 0.25]})
    >>> recording.add_epoch("weights", 1, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.6, 0.25]})
    >>> [line.get_label() for line in norm(recording["weights"]).lines]
    ['a/kernel', 'b/kernel']
    """
    chosen = Chosen(series, "norm", ["rms"], layers, iterations)
    ax = axes_of(ax)
    rms = chosen.epoch("rms")
    floor = log_axis(ax, rms)
    drawn = np.where(rms == 0, floor, rms)
    colors = depth_colors(len(chosen.names))
    solid = kernel_rows(chosen.view, chosen.names, chosen.shapes) or range(len(chosen.names))
    width = 1.5 if len(chosen.names) <= 12 else 0.8
    for i, name in enumerate(chosen.names):
        x, y = spread(chosen.epochs, drawn[:, i])
        ax.plot(
            x,
            y,
            color=colors[i],
            linewidth=width,
            linestyle="-" if i in solid else ":",
            label=name,
            rasterized=len(chosen.names) > 40,
        )
    epoch_axis(ax, chosen.epochs)
    ax.set_ylabel(f"rms of {chosen.view}".strip())
    label_ends(ax, latest(drawn), chosen.names, colors)
    title(ax, _finding(rms, chosen.names, chosen.view))
    return ax


def _finding(rms: np.ndarray, names: tuple[str, ...], view: str) -> str:
    last = latest(rms)
    if not np.isfinite(last).any():
        return f"{view}: no finite rms"
    if len(names) == 1:
        return f"{view}: rms {number(last[0])}"
    high = int(np.nanargmax(last))
    low = int(np.nanargmin(last))
    short = shorten(names, 24)
    return f"{view}: rms {number(last[low])} ({short[low]}) to {number(last[high])} ({short[high]})"
