"""Figures as `data:` URIs, small enough for a page that holds a dozen of them."""

import base64
import io
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image

from keras_introspect.plots._draw import TITLE_ID

_MOST_SVG = 400_000  # bytes; an SVG above that opens slower than the PNG, and is larger
_DPI = 96  # a board of 160 panels is 18 inches wide: sharp at its full size, and small enough
_COLOURS = 64
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
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    with Image.open(buffer) as full:
        reduced = full.convert("RGB").quantize(_COLOURS, kmeans=1, dither=Image.Dither.NONE)
    out = io.BytesIO()
    reduced.save(out, "PNG", optimize=True)
    return out.getvalue()
