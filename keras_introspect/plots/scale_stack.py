"""Do gradients vanish or explode along the depth? Every epoch at once."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from keras_introspect.plots._data import Chosen, Iterations, Layers, latest, number, shorten
from keras_introspect.plots._draw import INK, STACK, axes_of, beside, epoch_axis, nothing, outlines, room, spread, title
from keras_introspect.recording import Series


def scale_stack(series: Series, layers: Layers = None, iterations: Iterations = None, ax: Axes | None = None) -> Axes:
    """Draws the relative scale of all layers as a stack of bands, first layer at the bottom.

    The height of a band is log(rms), shifted so that the smallest of the picture is 1 and divided by the sum of the
    epoch. Thick is large; smooth is calm; jagged is oscillating; a stack whose bands thin out to the bottom vanishes
    towards the input. A tensor that is exactly zero has no band. Biases, scales and embeddings are left out of weights,
    gradients and updates, so that a band is a layer; `layers="*"` draws them too.

    Args:
        series: a view with the statistic `rms`.
        layers: names or globs of the tensors to draw, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes.

    Raises:
        ValueError: no Series, nothing in it, `rms` not collected, an unknown layer or epoch.

    Example:

    >>> from keras_introspect.recording import Recording
    >>> recording = Recording()
    >>> for epoch in range(3):
    ...     recording.add_epoch("gradients", epoch, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.1, 1.0]})
    >>> len(scale_stack(recording["gradients"]).collections[0].get_paths())
    2
    """
    chosen = Chosen(series, "scale_stack", ["rms"], layers, iterations)
    kernels = chosen.kernels() if layers is None else None
    chosen = kernels or chosen
    ax = axes_of(ax)
    rms = chosen.epoch("rms")
    share = shares(rms)
    x, heights = spread(chosen.epochs, share)
    edges = np.concatenate([np.zeros((len(heights), 1)), np.cumsum(np.nan_to_num(heights), axis=1)], axis=1)
    edges[~np.isfinite(heights).any(axis=1)] = np.nan
    count = len(chosen.names)
    block = 1 if count <= 40 else math.ceil(count / 20)  # bands thinner than a line would only flicker
    polygons = [outlines(x, edges[:, i], edges[:, i + 1]) for i in range(count)]
    colors = [STACK[i // block % 2] for i in range(count)]
    # Rasterised: 160 bands of 500 epochs would make a vector file of many megabytes.
    artist = PolyCollection(
        [outline for of_layer in polygons for outline in of_layer],
        facecolors=[color for color, of_layer in zip(colors, polygons, strict=True) for _ in of_layer],
        linewidths=0,
        antialiaseds=block == 1,
        rasterized=count > 40,
    )
    ax.add_collection(artist, autolim=False)
    epoch_axis(ax, chosen.epochs)
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    ax.set_ylabel("share of log rms" if block == 1 else f"a shade = {block} tensors")
    _label(ax, edges, chosen.names)
    if not np.isfinite(rms).any():
        nothing(ax, "no finite rms")
    title(ax, _finding(latest(rms), chosen.names) + (" (kernels)" if kernels else ""))
    return ax


def _finding(rms: np.ndarray, names: tuple[str, ...]) -> str:
    """How far the largest and the smallest are apart in the last epoch, and which they are."""
    if not np.isfinite(rms).any():
        return "no finite rms"
    zero = int((rms == 0).sum())
    if zero:
        return f"rms of {zero} of {len(names)} is exactly zero"
    if len(names) == 1:
        return f"rms {number(float(rms[0]))}"
    high, low = int(np.nanargmax(rms)), int(np.nanargmin(rms))
    short = shorten(names, 18)
    return f"rms ×{number(float(rms[high] / rms[low]))} from {short[low]} to {short[high]}"


def shares(rms: np.ndarray) -> np.ndarray:
    """Band heights: log of the rms, shifted so that the smallest is 1, normalised to sum to 1 an epoch; (T, L)."""
    positive = rms[np.isfinite(rms) & (rms > 0)]
    floor = positive.min() if positive.size else 1.0
    height = np.log(np.maximum(np.nan_to_num(rms), floor)) - np.log(floor) + 1
    height = np.where(rms > 0, height, np.where(rms == 0, 0.0, np.nan))  # no height at all: it has no logarithm
    total = np.nansum(height, axis=1, keepdims=True)
    return np.divide(height, total, out=np.full_like(height, np.nan), where=total > 0)


def _label(ax: Axes, edges: np.ndarray, names: tuple[str, ...]) -> None:
    """Names at the right: all bands of a small model, else the first, the last and some between."""
    rows = np.flatnonzero(np.isfinite(edges).all(axis=1))
    if not len(rows):
        return
    middle = (edges[rows[-1], :-1] + edges[rows[-1], 1:]) / 2
    count = len(names)
    which = (
        np.arange(count)
        if count <= room(ax)
        else np.unique(np.linspace(0, count - 1, min(6, room(ax))).round().astype(int))
    )
    short = shorten(names, 18)
    beside(ax, middle[which], [short[i] for i in which], [INK] * len(which))
