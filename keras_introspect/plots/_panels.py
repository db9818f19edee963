"""The page of a board: one or two axes above, a small panel a tensor below."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_introspect.plots._draw import GREY, PALE, SMALL

MAX_PANELS = 240


def panels(
    count: int, tops: int, figsize: tuple[float, float] | None, gap: float = 0.42
) -> tuple[Figure, list[Axes], list[Axes]]:
    """Lays out a board.

    Args:
        count: how many tensors; beyond `MAX_PANELS` the figure says that the rest is left out.
        tops: how many axes above.
        figsize: inches; by the number of panels if `None`.
        gap: inches between rows of panels, for their titles.

    Returns:
        The figure, the axes above, the panels (no ticks but at the left and at the bottom).
    """
    shown = min(count, MAX_PANELS)
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
    upper = figure.add_gridspec(
        1, tops, left=left, right=right - 1.1 / width, bottom=split + 0.5 / height, top=above, wspace=3.2 / width
    )
    lower = figure.add_gridspec(
        rows, columns, left=left, right=right, bottom=bottom, top=split - gap / height - 0.1 / height,
        hspace=gap / max(0.2, (split * height - 0.9) / rows - gap), wspace=0.12,
    )  # fmt: skip
    top = [figure.add_subplot(upper[0, i]) for i in range(tops)]
    small = [figure.add_subplot(lower[i // columns, i % columns]) for i in range(shown)]
    for i, ax in enumerate(small):
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(PALE)
        ax.tick_params(labelsize=SMALL - 1.5, length=2, color=GREY)
        ax.tick_params(labelbottom=i + columns >= shown, bottom=i + columns >= shown, left=False)
        ax.tick_params(which="both", labelleft=i % columns == 0, left=i % columns == 0)
    if shown < count:
        figure.text(
            0.5, 0.01, f"{shown} of {count} tensors shown; choose others with layers=", ha="center", fontsize=SMALL
        )
    return figure, top, small
