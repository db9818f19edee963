"""Figures as `data:` URIs, small enough for a page that holds a dozen of them."""

import base64
import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from keras_introspect.plots._draw import TITLE_ID

_MOST_SVG = 400_000  # bytes; an SVG above that opens slower than the PNG, and is larger
_DPI = 96  # a board of 160 panels is 18 inches wide: sharp at its full size, and small enough
_COLOURS = 96
_CSS_DPI = 96  # by definition


class Picture(NamedTuple):
    """A figure, ready for an `<img>`.

    Attributes:
        uri: the picture itself, as a `data:` URI.
        width: in CSS pixels, at its natural size.
        height: likewise.
        alt: what it shows, in words: the findings that stand above its axes.
    """

    uri: str
    width: int
    height: int
    alt: str


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """Keeps Python's search for garbage from running while a figure is made and drawn.

    A board is a hundred thousand objects that come and go together. The search goes over all of them, and over those of
    the program around, again and again, and finds nothing: a fifth of the time of a report, and more within a program
    that holds much. What a figure leaves behind is found by the first search afterwards.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def picture(figure: Figure, points: int) -> Picture:
    """Draws a figure: as SVG where that is small, sharp at any size; else as PNG.

    Args:
        figure: what to draw.
        points: about how many data points it shows (tensors × epochs): an SVG grows with them.

    Example:

    >>> drawn = picture(Figure(figsize=(2, 1)), points=0)
    >>> drawn.uri[:18], drawn.width, drawn.height
    ('data:image/svg+xml', 192, 96)
    """
    content, kind = b"", "svg+xml"
    if points <= 2000:  # else do not even try: drawing takes seconds
        content = _svg(figure)
    if not 0 < len(content) <= _MOST_SVG:
        content, kind = _png(figure), "png"
    width, height = figure.get_size_inches() * _CSS_DPI
    uri = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Picture(uri, round(width), round(height), findings(figure))


def findings(figure: Figure) -> str:
    """The titles of a figure's axes, which say what is seen there."""
    titles = [ax.title if ax.title.get_text() else ax._left_title for ax in figure.axes]  # type: ignore[attr-defined]
    found = [title.get_text() for title in titles if title.get_text() and title.get_gid() == TITLE_ID]
    return "; ".join(dict.fromkeys(found))


def _svg(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _png(figure: Figure) -> bytes:
    """With a palette: a third of the bytes of a full-colour PNG, and a plot looks the same."""
    was = figure.dpi
    figure.set_dpi(_DPI)
    try:
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    finally:
        figure.set_dpi(was)
    reduced = with_palette(Image.fromarray(np.ascontiguousarray(pixels)), _COLOURS)
    out = io.BytesIO()
    reduced.save(out, "PNG")
    return out.getvalue()


def with_palette(image: Image.Image, colours: int) -> Image.Image:
    """The image in the palette mode: the commonest half of its colours as they are, the nearest for the others.

    Args:
        image: of mode RGB.
        colours: how many, at most 256.

    Example:

    >>> image = Image.new("RGB", (2, 2), "white")
    >>> image.putpixel((0, 1), (166, 28, 0))
    >>> reduced = with_palette(image, 64)
    >>> reduced.mode, reduced.convert("RGB").getpixel((0, 1))
    ('P', (166, 28, 0))
    """
    counted = sorted(image.getcolors(image.width * image.height) or [], reverse=True)
    found = np.array([colour for _, colour in counted], np.uint8)
    kept, others = found[: colours // 2], found[colours // 2 :]
    if len(found) > colours:  # by the roots of the counts, not once a pixel: that is what takes seconds
        weights = np.sqrt([count for count, _ in counted[colours // 2 :]]).astype(int)
        sample = Image.fromarray(np.repeat(others, weights, axis=0)[None])
        made = sample.quantize(colours - len(kept), kmeans=1).getpalette() or []
        others = np.array(made, np.uint8).reshape(-1, 3)
    palette = np.concatenate([kept, others])
    distance = (found[:, None].astype(np.int32) - palette.astype(np.int32)) ** 2
    index = np.zeros(1 << 24, np.uint8)  # of each colour there is
    index[_packed(found)] = distance.sum(axis=2).argmin(axis=1)
    reduced = Image.fromarray(index[_packed(np.asarray(image))])
    reduced.putpalette(palette.tobytes())
    return reduced


def _packed(colours: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(colours.astype(np.uint32), -1, 0)
    return red << 16 | green << 8 | blue
