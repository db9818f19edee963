"""Does a layer behave otherwise at inference?"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_introspect.errors import unknown_name
from keras_introspect.plots._data import Chosen, Iterations, Layers, check_recording, latest, number, shorten, views_of
from keras_introspect.plots._draw import (
    BLUE,
    GREY,
    INK,
    MID_BLUE,
    ORANGE,
    RED,
    label_ends,
    log_axis,
    quiet,
    title,
)
from keras_introspect.plots.scale_lines import name_layers
from keras_introspect.recording import Recording

_PREFIX = "val_"  # Keras's, of what is recorded in the inference phase


def phase_gap(
    recording: Recording,
    layers: Layers = None,
    iterations: Iterations = None,
    figsize: tuple[float, float] | None = None,
    view: str = "layer_outputs",
) -> Figure:
    """Draws the training-phase against the inference-phase statistics of each layer, in the order of the model.

    Above: the rms of both phases. Below: how far the mean of a layer is shifted at inference, in standard deviations of
    the training phase. Dropout and batch normalisation make the phases differ by a little; a batch normalisation whose
    moving averages lag, or whose batches are too small, tears them apart from that layer on.

    Args:
        recording: a recording with `layer_outputs` and `val_layer_outputs` (`phase="both"` on the collector).
        layers: names or globs of the layers to draw, as in `Series.sel`.
        iterations: epochs to take: a slice of positions, or a range or list of epoch numbers; the last of them that
            has values is drawn.
        figsize: width and height in inches.
        view: the view of the training phase; that of inference has `val_` before it.

    Returns:
        The figure.

    Raises:
        ValueError: no Recording, an empty one, a view is lacking, `rms` not collected, no layer in both phases, an
            unknown layer or epoch.

    Example:

    >>> recording = Recording()
    >>> values = {"rms": [1.0, 1.0], "mean": [0.0, 0.0], "std": [1.0, 1.0]}
    >>> recording.add_epoch("layer_outputs", 0, ["a", "b"], [(None, 4), (None, 2)], values)
    >>> recording.add_epoch("val_layer_outputs", 0, ["a", "b"], [(None, 4), (None, 2)], {**values, "rms": [1.0, 2.0]})
    >>> phase_gap(recording).axes[0].get_title(loc="left")
    'widest gap: b, rms ×2 at inference'
    """
    check_recording(recording, "phase_gap")
    if view.startswith(_PREFIX):
        raise ValueError(
            f"phase_gap() got view={view!r}, which is of the inference phase; expected that of the training phase, "
            f"such as view={view.removeprefix(_PREFIX)!r}: that of inference is found by its name."
        )
    mend = _mend(recording, view)
    train_view, held_view = views_of(recording, (view, _PREFIX + view), "phase_gap", mend)
    train = Chosen(train_view, "phase_gap", ["rms"], layers, iterations)
    shared = [name for name in train.names if name in held_view.names]
    if not shared:
        raise unknown_name(f"layer of {view!r} in {held_view.view!r}", train.names[0], held_view.names, mend)
    if not len(held_view.epochs):
        raise ValueError(f"phase_gap() found no epoch in {held_view.view!r}; expected at least one. {mend}")
    train = Chosen(
        train.series if train.series._single else train.series.sel(shared), "phase_gap", ["rms"], None, iterations
    )
    held = Chosen(held_view, "phase_gap", ["rms"], shared, None)
    figure = Figure(figsize=figsize or (9.0, 5.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    _rms(upper, shared, latest(train.epoch("rms")), _at(held, train.epochs, "rms"))
    if all(chosen.has(statistic) for chosen in (train, held) for statistic in ("mean", "std")):
        means = latest(train.epoch("mean")), _at(held, train.epochs, "mean")
        _shift(lower, shared, *means, latest(train.epoch("std")))
    else:
        title(lower, "no shift of the mean: mean and std were not collected in both phases")
        quiet(lower)
    name_layers(lower, tuple(shared))
    return figure


def _mend(recording: Recording, view: str) -> str:
    """How both phases come to be recorded, as far as the recording tells what was missing."""
    if not view.endswith("layer_outputs"):
        return "Layer outputs alone are observed in both phases: leave view= out."
    both = any(
        isinstance(config, dict) and config.get("phase") == "both"
        for config in recording.metadata.get("collectors") or ()
    )
    if both and view in recording:
        return 'phase="both" was asked for, but there was no validation: give fit() validation_data=.'
    return (
        'Collect both phases: LayerOutputs(phase="both") in compile(), and give fit() validation_data=. '
        "Of a model that is trained already: keras_introspect.phase_gap(model, x)."
    )


def _at(held: Chosen, epochs: np.ndarray, statistic: str) -> np.ndarray:
    """The last value of each layer up to the last epoch drawn; validation may be rarer than epochs are."""
    return latest(held.epoch(statistic)[held.epochs <= epochs[-1]])


def _rms(ax: Axes, names: list[str], train: np.ndarray, held: np.ndarray) -> None:
    place = np.arange(len(names))
    floor = log_axis(ax, np.r_[train, held])
    few = len(names) <= 40
    train_y, held_y = np.where(train == 0, floor, train), np.where(held == 0, floor, held)
    ax.vlines(place, train_y, held_y, color=GREY, linewidth=1.0)
    ax.plot(place, train_y, color=BLUE, linewidth=1.5, marker="o" if few else "", markersize=4, label="training")
    ax.plot(
        place,
        held_y,
        color=ORANGE,
        linewidth=1.5,
        linestyle="--",
        marker="s" if few else "",
        markersize=4,
        label="inference",
    )
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylabel("rms")
    quiet(ax)
    label_ends(ax, np.array([train_y[-1], held_y[-1]]), ["training", "inference"], [BLUE, ORANGE])
    ratio = np.divide(held, train, out=np.full(len(train), np.nan), where=train > 0)
    ratio[~(ratio > 0)] = np.nan
    if np.isfinite(ratio).any():
        widest = int(np.nanargmax(np.abs(np.log(ratio))))
        wide = abs(np.log(ratio[widest])) > np.log(2)
        text = f"widest gap: {shorten(names, 32)[widest]}, rms ×{number(float(ratio[widest]))} at inference"
        title(ax, text, RED if wide else INK)
    else:
        title(ax, "no layer has an rms in both phases")


def _shift(ax: Axes, names: list[str], train: np.ndarray, held: np.ndarray, std: np.ndarray) -> None:
    shift = np.divide(held - train, std, out=np.full(len(train), np.nan), where=std > 0)
    ax.bar(np.arange(len(names)), np.nan_to_num(shift), color=MID_BLUE, width=0.8)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_ylabel("shift of the mean (std)")
    quiet(ax)
    if np.isfinite(shift).any():
        widest = int(np.nanargmax(np.abs(shift)))
        text = f"largest shift of the mean: {shorten(names, 32)[widest]}, {shift[widest]:+.2f} standard deviations"
        title(ax, text, RED if abs(shift[widest]) > 0.5 else INK)
