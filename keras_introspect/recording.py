"""What was observed: a container that needs NumPy and nothing else.

A `Recording` maps a view (`"weights"`, `"gradients"`, …) to a `Series`. It grows while a model trains, is complete
inside every callback's `on_epoch_end`, and is saved to one `.npz` file that holds no pickled object.
"""

import fnmatch
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_introspect.atomic import write_atomically
from keras_introspect.errors import NOTHING_OBSERVED, WrongTypeError, a_type, as_names, unknown_name
from keras_introspect.files import recording_bytes
from keras_introspect.kept import pack, unpack
from keras_introspect.merging import merge
from keras_introspect.npz import read_npz, write_npz

FORMAT_VERSION = 1
_FORMAT = "keras_introspect recording"
_META = "recording.json"
_SKETCH = ("quantiles/sketch", "quantiles/extremes")
_COLLECTORS = {  # view → the collector that observes it
    "weights": "ki.Weights()",
    "gradients": "ki.Gradients()",
    "gradients_epoch_sum": "ki.Gradients(epoch_sum=True)",
    "updates": "ki.Updates()",
    "layer_outputs": "ki.LayerOutputs()",
    "val_layer_outputs": 'ki.LayerOutputs(phase="both")',
    "output_gradients": "ki.OutputGradients()",
    "metrics": "ki.StepMetrics()",
}
_RAW = "values"  # the series with a last axis that holds elements, not quantiles

Values = dict[str, np.ndarray]
Shape = tuple[int | None, ...]


def _how_to_observe(view: object, views: Iterable[str]) -> str:
    """How a view that a recording does not have would come into it."""
    parts = [] if any(True for _ in views) else [NOTHING_OBSERVED]
    if isinstance(view, str) and view in _COLLECTORS:
        parts.append(f"It comes from the collector {_COLLECTORS[view]}: add it to those of compile(collectors=[…]).")
    return " ".join(parts) or "A view exists once a collector observed it."


def _frozen(array: Any, dtype: Any = None) -> np.ndarray:
    """A read-only view: the array it looks at stays as it was."""
    view = np.asarray(array, dtype).view()
    view.flags.writeable = False
    return view


class Series:
    """The statistics of one view, such as `"gradients"`: a snapshot of what is recorded so far.

    Attributes:
        names: the L observed tensors, in the order of the model: `("conv1/kernel", …)`.
        shapes: their shapes; `None` marks an axis that varies, such as the batch.
        epochs: int64, shape (T,): the epochs recorded, counted from 0 over all calls of `fit`.
        steps: int64, shape (S,): the optimizer steps recorded, counted from 0; empty without `per_step=True`.
        statistics: names of what `epoch` answers.
        step_statistics: names of what `step` answers.
        unit_statistics: names of what `unit` answers.
        quantile_levels: shape (Q,), percent, or `None` where no quantiles were collected.

    Example:

    >>> recording = Recording()
    >>> recording.add_epoch("gradients", 0, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.5, 0.25]})
    >>> series = recording["gradients"]
    >>> series.epoch("rms").shape
    (1, 2)
    >>> series.sel("b/kernel").epoch("rms")
    array([0.25])
    """

    def __init__(
        self,
        names: Sequence[str],
        shapes: Sequence[Shape],
        epochs: np.ndarray,
        epoch_values: Values,
        steps: np.ndarray | None = None,
        step_values: Values | None = None,
        unit_values: Mapping[str, Mapping[str, np.ndarray]] | None = None,
        quantile_levels: np.ndarray | None = None,
        view: str = "",
        single: bool = False,
    ) -> None:
        self.view = view
        self.names = tuple(names)
        self.shapes = tuple(tuple(shape) for shape in shapes)
        self.epochs = _frozen(epochs, np.int64)
        self.steps = _frozen([] if steps is None else steps, np.int64)
        self.quantile_levels = None if quantile_levels is None else _frozen(quantile_levels)
        self._epoch_values = {key: _frozen(value) for key, value in epoch_values.items()}
        self._step_values = {key: _frozen(value) for key, value in (step_values or {}).items()}
        self._unit_values = {
            key: {name: _frozen(value) for name, value in units.items()} for key, units in (unit_values or {}).items()
        }
        self._single = single
        self._sketches: Callable[[int, str], Any] | None = None  # of the recording, for pictures

    @property
    def statistics(self) -> tuple[str, ...]:
        return tuple(self._epoch_values)

    @property
    def step_statistics(self) -> tuple[str, ...]:
        return tuple(self._step_values)

    @property
    def unit_statistics(self) -> tuple[str, ...]:
        derived = tuple(_FROM_RATES) if "activation_rate" in self._unit_values else ()
        return (*self._unit_values, *derived)

    def epoch(self, statistic: str) -> np.ndarray:
        """One statistic, a value an epoch and tensor.

        Args:
            statistic: one of `statistics`.

        Returns:
            float64, shape (T, L), or (T, L, Q) for quantiles; NaN where nothing was observed. Of a single
            tensor, chosen by `sel("its/name")`, the axis L is left out.

        Raises:
            UnknownNameError: no such statistic was recorded for this view.
        """
        return self._look_up(statistic, self._epoch_values, "an epoch series")

    def step(self, statistic: str) -> np.ndarray:
        """One statistic, a value a step and tensor: shape (S, L); see `epoch`. Needs `per_step=True`."""
        mend = "" if self._step_values else "Step series need per_step=True on the collector."
        return self._look_up(statistic, self._step_values, "a step series", mend)

    def unit(self, statistic: str) -> dict[str, np.ndarray]:
        """One statistic of every channel: tensor name → float64, shape (T, channels).

        From `activation_rate` follow two more: `dead_streak`, for how many epochs in a row, up to this one, the channel
        was zero throughout; and `revivals`, how often until then it came back after such an epoch. An epoch that was
        not observed is passed over.

        Raises:
            UnknownNameError: no such statistic was recorded for the channels of this view.
        """
        if statistic in _FROM_RATES and "activation_rate" in self._unit_values:
            rates = self._unit_values["activation_rate"]
            return {name: _frozen(_FROM_RATES[statistic](values)) for name, values in rates.items()}
        if statistic not in self._unit_values:
            mend = "" if self._unit_values else 'Unit series need the statistic "per_unit".'
            raise unknown_name(f"unit series of {self.view!r}", statistic, self.unit_statistics, mend)
        return dict(self._unit_values[statistic])

    def sel(self, names: str | Iterable[str]) -> "Series":
        """Chooses tensors by name, by glob (`"conv*"`), or by a list of either.

        Args:
            names: the full name of one tensor drops the axis L from all answers; a glob or a list keeps it.

        Raises:
            UnknownNameError: nothing carries that name or fits that glob.
            WrongTypeError: something else than names, such as a number.
        """
        if isinstance(names, str) and names in self.names:
            return self._take([self.names.index(names)], single=True)
        chosen: list[int] = []
        for pattern in as_names(names, "layers= or sel()"):
            found = [i for i, name in enumerate(self.names) if name == pattern]
            found = found or [i for i, name in enumerate(self.names) if fnmatch.fnmatchcase(name, pattern)]
            if not found:
                raise unknown_name(f"tensor in {self.view!r}", pattern, self.names)
            chosen += [i for i in found if i not in chosen]
        return self._take(chosen, single=False)

    def _take(self, index: list[int], single: bool) -> "Series":
        if self._single:
            raise ValueError(f"This series of {self.view!r} is already one tensor, {self.names[0]!r}.")
        names = [self.names[i] for i in index]
        taken = Series(
            names,
            [self.shapes[i] for i in index],
            self.epochs,
            {key: value[:, index] for key, value in self._epoch_values.items()},
            self.steps,
            {key: value[:, index] for key, value in self._step_values.items()},
            {key: {n: units[n] for n in names if n in units} for key, units in self._unit_values.items()},
            self.quantile_levels,
            self.view,
            single,
        )
        taken._sketches = self._sketches
        return taken

    def _sketch(self, epoch: int, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """The sketch of one tensor's values in an epoch, and its extremes, where the recording keeps them."""
        return None if self._sketches is None else self._sketches(epoch, name)

    def _look_up(self, statistic: str, values: Values, kind: str, mend: str = "") -> np.ndarray:
        if statistic not in values:
            raise unknown_name(f"statistic of {self.view!r} as {kind}", statistic, values, mend)
        value = values[statistic]
        return value[:, 0] if self._single else value

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return (
            f"<Series {self.view!r}: {len(self.names)} tensors, {len(self.epochs)} epochs, {len(self.steps)} steps; "
            f"{', '.join(self.statistics)}>"
        )


def _dead_streak(rates: np.ndarray) -> np.ndarray:
    streak = np.zeros(rates.shape)
    now = np.zeros(rates.shape[1])
    for i, row in enumerate(rates):
        now = np.where(row == 0, now + 1, np.where(np.isnan(row), now, 0))
        streak[i] = np.where(np.isnan(row), np.nan, now)
    return streak


def _revivals(rates: np.ndarray) -> np.ndarray:
    count = np.zeros(rates.shape)
    now, dead = np.zeros(rates.shape[1]), np.zeros(rates.shape[1], bool)
    for i, row in enumerate(rates):
        now = now + (dead & (row > 0))
        dead = np.where(np.isnan(row), dead, row == 0)
        count[i] = np.where(np.isnan(row), np.nan, now)
    return count


_FROM_RATES = {"dead_streak": _dead_streak, "revivals": _revivals}

_Block = tuple[np.ndarray, tuple[str, ...], Values]  # index (rows,), the tensors' names, statistic → (rows, L, …)


class _Table:
    """Rows of one index (epochs or steps), appended block by block and joined by name when read."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self._room: _Block | None = None  # arrays longer than needed, with `_of` at their beginning
        self._of: _Block | None = None

    @staticmethod
    def block(index: Any, names: Sequence[str], values: Mapping[str, Any]) -> _Block:
        """Checks and copies rows: what is recorded must not change with its source."""
        index = np.atleast_1d(np.array(index, np.int64))
        twice = sorted({name for name in names if list(names).count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"The tensors {', '.join(map(repr, twice))} come twice in {list(names)}; name each once.")
        arrays = {}
        for key, value in values.items():
            array = np.array(value, np.float64)
            if array.shape[:2] != (len(index), len(names)) or array.ndim > 3:
                raise ValueError(
                    f"{key!r} has shape {array.shape}; expected ({len(index)}, {len(names)}, …): rows × tensors."
                )
            arrays[key] = array
        return index, tuple(names), arrays

    def join(self, names: Sequence[str]) -> tuple[np.ndarray, Values]:
        """Joins the blocks; where one lacks a tensor or statistic, the value is NaN."""
        if len(self.blocks) == 1 and self.blocks[0][1] == tuple(names):
            return self.blocks[0][0], self.blocks[0][2]
        index = np.concatenate([np.zeros(0, np.int64), *(block[0] for block in self.blocks)])
        column = {name: i for i, name in enumerate(names)}
        tails = {key: array.shape[2:] for _, _, values in self.blocks for key, array in values.items()}
        joined = {key: np.full((len(index), len(names), *tail), np.nan) for key, tail in tails.items()}
        row = 0
        for block_index, block_names, values in self.blocks:
            columns: Any = slice(None)  # a slice copies ten times as fast as an index
            if block_names != tuple(names):
                columns = [column[name] for name in block_names]
            for key, array in values.items():
                if array.shape[2:] == tails[key]:
                    joined[key][row : row + len(block_index), columns] = array
            row += len(block_index)
        return index, joined

    def compact(self, names: Sequence[str]) -> None:
        """Makes one block of all."""
        if len(self.blocks) > 1 and not self._extend(tuple(names)):
            index, values = self.join(names)
            self.blocks = [(index, tuple(names), values)]

    def _extend(self, names: tuple[str, ...]) -> bool:
        """Writes the blocks behind the first one, if they are of one form.

        There is room for twice as many rows, so that who reads after each epoch does not copy all epochs each time.
        What was read before keeps its rows: they are only added to.
        """
        first, *rest = self.blocks
        forms = [(block[1], {key: array.shape[2:] for key, array in block[2].items()}) for block in self.blocks]
        if any(form != (names, forms[0][1]) for form in forms):
            return False
        used, total = len(first[0]), sum(len(index) for index, _, _ in self.blocks)
        if self._room is None or self._of is not first or len(self._room[0]) < total:
            index = np.empty(2 * total, np.int64)
            arrays = {key: np.empty((2 * total, *array.shape[1:])) for key, array in first[2].items()}
            index[:used] = first[0]
            for key, array in first[2].items():
                arrays[key][:used] = array
            self._room = (index, names, arrays)
        index, _, arrays = self._room
        for added, _, values in rest:
            rows = slice(used, used + len(added))
            index[rows] = added
            for key, array in values.items():
                arrays[key][rows] = array
            used = rows.stop
        self._of = (index[:total], names, {key: array[:total] for key, array in arrays.items()})
        self.blocks = [self._of]
        return True

    def drop_row(self, number: int) -> None:
        kept = [(index != number, index, names, values) for index, names, values in self.blocks]
        self.blocks = [(i[rows], names, {k: v[rows] for k, v in values.items()}) for rows, i, names, values in kept]

    def drop_quantiles(self) -> None:
        self.blocks = [
            (i, names, {k: v for k, v in values.items() if v.ndim < 3 or k == _RAW}) for i, names, values in self.blocks
        ]


class _View:
    """The growing side of one `Series`."""

    def __init__(self) -> None:
        self.shapes: dict[str, Shape] = {}
        self.epoch_table = _Table()
        self.step_table = _Table()
        self.units: dict[str, dict[str, list[tuple[int, np.ndarray]]]] = {}
        self.quantile_levels: np.ndarray | None = None
        self.single = False
        self.of_values = False
        self.kept: dict[int, bytes] = {}
        self.kept_keys: list[str] = []
        self._series: Series | None = None

    def add(self, shapes: Mapping[str, Shape], quantile_levels: np.ndarray | None) -> None:
        self._series = None
        self.shapes.update(shapes)
        if quantile_levels is None:
            return
        if self.quantile_levels is not None and not np.array_equal(self.quantile_levels, quantile_levels):
            self.epoch_table.drop_quantiles()  # a series has one set of levels: the newest
            self.step_table.drop_quantiles()
        self.quantile_levels = quantile_levels

    def keep(self, epoch: int, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Packs what is kept of an epoch: key → name → vector."""
        self.kept_keys += [key for key in kept if key not in self.kept_keys]
        tensors = {name: i for i, name in enumerate(self.shapes)}
        places = {key: i for i, key in enumerate(self.kept_keys)}
        self.kept[epoch] = pack(
            {(places[key], tensors[name]): vector for key, of in kept.items() for name, vector in of.items()}
        )

    def forget(self, epoch: int) -> None:
        """Drops what is recorded of an epoch."""
        if not any(epoch in index for index, _, _ in self.epoch_table.blocks):
            return
        self.epoch_table.drop_row(epoch)
        for by_name in self.units.values():
            for name, rows in by_name.items():
                by_name[name] = [row for row in rows if row[0] != epoch]
        self.kept.pop(epoch, None)

    def series(self, view: str) -> Series:
        if self._series is None:
            names = tuple(self.shapes)
            self.epoch_table.compact(names)
            self.step_table.compact(names)
            epochs, epoch_values = self.epoch_table.join(names)
            steps, step_values = self.step_table.join(names)
            self._series = Series(
                names,
                tuple(self.shapes.values()),
                epochs,
                epoch_values,
                steps,
                step_values,
                {key: self._joined_units(rows, epochs) for key, rows in self.units.items()},
                self.quantile_levels,
                view,
                self.single,
            )
            self._series._sketches = self.sketch
        return self._series

    def sketch(self, epoch: int, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """What is kept of the quantiles of one tensor in an epoch: the weight in each bin, minimum and maximum."""
        keys = [self.kept_keys.index(key) for key in _SKETCH if key in self.kept_keys]
        if epoch not in self.kept or len(keys) < 2 or name not in self.shapes:
            return None
        tensor = list(self.shapes).index(name)
        vectors = unpack(self.kept[epoch])
        found = [vectors.get((key, tensor)) for key in keys]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    @staticmethod
    def _joined_units(rows: Mapping[str, list[tuple[int, np.ndarray]]], epochs: np.ndarray) -> dict[str, np.ndarray]:
        joined = {}
        for name, values in rows.items():
            width = len(values[-1][1])
            array = np.full((len(epochs), width), np.nan)
            by_epoch = dict(values)
            for i, epoch in enumerate(epochs):
                value = by_epoch.get(int(epoch))
                if value is not None and len(value) == width:
                    array[i] = value
            joined[name] = array
        return joined


class Recording(Mapping[str, Series]):
    """Everything that was observed of a model's training.

    A mapping from view to `Series`: `recording["gradients"]`, `recording["layer_outputs"]`, …

    Attributes:
        unobserved: what could not be observed, name → reason.
        metadata: how the run was configured: versions, model name, collectors.

    Example:

    >>> recording = Recording()
    >>> recording.add_logs(0, {"loss": 1.5})
    >>> recording.add_epoch("weights", 0, ["a/kernel"], [(2, 3)], {"mean": [0.1], "std": [1.0]})
    >>> recording
    <Recording: 1 epochs; weights (1)>
    >>> recording.logs["loss"]
    array([1.5])
    """

    def __init__(self) -> None:
        self._views: dict[str, _View] = {}
        self._logs: dict[int, dict[str, float]] = {}
        self.unobserved: dict[str, str] = {}
        self.metadata: dict[str, Any] = {}

    # --- reading ---

    def __getitem__(self, view: str) -> Series:
        if view not in self._views:
            raise unknown_name("view in this recording", view, self._views, _how_to_observe(view, self._views))
        return self._views[view].series(view)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, view: object) -> bool:
        return view in self._views

    def _names(self, view: str) -> tuple[str, ...]:
        """The tensors of a view; unlike those of its series, they are known without joining what was recorded."""
        return tuple(self._views[view].shapes)

    def _epochs(self, view: str) -> np.ndarray:
        """The epochs of a view, its steps left as they are."""
        table = self._views[view].epoch_table
        table.compact(self._names(view))
        return table.blocks[0][0] if table.blocks else np.zeros(0, np.int64)

    @property
    def epochs(self) -> np.ndarray:
        """int64, shape (T,): every epoch that has logs or values."""
        epochs = set(self._logs)
        for view in self._views.values():
            for index, _, _ in view.epoch_table.blocks:
                epochs.update(int(i) for i in index)
        return np.array(sorted(epochs), np.int64)

    @property
    def logs(self) -> Mapping[str, np.ndarray]:
        """Keras's own epoch logs (`loss`, `val_loss`, …): name → float64, shape (T,), along `epochs`."""
        epochs = [int(epoch) for epoch in self.epochs]
        names = dict.fromkeys(key for logs in self._logs.values() for key in logs)
        return {key: np.array([self._logs.get(e, {}).get(key, np.nan) for e in epochs], np.float64) for key in names}

    def __repr__(self) -> str:
        views = ", ".join(f"{name} ({len(view.shapes)})" for name, view in self._views.items())
        return f"<Recording: {len(self.epochs)} epochs; {views or 'nothing observed yet'}>"

    def to_dataframe(self, steps: bool = False) -> Any:
        """Everything scalar as a tidy `pandas.DataFrame`: a row an epoch (or step) and tensor, a column a statistic.

        Args:
            steps: take the step series instead of the epoch series.

        Returns:
            A frame with the columns `collector`, `name`, `epoch` (or `step`) and one column a statistic; statistics
            that a view does not have are NaN. Quantiles become one column a level, such as `quantiles_50`.

        Raises:
            ImportError: pandas is not installed (`pip install keras-introspect[dataframe]`).
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "Recording.to_dataframe() needs pandas, which is not installed: pip install keras-introspect[dataframe]"
            ) from error
        index_name = "step" if steps else "epoch"
        frames = []
        for view, series in self.items():
            index = series.steps if steps else series.epochs
            values = series._step_values if steps else series._epoch_values
            if not len(index):
                continue
            rows, width = len(index), len(series.names)
            columns: dict[str, Any] = {
                "collector": np.full(rows * width, view, object),
                "name": np.tile(np.array(series.names, object), rows),
                index_name: np.repeat(index, width),
            }
            for key, array in values.items():
                if array.ndim == 2:
                    columns[key] = array.ravel()
                elif key != _RAW and series.quantile_levels is not None:
                    for level, column in zip(series.quantile_levels, np.moveaxis(array, 2, 0), strict=True):
                        columns[f"{key}_{level:g}"] = column.ravel()
            frames.append(pd.DataFrame(columns))
        if not frames:
            return pd.DataFrame(columns=["collector", "name", index_name])
        return pd.concat(frames, ignore_index=True)

    # --- writing ---

    def add_logs(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Keeps the scalar logs of an epoch; what is no scalar number is left out."""
        kept = {}
        for key, value in logs.items():
            try:
                if np.ndim(value) == 0 and not isinstance(value, str | bytes):
                    kept[key] = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
        self._logs[int(epoch)] = kept

    def add_epoch(
        self,
        view: str,
        epoch: int,
        names: Sequence[str],
        shapes: Sequence[Sequence[int | None]],
        values: Mapping[str, Any],
        units: Mapping[str, Mapping[str, Any]] | None = None,
        quantile_levels: Any = None,
        kept: Mapping[str, Mapping[str, Any]] | None = None,
        of_values: bool = False,
        single: bool = False,
    ) -> None:
        """Adds one epoch of a view; recorded once more, it replaces what it was.

        Args:
            view: key of the view.
            epoch: its number; epochs are appended in ascending order.
            names: the L tensors.
            shapes: their shapes.
            values: statistic → array (L,) or (L, Q).
            units: statistic → name → array (channels,).
            quantile_levels: shape (Q,), percent.
            kept: what `merge` needs and the values do not tell: key → name → vector.
            of_values: whether the rows describe values at the end of the epoch, not what the epoch's steps added up.
            single: whether the view has one row for ever, whose axis its series leave out.
        """
        block = _Table.block([epoch], names, {key: np.asarray(value)[None] for key, value in values.items()})
        rows = [
            (key, name, np.array(value, np.float64)) for key, by in (units or {}).items() for name, value in by.items()
        ]
        for key, name, row in rows:
            if row.ndim != 1:
                raise ValueError(f"unit series {key!r} of {name!r} has shape {row.shape}; expected (channels,).")
        target = self._grown(view, block, shapes, quantile_levels)
        target.single = single
        target.forget(int(epoch))
        target.epoch_table.blocks.append(block)
        for key, name, row in rows:
            target.units.setdefault(key, {}).setdefault(name, []).append((int(epoch), row))
        target.of_values = of_values
        if kept:
            target.keep(int(epoch), kept)

    def add_steps(
        self,
        view: str,
        steps: Any,
        names: Sequence[str],
        shapes: Sequence[Sequence[int | None]],
        values: Mapping[str, Any],
        quantile_levels: Any = None,
        single: bool = False,
    ) -> None:
        """Appends a block of steps of a view: `values` maps a statistic to an array (S, L) or (S, L, Q)."""
        block = _Table.block(steps, names, values)
        target = self._grown(view, block, shapes, quantile_levels)
        target.single = single
        target.step_table.blocks.append(block)

    def _grown(self, key: str, block: _Block, shapes: Sequence[Sequence[int | None]], levels: Any) -> _View:
        """The view made ready for a block, or, where the block does not fit, an error that leaves all as it was."""
        by_name = {
            name: tuple(None if size is None else int(size) for size in shape)
            for name, shape in zip(block[1], shapes, strict=True)
        }
        view = self._views.get(key) or _View()
        levels = None if levels is None else np.array(levels, np.float64)
        newest = view.quantile_levels if levels is None else levels
        for statistic, array in block[2].items():
            if array.ndim == 3 and statistic != _RAW and newest is not None and newest.shape != array.shape[2:]:
                raise ValueError(
                    f"{statistic!r} has shape {array.shape}, but quantile_levels has shape {newest.shape}; "
                    "expected one level for each entry of the last axis."
                )
        view.add(by_name, levels)
        self._views[key] = view
        return view

    def arrange(self, views: Iterable[str]) -> None:
        """Puts these views first, in this order."""
        order = [view for view in views if view in self._views]
        self._views = {view: self._views[view] for view in [*order, *(v for v in self._views if v not in order)]}

    @classmethod
    def merge(
        cls, recordings: Iterable["Recording"], weights: Iterable[float] | None = None, drop: Iterable[str] = ()
    ) -> "Recording":
        """Joins the recordings of runs, or of workers, that saw different data in the same epochs.

        What the steps of an epoch added up, such as layer outputs and gradients, becomes what one run over all the
        data would have added up: exactly, from counts, moments (Chan, Golub & LeVeque, 1979), the channels that were
        dead in all of them, and sketches of the distribution. The rows of `Weights` describe the values of variables,
        not data: theirs is the mixture of the runs' distributions, in equal parts. Single steps are put in turn: step
        s of the r-th of R runs, counted from 0, becomes step R·s + r. Logs are the mean of the runs' logs.

        Args:
            recordings: one or more, of models with the same layers, compiled with the same collectors.
            weights: of the runs in the mean of the logs: how many samples each saw. Default: as many as their layer
                outputs tell, or else as the steps that they recorded; equal, if there is neither.
            drop: series and views to leave out: those that cannot be merged, as a statistic of your own.

        Raises:
            ValueError: the recordings do not fit each other, or a series cannot be merged.

        Example:

        >>> runs = []
        >>> for count, mean in ((30, 1.0), (10, 5.0)):
        ...     run = Recording()
        ...     numbers = {"count": count, "mean": mean, "std": 0.0, "mean_abs": mean, "min": mean, "max": mean}
        ...     run.add_epoch("gradients", 0, ["a"], [(2,)], {k: [v] for k, v in {**numbers, "nonfinite": 0}.items()})
        ...     runs.append(run)
        >>> merged = Recording.merge(runs)["gradients"].sel("a")
        >>> merged.epoch("mean"), merged.epoch("std").round(3)
        (array([2.]), array([1.732]))
        """
        if isinstance(recordings, Mapping) or not isinstance(recordings, Iterable):
            raise WrongTypeError(
                f"Recording.merge() was given {a_type(recordings)}; expected a list of recordings: "
                "merge([first, second])."
            )
        merged = cls()
        merge(merged, list(recordings), None if weights is None else list(weights), set(drop))
        return merged

    def kept(self, view: str, epoch: int) -> dict[str, dict[str, np.ndarray]]:
        """What is kept of a view's states besides its series: key → name → vector. See `Statistic.kept`.

        Raises:
            ValueError: it is damaged.
        """
        about = self._views[view]
        names = tuple(about.shapes)
        found: dict[str, dict[str, np.ndarray]] = {}
        for (key, tensor), vector in unpack(about.kept[epoch]).items() if epoch in about.kept else ():
            found.setdefault(about.kept_keys[key], {})[names[tensor]] = vector
        return found

    def is_of_values(self, view: str) -> bool:
        """Whether a view describes values at the end of each epoch, not what its steps added up."""
        return self._views[view].of_values

    # --- files ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording to one `.npz` file, whole or not at all: to a temporary name first, then renamed."""
        write_atomically(path, self.to_bytes(), durable=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recording":
        """Reads what `save` wrote, or the recording that a model's file carries; the model is not built.

        Args:
            path: an `.npz` file of `save`; a `.keras` or `.weights.h5` file, or the `.json` map of sharded weights
                (these need h5py); or the prefix or folder of a TensorFlow checkpoint (this needs TensorFlow).

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file holds no recording, is damaged, or was written by a newer version.
            ImportError: the package that reads this format is not installed.
        """
        try:
            return cls.from_bytes(recording_bytes(path))
        except ValueError as error:
            raise ValueError(f"Cannot read {os.fspath(path)!r}: {error}") from error

    def to_bytes(self) -> bytes:
        """The content of the `.npz` file."""
        arrays: dict[str, np.ndarray] = {_META: np.zeros(0, np.uint8)}

        def put(name: str, array: np.ndarray) -> str:
            member = re.sub(r"[^\w/:.-]", "_", name)[:200]  # zip cuts a name at NUL, Windows turns "\\" into "/"
            member += f"~{len(arrays)}" if member in arrays else ""
            arrays[member] = array
            return member

        views: dict[str, Any] = {}
        for key, view in self._views.items():
            series = view.series(key)
            levels = series.quantile_levels
            views[key] = {
                "names": series.names,
                "shapes": series.shapes,
                "single": view.single,
                "epochs": put(f"{key}/epochs", series.epochs),
                "steps": put(f"{key}/steps", series.steps),
                "quantile_levels": None if levels is None else put(f"{key}/quantile_levels", levels),
                "epoch": {stat: put(f"{key}/epoch/{stat}", array) for stat, array in series._epoch_values.items()},
                "step": {stat: put(f"{key}/step/{stat}", array) for stat, array in series._step_values.items()},
                "unit": {
                    stat: {name: put(f"{key}/unit/{stat}/{name}", array) for name, array in by_name.items()}
                    for stat, by_name in series._unit_values.items()
                },
                "of_values": view.of_values,
                "kept": {
                    "keys": view.kept_keys,
                    "epochs": list(view.kept),
                    "sizes": [len(data) for data in view.kept.values()],
                    "data": put(f"{key}/kept", np.frombuffer(b"".join(view.kept.values()), np.uint8)),
                },
            }
        epochs = sorted(self._logs)
        names = dict.fromkeys(key for logs in self._logs.values() for key in logs)
        meta = {
            "format": _FORMAT,
            "version": FORMAT_VERSION,
            "views": views,
            "log_epochs": epochs,
            "logs": {
                name: put(f"logs/{name}", np.array([self._logs[e].get(name, np.nan) for e in epochs])) for name in names
            },
            "unobserved": self.unobserved,
            "metadata": self.metadata,
        }
        arrays[_META] = np.frombuffer(json.dumps(meta, default=_plain).encode(), np.uint8)
        return write_npz(arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Recording":
        """The inverse of `to_bytes`.

        Raises:
            ValueError: see `load`.
        """
        try:
            arrays = read_npz(data)
            meta = json.loads(arrays.pop(_META).tobytes())
            if meta["format"] != _FORMAT:
                raise ValueError(f"its format is {meta['format']!r}")
            version = int(meta["version"])
        except Exception as error:  # damage shows as many types: zlib.error, RuntimeError, struct.error, …
            raise ValueError(
                f"this is no recording, or it is damaged ({type(error).__name__}: {error}). "
                "Expected a file that Recording.save() wrote."
            ) from error
        if version > FORMAT_VERSION:
            raise ValueError(
                f"the recording has format version {version}, this keras_introspect reads up to {FORMAT_VERSION}. "
                "Update keras_introspect to read it."
            )
        try:
            return cls._from_arrays(meta, arrays)
        except Exception as error:
            raise ValueError(f"the recording is damaged ({type(error).__name__}: {error}).") from error

    @classmethod
    def _from_arrays(cls, meta: Mapping[str, Any], arrays: Values) -> "Recording":
        recording = cls()
        recording.unobserved = dict(meta["unobserved"])
        recording.metadata = dict(meta["metadata"])
        recording._logs = {int(epoch): {} for epoch in meta["log_epochs"]}
        for name, member in meta["logs"].items():
            for logs, value in zip(recording._logs.values(), arrays[member].tolist(), strict=True):
                logs[name] = float(value)
        for key, about in meta["views"].items():
            names = about["names"]
            if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
                raise ValueError(f"the tensors of {key!r} are {names}; expected names, each once")
            levels = None if about["quantile_levels"] is None else arrays[about["quantile_levels"]]
            for kind in ("epoch", "step"):
                values = {stat: arrays[member] for stat, member in about[kind].items()}
                block = _Table.block(arrays[about[f"{kind}s"]], names, values)
                view = recording._grown(key, block, about["shapes"], levels)
                if len(block[0]):
                    (view.epoch_table if kind == "epoch" else view.step_table).blocks.append(block)
            view.single = bool(about["single"])
            view.of_values = bool(about.get("of_values"))
            view.kept, view.kept_keys = _kept(about.get("kept"), arrays)
            epochs = arrays[about["epochs"]].tolist()
            for stat, by_name in about["unit"].items():
                view.units[stat] = {}
                for name, member in by_name.items():
                    rows = arrays[member].astype(np.float64)
                    if rows.ndim != 2:
                        raise ValueError(f"unit series {stat!r} of {name!r} has shape {rows.shape}; expected two axes")
                    view.units[stat][name] = list(zip(epochs, rows, strict=True))
        return recording


def _kept(about: Any, arrays: Values) -> tuple[dict[int, bytes], list[str]]:
    """Epoch → what is kept of it, and the keys; nothing in recordings of before states were kept."""
    if about is None:
        return {}, []
    data = arrays[about["data"]].tobytes()
    ends = np.cumsum([0, *(int(size) for size in about["sizes"])]).tolist()
    if ends[-1] != len(data) or min(about["sizes"], default=0) < 0:
        raise ValueError("what it keeps of states does not fit its description")
    parts = [data[a:b] for a, b in itertools.pairwise(ends)]
    return dict(zip(map(int, about["epochs"]), parts, strict=True)), [str(key) for key in about["keys"]]


def _plain(value: Any) -> Any:
    """What JSON does not know, as what it knows: a NumPy number as its number, all else as its text."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)
