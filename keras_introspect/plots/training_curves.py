"""Is it learning, and how restlessly?"""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from mpl_toolkits.axes_grid1 import make_axes_locatable

from keras_introspect.errors import WrongTypeError, unknown_name
from keras_introspect.plots._data import (
    METRICS,
    VIEWS,
    Iterations,
    check_recording,
    more_is_better,
    number,
    rows_of,
)
from keras_introspect.plots._draw import (
    BLUE,
    INK,
    ORANGE,
    PALE,
    PALE_BLUE,
    RED,
    axes_of,
    epoch_axis,
    label_ends,
    log_axis,
    spread,
    title,
)
from keras_introspect.recording import Recording

_VALIDATION = "val_"
_RATES = ("learning_rate", "lr")  # Keras logs it where a callback sets it; no metric
_LEVELS = (0.0, 25.0, 50.0, 75.0, 100.0)
_MOST_POINTS = 2000  # of a raw step series: more than a picture has columns


def training_curves(
    recording: Recording,
    metrics: str | Sequence[str] | None = None,
    iterations: Iterations = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the loss and each metric over the epochs, with how widely the batches scatter around them.

    Where the recording has the view `metrics` (the collector `StepMetrics`): the median of the batches' own values,
    the band between their 25 % and 75 % quantiles, the band from minimum to maximum, and beneath them the raw value
    of each step. A learning rate slightly too high widens the bands long before the mean moves. Steps are placed on
    the epoch axis as if all epochs were equally long. Without that view: the epoch means of Keras's logs. Validation
    is dashed. Where it was best is said of metrics whose name tells whether more or less of it is better, such as
    `accuracy` and `loss`. What was logged but not measured on the data, such as the learning rate, is black, under its
    own name.

    Args:
        recording: what was observed.
        metrics: which to draw, by the keys of the logs or by globs such as `"*accuracy"`; the first into `ax`, each
            further one into an axes split off below it. By default `loss` and everything else that was logged but the
            learning rate and what the collectors log: `["loss", "learning_rate", "gradients/*"]` draws these.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        ax: axes to draw into; a new figure's if `None`.

    Returns:
        The axes of the first metric.

    Raises:
        ValueError: no Recording, an empty one, an unknown metric or epoch, a glob that fits nothing.

    Example:

    >>> recording = Recording()
    >>> for epoch in range(3):
    ...     recording.add_logs(epoch, {"loss": 1 / (epoch + 1), "val_loss": 1.2 / (epoch + 1)})
    >>> ax = training_curves(recording)
    >>> ax.get_title(loc="left")
    'loss 1 → 0.333; validation 0.4, its best'
    """
    check_recording(recording, "training_curves")
    known = metric_names(recording)
    metrics = known if metrics is None else _selected(recording, metrics)
    if not metrics and not recording.logs:
        raise ValueError(
            "training_curves() found neither logs nor the view 'metrics' in this recording; expected a loss. "
            "Train with fit(), or collect StepMetrics()."
        )
    if not metrics:
        raise ValueError(
            f"training_curves() got no metric to draw; expected some of {', '.join(_selectable(recording))}."
        )
    curves = [_read(recording, metric, iterations) for metric in metrics]
    ax = axes_of(ax, (7.0, 1.8 + 2.0 * len(metrics)), layout=None)
    divider = make_axes_locatable(ax)
    below = [divider.append_axes("bottom", size="100%", pad=0.5) for _ in metrics[1:]]
    for i, (panel, curve) in enumerate(zip([ax, *below], curves, strict=True)):
        _draw(panel, curve)
        epoch_axis(panel, curve.epochs, label=i == len(curves) - 1)
        if len(curve.step_x):  # the steps of an epoch reach half a unit to both sides of it
            left, right = panel.get_xlim()
            panel.set_xlim(min(left, curve.step_x.min()), max(right, curve.step_x.max()))
        _label(panel, curve)
    return ax


@dataclass
class _Curve:
    name: str
    epochs: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    levels: np.ndarray | None  # (5, T)
    step_x: np.ndarray
    step_values: np.ndarray
    measured: bool  # on the batches, not set or logged by something else


def metric_names(recording: Recording) -> list[str]:
    """The loss and the metrics of a recording; not the collectors' own logs, nor the learning rate.

    The loss first, then what was measured on the batches too or on validation data, then what else was logged.
    """
    names = [name for name in _selectable(recording) if name not in _RATES and not _is_collectors(recording, name)]
    return sorted(names, key=lambda name: (name != "loss", not _is_measured(recording, name)))


def _selectable(recording: Recording) -> list[str]:
    """All that can be drawn, validation under the name of what it validates."""
    names = [key.removeprefix(_VALIDATION) if _is_validation(recording, key) else key for key in recording.logs]
    return list(dict.fromkeys([*names, *_observed(recording)]))


def _selected(recording: Recording, patterns: str | Iterable[str]) -> list[str]:
    """The metrics that names or globs choose, in the order of the patterns."""
    known = _selectable(recording)
    names: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) or not isinstance(patterns, Iterable) else patterns:
        if not isinstance(pattern, str):
            raise WrongTypeError(
                f"training_curves() got a metric of type {type(pattern).__name__}; expected names (str)."
            )
        plain = pattern.removeprefix(_VALIDATION) if pattern not in known else pattern
        found = [plain] if plain in known else fnmatch.filter(known, pattern)
        if not found:
            raise unknown_name("metric", pattern, known)
        names += found
    return list(dict.fromkeys(names))


def _observed(recording: Recording) -> list[str]:
    """What the collector `StepMetrics` kept of each batch."""
    series = recording.get(METRICS)
    return [] if series is None else [*series.statistics, *series.step_statistics]


def _is_validation(recording: Recording, key: str) -> bool:
    """Keras's own `val_`: not the keys of the collectors that observe validation, nor a metric of that name."""
    return key.startswith(_VALIDATION) and not _is_collectors(recording, key)


def _is_collectors(recording: Recording, key: str) -> bool:
    """Whether a key is one that a collector logs: `<view>/…`. A user's own key may have a slash as well."""
    return "/" in key and key.split("/")[0] in {*VIEWS, *(_VALIDATION + view for view in VIEWS), *recording}


def _is_measured(recording: Recording, name: str) -> bool:
    """Whether it was measured on the data; where nothing was validated or observed, any metric counts as measured."""
    if name == "loss" or _VALIDATION + name in recording.logs or name in _observed(recording):
        return True
    told = _observed(recording) or any(_is_validation(recording, key) for key in recording.logs)
    return not told and name not in _RATES and not _is_collectors(recording, name)


def _read(recording: Recording, metric: str, iterations: Iterations) -> _Curve:
    logs, series = recording.logs, recording.get(METRICS)
    all_epochs = recording.epochs if len(recording.epochs) else np.zeros(1, np.int64)
    rows = rows_of(all_epochs, iterations)
    missing = np.full(len(all_epochs), np.nan)
    curve = _Curve(
        metric,
        all_epochs[rows],
        _finite(logs.get(metric, missing))[rows],
        _finite(logs.get(f"val_{metric}", missing))[rows],
        None,
        np.zeros(0),
        np.zeros(0),
        _is_measured(recording, metric),
    )
    if series is None:
        return curve
    levels = np.full((5, len(all_epochs)), np.nan)
    if metric in series.statistics and series.quantile_levels is not None:
        values = series.epoch(metric).reshape(len(series.epochs), -1)
        if values.shape[1] == len(series.quantile_levels):
            at = np.searchsorted(all_epochs, series.epochs)
            for i, level in enumerate(_LEVELS):
                levels[i, at] = _finite(values[:, int(np.argmin(np.abs(series.quantile_levels - level)))])
    if metric in series.step_statistics and len(series.steps):
        values = _finite(series.step(metric).reshape(len(series.steps), -1)[:, 0])
        index, x = _place_steps(series.steps, all_epochs)
        if not np.isfinite(levels).any():
            for i in range(len(all_epochs)):
                batch = values[(index == i) & np.isfinite(values)]
                if len(batch):
                    levels[:, i] = np.percentile(batch, _LEVELS)
        inside = np.isin(index, rows)
        curve.step_x, curve.step_values = _thin(x[inside], values[inside])
    if np.isfinite(levels).any():
        curve.levels = levels[:, rows]
    return curve


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


def _place_steps(steps: np.ndarray, epochs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The epoch index of each step and its place on the epoch axis, an epoch reaching half a unit to both sides."""
    stride = float(np.median(np.diff(steps))) if len(steps) > 1 else 1.0
    span = float(steps[-1] - steps[0]) + stride
    at = (steps - steps[0] + stride / 2) / span * len(epochs)
    index = np.clip(at.astype(int), 0, len(epochs) - 1)
    return index, epochs[index] + (at - index) - 0.5


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keeps the smallest and the largest value of each piece of a long series, so that no spike is lost."""
    if len(x) <= _MOST_POINTS:
        return x, y
    pieces = np.array_split(np.arange(len(x)), _MOST_POINTS // 2)
    keep = []
    for piece in pieces:
        seen = piece[np.isfinite(y[piece])]
        keep += sorted({int(seen[np.argmin(y[seen])]), int(seen[np.argmax(y[seen])])}) if len(seen) else [int(piece[0])]
    return x[keep], y[keep]


def _draw(ax: Axes, curve: _Curve) -> None:
    everything = np.concatenate([curve.train, curve.validation, curve.step_values])
    if curve.levels is not None:
        everything = np.concatenate([everything, curve.levels.ravel()])
    seen = everything[np.isfinite(everything)]
    steep = len(seen) and seen.min() > 0 and seen.max() / seen.min() > 30
    if steep and (_falls(curve) or curve.name in _RATES):
        log_axis(ax, seen)
    if len(curve.step_values):
        ax.plot(curve.step_x, curve.step_values, color="#9a9a9a", linewidth=0.6, zorder=1, label="each step")
    main = curve.train
    if curve.levels is not None:
        main = curve.levels[2]
        x, rows = spread(curve.epochs, curve.levels.T)
        ax.fill_between(x, rows[:, 0], rows[:, 4], color=PALE, alpha=0.7, linewidth=0, zorder=1.5, label="min-max")
        ax.fill_between(x, rows[:, 1], rows[:, 3], color=PALE_BLUE, alpha=0.9, linewidth=0, zorder=2, label="25-75 %")
    points = "o" if len(curve.epochs) <= 40 else ""
    x, y = (curve.epochs, main) if points else spread(curve.epochs, main)
    ax.plot(x, y, color=_color(curve), linewidth=1.8, marker=points, markersize=3, zorder=3, label=_role(curve))
    held = np.isfinite(curve.validation)
    if held.any():
        ax.plot(
            curve.epochs[held],
            curve.validation[held],
            color=ORANGE,
            linewidth=1.6,
            linestyle="--",
            zorder=4,
            marker="s" if held.sum() <= 40 else "",
            markersize=3,
            label="validation",
        )
    lost = _lost(curve)
    if lost.any():
        ax.plot(
            curve.epochs[lost],
            np.full(lost.sum(), 0.02),
            transform=ax.get_xaxis_transform(),
            color=RED,
            marker="x",
            linestyle="",
            markersize=4,
            clip_on=False,
            zorder=5,
            label="not finite",
        )


def _label(ax: Axes, curve: _Curve) -> None:
    of = "" if curve.levels is None else ", median batch"
    ax.set_ylabel(curve.name + of + (" (log)" if ax.get_yscale() == "log" else ""))
    main = curve.train if curve.levels is None else curve.levels[2]
    seen, held = np.flatnonzero(np.isfinite(main)), np.flatnonzero(np.isfinite(curve.validation))
    told = curve.train if np.isfinite(curve.train).any() else main  # as Keras's logs have it, where they do
    parts = []
    if len(seen):
        known = np.flatnonzero(np.isfinite(told))
        first, last = number(told[known[0]]), number(told[known[-1]])
        parts.append(f"{curve.name} {first} → {last}" if len(seen) > 1 else f"{curve.name} {last}")
    if len(held):
        last_value = curve.validation[held[-1]]
        name = "validation" if parts else f"{curve.name} validation"
        parts.append(f"{name} {number(last_value)}{_best(curve, held)}")
    lost = np.flatnonzero(_lost(curve))
    if len(lost):
        parts = [f"{curve.name} not finite from epoch {curve.epochs[lost[0]]}", *parts[:1]]
    title(ax, "; ".join(parts) or f"{curve.name}: no finite value", RED if len(lost) else INK)
    ends, names, colors = [], [], []
    of_training = (seen, main, _role(curve), _color(curve))
    for index, values, name, color in (of_training, (held, curve.validation, "validation", ORANGE)):
        if len(index):
            ends.append(values[index[-1]])
            names.append(name)
            colors.append(color)
    label_ends(ax, np.array(ends), names, colors)


def _role(curve: _Curve) -> str:
    """What the main line is called: of the metrics it is training, of anything else its own name."""
    return "training" if curve.measured else curve.name


def _color(curve: _Curve) -> str:
    return BLUE if curve.measured else INK


def _lost(curve: _Curve) -> np.ndarray:
    """Epochs whose loss is not finite: bool, shape (T,)."""
    if curve.name != "loss":
        return np.zeros(len(curve.epochs), bool)
    main = curve.train if curve.levels is None or np.isfinite(curve.train).any() else curve.levels[2]
    return ~np.isfinite(main)


def _falls(curve: _Curve) -> bool:
    """Whether it is to fall, or, where its name does not tell, did."""
    better = more_is_better(curve.name)
    if better is not None:
        return not better
    main = curve.train if curve.levels is None else curve.levels[2]
    seen = main[np.isfinite(main)]
    return len(seen) > 1 and bool(seen[-1] < seen[0])


def _best(curve: _Curve, held: np.ndarray) -> str:
    """Where validation was best; nothing where the metric's name does not tell whether more or less is better."""
    values, better = curve.validation[held], more_is_better(curve.name)
    if len(values) < 2 or better is None:
        return ""
    best = int(np.argmax(values) if better else np.argmin(values))
    if values[best] == values[-1]:
        return ", its best"
    return f", best {number(values[best])} in epoch {curve.epochs[held[best]]}"
