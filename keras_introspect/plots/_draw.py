"""How the pictures are drawn: one palette, and the few artists that several pictures share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator, ScalarFormatter

from keras_introspect.errors import a_type
from keras_introspect.plots._data import number, shorten

# Dark and light of each pair differ in brightness, not in hue alone: they hold in grey and for the colour-blind.
INK = "#222222"
GREY = "#777777"
PALE = "#e3e3e3"
BLUE = "#0b5394"
MID_BLUE = "#5f9bd3"
PALE_BLUE = "#aacdea"
RED = "#a61c00"
MID_RED = "#dd7762"
ORANGE = "#e08a00"
_FILLS = (PALE_BLUE, "#86b6e0", MID_BLUE)
_SMALL_POINTS = 200  # of a small panel: it is no more pixels wide
STACK = ("#2f5d8c", "#bcd4e8")
SMALL = 7.5
TITLE = 9.5
TITLE_ID = "finding"
_LEAST_DECADE = 16.0  # points high: in less, the small ticks within a power of ten would run together


def axes_of(ax: Axes | None, figsize: tuple[float, float] = (7.0, 4.0), layout: str | None = "constrained") -> Axes:
    """The axes given, or the one axes of a new figure outside pyplot."""
    if ax is not None:
        if not isinstance(ax, Axes):
            raise ValueError(f"ax is {a_type(ax)}; expected a matplotlib Axes, such as Figure().subplots().")
        return ax
    figure = Figure(figsize=figsize, layout=layout)  # type: ignore[arg-type]
    ax = figure.subplots()
    if layout is None:
        width, height = figsize
        figure.subplots_adjust(0.7 / width, 0.5 / height, 1 - 1.0 / width, 1 - 0.35 / height)
    return ax


def title(ax: Axes, text: str, color: str = INK) -> None:
    """The finding, above the left corner; what is red is bold too, for print."""
    # Where no factor such as 1e-5 may stand above the axis, a given place saves measuring every tick to find one: a
    # third of the time that a picture takes.
    free = not isinstance(ax.yaxis.get_major_formatter(), ScalarFormatter) or not len(ax.get_yticks())
    weight = "bold" if color == RED else "normal"
    ax.set_title(
        text,
        fontsize=TITLE,
        fontweight=weight,
        loc="left",
        color=color,
        y=1.0 if free else None,
        pad=5,
        gid=TITLE_ID,
    )


def fit_title(ax: Axes, space: float) -> None:
    """Shrinks the title of an axes so that it takes no more than so many points; below 5.5 it could not be read."""
    for text in ax.get_children():
        if isinstance(text, Text) and text.get_gid() == TITLE_ID:
            size = float(text.get_fontsize())
            text.set_fontsize(fitting(text.get_text(), space, size, text.get_fontweight() == "bold"))


def fitting(text: str, space: float, size: float, bold: bool = False) -> float:
    """The font size, at most `size`, with which a text takes no more than so many points."""
    letter = 0.64 if bold else 0.56  # its width, of the size of the font
    return float(max(5.5, min(size, space / (letter * max(1, len(text))))))


def quiet(ax: Axes) -> None:
    """Takes away what is no data: the upper and right frame, long ticks, large numbers."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(labelsize=SMALL, length=2.5, color=GREY, which="both")
    ax.xaxis.label.set_fontsize(SMALL + 0.5)
    ax.yaxis.label.set_fontsize(SMALL + 0.5)


def epoch_axis(ax: Axes, epochs: np.ndarray, label: bool = True) -> None:
    """The x axis of epochs: whole numbers, no empty margins."""
    first, last = float(epochs.min()), float(epochs.max())
    ax.set_xlim((first - 0.6, last + 0.6) if first == last else (first, last))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    if label:
        ax.set_xlabel("epoch")
    quiet(ax)


def extremes(values: np.ndarray) -> np.ndarray:
    """What `log_axis` needs of many values: the smallest and the largest positive one, and a zero if there is one."""
    seen = values[np.isfinite(values)]
    positive = seen[seen > 0]
    ends = [positive.min(), positive.max()] if positive.size else []
    return np.array([*ends, *([0.0] if (seen == 0).any() else [])])


def log_axis(ax: Axes, values: np.ndarray, ticks: int = 6) -> float:
    """Makes the y axis logarithmic around the positive values and returns its floor, where zeros are drawn."""
    ends = extremes(np.asarray(values, float))
    zeros = bool(len(ends) % 2)
    low, high = (float(ends[0]), float(ends[1])) if len(ends) > 1 else (1e-3, 1.0)
    pad = max(0.06 * np.log10(high / low), 0.08)
    floor = max(low * 10 ** -(pad + (0.5 if zeros else 0)), 1e-300)
    high = min(high * 10**pad, 1e300)
    decades = np.log10(high / floor)
    target = ax.yaxis
    ax.set_yscale("log")
    ax.set_ylim(floor, high)
    target.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    target.set_minor_formatter(NullFormatter())
    if decades < 0.9:  # too narrow for powers of ten
        target.set_major_locator(MaxNLocator(nbins=min(4, ticks)))
    else:
        target.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.7 else (1.0,), numticks=ticks))
    if decades < 0.9 or points(ax)[1] / decades < _LEAST_DECADE:
        target.set_minor_locator(NullLocator())
    return floor


def spread(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Widens epochs that stand alone between gaps, which a line or a band would not show."""
    valid = np.isfinite(y) if y.ndim == 1 else np.isfinite(y).any(axis=tuple(range(1, y.ndim)))
    beside = np.concatenate([[False], valid, [False]])
    alone = valid & ~beside[:-2] & ~beside[2:]
    x = np.asarray(x, float)
    if not alone.any():
        return x, y
    repeat = np.where(alone, 2, 1)
    wide = np.repeat(x, repeat)
    starts = (np.cumsum(repeat) - repeat)[alone]
    wide[starts] -= 0.4
    wide[starts + 1] += 0.4
    return wide, np.repeat(y, repeat, axis=0)


def bands(ax: Axes, epochs: np.ndarray, levels: np.ndarray, color: str = BLUE) -> None:
    """Nested bands around a median.

    Args:
        ax: where to draw.
        epochs: shape (T,).
        levels: shape (Q, T), ascending along Q; the outermost pair is grey, the middle is the line.
        color: of the line.
    """
    x, rows = spread(epochs, np.moveaxis(np.asarray(levels), 0, 1))
    count = rows.shape[1]
    pairs = count // 2
    for i in range(pairs):
        fill = PALE if i == 0 else _FILLS[min(len(_FILLS) - 1, (i - 1) * len(_FILLS) // max(1, pairs - 1))]
        ax.fill_between(x, rows[:, i], rows[:, -1 - i], color=fill, linewidth=0)
    middle = rows[:, pairs] if count % 2 else (rows[:, pairs - 1] + rows[:, pairs]) / 2
    ax.plot(x, middle, color=color, linewidth=line_width(epochs))


def band_samples() -> list[Patch]:
    """Of the bands over tensors, for a legend."""
    return [Patch(color=PALE_BLUE, label="the middle half"), Patch(color=PALE, label="smallest to largest")]


def fill(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> None:
    """Fills between two lines without touching the limits: five times as fast as `Axes.fill_between`."""
    ax.add_collection(PolyCollection(outlines(x, low, high), facecolors=color, linewidths=0), autolim=False)


def outlines(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
    """The polygons between two lines: one a stretch without a gap."""
    seen = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
    stretches = np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1) if len(seen) else []
    return [np.column_stack([np.r_[x[rows], x[rows][::-1]], np.r_[low[rows], high[rows][::-1]]]) for rows in stretches]


def thin_bands(ax: Axes, epochs: np.ndarray, values: np.ndarray) -> None:
    """The bands of a small panel: lowest, 25 %, median, 75 %, highest of shape (T, 5); limits are left alone."""
    x, rows = spread(epochs, values)
    if len(x) > _SMALL_POINTS:  # more than the panel has pixels: of each piece the extremes and a middle
        starts = np.linspace(0, len(x), _SMALL_POINTS, endpoint=False).astype(int)
        middle = (starts + np.r_[starts[1:], len(x)]) // 2
        low, high = np.fmin.reduceat(rows[:, 0], starts), np.fmax.reduceat(rows[:, 4], starts)
        x, rows = x[middle], np.column_stack([low, rows[middle, 1:4], high])
    outer, inner = outlines(x, rows[:, 0], rows[:, 4]), outlines(x, rows[:, 1], rows[:, 3])
    colors = [PALE] * len(outer) + [MID_BLUE] * len(inner)
    ax.add_collection(PolyCollection(outer + inner, facecolors=colors, linewidths=0), autolim=False)
    line(ax, x, rows[:, 2], color=BLUE, linewidth=1.0)


def line(ax: Axes, x: np.ndarray, y: np.ndarray, **style: Any) -> None:
    """Draws a line without touching the limits: in a third of the time of `Axes.plot`, which counts in 160 panels."""
    ax.add_line(Line2D(x, y, **style))


def line_width(epochs: np.ndarray) -> float:
    """Of a main line: thinner where many epochs make it dense."""
    return 1.6 if len(epochs) <= 100 else 1.0


def depth_colors(count: int) -> list[Any]:
    """From dark (first) to bright (last), evenly in lightness."""
    return [colormaps["viridis"](0.8 * i / max(1, count - 1)) for i in range(count)]


def epoch_colors(count: int) -> list[Any]:
    """Of lines that stand for epochs, in their order: the oldest dark, the newest bright, in every picture."""
    return depth_colors(count)


def label_ends(ax: Axes, heights: np.ndarray, names: Sequence[str], colors: Sequence[Any], width: int = 18) -> None:
    """Writes names beside the right end of lines, moved apart so that none covers another.

    Where there is no room for all, the first, the last, the highest and the lowest are named.

    Args:
        ax: where the lines are; its y limits must be final.
        heights: shape (lines,), in data units; a NaN is not named.
        names: of the lines.
        colors: of the lines.
        width: characters a name may have.
    """
    seen = np.flatnonzero(np.isfinite(heights))
    if len(seen) > room(ax):
        order = seen[np.argsort(heights[seen])]
        seen = np.array(list(dict.fromkeys([seen[0], seen[-1], *order[-2:], *order[:2]])))
    if len(seen):
        place = ax.transData.transform(np.column_stack([np.full(len(seen), ax.get_xlim()[1]), heights[seen]]))
        y = np.clip(ax.transAxes.inverted().transform(place)[:, 1], 0, 0.97)
        short = shorten(list(names), width)
        beside(ax, y, [short[int(i)] for i in seen], [colors[int(i)] for i in seen])


def name_levels(ax: Axes, ends: np.ndarray) -> bool:
    """Says beside the right end of bands over tensors what they are; returns whether they differ, so that it did.

    Args:
        ax: where the bands are; its y limits must be final.
        ends: the last heights of the five lines, ascending.
    """
    differ = bool(np.isfinite(ends).all()) and bool(ends[0] < ends[4])
    if differ:
        label_ends(ax, ends, ("smallest", "25 %", "median", "75 %", "largest"), [GREY] * 5)
    return differ


def points(ax: Axes) -> np.ndarray:
    """Width and height of an axes in points, before it is drawn."""
    locate = ax.get_axes_locator()
    box = ax.get_position() if locate is None else locate(ax, None)  # type: ignore[arg-type]
    return np.array(box.size) * ax.figure.bbox.size / ax.figure.dpi * 72


def room(ax: Axes) -> int:
    """How many lines of small text fit beside an axes."""
    return max(2, int(points(ax)[1] / (SMALL * 1.25)) + 1)


def beside(ax: Axes, y: np.ndarray, texts: Sequence[str], colors: Sequence[Any]) -> None:
    """Writes texts to the right of an axes at heights in [0, 1], apart from each other."""
    for at, text, color in zip(apart(y, 1 / (room(ax) - 1)), texts, colors, strict=True):
        ax.annotate(
            text,
            (1, at),
            (4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=SMALL,
            color=np.array(to_rgb(color)) * 0.8,
            va="center",
            annotation_clip=False,
        )


def apart(y: np.ndarray, gap: float) -> np.ndarray:
    """Moves heights in [0, 1] at least `gap` apart, keeping their order and staying inside."""
    order = np.argsort(y, kind="stable")
    placed = np.array(y, float)[order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    over = placed[-1] - 1 if len(placed) else 0
    if over > 0:
        placed[-1] -= over
        for i in range(len(placed) - 2, -1, -1):
            placed[i] = min(placed[i], placed[i + 1] - gap)
    result = np.empty_like(placed)
    result[order] = placed
    return result


def nothing(ax: Axes, text: str) -> None:
    """Says in an empty axes why it is empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=SMALL + 1, color=GREY, wrap=True)
