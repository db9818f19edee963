"""What is different between these runs?"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_introspect.diagnosis.places import judged_for_death
from keras_introspect.errors import UnknownNameError, a_type, as_names, unknown_name
from keras_introspect.plots._data import (
    VIEWS,
    Chosen,
    Iterations,
    Layers,
    check_recording,
    epochs_inside,
    latest,
    more_is_better,
    number,
    over_layers,
    percent,
    rows_of,
)
from keras_introspect.plots._draw import epoch_axis, label_ends, line_width, log_axis, nothing, spread, title
from keras_introspect.plots.training_curves import metric_names
from keras_introspect.recording import Recording

# Colour (Okabe and Ito, 2008), brightness and dashes all differ.
_STYLES = (
    ("#0072b2", "-"),
    ("#d55e00", "--"),
    ("#1b1b1b", ":"),
    ("#cc79a7", "-."),
    ("#009e73", (0, (5, 1, 1, 1, 1, 1))),
)
_WHAT = {
    "weights": "rms of weights, median layer",
    "gradients": "rms of gradients, median layer",
    "updates": "rms of updates, median layer",
    "layer_outputs": "rms of layer outputs, median layer",
    "output_gradients": "rms of output gradients, median layer",
}


def comparison(
    recordings: Sequence[Recording] | Mapping[str, Recording],
    layers: Layers = None,
    iterations: Iterations = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draws two to five runs on the same axes.

    A panel each for the loss and its validation, for the first other metric, for the worst dead rate, and for the rms
    of the median layer of every view that any of the runs has (of variables the kernels, where no `layers` are
    chosen). A title says how the last epochs differ.

    Args:
        recordings: name → recording, or a sequence of recordings, which are then called `run 1`, `run 2`, ….
        layers: names or globs of the tensors to take, as in `Series.sel`.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        figsize: width and height in inches; chosen by the number of panels if `None`.

    Returns:
        The figure.

    Raises:
        ValueError: not two to five recordings, an empty one, an unknown layer or epoch.

    Example:

    >>> runs = {"slow": Recording(), "fast": Recording()}
    >>> for name, loss in (("slow", 2.0), ("fast", 1.0)):
    ...     for epoch in range(3):
    ...         runs[name].add_logs(epoch, {"loss": loss / (epoch + 1)})
    >>> comparison(runs).axes[0].get_title(loc="left")
    'loss: 0.333 … 0.667'
    """
    runs = _runs(recordings)
    _check_layers(runs, layers)
    every = np.unique(np.concatenate([run.epochs for run in runs.values()]))
    panels = _panels(runs, layers, every[rows_of(every, iterations)])
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=figsize or (5.3 * columns, 0.4 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    styles = dict(zip(runs, _STYLES, strict=False))
    for ax, (what, curves) in zip(grid, panels, strict=False):
        _panel(ax, what, curves, styles)
    for ax in grid[len(panels) :]:
        ax.set_axis_off()
    return figure


_Curve = tuple[np.ndarray, np.ndarray]  # epochs, values


def _runs(recordings: Sequence[Recording] | Mapping[str, Recording]) -> dict[str, Recording]:
    expected = "expected two to five recordings: comparison({'a': recording_a, 'b': recording_b})"
    if (
        isinstance(recordings, Recording)
        or not isinstance(recordings, Mapping | Sequence)
        or isinstance(recordings, str)
    ):
        raise ValueError(f"comparison() got {a_type(recordings)}; {expected}.")
    if isinstance(recordings, Mapping):
        runs = {str(name): recording for name, recording in recordings.items()}
    else:
        runs = {f"run {i}": recording for i, recording in enumerate(recordings, start=1)}
    if not 2 <= len(runs) <= len(_STYLES):
        raise ValueError(f"comparison() got {len(runs)} recordings; {expected}.")
    return {name: check_recording(recording, "comparison") for name, recording in runs.items()}


def _check_layers(runs: Mapping[str, Recording], layers: Layers) -> None:
    if layers is None:
        return
    names = dict.fromkeys(n for run in runs.values() for view in VIEWS if view in run for n in run[view].names)
    if not any(_chosen(run, view, layers, None) for run in runs.values() for view in VIEWS):
        raise unknown_name("tensor in these recordings", layers, names)


def _chosen(run: Recording, view: str, layers: Layers, epochs: np.ndarray | None) -> Chosen | None:
    """The tensors of a view that fit; `None` where the run has none of them, or none of the epochs."""
    if view not in run or not len(run[view].epochs):
        return None
    inside = epochs_inside(run[view], epochs)
    if inside is not None and not inside:
        return None
    try:
        wanted = None if layers is None else run[view].sel(as_names(layers, "layers")).names
    except UnknownNameError:
        return None
    return Chosen(run[view], "comparison", (), wanted, inside)


def _panels(runs: Mapping[str, Recording], layers: Layers, epochs: np.ndarray) -> list[tuple[str, dict[str, _Curve]]]:
    """What each panel shows: its name, and for each run that has it, the epochs and the values."""
    panels = []
    metrics = list(dict.fromkeys(name for run in runs.values() for name in metric_names(run)))
    for name in [log for metric in metrics[:2] for log in (metric, f"val_{metric}")]:
        curves = {}
        for label, run in runs.items():
            rows = np.flatnonzero(np.isin(run.epochs, epochs))
            if name in run.logs:
                values = run.logs[name][rows]
                held = np.isfinite(values) | (not name.startswith("val_"))  # validation may be rarer than epochs are
                if held.any():
                    curves[label] = run.epochs[rows][held], values[held]
        panels.append((name, curves))
    dead = {}
    for label, run in runs.items():
        chosen = _chosen(run, "layer_outputs", layers, epochs)
        if chosen is not None and chosen.has("dead_rate"):
            judged = dict(zip(run["layer_outputs"].names, judged_for_death(run), strict=True))
            rates = np.where([judged[name] for name in chosen.names], chosen.epoch("dead_rate"), np.nan)
            dead[label] = chosen.epochs, over_layers(rates, (100,))[0]
    panels.append(("worst dead rate", dead))
    for view, what in _WHAT.items():
        curves = {}
        for label, run in runs.items():
            chosen = _chosen(run, view, layers, epochs)
            if chosen is not None and chosen.has("rms"):
                kernels = chosen.kernels() if layers is None else None
                curves[label] = chosen.epochs, over_layers((kernels or chosen).epoch("rms"), (50,))[0]
        panels.append((what, curves))
    panels = [(what, curves) for what, curves in panels if curves]
    if not panels:
        raise ValueError(
            "comparison() found nothing to compare: neither logs, nor dead rates, nor rms in any recording."
        )
    return panels


def _panel(ax: Axes, what: str, curves: dict[str, _Curve], styles: Mapping[str, tuple[str, object]]) -> None:
    values = np.concatenate([y for _, y in curves.values()])
    values = np.where(np.isfinite(values), values, np.nan)
    positive = values[values > 0]
    share = what == "worst dead rate"
    floor = np.nan
    if (
        not share
        and len(positive)
        and (what.startswith("rms") or positive.max() > 30 * positive.min())
        and more_is_better(what) is not True
    ):
        floor = log_axis(ax, values)
    for label, (epochs, y) in curves.items():
        color, dashes = styles[label]
        x, drawn = spread(epochs, np.where(np.isfinite(y), y, np.nan))
        drawn = np.where(drawn == 0, floor, drawn) if np.isfinite(floor) else drawn
        ax.plot(x, drawn, color=color, linestyle=dashes, linewidth=line_width(epochs), label=label)
    epoch_axis(ax, np.concatenate([epochs for epochs, _ in curves.values()]))
    if share:
        ax.set_ylim(0, 1.02)
        ax.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    write = percent if share else number
    last = {label: float(latest(np.where(np.isfinite(y), y, np.nan)[:, None])[0]) for label, (_, y) in curves.items()}
    heights = np.array([floor if value == 0 and np.isfinite(floor) else value for value in last.values()])
    texts = [
        f"{label} {write(value) if np.isfinite(curves[label][1][-1]) else 'not finite'}"
        for label, value in last.items()
    ]
    label_ends(ax, heights, texts, [styles[label][0] for label in last], width=26)
    seen = heights[np.isfinite(heights)]
    if len(seen):
        low, high = min(v for v in last.values() if np.isfinite(v)), max(v for v in last.values() if np.isfinite(v))
        title(ax, f"{what}: {write(low)} … {write(high)}")
    else:
        nothing(ax, "no finite value")
        title(ax, what)
