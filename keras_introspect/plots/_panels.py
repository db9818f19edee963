"""The page of a board: one or two axes above, a small panel a tensor below."""

import math
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.text import Text
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation
from PIL import Image, ImageDraw, ImageFont

from keras_introspect.plots._data import Chosen, kernel_rows, number
from keras_introspect.plots._draw import GREY, INK, PALE, RED, SMALL, fit_title

MAX_PANELS = 160  # a few seconds of drawing
_WORTH_KEEPING = 60  # panels: an empty page of so many takes longer to make than to keep
_PLAIN = re.compile("[ -#%-~×…]*")


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
        for spine in self.spines.values():  # as the first tick would do it
            spine.set_position(("outward", 0))
        for axis in (self.xaxis, self.yaxis):
            axis.making = False  # type: ignore[union-attr]
            axis.set_visible(False)

    def _init_axis(self) -> None:  # what matplotlib has for projections with axes of their own
        self.xaxis, self.yaxis = _TicklessX(self, clear=False), _TicklessY(self, clear=False)
        for name, spine in self.spines.items():
            spine.register_axis(self.xaxis if name in ("bottom", "top") else self.yaxis)

    def draw(self, renderer: Any) -> None:
        if self.xaxis.get_visible() or self.yaxis.get_visible():
            super().draw(renderer)
        elif self.get_visible():
            shown = [child for child in self.get_children() if child.get_visible() and child is not self.patch]
            for child in sorted(shown, key=Artist.get_zorder):
                if not (isinstance(child, Text) and _drawn_as_image(child, renderer)):
                    child.draw(renderer)
            self.stale = False


def _drawn_as_image(text: Text, renderer: Any) -> bool:
    """Draws a plain line of text into a raster image at once, where matplotlib takes each glyph for itself.

    Returns:
        Whether it did: other letters than these may need a second font, and `$` is mathematics.
    """
    words, side = text.get_text(), text.get_horizontalalignment()
    if not words.strip():
        return True
    simple = text.get_verticalalignment() == "baseline" and side in ("left", "right") and not text.get_rotation()
    bare = text.get_bbox_patch() is None and text.get_alpha() is None and not text.get_path_effects()
    if not (simple and bare and isinstance(renderer, RendererAgg) and _PLAIN.fullmatch(words)):
        return False
    size = text.get_fontsize() * renderer.dpi / 72
    ink, left, top, right = _ink(words, findfont(text.get_fontproperties()), size)
    x, y = text.get_transform().transform(text.get_unitless_position())
    x -= right if side == "right" else 0
    pixels = np.empty((*ink.shape, 4), np.uint8)
    pixels[..., :3] = np.multiply(to_rgb(text.get_color()), 255).round()
    pixels[..., 3] = ink
    renderer.draw_image(renderer.new_gc(), round(x) + left, round(y) - top - len(ink), pixels)
    return True


@lru_cache(1024)
def _ink(words: str, path: str, pixels: float) -> tuple[np.ndarray, int, int, int]:
    """A line of text, the lowest row of pixels first, and where it lies from the start of its baseline, downwards.

    Kept, as the boards of a report name the same tensors.

    Returns:
        The share of each pixel that is covered, in 255ths, shape (height, width); its left, its top, the text's right.
    """
    font = _font(path, pixels)
    left, top, right, bottom = font.getbbox(words, anchor="ls")
    mask = Image.new("L", (int(right - left) + 2, int(bottom - top) + 2))
    ImageDraw.Draw(mask).text((-left, -top), words, 255, font, anchor="ls")
    return np.asarray(mask)[::-1], left, top, right


@cache
def _font(path: str, pixels: float) -> Any:
    return ImageFont.truetype(path, pixels)


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

    def fit_titles(self) -> None:
        """Shrinks the titles of the upper axes that would run into each other or off the page."""
        starts = [*(ax.get_position().x0 for ax in self.top[1:]), 1.0]
        for ax, end in zip(self.top, starts, strict=True):
            fit_title(ax, (end - ax.get_position().x0) * self.figure.get_size_inches()[0] * 72 - 8)

    def legend(self, samples: Sequence[Artist], below: bool = False) -> None:
        """Says what lines and bands are: at the right of the upper axes, or in one line below them."""
        ax = self.top[-1]
        self.figure.legend(
            handles=list(samples),
            loc="upper right" if below else "upper left",
            bbox_to_anchor=(1.0, 0.0 if below else 1.0),
            bbox_transform=ax.transAxes + self._points(0 if below else 5, -18 if below else 0),
            ncols=len(samples) if below else 1,
            fontsize=SMALL,
            frameon=False,
            borderaxespad=0,
            borderpad=0,
            handlelength=1.6,
        )

    def epochs(self, i: int, epochs: np.ndarray) -> None:
        """The x axis of a panel; in the lowest, the first and the last epoch are written, inwards."""
        ax, first, last = self.small[i], int(epochs[0]), int(epochs[-1])
        ax.set_xlim((first - 0.6, last + 0.6) if first == last else (first, last))
        for spine in ax.spines.values():
            spine.set_edgecolor(PALE)
        ax.xaxis.set_major_locator(NullLocator())
        if i + self.columns < len(self.small):
            return
        under = ax.get_xaxis_transform() + self._points(0, -(self.fontsize + 1))
        for epoch, end in ((first, "left"), (last, "right"))[: 1 + (first != last)]:
            ax.text(epoch, 0, str(epoch), fontsize=self.fontsize - 1, ha=end, color=GREY, transform=under)

    def heights(self, i: int, ticks: Sequence[float] = (), labels: Sequence[str] = ()) -> None:
        """The y axis of a panel: labels at the left of each row only, as all panels share one scale."""
        ax = self.small[i]
        if i % self.columns == 0:
            low, high = ax.get_ylim()
            if not len(ticks):
                at = ax.yaxis.get_major_locator().tick_values(low, high)
                ticks = [value for value in at if low <= value <= high]
                labels = [number(float(value)) for value in ticks]
            # Written, not ticks: these would take as long as all the rest of the panel.
            beside = ax.get_yaxis_transform() + self._points(-3, -0.36 * (self.fontsize - 1))
            for value, label in zip(ticks, labels, strict=True):
                ax.text(0, value, label, fontsize=self.fontsize - 1, ha="right", color=GREY, transform=beside)
        ax.yaxis.set_major_locator(NullLocator())
        ax.yaxis.set_minor_locator(NullLocator())

    def caption(self, i: int, name: str, left: str, right: str, bad: bool = False) -> None:
        """Names a panel; beneath the name a remark at the left and one at the right, red and bold if bad."""
        ax = self.small[i]
        ax.set_title(name, fontsize=self.fontsize, loc="left", y=1.0, pad=self.fontsize + 3, color=RED if bad else INK)
        above = ax.transAxes + self._points(0, 2)
        ax.text(0, 1, left, fontsize=self.fontsize - 1, color=GREY, transform=above)
        ax.text(
            1,
            1,
            right,
            fontsize=self.fontsize - 0.5,
            ha="right",
            color=RED if bad else GREY,
            fontweight="bold" if bad else "normal",
            transform=above,
        )

    def _points(self, x: float, y: float) -> ScaledTranslation:
        return ScaledTranslation(x / 72, y / 72, self.figure.dpi_scale_trans)


def panels(chosen: Chosen, tops: int, figsize: tuple[float, float] | None, gap: float = 0.42) -> Board:
    """Lays out a board.

    Args:
        chosen: the tensors. Of more than `MAX_PANELS`, kernels come before biases and scales, and the figure says
            that the rest is left out.
        tops: how many axes above.
        figsize: inches; by the number of panels if `None`.
        gap: inches between rows of panels, for their titles.

    Returns:
        The board, its panels without ticks but at the left and at the bottom.
    """
    count = len(chosen.names)
    first = set(kernel_rows(chosen.view, chosen.names, chosen.shapes) or ())
    which = sorted(sorted(range(count), key=lambda i: i not in first)[:MAX_PANELS])
    shown = len(which)
    columns = min(12, shown if shown <= 4 else math.ceil(math.sqrt(shown * 1.6)))
    rows = math.ceil(shown / columns)
    columns = math.ceil(shown / rows)
    if figsize is None:
        panel = 1.5 if rows <= 2 else 1.0 if rows <= 5 else 0.7
        figsize = (min(18.0, max(10.0, 1.6 * columns)), 3.6 + rows * (panel + gap))
    width, height = figsize
    layout = (shown, rows, columns, tops, (float(width), float(height)), gap)
    if shown < _WORTH_KEEPING:
        figure, top, small = _page(*layout)
    else:  # copied in a sixth of the time in which it is made
        figure, top, small = pickle.loads(_kept_page(_settings(), *layout))
    if shown < count:
        figure.text(
            1 - 0.3 / width,
            1 - 0.2 / height,
            f"{shown} of {count} tensors shown; choose others with layers=",
            ha="right",
            fontsize=SMALL,
        )
    pitch = (width - 0.9) / columns * 72
    fontsize = SMALL if columns <= 8 else SMALL - 1
    return Board(figure, top, small, which, columns, min(40, int(pitch / (fontsize * 0.66))), fontsize)


def _page(
    shown: int, rows: int, columns: int, tops: int, figsize: tuple[float, float], gap: float
) -> tuple[Figure, list[Axes], list[Any]]:
    """The figure of a board, the axes above and the panels, all empty."""
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
    small = [figure.add_subplot(lower[i // columns, i % columns], axes_class=Panel) for i in range(shown)]
    for ax in small:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, top, small


@lru_cache(2)
def _kept_page(settings: str, *layout: Any) -> bytes:
    """An empty page, which the boards of a report have in common."""
    return pickle.dumps(_page(*layout))


def _settings() -> str:
    """Matplotlib's, on which the look of a page depends; asking for the backend would choose one."""
    return str([(key, rcParams[key]) for key in rcParams if not key.startswith("backend")])
