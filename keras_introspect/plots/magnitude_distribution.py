"""How large are a tensor's values, over orders of magnitude?"""

import numpy as np
from matplotlib.axes import Axes

from keras_introspect.plots._data import Chosen, Iterations, Layers, latest, number, percent, shape_text, shorten
from keras_introspect.plots._draw import (
    INK,
    ORANGE,
    SMALL,
    axes_of,
    bands,
    epoch_axis,
    line_width,
    log_axis,
    nothing,
    spread,
    title,
)
from keras_introspect.recording import Series


def magnitude_distribution(
    series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None
) -> Axes:
    """Draws percentiles of one tensor's magnitudes |x| on a log axis, and the sign balance on a second axis.

    For gradients, which are peaked and long-tailed. Bands that fall to the floor of the axis say what share is exactly
    zero; the title says it in a number. Sign balance: −100 % all negative, +100 % all positive.

    Args:
        series: a view with the statistic `magnitude_quantiles`; `sign_balance` is drawn where it is there.
        layers: the name of the tensor, where the series holds more than one.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes of the magnitudes.

    Raises:
        ValueError: no Series, nothing in it, more than one tensor, `magnitude_quantiles` not collected, an unknown
            epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> for epoch in range(2):
    ...     recording.add_epoch("gradients", epoch, ["a/kernel"], [(2, 3)],
    ...         {"magnitude_quantiles": [[0.0, 0.0, 0.1, 0.5, 1.0]], "sign_balance": [0.2]},
    ...         quantile_levels=[0, 25, 50, 75, 100])
    >>> magnitude_distribution(recording["gradients"]).get_title(loc="left")
    'a/kernel 2×3: median |x| 0.1, exactly zero 25 % to 50 %'
    """
    chosen = Chosen(series, "magnitude_distribution", ["magnitude_quantiles"], layers, iterations)
    name = chosen.one("magnitude_distribution")
    ax = axes_of(ax)
    levels, values = chosen.levels, chosen.epoch("magnitude_quantiles")[:, 0]
    floor = log_axis(ax, values)
    bands(ax, chosen.epochs, np.where(values == 0, floor, values).T)
    epoch_axis(ax, chosen.epochs)
    ax.set_ylabel(f"|{chosen.view}|")
    if not np.isfinite(values).any():
        nothing(ax, "no finite value")
    middle = float(latest(values)[int(np.argmin(np.abs(levels - 50)))])
    about = f"{shorten([name], 32)[0]} {shape_text(chosen.shapes[0])}"
    title(ax, f"{about}: median |x| {number(middle)}, exactly zero {zero_share(chosen, 0)}")
    if chosen.has("sign_balance"):
        _sign_balance(ax, chosen)
    return ax


def zero_share(chosen: Chosen, index: int) -> str:
    """The share that is exactly zero in the last epoch: exact from the activation rate, else between two levels."""
    if chosen.has("activation_rate"):
        return percent(1 - float(latest(chosen.epoch("activation_rate"))[index]))
    last = latest(chosen.epoch("magnitude_quantiles")[:, index])
    zero = np.flatnonzero(last == 0)
    if not np.isfinite(last).any():
        return "none"
    if not len(zero):
        return "0 %"
    low = chosen.levels[zero[-1]]
    if zero[-1] + 1 == len(last):
        return "100 %"
    return f"{low:g} % to {chosen.levels[zero[-1] + 1]:g} %"


def _sign_balance(ax: Axes, chosen: Chosen) -> None:
    """A second axis at the right, in a colour of its own."""
    right = ax.twinx()
    x, y = spread(chosen.epochs, chosen.epoch("sign_balance")[:, 0])
    right.plot(x, y, color=ORANGE, linewidth=line_width(chosen.epochs) * 0.8, linestyle="--", label="sign balance")
    right.axhline(0, color=ORANGE, linewidth=0.6, linestyle=":")
    right.set_ylim(-1, 1)
    right.set_yticks([-1, -0.5, 0, 0.5, 1], ["−100 %", "−50 %", "0 %", "+50 %", "+100 %"])
    right.tick_params(labelsize=SMALL, length=2.5, colors=ORANGE, labelcolor=INK)
    right.spines[["top", "left", "bottom"]].set_visible(False)
    right.spines["right"].set_color(ORANGE)
    right.set_ylabel("sign balance (dashed)", fontsize=SMALL + 0.5)
