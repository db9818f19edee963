"""Where do a tensor's values lie, over time?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from keras_introspect.plots._data import Chosen, Iterations, Layers, latest, number, shape_text, shorten
from keras_introspect.plots._draw import GREY, INK, axes_of, bands, epoch_axis, label_ends, title
from keras_introspect.recording import Series


def value_distribution(
    series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None
) -> Axes:
    """Draws nested percentile bands of one tensor's values around their median, grey from minimum to maximum.

    For weights and layer outputs. Gradients, peaked and long-tailed, show nothing here: see `magnitude_distribution`.

    Args:
        series: a view with the statistic `quantiles`.
        layers: the name of the tensor, where the series holds more than one.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes.

    Raises:
        ValueError: no Series, nothing in it, more than one tensor, `quantiles` not collected, an unknown epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> for epoch in range(2):
    ...     recording.add_epoch("weights", epoch, ["a/kernel"], [(2, 3)], {"quantiles": [[-1.0, -0.5, 0.0, 0.5, 1.0]]},
    ...         quantile_levels=[0, 25, 50, 75, 100])
    >>> value_distribution(recording["weights"]).get_title(loc="left")
    'a/kernel 2×3: median 0, half within -0.5 … 0.5'
    """
    chosen = Chosen(series, "value_distribution", ["quantiles"], layers, iterations)
    name = chosen.one("value_distribution")
    ax = axes_of(ax)
    levels, values = chosen.levels, chosen.epoch("quantiles")[:, 0]
    bands(ax, chosen.epochs, values.T)
    ax.axhline(0, color=GREY, linewidth=0.7, linestyle=":", zorder=0)
    epoch_axis(ax, chosen.epochs)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    ax.set_ylabel(f"value of {chosen.view}".strip())
    last = latest(values)
    label_ends(ax, last, [level_name(level) for level in levels], [INK] * len(levels))
    low, middle, high = (float(last[int(np.argmin(np.abs(levels - level)))]) for level in (25, 50, 75))
    about = f"{shorten([name], 32)[0]} {shape_text(chosen.shapes[0])}"
    title(ax, f"{about}: median {number(middle)}, half within {number(low)} … {number(high)}")
    return ax


def level_name(level: float) -> str:
    """What a quantile level is called."""
    return {0.0: "minimum", 50.0: "median", 100.0: "maximum"}.get(float(level), f"{level:g} %")
