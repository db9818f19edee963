"""Recordings of several runs, or workers, as the one of a run over all their data. NumPy only.

What is merged is said in `Recording.merge`. A rule takes what R recordings have of some series in one epoch, and gives
what they have together; a recording keeps what a rule needs and the series do not tell: see `Statistic.kept`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_introspect.sketch import BINS, read_out

MERGED = "merged"  # in the metadata: the metadata of the runs
STEPS = "metrics/steps"  # what `StepMetrics` keeps: the first and the last step of an epoch

Kept = dict[str, list[dict[str, np.ndarray]]]  # key → a run each: name of a tensor → vector


class _Rows(NamedTuple):
    """One epoch of one view: what R runs have of L tensors.

    Attributes:
        names: of the tensors.
        series: name → (R, L) or (R, L, Q); NaN where a run has nothing.
        units: name → a run each: name of a tensor → (channels,).
        kept: what each run keeps.
        merged: what they keep together: key → name of a tensor → vector.
        steps: takes (R, L), numbers of steps in the runs, to their numbers in the merged run.
        parts: (R, 1): what a run counts: one each; of values of variables, shares that add up to one.
        levels: percent, of the quantiles.
    """

    names: Sequence[str]
    series: dict[str, np.ndarray]
    units: Kept
    kept: Kept
    merged: dict[str, dict[str, np.ndarray]]
    parts: np.ndarray
    steps: Callable[[np.ndarray], np.ndarray]
    levels: np.ndarray | None

    def per_tensor(self, key: str, of: Callable[[np.ndarray], Any]) -> np.ndarray:
        """A number from what is kept of each tensor together, (L,); NaN where that is nothing."""
        vectors = self.merged[key]
        return np.array([of(vectors[name]) if len(vectors.get(name, ())) else np.nan for name in self.names])


def _moments(rows: _Rows) -> dict[str, np.ndarray]:
    """Chan, Golub & LeVeque (1979), of R sets at once."""
    count = np.nan_to_num(rows.series["count"]) * rows.parts
    total = count.sum(axis=0)
    some = np.where(total > 0, total, np.nan)
    mean, std, mean_abs = (np.where(count > 0, rows.series[key], 0.0) for key in ("mean", "std", "mean_abs"))
    pooled = np.sum(count * mean, axis=0) / some
    m2 = np.sum(count * (std**2 + (mean - np.nan_to_num(pooled)) ** 2), axis=0)
    mean_square = m2 / some + pooled**2
    nonfinite = np.nansum(rows.series["nonfinite"] * rows.parts, axis=0)
    observed = np.where(np.isnan(rows.series["count"]).all(axis=0), np.nan, 0.0)
    first = rows.series.get("first_nonfinite_step", np.full(count.shape, np.nan))
    return {
        "count": total + observed,
        "mean": pooled,
        "std": np.sqrt(m2 / some),
        "rms": np.sqrt(mean_square),
        "l2_norm": np.sqrt(mean_square * some),
        "mean_abs": np.sum(count * mean_abs, axis=0) / some,
        "min": np.fmin.reduce(rows.series["min"], axis=0),
        "max": np.fmax.reduce(rows.series["max"], axis=0),
        "nonfinite": nonfinite + observed,
        "first_nonfinite_step": np.fmin.reduce(rows.steps(first), axis=0),
    }


def _activity(rows: _Rows) -> dict[str, np.ndarray]:
    of_runs = [[float(np.sum(run.get(name, 0.0))) for name in rows.names] for run in rows.kept["activity/elements"]]
    elements = np.array(of_runs) * rows.parts
    total = elements.sum(axis=0)
    nonzero = np.sum(elements * np.where(elements > 0, rows.series["activation_rate"], 0.0), axis=0)
    gap = np.where(total > 0, 0.0, np.nan)
    return {
        "activation_rate": nonzero / np.where(total > 0, total, np.nan),
        "dead_rate": rows.per_tensor("activity/zero_channels", np.mean) + gap,
        "spatial_dead_rate": rows.per_tensor("activity/zero_positions", np.mean) + gap,
    }


def _quantiles(rows: _Rows) -> dict[str, np.ndarray]:
    return _of_sketches(rows, "quantiles", rows.levels)


def _implicit_rate(rows: _Rows) -> dict[str, np.ndarray]:
    key = "implicit_learning_rate"
    median = _of_sketches(rows, key, np.array([50.0]))["quantiles"][:, 0]
    return {key: median, f"{key}_quantiles": _of_sketches(rows, key, rows.levels)["quantiles"]}


def _of_sketches(rows: _Rows, statistic: str, levels: np.ndarray | None) -> dict[str, np.ndarray]:
    levels = np.zeros(0) if levels is None else levels
    results = []
    for name in rows.names:
        sketch = rows.merged[f"{statistic}/sketch"].get(name, np.zeros(BINS.size))
        low, high = rows.merged[f"{statistic}/extremes"].get(name, (np.inf, -np.inf))
        results.append(read_out(sketch, float(low), float(high), levels))
    return {key: np.array([result[key] for result in results]) for key in results[0]}


def _update_ratio(rows: _Rows) -> dict[str, np.ndarray]:
    ratio = rows.per_tensor("update_ratio/squares", lambda v: np.sqrt(v[0] / v[1]) if v[1] > 0 else np.nan)
    return {"update_ratio": ratio}


def _per_unit(rows: _Rows) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for name in rows.merged["per_unit/count"]:
        count, total, (mean, std, rate) = _of_units(rows, name, "per_unit/count", ("mean", "std", "activation_rate"))
        pooled = np.sum(count * mean, axis=0) / total
        m2 = np.sum(count * (std**2 + (mean - np.nan_to_num(pooled)) ** 2), axis=0)
        numbers = {"mean": pooled, "std": np.sqrt(m2 / total), "activation_rate": np.sum(count * rate, axis=0) / total}
        places = "position_activation_rate"
        if len(rows.merged["per_unit/position_count"].get(name, ())):
            count, total, (rate,) = _of_units(rows, name, "per_unit/position_count", (places,))
            numbers[places] = np.sum(count * rate, axis=0) / total
        for key, values in numbers.items():
            found.setdefault(key, {})[name] = values
    return found


def _of_units(
    rows: _Rows, name: str, key: str, units: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The counts of each run, (R, units), their sums, NaN for zero, and unit series, (R, units); of one tensor."""
    runs = [i for i, run in enumerate(rows.kept[key]) if name in run]
    total = rows.merged[key][name]
    if not len(total):  # their number varies
        return np.zeros((0, 0)), total, [np.zeros((0, 0))] * len(units)
    count = np.array([rows.kept[key][i][name] for i in runs]) * rows.parts[runs]
    series = [np.where(count > 0, [rows.units[unit][i][name] for i in runs], 0.0) for unit in units]
    return count, np.where(total > 0, total, np.nan), series


class _Rule(NamedTuple):
    """Which series a function gives, what it reads of the series and of what is kept."""

    apply: Callable[[_Rows], Mapping[str, Any]]
    series: tuple[str, ...]
    needs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


_RULES = (
    _Rule(
        _moments,
        ("count", "mean", "std", "rms", "l2_norm", "mean_abs", "min", "max", "nonfinite", "first_nonfinite_step"),
        needs=("count", "mean", "std", "mean_abs", "min", "max", "nonfinite"),
    ),
    _Rule(
        _activity,
        ("activation_rate", "dead_rate", "spatial_dead_rate"),
        needs=("activation_rate",),
        keys=("activity/elements", "activity/zero_channels", "activity/zero_positions"),
    ),
    _Rule(
        _quantiles,
        ("quantiles", "magnitude_quantiles", "sign_balance", "log_magnitude_mean", "log_magnitude_std"),
        keys=("quantiles/sketch", "quantiles/extremes"),
    ),
    _Rule(
        _implicit_rate,
        ("implicit_learning_rate", "implicit_learning_rate_quantiles"),
        keys=("implicit_learning_rate/sketch", "implicit_learning_rate/extremes"),
    ),
    _Rule(_update_ratio, ("update_ratio",), keys=("update_ratio/squares",)),
)
_UNIT_RULES = (
    _Rule(
        _per_unit,
        ("mean", "std", "activation_rate", "position_activation_rate"),
        needs=("mean", "std", "activation_rate"),
        keys=("per_unit/count", "per_unit/position_count"),
    ),
)


_VALIDATION = "val_"  # how the views begin that describe validation
_EPOCH_SUM = "_epoch_sum"  # how the views end that `Gradients(epoch_sum=True)` adds
_DERIVED = ("dead_streak", "revivals")  # unit series that follow from others

# --- what is kept ---


def _sum(vectors: np.ndarray, parts: np.ndarray) -> np.ndarray:
    return np.sum(vectors * parts, axis=0)


def _all(vectors: np.ndarray, parts: np.ndarray) -> np.ndarray:
    return np.all(vectors, axis=0)


def _ends(vectors: np.ndarray, parts: np.ndarray) -> np.ndarray:
    return np.array([vectors[:, 0].min(), vectors[:, 1].max()])


_TOGETHER = {"zero_channels": _all, "zero_positions": _all, "extremes": _ends}  # all else is added up


def _together(key: str, runs: list[dict[str, np.ndarray]], parts: np.ndarray) -> dict[str, np.ndarray]:
    """What runs keep under one key together; an empty vector where theirs differ in length."""
    combine = _TOGETHER.get(key.rpartition("/")[2], _sum)
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        having = [i for i, run in enumerate(runs) if name in run]
        vectors = [runs[i][name] for i in having]
        same = len({len(vector) for vector in vectors}) == 1
        found[name] = combine(np.array(vectors), parts[having]) if same else np.zeros(0)
    return found


# --- recordings ---


def merge(target: Any, recordings: Sequence[Any], weights: Sequence[float] | None, drop: set[str]) -> None:
    """Fills an empty recording with what others hold together; see `Recording.merge`."""
    if not recordings:
        raise ValueError("Recording.merge() was given no recording; expected a list of one or more.")
    if weights is not None and (len(weights) != len(recordings) or not all(np.isfinite(w) and w > 0 for w in weights)):
        raise ValueError(
            f"weights={list(weights)}; expected a positive number for each of the {len(recordings)} recordings: how "
            "many samples it saw."
        )
    for view in dict.fromkeys(view for recording in recordings for view in recording if view not in drop):
        _merge_view(target, recordings, view, drop)
    _merge_logs(target, recordings, weights)
    for recording in reversed(recordings):
        target.unobserved = {**target.unobserved, **recording.unobserved}
    _merge_metadata(target, recordings)


def _merge_view(target: Any, recordings: Sequence[Any], view: str, drop: set[str]) -> None:
    lacking = [i for i, recording in enumerate(recordings) if view not in recording]
    if lacking:
        raise ValueError(
            f"Recording {lacking[0]} has no {view!r}, but others have: merge recordings of the same collectors. "
            f"It has {', '.join(map(repr, recordings[lacking[0]])) or 'nothing'}."
        )
    if view.endswith(_EPOCH_SUM):
        raise _cannot_be_merged(view, [view], "the statistics of two sums do not tell those of their sum")
    all_series = [recording[view] for recording in recordings]
    names = all_series[0].names
    _check_names(view, all_series)
    shapes = [_shape([series.shapes[series.names.index(name)] for series in all_series], view, name) for name in names]
    levels = _levels(view, all_series)
    if all_series[0]._single:
        for epoch in _epochs(all_series):
            pooled = _of_batches(view, all_series, [r.kept(view, epoch) for r in recordings], epoch, levels)
            values = {key: value for key, value in pooled.items() if key not in drop}
            target.add_epoch(view, epoch, names, shapes, values, quantile_levels=levels, single=True)
    else:
        _merge_epochs(target, recordings, view, shapes, levels, drop)
    _merge_steps(target, all_series, view, names, shapes, levels, drop)


def _check_names(view: str, all_series: Sequence[Any]) -> None:
    names = all_series[0].names
    for i, series in enumerate(all_series):
        odd = sorted(set(series.names) ^ set(names))
        if odd:
            raise ValueError(
                f"The tensors of {view!r} differ: of recordings 0 and {i}, only one has {', '.join(map(repr, odd[:6]))}"
                ". Merge recordings of models with the same layers, and give the layers names: those without one are "
                "numbered by Keras, 'dense', 'dense_1', in one model after the other."
            )


def _levels(view: str, all_series: Sequence[Any]) -> np.ndarray | None:
    given = [series.quantile_levels.tolist() for series in all_series if series.quantile_levels is not None]
    if any(levels != given[0] for levels in given):
        raise ValueError(f"The quantiles of {view!r} are at different levels: {given}. Merge recordings of the same.")
    return np.array(given[0]) if given else None


def _epochs(of: Sequence[Any]) -> list[int]:
    """All epochs of some recordings or series."""
    return np.unique(np.concatenate([each.epochs for each in of])).tolist()


def _merge_epochs(
    target: Any, recordings: Sequence[Any], view: str, shapes: Any, levels: np.ndarray | None, drop: set[str]
) -> None:
    all_series = [recording[view] for recording in recordings]
    names = all_series[0].names
    of_values = any(recording.is_of_values(view) for recording in recordings)
    runs = np.array([len(recording.metadata.get(MERGED, [None])) for recording in recordings], np.float64)
    rules = _rules(view, all_series, drop, _RULES, "statistics")
    unit_rules = _rules(view, all_series, drop, _UNIT_RULES, "unit_statistics")
    keys = dict.fromkeys(key for rule in (*rules, *unit_rules) for key in rule.keys)
    for epoch in _epochs(all_series):
        having = [i for i, series in enumerate(all_series) if epoch in series.epochs]
        present = [all_series[i] for i in having]
        kept = [recordings[i].kept(view, epoch) for i in having]
        of_runs = {key: [run.get(key, {}) for run in kept] for key in keys}
        parts = runs[having, None] / runs[having].sum() if of_values else np.ones((len(having), 1))
        rows = _Rows(
            names,
            _at(present, epoch, names),
            _units_at(present, epoch),
            of_runs,
            {key: _together(key, vectors, parts) for key, vectors in of_runs.items()},
            parts,
            (lambda steps: steps) if of_values else functools.partial(_in_turn, len(all_series), having),
            levels,
        )
        _check_kept(view, epoch, rows, [*rules, *unit_rules])
        values = {k: v for rule in rules for k, v in rule.apply(rows).items() if k not in drop and k in rows.series}
        units = {k: v for rule in unit_rules for k, v in rule.apply(rows).items() if k not in drop}
        target.add_epoch(view, epoch, names, shapes, values, units, levels, rows.merged, of_values)


def _of_batches(
    view: str, all_series: Sequence[Any], kept: Sequence[Any], epoch: int, levels: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The quantiles of the batches' metrics in one epoch, (1, Q): of the single steps that the runs took in it."""
    values: dict[str, list[np.ndarray]] = {}
    for series, of in zip(all_series, kept, strict=True):
        if epoch not in series.epochs:
            continue
        ends = of.get(STEPS, {}).get(series.names[0])
        if ends is None or levels is None:
            why = "their epochs are merged from their single steps, which not all keep: see per_step= of StepMetrics"
            raise _cannot_be_merged(view, [view], why)
        inside = (series.steps >= ends[0]) & (series.steps <= ends[1])
        for key in series.statistics:
            steps = series.step(key)[inside] if key in series.step_statistics else np.zeros(0)
            values.setdefault(key, []).append(steps[np.isfinite(steps)])
    results = {}
    for key, parts in values.items():
        pooled = np.concatenate(parts)
        gap = np.full(0 if levels is None else len(levels), np.nan)
        results[key] = (np.percentile(pooled, levels) if len(pooled) and levels is not None else gap)[None]
    return results


def _in_turn(number: int, runs: Sequence[int], steps: np.ndarray) -> np.ndarray:
    """The steps of these of a number of runs, when each run takes its step in turn."""
    return steps * number + np.array(runs)[:, None]


def _shape(shapes: list[tuple[int | None, ...]], view: str, name: str) -> tuple[int | None, ...]:
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError(f"{name!r} of {view!r} has shapes of different ranks, {shapes}: these are different models.")
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))


def _rules(view: str, all_series: Sequence[Any], drop: set[str], rules: Sequence[_Rule], of: str) -> list[_Rule]:
    """The rules that give the series of a view, or an error that names the one that none gives."""
    chosen: list[_Rule] = []
    for name in dict.fromkeys(name for series in all_series for name in getattr(series, of)):
        if name in drop or name in _DERIVED:
            continue
        rule = next((rule for rule in rules if name in rule.series), None)
        if rule is None:
            why = "there is no rule that joins it from results"
        elif missing := [need for need in rule.needs if any(need not in getattr(s, of) for s in all_series)]:
            why = f"that needs {', '.join(map(repr, missing))} in all of them"
        else:
            if rule not in chosen:
                chosen.append(rule)
            continue
        raise _cannot_be_merged(view, [name], why)
    return chosen


_NOT_KEPT = "not all of them keep what that needs: one was made by an earlier version, or by hand"


def _cannot_be_merged(view: str, names: Sequence[str], why: str) -> ValueError:
    shown = ", ".join(map(repr, names))
    return ValueError(
        f"{shown} of {view!r} cannot be merged: {why}. Leave it out: Recording.merge(recordings, drop=[{shown}])."
    )


def _check_kept(view: str, epoch: int, rows: _Rows, rules: Sequence[_Rule]) -> None:
    """Raises where a run has series of an epoch, but keeps nothing for it: an earlier version recorded that epoch."""
    for rule in rules:
        have = [name for name in rule.series if name in rows.series or name in rows.units]
        for run in range(len(rows.parts)):
            if any(not rows.kept[key][run] for key in rule.keys) and any(_has(rows, name, run) for name in have):
                raise _cannot_be_merged(view, have, f"{_NOT_KEPT}, in epoch {epoch}")


def _has(rows: _Rows, name: str, run: int) -> bool:
    """Whether a run has observed a series in the epoch."""
    units = rows.units[name][run].values() if name in rows.units else ()
    return (name in rows.series and not np.isnan(rows.series[name][run]).all()) or any(len(u) for u in units)


def _at(all_series: Sequence[Any], epoch: int, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The series of one epoch: name → (R, L, …)."""
    found: dict[str, np.ndarray] = {}
    for run, series in enumerate(all_series):
        columns = [series.names.index(name) for name in names]
        row = int(np.flatnonzero(series.epochs == epoch)[-1])
        for key in series.statistics:
            values = series.epoch(key)[row, columns]
            found.setdefault(key, np.full((len(all_series), *values.shape), np.nan))[run] = values
    return found


def _units_at(all_series: Sequence[Any], epoch: int) -> Kept:
    found: Kept = {}
    for run, series in enumerate(all_series):
        row = int(np.flatnonzero(series.epochs == epoch)[-1])
        for key in series.unit_statistics:
            if key in _DERIVED:
                continue
            of_runs = found.setdefault(key, [{} for _ in all_series])
            of_runs[run] = {name: values[row] for name, values in series.unit(key).items()}
    return found


def _merge_steps(
    target: Any, all_series: Sequence[Any], view: str, names: Sequence[str], shapes: Any, levels: Any, drop: set[str]
) -> None:
    """Step s of the r-th of R runs becomes step R·s + r."""
    number = len(all_series)
    steps = np.concatenate([_in_turn(number, [run], series.steps)[0] for run, series in enumerate(all_series)])
    if not len(steps):
        return
    order = np.argsort(steps, kind="stable")
    values = {}
    for key in dict.fromkeys(key for series in all_series for key in series.step_statistics if key not in drop):
        width = next(_steps_of(series, key, names).shape[2:] for series in all_series if key in series.step_statistics)
        parts = [
            _steps_of(series, key, names)
            if key in series.step_statistics
            else np.full((len(series.steps), len(names), *width), np.nan)
            for series in all_series
        ]
        values[key] = np.concatenate(parts)[order]
    target.add_steps(view, steps[order], names, shapes, values, levels, single=all_series[0]._single)


def _steps_of(series: Any, key: str, names: Sequence[str]) -> np.ndarray:
    """A series of steps, (S, L, …), its tensors in this order."""
    if series._single:
        return np.asarray(series.step(key)[:, None])
    return np.asarray(series.step(key)[:, [series.names.index(name) for name in names]])


def _merge_logs(target: Any, recordings: Sequence[Any], weights: Sequence[float] | None) -> None:
    tables = []
    for recording in recordings:
        epochs, logs = recording.epochs.tolist(), recording.logs
        tables.append({epoch: {name: float(logs[name][row]) for name in logs} for row, epoch in enumerate(epochs)})
    names = dict.fromkeys(name for recording in recordings for name in recording.logs)
    for epoch in _epochs(recordings):
        counts = np.array(_samples(recordings, epoch) if weights is None else weights)
        logs = {}
        for name in names:
            values = np.array([table.get(epoch, {}).get(name, np.nan) for table in tables])
            known = ~np.isnan(values)
            if known.any():
                logs[name] = float(np.average(values[known], weights=counts[known]))
        if logs:
            target.add_logs(epoch, logs)


def _samples(recordings: Sequence[Any], epoch: int) -> list[float]:
    """How many samples each run saw in an epoch, or what is in proportion to it; ones, if nothing tells."""
    for batched in (True, False):
        for view in recordings[0]:
            known = all(view in recording for recording in recordings)
            if not known or recordings[0].is_of_values(view) or view.startswith(_VALIDATION):
                continue
            for name, shape in zip(recordings[0][view].names, recordings[0][view].shapes, strict=True):
                if (shape[:1] == (None,)) != batched or None in shape[1:]:
                    continue
                counts = [_elements(recording, view, name, epoch) for recording in recordings]
                if all(counts):
                    return counts
    return [1.0] * len(recordings)


def _elements(recording: Any, view: str, name: str, epoch: int) -> float:
    series = recording[view]
    row = series.epochs == epoch
    if name not in series.names or not row.any() or not {"count", "nonfinite"} <= set(series.statistics):
        return 0.0
    column = series.names.index(name)
    return float(np.nan_to_num(series.epoch("count")[row, column] + series.epoch("nonfinite")[row, column])[-1])


def _merge_metadata(target: Any, recordings: Sequence[Any]) -> None:
    """What is the same in all runs; the earliest start; and each run's own under `merged`."""
    first = recordings[0].metadata
    same = {k: v for k, v in first.items() if all(k in r.metadata and r.metadata[k] == v for r in recordings)}
    starts = [str(r.metadata["started"]) for r in recordings if "started" in r.metadata]
    own = [about for r in recordings for about in r.metadata.get(MERGED, [r.metadata])]
    target.metadata = {**same, **({"started": min(starts)} if starts else {}), MERGED: own}
