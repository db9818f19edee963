"""Do gradients vanish or explode along the depth? A line for each of a few epochs."""

import numpy as np
from matplotlib.axes import Axes

from keras_introspect.plots._data import Chosen, Iterations, Layers, number, shorten
from keras_introspect.plots._draw import (
    SMALL,
    axes_of,
    epoch_colors,
    label_ends,
    log_axis,
    points,
    quiet,
    spread,
    title,
)
from keras_introspect.recording import Series


def scale_lines(series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None) -> Axes:
    """Draws the rms of each layer in the order of the model, a line for each of a few epochs.

    A line that falls towards the left vanishes towards the input, one that rises explodes. Tensors that are exactly
    zero lie on the floor of the axis. Biases, scales and embeddings, which are of another size than the kernels
    between which they stand, are left out of weights, gradients and updates; `layers="*"` draws them too.

    Args:
        series: a view with the statistic `rms`.
        layers: names or globs of the tensors to draw, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers; of more than five, five
            are taken evenly, the first and the last among them.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes.

    Raises:
        ValueError: no Series, nothing in it, `rms` not collected, an unknown layer or epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> for epoch in range(3):
    ...     recording.add_epoch("gradients", epoch, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.1, 1.0]})
    >>> ax = scale_lines(recording["gradients"])
    >>> [line.get_label() for line in ax.lines]
    ['epoch 0', 'epoch 1', 'epoch 2']
    """
    chosen = Chosen(series, "scale_lines", ["rms"], layers, iterations)
    kernels = chosen.kernels() if layers is None else None
    chosen = kernels or chosen
    ax = axes_of(ax)
    rms = chosen.epoch("rms")
    rows = np.unique(np.linspace(0, len(rms) - 1, 5).round().astype(int))
    floor = log_axis(ax, rms[rows])
    colors = epoch_colors(len(rows))
    place = np.arange(len(chosen.names))
    for color, row in zip(colors, rows, strict=True):
        x, y = spread(place, np.where(rms[row] == 0, floor, rms[row]))
        few = "o" if len(place) <= 40 else ""
        width = 2.0 if row == rows[-1] else 1.2
        ax.plot(x, y, color=color, linewidth=width, marker=few, markersize=3, label=f"epoch {chosen.epochs[row]}")
    ax.set_xlim(-0.5, len(place) - 0.5)
    name_layers(ax, chosen.names)
    ax.set_ylabel("rms")
    quiet(ax)
    ends = np.array([_last_finite(rms[row]) for row in rows])
    label_ends(ax, np.where(ends == 0, floor, ends), [f"epoch {e}" for e in chosen.epochs[rows]], colors)
    title(ax, _finding(rms[rows[-1]], int(chosen.epochs[rows[-1]])) + (" (kernels)" if kernels else ""))
    return ax


def _finding(values: np.ndarray, epoch: int) -> str:
    seen = values[np.isfinite(values) & (values > 0)]
    if len(seen) < 2:
        return f"rms over depth, epoch {epoch}"
    return f"first/last layer {number(seen[0] / seen[-1])}, spread ×{number(seen.max() / seen.min())}"


def _last_finite(values: np.ndarray) -> float:
    seen = values[np.isfinite(values)]
    return float(seen[-1]) if len(seen) else float("nan")


def name_layers(ax: Axes, names: tuple[str, ...]) -> None:
    """All names where they have room, turned where the axes is tall; else numbers, and the names of the ends."""
    width, height = points(ax)
    short = shorten(names, 18)
    flat = max(map(len, short)) * len(short) * SMALL * 0.65 < width
    if flat or (len(names) <= 24 and height > 130):
        ax.set_xticks(range(len(names)), short, rotation=0 if flat else 35, ha="center" if flat else "right")
        return
    ax.set_xticks(np.unique(np.linspace(0, len(names) - 1, 6).round().astype(int)))
    ax.set_xlabel(f"{short[0]} (0) to {short[-1]} ({len(names) - 1})")
