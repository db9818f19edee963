"""The table of every tensor: its statistics in the last epoch, and how its size went."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from keras_introspect.diagnosis import Finding
from keras_introspect.plots._data import number, percent, shape_text
from keras_introspect.plots.update_board import with_ratio
from keras_introspect.recording import Recording, Series

_CHANGE = "change"  # our own column: the last rms over the first
_SHARES = ("activation_rate", "dead_rate", "spatial_dead_rate")
# What a column means. Statistics that stand in none of the two lists, such as a user's own, come last.
_KNOWN = {
    "rms": "root mean square of the finite elements",
    _CHANGE: "last rms over the first",
    "mean": "mean of the finite elements",
    "std": "population standard deviation",
    "min": "smallest finite element",
    "max": "largest finite element",
    "nonfinite": "number of NaN and infinite elements in the last epoch",
    "activation_rate": "share of elements that are not zero",
    "dead_rate": "share of channels that were zero all through the last epoch",
    "spatial_dead_rate": "share of positions that were zero all through the last epoch",
    "update_ratio": "rms of the update over rms of the variable; customary is 1e-3",
    "implicit_learning_rate": "−update / gradient",
    "gsnr": "signal-to-noise ratio of the gradient: mean² / variance over the steps of the epoch",
    "oscillation": "1 − |Σg| / Σ|g| over the steps of the epoch: 0 is one direction, 1 is back and forth",
}
_LEFT_OUT = ("count", "l2_norm", "mean_abs", "sign_balance", "log_magnitude_mean", "log_magnitude_std")
_TREND_POINTS = 24
_TREND_WIDTH, _TREND_HEIGHT = 96, 20
_TREND_DECADES = 0.5  # the least that a trend's height stands for, so that noise does not look like movement


class Column(NamedTuple):
    """A statistic: its key, and what it means."""

    key: str
    about: str


class Cell(NamedTuple):
    """A value as it is shown, as it is sorted (empty where there is none), and a remark."""

    text: str
    value: str
    remark: str = ""


class Row(NamedTuple):
    """A tensor."""

    number: int
    view: str
    name: str
    shape: str
    elements: int
    severity: str
    remark: str
    cells: list[Cell]
    trend: str
    trend_remark: str


def columns(recording: Recording) -> list[Column]:
    """The statistics that some tensor of the recording has, known ones first."""
    found = dict.fromkeys(
        key
        for view, series in _tensors(recording)
        for key in series.statistics
        if series.epoch(key).ndim == 2 and not np.isnan(series.epoch(key)).all()
    )
    if "rms" in found:
        found[_CHANGE] = None
    others = [key for key in found if key not in _KNOWN and key not in _LEFT_OUT]
    return [
        *(Column(key, about) for key, about in _KNOWN.items() if key in found),
        *(Column(key, "") for key in others),
    ]


def rows(recording: Recording, findings: Iterable[Finding], shown: list[Column]) -> Iterator[Row]:
    """A row for each tensor of each view, in the order of the model.

    Args:
        recording: what was observed.
        findings: what was found in it, worst first.
        shown: of `columns`.
    """
    remarks: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        for name in finding.where if finding.severity != "info" else ():
            remarks.setdefault((finding.view, name), []).append(finding)
    count = 0
    for view, series in _tensors(recording):
        last = {column.key: _column(series, column.key) for column in shown}
        size = series.epoch("rms") if "rms" in series.statistics else None
        for i, (name, shape) in enumerate(zip(series.names, series.shapes, strict=True)):
            about = remarks.get((view, name), [])
            known = [d for d in shape if d is not None]
            trend, trend_remark = ("", "") if size is None else _trend(series.epochs, size[:, i])
            yield Row(
                count,
                view,
                name,
                shape_text(shape),
                int(np.prod(known)),
                about[0].severity if about else "",
                "; ".join(finding.summary for finding in about),
                [last[column.key][i] for column in shown],
                trend,
                trend_remark,
            )
            count += 1


def rows_of(recording: Recording, finding: Finding) -> dict[str, int | None]:
    """The places of a finding, each with its row; `None` where it is no tensor, but one of Keras's logs, say."""
    start = 0
    numbers: dict[str, int | None] = dict.fromkeys(finding.where)
    for view, series in _tensors(recording):
        if view == finding.view:
            index = {name: i for i, name in enumerate(series.names)}
            numbers.update({name: start + index[name] for name in numbers if name in index})
        start += len(series.names)
    return numbers


def _tensors(recording: Recording) -> Iterator[tuple[str, Series]]:
    """The views that hold tensors, with epochs; the batches' losses and metrics are no tensors."""
    for view in recording:
        series = with_ratio(recording) if view == "updates" else recording[view]
        if view != "metrics" and len(series.epochs):
            yield view, series


def _column(series: Series, key: str) -> list[Cell]:
    """One statistic of all tensors of a view, as it was last observed."""
    if key == _CHANGE:
        return _changes(series)
    if key not in series.statistics or series.epoch(key).ndim != 2:
        return [Cell("", "")] * len(series.names)
    values = series.epoch(key)
    cells = []
    for column in values.T:
        seen = np.flatnonzero(~np.isnan(column))
        if not len(seen):
            cells.append(Cell("", ""))
            continue
        value, epoch = float(column[seen[-1]]), int(series.epochs[seen[-1]])
        remark = "" if epoch == series.epochs[-1] else f"last observed in epoch {epoch}"
        cells.append(Cell(_text(key, value), _sortable(value), remark))
    return cells


def _text(key: str, value: float) -> str:
    if not np.isfinite(value):
        return "∞" if value > 0 else "−∞"
    if key in _SHARES:
        return percent(value)
    if key == "nonfinite":
        return f"{value:,.0f}"
    return number(value).replace("-", "−", 1) if value < 0 else number(value)


def _sortable(value: float) -> str:
    """What JavaScript's `Number` reads."""
    return ("Infinity" if value > 0 else "-Infinity") if np.isinf(value) else f"{value:.6g}"


def _changes(series: Series) -> list[Cell]:
    if "rms" not in series.statistics:
        return [Cell("", "")] * len(series.names)
    cells = []
    for column in series.epoch("rms").T:
        seen = np.flatnonzero(np.isfinite(column))
        if len(seen) < 2 or column[seen[0]] <= 0:
            cells.append(Cell("", ""))
            continue
        ratio = float(column[seen[-1]] / column[seen[0]])
        remark = f"epoch {series.epochs[seen[0]]} to {series.epochs[seen[-1]]}"
        cells.append(Cell(f"×{number(ratio)}", _sortable(ratio), remark))
    return cells


def _trend(epochs: np.ndarray, values: np.ndarray) -> tuple[str, str]:
    """The rms over the epochs as an SVG path on a log axis, broken where nothing was observed; and in words."""
    positive = np.isfinite(values) & (values > 0)
    if positive.sum() < 2:
        return "", ""
    first, last = np.flatnonzero(positive)[[0, -1]]
    words = (
        f"rms {number(float(values[first]))} in epoch {epochs[first]}, {number(float(values[last]))} in {epochs[last]}"
    )
    rows = np.unique(np.linspace(0, len(values) - 1, min(len(values), _TREND_POINTS)).round().astype(int))
    level = np.full(len(values), np.nan)
    level[positive] = np.log10(values[positive])
    low, high = np.nanmin(level), np.nanmax(level)
    span = max(high - low, _TREND_DECADES)
    base = (low + high - span) / 2
    across = np.rint((epochs - epochs[0]) / max(1, epochs[-1] - epochs[0]) * _TREND_WIDTH).astype(int)
    path, x, y, draw = "", 0, 0, False
    for row in rows:
        if np.isnan(level[row]):
            draw = False
            continue
        height = round(_TREND_HEIGHT - 1 - (level[row] - base) / span * (_TREND_HEIGHT - 2))
        path += f"l{across[row] - x} {height - y}" if draw else f"M{across[row]} {height}"
        x, y, draw = int(across[row]), height, True
    return path.replace(" -", "-"), words
