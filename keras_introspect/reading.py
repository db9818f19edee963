"""The host's side of introspection: what was accumulated on the device, read into the recording and the logs."""

import difflib
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.collectors import PRESETS, Collector, EpochSums, StepMetrics
from keras_introspect.diagnosis.data import describe_data
from keras_introspect.diagnosis.description import describe
from keras_introspect.merging import STEPS
from keras_introspect.naming import known_names
from keras_introspect.recording import Recording
from keras_introspect.state import Accumulator, StepBuffer
from keras_introspect.statistics import Piece, Statistic, Values
from keras_introspect.statistics.pooling import StatesOutsideSteps


class _Epoch(NamedTuple):
    """One epoch of one collector, as it goes into the recording."""

    names: list[str]
    shapes: list[tuple[int | None, ...]]
    values: dict[str, Any]
    units: dict[str, dict[str, np.ndarray]]
    kept: dict[str, dict[str, np.ndarray]]


class Reading:
    """Reads accumulators and step buffers, at the end of an epoch, of an evaluation, or in between.

    Args:
        collectors: those that do the work.
        accumulators: "collector|statistic" → accumulator.
        buffers: name of a collector → its single steps.
        missed: (view, name) → why it could not be observed; grows while steps are traced.
        phases: layer → phase, `"train"` or `"inference"` → the `training` that it was called with; grows likewise.
        recording: gives the recording to write into.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        accumulators: Mapping[str, Accumulator],
        buffers: Mapping[str, StepBuffer],
        missed: Mapping[tuple[str, str], str],
        phases: Mapping[str, Mapping[str, bool]],
        recording: Callable[[], Recording],
    ) -> None:
        self._collectors = collectors
        self._accumulators = accumulators
        self._buffers = buffers
        self._missed = missed
        self._phases = phases
        self._recording = recording
        self._raw_bytes: dict[str, int] = {}
        self._over_budget: set[str] = set()
        self._description: dict[str, Any] | None = None
        self._data: dict[str, Any] | None = None
        self._metrics: dict[str, list[dict[str, np.ndarray]]] = {}  # the steps of this epoch of a StepMetrics
        self._metric_steps: dict[str, list[int]] = {}  # their numbers
        self._outside = {c.name: StatesOutsideSteps(c.statistics) for c in collectors if c.at_epoch_end}

    @property
    def recording(self) -> Recording:
        return self._recording()

    def begin_epoch(self) -> None:
        for accumulator in self._accumulators.values():
            accumulator.reset()
        self._metrics.clear()
        self._metric_steps.clear()

    def begin_fit(self, model: Any, x: Any, y: Any) -> None:
        """Notes how a model is configured, and what it is given: known also of a training that fails at once."""
        self._description = None
        self._data = describe_data(x, y)
        self._describe(model)

    # --- single steps ---

    def flush_steps(self) -> None:
        """Moves the steps that wait on the device into the recording."""
        for collector in self._collectors:
            buffer = self._buffers.get(collector.name)
            if buffer is None:
                continue
            steps, blocks = buffer.fetch()
            if not len(steps):
                continue
            if isinstance(collector, StepMetrics):
                self._add_metrics(collector, steps, blocks)
                continue
            shapes: dict[str, tuple[int | None, ...]] = {}
            for _, lanes in blocks:
                for specs, _ in lanes.values():
                    shapes.update({spec.name: spec.shape for spec in specs})
            names = list(shapes)
            values: dict[str, Any] = {}
            for statistic in collector.statistics:
                for rows, lanes in blocks:
                    if statistic.name not in lanes:
                        continue
                    specs, vectors = lanes[statistic.name]
                    columns = [names.index(spec.name) for spec in specs]
                    for key, array in statistic.step_result(vectors).items():
                        gaps = np.full((len(steps), len(names), *array.shape[2:]), np.nan)
                        values.setdefault(key, gaps)[rows[:, None], columns] = array
            names = self._known_names(collector.name, names)
            levels = _levels(collector)
            values = self._within_budget(collector, values)
            self.recording.add_steps(collector.name, steps, names, list(shapes.values()), values, levels)

    def _within_budget(self, collector: Collector, values: dict[str, Any]) -> dict[str, Any]:
        """The values without raw ones that would be over their budget.

        `check_budget` refuses such a run before it begins, where it can know how many steps and tensors there will be.
        """
        budget = next((s.budget for s in collector.statistics if isinstance(s, Values)), None)
        if budget is None or Values.name not in values:
            return values
        kept = self._raw_bytes.get(collector.name, 0) + np.asarray(values[Values.name]).nbytes
        if kept <= budget:
            self._raw_bytes[collector.name] = kept
            return values
        if collector.name not in self._over_budget:
            self._over_budget.add(collector.name)
            warnings.warn(
                f"The raw values of {collector.name!r} reached their budget of {budget:,} bytes; no more are kept. "
                "Raise it: ki.Values(budget=...), or choose fewer tensors or elements.",
                stacklevel=2,
            )
        return {key: array for key, array in values.items() if key != Values.name}

    def _add_metrics(self, collector: StepMetrics, steps: np.ndarray, blocks: Sequence[Any]) -> None:
        values: dict[str, np.ndarray] = {}
        for rows, lanes in blocks:
            specs, vectors = lanes[StepMetrics.key]
            for k, spec in enumerate(specs):
                values.setdefault(spec.name, np.full(len(steps), np.nan))[rows] = vectors[:, k]
        self._metrics.setdefault(collector.name, []).append(values)
        self._metric_steps.setdefault(collector.name, []).extend(steps.tolist())
        if collector.per_step:
            columns = {name: of[:, None] for name, of in values.items()}
            self.recording.add_steps(collector.name, steps, [collector.name], [()], columns, single=True)

    # --- epochs ---

    def end_epoch(self, model: Any, epoch: int) -> dict[str, float]:
        """Reads the accumulators into the recording.

        Args:
            model: the observed model.
            epoch: Keras's number of the epoch; the recording goes on counting where an earlier `fit` ended.

        Returns:
            The epoch logs of all collectors.
        """
        self.flush_steps()
        self.epoch = max(int(epoch), self._trained_epochs())
        logs: dict[str, float] = {}
        for collector in self._collectors:
            if isinstance(collector, StepMetrics):
                self._end_metrics(collector)
                continue
            logs.update(self._logs(collector, self._record(collector, model)))
        self.recording.arrange(collector.name for collector in self._collectors)
        self._note_unobserved()
        self._note_phases()
        self._describe(model)
        self.begin_epoch()  # what is recorded need not be saved once more, as the state of a started epoch
        return logs

    def _trained_epochs(self) -> int:
        """The number after that of the last epoch that ended: an `evaluate` before the first one is none."""
        inference = {collector.name for collector in self._collectors if collector.inference}
        known = [self.recording._epochs(view) for view in self.recording if view not in inference]
        known += [self.recording.epochs[np.isfinite(values)] for values in self.recording.logs.values()]
        return max((int(epochs[-1]) + 1 for epochs in known if len(epochs)), default=0)

    def end_evaluation(self, model: Any) -> None:
        """Reads what an `evaluate` outside of `fit` had of the inference phase: as of the last epoch recorded."""
        recorded = self.recording.epochs
        self.epoch = int(recorded[-1]) if len(recorded) else 0
        for collector in self._collectors:
            if collector.inference:
                self._record(collector, model)
        self._note_unobserved()
        self._note_phases()
        self.forget_evaluation()

    def forget_evaluation(self) -> None:
        for collector in self._collectors:
            for statistic in collector.accumulated if collector.inference else ():
                self._accumulators[key_of(collector, statistic)].reset()

    def _record(self, collector: Collector, model: Any) -> _Epoch:
        read = self._read(collector, model)
        names = self._known_names(collector.name, read.names)
        known = dict(zip(read.names, names, strict=True))
        read = read._replace(
            names=names,
            values=self._within_budget(collector, read.values),
            units={key: {known[name]: row for name, row in of.items()} for key, of in read.units.items()},
            kept={key: {known[name]: vector for name, vector in of.items()} for key, of in read.kept.items()},
        )
        if names:
            self.recording.add_epoch(
                collector.name,
                self.epoch,
                read.names,
                read.shapes,
                read.values,
                read.units,
                quantile_levels=_levels(collector),
                kept=read.kept,
                of_values=collector.at_epoch_end,
            )
        return read

    def _read(self, collector: Collector, model: Any) -> _Epoch:
        columns: dict[str, dict[str, Any]] = {}
        units: dict[str, dict[str, np.ndarray]] = {}
        kept: dict[str, dict[str, np.ndarray]] = {}
        shapes: dict[str, tuple[int | None, ...]] = {}
        observed = False
        pieces = self._pieces_at_epoch_end(collector, model)
        outside = {} if pieces is None else self._outside[collector.name](pieces, _steps_done(model))
        for statistic in collector.statistics:
            states = outside[statistic] if outside else self._accumulators[key_of(collector, statistic)].read()
            for name, (spec, state) in states.items():
                observed = observed or not np.array_equal(state, statistic.empty(len(state)))
                shapes[name] = spec.shape
                columns.setdefault(name, {}).update(statistic.result(state, spec))
                for key, row in statistic.unit_result(state, spec).items():
                    units.setdefault(key, {})[name] = row
                for key, vector in statistic.kept(state, spec).items():
                    kept.setdefault(f"{statistic.name}/{key}", {})[name] = vector
        if collector.inference and not observed:
            return _Epoch([], [], {}, {}, {})  # an epoch without validation
        names = list(shapes)
        series = dict.fromkeys(key for column in columns.values() for key in column)
        values = {key: _column([columns[name].get(key, np.nan) for name in names]) for key in series}
        return _Epoch(names, list(shapes.values()), values, units, kept)

    def _pieces_at_epoch_end(self, collector: Collector, model: Any) -> list[Piece] | None:
        """The tensors that there are now, of a collector that does not look at the steps."""
        if not collector.at_epoch_end:
            return None
        if isinstance(collector, EpochSums):
            groups = collector.groups_of_sums(self._accumulators[key_of(collector, collector.sum)].read())
        else:
            groups = collector.groups_at_epoch_end(model)  # type: ignore[attr-defined]
        return [piece for group in groups for piece in group]

    def _end_metrics(self, collector: StepMetrics) -> None:
        blocks = self._metrics.get(collector.name, [])
        names = dict.fromkeys(name for block in blocks for name in block)
        lengths = [len(next(iter(block.values()))) for block in blocks if block]
        steps = {
            name: np.concatenate([b.get(name, np.full(n, np.nan)) for b, n in zip(blocks, lengths, strict=True)])
            for name in names
        }
        if steps:
            values = collector.quantiles(steps)
            numbers = self._metric_steps[collector.name]
            ends = np.array([min(numbers), max(numbers)])
            self.recording.add_epoch(
                collector.name,
                self.epoch,
                [collector.name],
                [()],
                values,
                quantile_levels=collector.levels,
                kept={STEPS: {collector.name: ends}} if collector.per_step else None,
                single=True,
            )

    def _known_names(self, view: str, names: list[str]) -> list[str]:
        return known_names(self.recording._names(view), names) if view in self.recording else names

    # --- logs ---

    def add_logs(self, logs: dict[str, Any]) -> None:
        """Keeps Keras's epoch logs in the recording, without our own."""
        ours = tuple(f"{collector.name}/" for collector in self._collectors)
        self.recording.add_logs(self.epoch, {k: v for k, v in logs.items() if not k.startswith(ours)})

    def _logs(self, collector: Collector, read: _Epoch) -> dict[str, float]:
        if collector.logs is None:
            return {}
        nothing = {key: float("nan") for key in collector.log_keys()}
        summary = {**nothing, **(collector.summary(read.values) if read.names else {})}
        logs = {f"{collector.name}/{key}": value for key, value in summary.items()}
        if collector.logs == "layers":
            for key in collector.log_keys():
                for name, value in zip(read.names, read.values.get(key, ()), strict=False):
                    logs[f"{collector.name}/{key}/{name}"] = float(value)
        return logs

    def log_keys(self) -> list[str]:
        """Every summary key that the epoch logs will hold."""
        return [f"{c.name}/{key}" for c in self._collectors if c.logs is not None for key in c.log_keys()]

    def is_log_key(self, key: str) -> bool | None:
        """Whether the epoch logs will hold this key; `None` where the key is none of ours."""
        view, _, rest = key.partition("/")
        collector = next((c for c in self._collectors if c.name == view), None)
        if collector is None or not rest:
            return False if self._is_meant_for_a_collector(view, rest) else None
        if collector.logs is None:
            return False
        statistic, _, name = rest.partition("/")
        return statistic in collector.log_keys() and (not name or collector.logs == "layers")

    def _is_meant_for_a_collector(self, view: str, rest: str) -> bool:
        """Whether a key that no collector writes is one of a collector that is not in use, or of a name misspelt."""
        usual = PRESETS["all"]()
        views = {collector.name for collector in (*usual, *self._collectors)}
        keys = {key for collector in (*usual, *self._collectors) for key in collector.log_keys()}
        return rest.partition("/")[0] in keys and bool(difflib.get_close_matches(view, views, n=1, cutoff=0.8))

    def hidden_from_progress_bar(self, key: str) -> bool:
        return any(key.startswith(f"{c.name}/") and not c.progress_bar for c in self._collectors)

    # --- what could not be seen, and how the run was configured ---

    def _note_unobserved(self) -> None:
        reasons: dict[str, dict[str, str]] = {}
        for (view, name), reason in self._missed.items():
            if any(view in (c.name, c.key) for c in self._collectors) and not self._is_observed(view, name):
                reasons.setdefault(name, {})[view] = reason
        kept = dict(self.recording.unobserved)
        for name, by_view in zip(known_names(kept, list(reasons)), reasons.values(), strict=True):
            if len(set(by_view.values())) == 1:
                kept[name] = f"{', '.join(by_view)}: {next(iter(by_view.values()))}"
            else:
                kept[name] = "; ".join(f"{view}: {reason}" for view, reason in by_view.items())
        self.recording.unobserved = kept

    def _note_phases(self) -> None:
        before = self.recording.metadata.get("phases", {})
        known = known_names(before, list(self._phases))
        called = {
            name: {**before.get(name, {}), **self._phases[now]} for name, now in zip(known, self._phases, strict=True)
        }
        if called:
            self.recording.metadata["phases"] = {**before, **called}

    def _is_observed(self, view: str, name: str) -> bool:
        return view in self.recording and self._known_names(view, [name])[0] in self.recording._names(view)

    def _describe(self, model: Any) -> None:
        about = self.recording.metadata
        about.setdefault("started", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        about["model"] = model.name
        about["parameters"] = sum(math.prod(variable.shape) for variable in model.weights)
        about["collectors"] = [{"collector": type(c).__name__, **c.get_config()} for c in model.collectors]
        about["versions"] = {"keras": keras.__version__, "tensorflow": tf.__version__}
        optimizer = getattr(model, "optimizer", None)
        if self._description is None:
            self._description = _under_known_names(describe(model), about.get("description"))
        about["description"] = self._description
        if self._data is not None:
            about["data"] = self._data
        about["optimizer"] = None if optimizer is None else type(optimizer).__name__


def key_of(collector: Collector, statistic: Statistic) -> str:
    """Under which key the state of a collector's statistic is kept and saved."""
    return f"{collector.name}|{statistic.name}"


def _under_known_names(description: dict[str, Any], earlier: dict[str, Any] | None) -> dict[str, Any]:
    """The description with the names of layers that the recording has: Keras shortens some when a model is loaded."""
    if not earlier:
        return description
    names = [layer["name"] for layer in description["layers"]]
    known = dict(zip(names, known_names([layer["name"] for layer in earlier["layers"]], names), strict=True))
    for layer in (*description["layers"], *description.get("outputs", ())):
        layer["name"] = known.get(layer["name"], layer["name"])
    return description


def _levels(collector: Collector) -> np.ndarray | None:
    levels = [statistic.quantile_levels for statistic in collector.statistics]
    return next((chosen for chosen in levels if chosen is not None), None)


def _steps_done(model: Any) -> int:
    optimizer = getattr(model, "optimizer", None)
    return 0 if optimizer is None else int(tf.convert_to_tensor(optimizer.iterations).numpy())


def _column(values: Sequence[Any]) -> np.ndarray:
    """The values of all tensors as one array; a missing one takes the others' shape."""
    if not any(getattr(value, "shape", ()) for value in values):
        return np.array(values, np.float64)
    shape = max((np.shape(value) for value in values), key=len)
    return np.array([np.broadcast_to(np.asarray(value, np.float64), shape) for value in values])
