"""Which channels work?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from keras_introspect.errors import unknown_name
from keras_introspect.plots._data import Chosen, Iterations, Layers, percent, shorten
from keras_introspect.plots._draw import MID_RED, axes_of, depth_colors, label_ends, nothing, quiet, title
from keras_introspect.recording import Series


def unit_activity(series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None) -> Axes:
    """Draws the activation rate of each channel of one layer, sorted, a line for each of a few epochs.

    A line that lies on zero at its left end has dead channels, as many as the red stretch is long (last epoch). A flat
    line is a layer whose channels all work alike; a line that reaches 100 % has channels that never switch off.

    Args:
        series: a view with the unit series `activation_rate`.
        layers: the name of the layer, where the series holds more than one.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers; of more than three, three
            are taken evenly, the first and the last among them.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes.

    Raises:
        ValueError: no Series, nothing in it, more than one tensor, no unit series, an unknown layer or epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> recording.add_epoch("layer_outputs", 0, ["relu"], [(None, 4)], {"activation_rate": [0.35]},
    ...     units={"activation_rate": {"relu": [0.5, 0.0, 0.6, 0.3]}})
    >>> unit_activity(recording["layer_outputs"]).get_title(loc="left")
    'relu: 1 of 4 channels dead (25 %), median rate 40 %'
    """
    chosen = Chosen(series, "unit_activity", (), layers, iterations)
    name = chosen.one("unit_activity")
    units = chosen.series.unit("activation_rate")
    if name not in units:
        raise unknown_name(f"tensor with unit series in {chosen.view!r}", name, series.unit("activation_rate"))
    ax = axes_of(ax)
    rates = units[name][chosen.rows]
    rates = np.where(np.isfinite(rates), rates, np.nan)
    seen = np.flatnonzero(np.isfinite(rates).any(axis=1))
    channels = rates.shape[1]
    short = shorten([name], 32)[0]
    ax.set_xlim(-0.5, channels - 0.5)
    ax.set_ylim(-0.02, 1.02)
    ax.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.set_xlabel("channels, sorted by rate")
    ax.set_ylabel("activation rate")
    quiet(ax)
    if not len(seen):
        nothing(ax, "no values")
        title(ax, f"{short}: not observed")
        return ax
    rows = seen[np.unique(np.linspace(0, len(seen) - 1, 3).round().astype(int))]
    colors = depth_colors(len(rows))[::-1]
    ends = []
    for color, row in zip(colors, rows, strict=True):
        ranked = np.sort(rates[row])
        ends.append(ranked[np.isfinite(ranked)][-1])
        last = row == rows[-1]
        ax.plot(
            np.arange(channels),
            ranked,
            color=color,
            linewidth=2 if last else 1.1,
            marker="o" if channels <= 40 else "",
            markersize=3,
            label=f"epoch {chosen.epochs[row]}",
        )
    latest_rates = rates[rows[-1]]
    dead = int((latest_rates == 0).sum())
    if dead:
        ax.axvspan(-0.5, dead - 0.5, color=MID_RED, alpha=0.35, linewidth=0)
    label_ends(ax, np.array(ends), [f"epoch {e}" for e in chosen.epochs[rows]], colors)
    median = percent(float(np.nanmedian(latest_rates)))
    title(ax, f"{short}: {dead} of {channels} channels dead ({percent(dead / channels)}), median rate {median}")
    return ax
