"""What shape does a tensor's distribution have, and does it have two humps?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from keras_introspect.plots._data import Chosen, Iterations, Layers, number, percent, shape_text, shorten
from keras_introspect.plots._draw import GREY, axes_of, epoch_colors, label_ends, nothing, quiet, title
from keras_introspect.recording import Series
from keras_introspect.sketch import BINS

MAX_RIDGES = 12
_CELLS = 120
_HEIGHT = 2.2  # of a ridge, in distances between two
_TAIL = 0.005  # of the elements at either end may lie outside
_PROMINENCE = 0.15  # of the highest hump: what rises less out of its valley is none

Segments = tuple[np.ndarray, np.ndarray, np.ndarray]  # lower edges, upper edges, mass; ascending, apart


def histogram_ridges(
    series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None
) -> Axes:
    """Draws a histogram of one tensor's values an epoch, one before the other, the oldest behind.

    All ridges have the same height: they show shapes, not amounts. Elements that are zero are left out, and their share
    is written beside the ridge. From the sketches that the recording keeps; where there are none, such as in a merged
    or an older recording, from the quantile levels, which is coarser.

    Args:
        series: a view with the statistic `quantiles`.
        layers: the name of the tensor, where the series holds more than one.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers; of more than twelve,
            twelve are taken evenly, the first and the last among them.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes.

    Raises:
        ValueError: no Series, nothing in it, more than one tensor, `quantiles` not collected, an unknown epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> for epoch in range(2):
    ...     recording.add_epoch("weights", epoch, ["a/kernel"], [(2, 3)],
    ...         {"quantiles": [[-2.0, -1.1, -0.9, 0.9, 1.1, 2.0]]}, quantile_levels=[0, 20, 40, 60, 80, 100])
    >>> histogram_ridges(recording["weights"]).get_title(loc="left")
    'a/kernel 2×3: two humps, at -1 and 1'
    """
    chosen = Chosen(series, "histogram_ridges", ["quantiles"], layers, iterations)
    name = chosen.one("histogram_ridges")
    ax = axes_of(ax)
    about = f"{shorten([name], 32)[0]} {shape_text(chosen.shapes[0])}"
    values = chosen.epoch("quantiles")[:, 0]
    seen = np.flatnonzero(np.isfinite(values).any(axis=1))
    rows = seen[np.unique(np.linspace(0, len(seen) - 1, MAX_RIDGES).round().astype(int))] if len(seen) else seen
    parts = [_segments(chosen, name, int(chosen.epochs[row]), values[row]) for row in rows]
    quiet(ax)
    ax.spines["left"].set_visible(False)
    ax.set_yticks([])
    ax.set_xlabel(f"value of {chosen.view}".strip())
    drawn = [i for i, (segments, _) in enumerate(parts) if segments[2].sum() > 0]
    if not drawn:
        nothing(ax, "all elements are zero" if len(rows) else "no values")
        title(ax, f"{about}: {'zero' if len(rows) else 'not observed'}")
        return ax
    edges = _grid([parts[i][0] for i in drawn])
    middles = (edges[:-1] + edges[1:]) / 2
    count = len(rows)
    colors = epoch_colors(count)
    bases = np.arange(count)[::-1].astype(float)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(-0.15, count - 1 + _HEIGHT * 1.08)
    heights = np.zeros(_CELLS)
    for i, (segments, _) in enumerate(parts):
        heights = _density(segments, edges)
        top = bases[i] + _HEIGHT * heights / max(heights.max(), 1e-300)
        last = i == count - 1
        ax.fill_between(middles, bases[i], top, color=colors[i], alpha=0.85 if last else 0.55, linewidth=0, zorder=i)
        ax.plot(middles, top, color="white", linewidth=0.8, zorder=i + 0.5, label=f"epoch {chosen.epochs[rows[i]]}")
    if edges[0] < 0 < edges[-1]:
        ax.axvline(0, color=GREY, linewidth=0.7, linestyle=":", zorder=-1)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    labels = [
        f"epoch {epoch}" + (f", {percent(zeros)} zero" if zeros else "")
        for epoch, (_, zeros) in zip(chosen.epochs[rows], parts, strict=True)
    ]
    label_ends(ax, bases + 0.15, labels, colors, width=22)
    title(ax, f"{about}: {_finding(middles, heights) if count - 1 in drawn else 'all zero in the last epoch'}")
    return ax


def _segments(chosen: Chosen, name: str, epoch: int, quantiles: np.ndarray) -> tuple[Segments, float]:
    """Where the elements of one epoch lie, the zeros apart; and the share of the zeros."""
    sketch = chosen.series._sketch(epoch, name)
    if sketch is not None:
        counts, (low, high) = sketch
        counts = np.array(counts[: len(BINS.lower)], np.float64)
        total, zeros = counts.sum(), counts[BINS.zero]
        counts[BINS.zero] = 0
        filled = np.flatnonzero(counts)
        lower, upper = (np.clip(side[filled], low, high) for side in (BINS.lower, BINS.upper))
        return (lower, upper, counts[filled] / total), float(zeros / total) if total else 0.0
    known = np.isfinite(quantiles)
    at, levels = np.maximum.accumulate(quantiles[known]), chosen.levels[known]
    lower, upper, mass = at[:-1], at[1:], np.diff(levels) / 100
    zero = (lower == 0) & (upper == 0)
    return (lower[~zero], upper[~zero], mass[~zero]), float(mass[zero].sum())


def _cumulative(segments: Segments) -> tuple[np.ndarray, np.ndarray]:
    lower, upper, mass = segments
    above = np.cumsum(mass)
    return np.column_stack([lower, upper]).ravel(), np.column_stack([above - mass, above]).ravel()


def _grid(parts: list[Segments]) -> np.ndarray:
    """The edges of the cells, over what all ridges have but for their tails."""
    ends = []
    for segments in parts:
        x, above = _cumulative(segments)
        rank = np.array([_TAIL, 1 - _TAIL]) * above[-1]
        ends.append(np.interp(rank, above, x))
    low, high = float(np.min(ends)), float(np.max(ends))
    pad = max(0.04 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-30)
    return np.linspace(low - pad, high + pad, _CELLS + 1)


def _density(segments: Segments, edges: np.ndarray) -> np.ndarray:
    """The mass in each cell, smoothed over its neighbours: the sketch's bins are no finer than that."""
    lower, upper, mass = segments
    least = (edges[1] - edges[0]) / 2  # what lies on one value is as wide as half a cell
    narrow = upper - lower < least
    x, above = _cumulative((np.where(narrow, (lower + upper - least) / 2, lower), upper, mass))
    x[1::2] = np.maximum(x[1::2], x[::2])
    cells = np.diff(np.interp(edges, np.maximum.accumulate(x), above, left=0.0, right=above[-1] if len(above) else 0.0))
    return np.convolve(np.pad(cells, 2, mode="edge"), [0.1, 0.2, 0.4, 0.2, 0.1], mode="valid")


def humps(heights: np.ndarray) -> list[int]:
    """The cells of the maxima that rise out of the valleys beside them, from left to right.

    Example:

    >>> humps(np.array([0.0, 3.0, 1.0, 2.9, 3.0, 0.0, 0.1, 0.0]))
    [1, 4]
    """
    found: list[int] = []
    least = _PROMINENCE * float(heights.max(initial=0.0))
    peak, valley = -1, 0.0
    for i, height in enumerate(heights):
        if peak < 0:
            valley = min(valley, float(height))
            if height - valley >= least > 0:
                peak = i
        elif height > heights[peak]:
            peak = i
        elif heights[peak] - height >= least:
            found.append(peak)
            peak, valley = -1, float(height)
    return found if peak < 0 else [*found, peak]


def _finding(middles: np.ndarray, heights: np.ndarray) -> str:
    cell = middles[1] - middles[0]
    places = [number(0.0 if abs(middles[i]) < cell else float(f"{middles[i]:.2g}")) for i in humps(heights)]
    if len(places) == 1:
        return f"one hump, at {places[0]}"
    if len(places) == 2:
        return f"two humps, at {places[0]} and {places[1]}"
    return f"{len(places)} humps"
