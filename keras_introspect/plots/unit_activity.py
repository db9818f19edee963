"""Which channels work, and which places?"""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.axes_grid1 import make_axes_locatable

from keras_introspect.errors import unknown_name
from keras_introspect.plots._data import Chosen, Iterations, Layers, percent, shorten
from keras_introspect.plots._draw import (
    GREY,
    MID_RED,
    PALE,
    RED,
    SMALL,
    axes_of,
    epoch_colors,
    label_ends,
    nothing,
    points,
    quiet,
    title,
)
from keras_introspect.recording import Series

_BRIGHTEST = 0.85  # of the colour map: its upper end is too near to white


def unit_activity(series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None) -> Axes:
    """Draws the activation rate of each channel of one layer, sorted, a line for each of a few epochs.

    A line that lies on zero at its left end has dead channels, as many as the red stretch is long (last epoch). A flat
    line is a layer whose channels all work alike; a line that reaches 100 % has channels that never switch off.

    Where the series has `position_activation_rate` and the layer two spatial axes, a map beside it shows the rate of
    each place over all channels in the last epoch: from dark, rarely active, to bright; a white place with a cross in
    it was never active.

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
    colors = epoch_colors(len(rows))
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
    _map(ax, chosen, name, channels)
    dead = int((latest_rates == 0).sum())
    if dead:
        ax.axvspan(-0.5, dead - 0.5, color=MID_RED, alpha=0.35, linewidth=0)
    label_ends(ax, np.array(ends), [f"epoch {e}" for e in chosen.epochs[rows]], colors)
    median = percent(float(np.nanmedian(latest_rates)))
    title(ax, f"{short}: {dead} of {channels} channels dead ({percent(dead / channels)}), median rate {median}")
    return ax


def _map(ax: Axes, chosen: Chosen, name: str, channels: int) -> None:
    """The map of the places, in a part of the axes' room that it gives up."""
    if "position_activation_rate" not in chosen.series.unit_statistics:
        return
    by_place = chosen.series.unit("position_activation_rate").get(name)
    size = spatial_size(chosen.shapes[0], channels, 0 if by_place is None else by_place.shape[1])
    if by_place is None or size is None:
        return
    rates = by_place[chosen.rows]
    seen = np.flatnonzero(np.isfinite(rates).any(axis=1))
    if not len(seen):
        return
    rates = rates[seen[-1]].reshape(size)
    beside = make_axes_locatable(ax).append_axes("right", size="55%", pad=0.85)
    # Never active is no colour of the map's, and has a mark: a red would be one of the map's in grey, or nearly so.
    colors = ListedColormap(colormaps["viridis"](np.linspace(0, _BRIGHTEST, 256))).with_extremes(
        under="white", bad=PALE
    )
    beside.imshow(rates, cmap=colors, vmin=1e-12, vmax=1.0, aspect="equal", interpolation="nearest")
    y, x = np.nonzero(rates == 0)
    size = points(beside).min() / max(size)  # of a place
    if len(x):
        limits = beside.get_xlim(), beside.get_ylim()
        beside.plot(x, y, linestyle="", marker="x", color=RED, markersize=0.55 * size, markeredgewidth=size / 12)
        beside.set(xlim=limits[0], ylim=limits[1])
    beside.set_xticks([])
    beside.set_yticks([])
    beside.spines[:].set_color(GREY)
    dead = int((rates == 0).sum())
    crossed = " (×)" if dead else ""
    beside.set_xlabel(
        f"{dead} of {rates.size} positions dead{crossed}\nepoch {chosen.epochs[seen[-1]]}", fontsize=SMALL
    )


def spatial_size(shape: Sequence[int | None], channels: int, places: int) -> tuple[int, int] | None:
    """Height and width of a layer's two spatial axes; `None` where it does not have two, of known size.

    Example:

    >>> spatial_size((None, 8, 6, 16), 16, 48), spatial_size((None, 16, 8, 6), 16, 48)
    ((8, 6), (8, 6))
    >>> spatial_size((None, 48, 16), 16, 48) is None
    True
    """
    if len(shape) != 4:
        return None
    for height, width, depth in ((shape[1], shape[2], shape[3]), (shape[2], shape[3], shape[1])):
        if height and width and depth == channels and height * width == places:
            return height, width
    return None
