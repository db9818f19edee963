"""The page of a board: one or two axes above, a small panel a tensor below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from keras_introspect.plots._draw import GREY, INK, PALE, RED, SMALL

MAX_PANELS = 160  # a few seconds of drawing


class _Tickless:
    """An axis that makes no ticks while its axes is made: they take half of the time that an axes takes."""

    making = True

    def set_tick_params(self, *args: Any, **keywords: Any) -> None:
        if not self.making:
            super().set_tick_params(*args, **keywords)  # type: ignore[misc]

    def grid(self, *args: Any, **keywords: Any) -> None:
        if not self.making:
            super().grid(*args, **keywords)  # type: ignore[misc]

    def set_clip_path(self, *args: Any, **keywords: Any) -> None:
        if not self.making:
            super().set_clip_path(*args, **keywords)  # type: ignore[misc]


class _TicklessX(_Tickless, XAxis):
    pass


class _TicklessY(_Tickless, YAxis):
    pass


class Panel(Axes):
    """An axes without ticks: made and drawn in a third of the time, which counts where there are 160 on a page.

    Made visible, its axes behave like others.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        for axis in (self.xaxis, self.yaxis):
            axis.making = False  # type: ignore[attr-defined]
            axis.set_visible(False)

    def _init_axis(self) -> None:  # what matplotlib has for projections with axes of their own
        self.xaxis, self.yaxis = _TicklessX(self), _TicklessY(self)
        for name, spine in self.spines.items():
            spine.register_axis(self.xaxis if name in ("bottom", "top") else self.yaxis)

    def draw(self, renderer: Any) -> None:
        if self.xaxis.get_visible() or self.yaxis.get_visible():
            super().draw(renderer)
        elif self.get_visible():
            shown = [child for child in self.get_children() if child.get_visible() and child is not self.patch]
            for child in sorted(shown, key=Artist.get_zorder):
                child.draw(renderer)
            self.stale = False


@dataclass
class Board:
    """A board: the figure, the axes above, the panels, which tensors they show, and the room for a panel's name."""

    figure: Figure
    top: list[Axes]
    small: list[Axes]
    shown: list[int]
    columns: int
    characters: int
    fontsize: float

    def epochs(self, i: int, epochs: np.ndarray) -> None:
        """The x axis of a panel; in the lowest, the first and the last epoch are written, inwards."""
        ax, first, last = self.small[i], int(epochs[0]), int(epochs[-1])
        ax.set_xlim((first - 0.6, last + 0.6) if first == last else (first, last))
        ax.spines[["left", "bottom"]].set_color(PALE)
        if i + self.columns < len(self.small):
            ax.xaxis.set_major_locator(NullLocator())
            return
        ax.set_xticks(sorted({first, last}))
        ax.tick_params(axis="x", labelsize=self.fontsize - 1, length=2, color=GREY)
        if first != last:
            labels = ax.get_xticklabels()
            labels[0].set_horizontalalignment("left")
            labels[-1].set_horizontalalignment("right")

    def heights(self, i: int, ticks: Sequence[float] = (), labels: Sequence[str] = ()) -> None:
        """The y axis of a panel: ticks at the left of each row only, as all panels share one scale."""
        ax = self.small[i]
        if i % self.columns:
            ax.yaxis.set_major_locator(NullLocator())
            ax.yaxis.set_minor_locator(NullLocator())
            return
        if len(ticks):
            ax.set_yticks(ticks, labels)
        ax.tick_params(axis="y", labelsize=self.fontsize - 1, length=2, color=GREY)

    def caption(self, i: int, name: str, left: str, right: str, bad: bool = False) -> None:
        """Names a panel; beneath the name a remark at the left and one at the right, red and bold if bad."""
        ax = self.small[i]
        ax.set_title(name, fontsize=self.fontsize, loc="left", y=1.0, pad=self.fontsize + 3, color=RED if bad else INK)
        ax.annotate(
            left,
            (0, 1),
            (0, 2),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=self.fontsize - 1,
            color=GREY,
        )
        ax.annotate(
            right,
            (1, 1),
            (0, 2),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=self.fontsize - 0.5,
            ha="right",
            color=RED if bad else GREY,
            fontweight="bold" if bad else "normal",
        )


def panels(
    shapes: Sequence[Sequence[int | None]], tops: int, figsize: tuple[float, float] | None, gap: float = 0.42
) -> Board:
    """Lays out a board.

    Args:
        shapes: of the tensors. Of more than `MAX_PANELS`, kernels come before biases and scales, and the figure says
            that the rest is left out.
        tops: how many axes above.
        figsize: inches; by the number of panels if `None`.
        gap: inches between rows of panels, for their titles.

    Returns:
        The board, its panels without ticks but at the left and at the bottom.
    """
    count = len(shapes)
    which = sorted(sorted(range(count), key=lambda i: len(shapes[i]) < 2)[:MAX_PANELS])
    shown = len(which)
    columns = min(12, shown if shown <= 4 else math.ceil(math.sqrt(shown * 1.6)))
    rows = math.ceil(shown / columns)
    columns = math.ceil(shown / rows)
    if figsize is None:
        panel = 1.5 if rows <= 2 else 1.0 if rows <= 5 else 0.7
        figsize = (min(18.0, max(10.0, 1.6 * columns)), 3.6 + rows * (panel + gap))
    width, height = figsize
    figure = Figure(figsize=figsize)
    # Placed by hand: a layout engine takes many seconds over 160 axes. Inches, so that text keeps its room.
    left, right, bottom, above = 0.6 / width, 1 - 0.3 / width, 0.45 / height, 1 - 0.45 / height
    split = 1 - min(0.45, 3.2 / height)
    names = 1.1 if tops == 1 else 1.6  # room for what stands at the right of the upper axes
    wide = (width - 0.9 - names - 0.9 * (tops - 1)) / tops
    upper = figure.add_gridspec(
        1,
        tops,
        left=left,
        right=right - names / width,
        bottom=split + 0.5 / height,
        top=above,
        wspace=0.9 / max(0.5, wide),
    )
    lower = figure.add_gridspec(
        rows,
        columns,
        left=left,
        right=right,
        bottom=bottom,
        top=split - gap / height - 0.1 / height,
        hspace=gap / max(0.2, (split * height - 0.9) / rows - gap),
        wspace=0.12,
    )
    top = [figure.add_subplot(upper[0, i]) for i in range(tops)]
    small = [
        figure.add_subplot(
            lower[i // columns, i % columns], axes_class=Panel if i % columns and i + columns < shown else Axes
        )
        for i in range(shown)
    ]
    for ax in small:
        ax.spines[["top", "right"]].set_visible(False)
    if shown < count:
        figure.text(
            right,
            1 - 0.2 / height,
            f"{shown} of {count} tensors shown; choose others with layers=",
            ha="right",
            fontsize=SMALL,
        )
    pitch = (width - 0.9) / columns * 72
    fontsize = SMALL if columns <= 8 else SMALL - 1
    return Board(figure, top, small, which, columns, min(40, int(pitch / (fontsize * 0.66))), fontsize)
