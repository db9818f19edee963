"""One model's introspection: runs the step under the taps, accumulates, and reads once an epoch."""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture import Capture, LayerNames, LayerTaps, OptimizerTaps, Seen, Wanted, activate
from keras_introspect.capture.internals import attribute_scope, flatten_layers
from keras_introspect.capture.loops import SUMS
from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.capture.twins import twin
from keras_introspect.collectors import Collector
from keras_introspect.collectors.base import Group, group_of_calls
from keras_introspect.naming import known_names
from keras_introspect.recording import Recording
from keras_introspect.saving import IntrospectionState
from keras_introspect.state import Accumulator, LoopScratch, StepBuffer, probe_variable
from keras_introspect.statistics import Context, Piece, Statistic, TensorSpec

BUFFER_STEPS = 256  # steps that wait on the device before the host fetches them


class Observer:
    """Ties collectors to a model's state; made at each `compile`.

    Args:
        collectors: what to observe.
        state: where recording and accumulators live; it outlasts the observer.
        steps_per_execution: how many steps run between two visits of the host.
    """

    def __init__(
        self, collectors: Sequence[Collector], state: IntrospectionState, steps_per_execution: int = 1
    ) -> None:
        self.collectors = tuple(collectors)
        self.state = state
        self._wanted = Wanted(*(any(flags) for flags in zip(*(c.wanted for c in collectors), strict=True)))
        self._missed: dict[tuple[str, str], str] = {}
        self._checked = False
        self._taps: tuple[LayerTaps, OptimizerTaps, LayerNames] | None = None
        self.statistics: dict[str, Statistic] = {_key(c, s): s for c in collectors for s in c.statistics}
        self.accumulators = {
            _key(c, s): Accumulator(s, c.replicated) for c in collectors for s in c.statistics if not c.at_epoch_end
        }
        capacity = max(BUFFER_STEPS, 2 * steps_per_execution)
        self._buffers = {c.name: StepBuffer(capacity) for c in collectors if c.per_step}
        self._scratches: dict[tuple[str, TensorSpec], LoopScratch] = {}
        self._probe: Any = None
        self._xla = False
        state.use(self)

    @property
    def recording(self) -> Recording:
        return self.state.recording

    # --- the step ---

    def run_step(self, model: Any, train_step: Callable[[Any], Any], data: Any) -> Any:
        """Runs `train_step(data)`, Keras's or the user's, untouched, and accumulates what came by."""
        if self._taps is None:
            self._taps = (LayerTaps(model), OptimizerTaps(model), LayerNames(model))
        layer_taps, optimizer_taps, names = self._taps
        self._xla = bool(model.jit_compile) and not tf.executing_eagerly()
        capture = Capture(model, self._wanted, names)
        capture.observe_in_loop = functools.partial(self._observe_in_loop, capture)
        capture.probe_variable = functools.partial(self._probe_variable, model)
        if self._wanted.values_before:
            for variable in model.trainable_variables:
                capture.keep_value(variable)
        with activate(capture), layer_taps, optimizer_taps:
            logs = train_step(data)
        with attribute_scope():
            self._accumulate(model, capture)
        self.state.report_unplaced()
        return logs

    def _accumulate(self, model: Any, capture: Capture) -> None:
        if not self._checked:
            self.check_selections(model)
        for key, (spec, scratches) in capture.loop_states.items():
            capture.loop_states[key] = (spec, {name: scratch.take() for name, scratch in scratches.items()})
        capture.collect_probes()
        for collector in self.collectors:
            if collector.at_epoch_end and not collector.per_step:
                continue
            groups = collector.groups(capture)
            if not self._xla:  # under XLA no bits are promised
                groups = [[piece._replace(values=twin(piece.values)) for piece in group] for group in groups]
            if groups:
                self._accumulate_groups(collector, groups, capture.iterations)
        self._missed.update(capture.missed)

    def _accumulate_groups(self, collector: Collector, groups: list[Group], iterations: Any) -> None:
        usable = {s: [g for g in groups if any(piece.has(s) for piece in g)] for s in collector.statistics}
        specs = {s: [group[0].spec for group in chosen] for s, chosen in usable.items() if chosen}
        if not collector.at_epoch_end:
            for statistic in specs:  # variables are made here, outside any branch
                self.accumulators[_key(collector, statistic)].segment(specs[statistic])
        buffer = self._buffers.get(collector.name)
        if buffer is not None:
            buffer.prepare({s.name: (specs[s], (len(specs[s]), s.step_fields)) for s in specs})

        context = Context(0 if iterations is None else iterations, self._xla)

        def observe() -> None:
            vectors = {}
            for statistic in specs:
                state = states_of(statistic, usable[statistic], context)
                if not collector.at_epoch_end:
                    self.accumulators[_key(collector, statistic)].update(state, specs[statistic])
                if buffer is not None:
                    vectors[statistic.name] = tf.cast(statistic.step_state(state, specs[statistic]), tf.float64)
            if buffer is not None:
                buffer.append(context.step, vectors)

        if collector.every == 1 or iterations is None:
            observe()
        else:
            tf.cond(tf.equal(iterations % collector.every, 0), observe, lambda: None)

    # --- inside loops ---

    def _observe_in_loop(self, capture: Capture, name: str, layer: Any, values: Any) -> bool:
        """Merges a tensor of a loop's body into scratch states; says whether any collector could."""
        observed = False
        for collector in self.collectors:
            if collector.key != "layer_outputs" or not collector.selection.chooses(layer, name):
                continue
            group = group_of_calls(name, [Seen(values, layer)])
            spec = group[0].spec
            scratches = {}
            for statistic in collector.statistics:
                key = (_key(collector, statistic), spec)
                if key not in self._scratches:
                    if several_replicas():
                        return False  # no variable can be made here, in a loop of one replica's function
                    self._scratches[key] = LoopScratch(statistic, spec)
                scratches[statistic.name] = self._scratches[key]
                scratches[statistic.name].merge(statistic.partials(group, Context(0, self._xla)))
            capture.loop_states[collector.name, name] = (spec, scratches)
            observed = True
        return observed

    def _probe_variable(self, model: Any) -> Any:
        if self._probe is None and not several_replicas():
            self._probe = probe_variable(2 * len(flatten_layers(model)) + 8, len(SUMS))
        return self._probe

    def check_selections(self, model: Any) -> None:
        """Raises if `layers=` of a collector names something that the built model does not have."""
        for collector in self.collectors:
            collector.check_selection(model)
        self._checked = True

    # --- the epoch ---

    def begin_epoch(self) -> None:
        for accumulator in self.accumulators.values():
            accumulator.reset()

    def discard(self) -> None:
        """Forgets all that is on the device: an epoch begun, and steps not fetched yet."""
        self.begin_epoch()
        for buffer in self._buffers.values():
            buffer.clear()

    @property
    def per_step(self) -> bool:
        return bool(self._buffers)

    def flush_steps(self) -> None:
        """Moves the steps that wait on the device into the recording."""
        for collector in self.collectors:
            buffer = self._buffers.get(collector.name)
            if buffer is None:
                continue
            steps, lanes = buffer.fetch()
            if not len(steps):
                continue
            shapes: dict[str, tuple[int | None, ...]] = {}
            for specs, _ in lanes.values():
                shapes.update({spec.name: spec.shape for spec in specs})
            names = list(shapes)
            values = {}
            for statistic in collector.statistics:
                if statistic.name in lanes:
                    specs, vectors = lanes[statistic.name]
                    column = [names.index(spec.name) for spec in specs]
                    for key, array in statistic.step_result(vectors).items():
                        values[key] = np.full((len(steps), len(names), *array.shape[2:]), np.nan)
                        values[key][:, column] = array
            levels = self._quantile_levels(collector)
            names = self._known_names(collector.name, names)
            self.recording.add_steps(collector.name, steps, names, list(shapes.values()), values, levels)

    def end_epoch(self, model: Any, epoch: int) -> dict[str, float]:
        """Reads the accumulators into the recording.

        Args:
            model: the observed model.
            epoch: Keras's number of the epoch; the recording goes on counting where an earlier `fit` ended.

        Returns:
            The epoch logs of all collectors.
        """
        self.flush_steps()
        recorded = self.recording.epochs
        self.epoch = max(int(epoch), int(recorded[-1]) + 1 if len(recorded) else 0)
        logs: dict[str, float] = {}
        for collector in self.collectors:
            names, shapes, values = self._read(collector, model)
            names = self._known_names(collector.name, names)
            if names:
                levels = self._quantile_levels(collector)
                self.recording.add_epoch(collector.name, self.epoch, names, shapes, values, quantile_levels=levels)
            logs.update(self._logs(collector, names, values))
        self.recording.arrange(collector.name for collector in self.collectors)
        self._note_unobserved()
        self._describe(model)
        self.begin_epoch()  # what is recorded need not be saved once more, as the state of a started epoch
        return logs

    def _known_names(self, view: str, names: list[str]) -> list[str]:
        return known_names(self.recording[view].names, names) if view in self.recording else names

    def add_logs(self, logs: dict[str, Any]) -> None:
        """Keeps Keras's epoch logs in the recording, without our own."""
        ours = tuple(f"{collector.name}/" for collector in self.collectors)
        self.recording.add_logs(self.epoch, {k: v for k, v in logs.items() if not k.startswith(ours)})

    def _read(self, collector: Collector, model: Any) -> tuple[list[str], list[tuple[int | None, ...]], dict[str, Any]]:
        columns: dict[str, dict[str, Any]] = {}
        shapes: dict[str, tuple[int | None, ...]] = {}
        for statistic in collector.statistics:
            for name, (spec, state) in self._states(collector, statistic, model).items():
                shapes[name] = spec.shape
                columns.setdefault(name, {}).update(statistic.result(state, spec))
        names = list(shapes)
        series = dict.fromkeys(key for column in columns.values() for key in column)
        values = {key: _column([columns[name].get(key, np.nan) for name in names]) for key in series}
        return names, list(shapes.values()), values

    @staticmethod
    def _quantile_levels(collector: Collector) -> np.ndarray | None:
        levels = [statistic.quantile_levels for statistic in collector.statistics]
        return next((chosen for chosen in levels if chosen is not None), None)

    def _states(
        self, collector: Collector, statistic: Statistic, model: Any
    ) -> dict[str, tuple[TensorSpec, np.ndarray]]:
        if not collector.at_epoch_end:
            return self.accumulators[_key(collector, statistic)].read()
        groups = collector.groups_at_epoch_end(model)  # type: ignore[attr-defined]
        if not groups:
            return {}
        rows = states_of(statistic, groups, Context(self.epoch)).numpy()
        ends = np.cumsum([statistic.rows(group[0].spec) for group in groups])
        parts = np.split(rows, ends[:-1])
        return {group[0].spec.name: (group[0].spec, part) for group, part in zip(groups, parts, strict=True)}

    # --- logs ---

    def _logs(self, collector: Collector, names: list[str], values: dict[str, Any]) -> dict[str, float]:
        if collector.logs is None:
            return {}
        summary = collector.summary(values) if names else {key: float("nan") for key in collector.log_keys()}
        logs = {f"{collector.name}/{key}": value for key, value in summary.items()}
        if collector.logs == "layers":
            for key in collector.log_keys():
                for name, value in zip(names, values.get(key, ()), strict=False):
                    logs[f"{collector.name}/{key}/{name}"] = float(value)
        return logs

    def log_keys(self) -> list[str]:
        """Every summary key that the epoch logs will hold."""
        return [f"{c.name}/{key}" for c in self.collectors if c.logs is not None for key in c.log_keys()]

    def is_log_key(self, key: str) -> bool | None:
        """Whether the epoch logs will hold this key; `None` where the key is none of ours."""
        view, _, rest = key.partition("/")
        collector = next((c for c in self.collectors if c.name == view), None)
        if collector is None or not rest:
            return None
        if collector.logs is None:
            return False
        statistic, _, name = rest.partition("/")
        return statistic in collector.log_keys() and (not name or collector.logs == "layers")

    def hidden_from_progress_bar(self, key: str) -> bool:
        return any(key.startswith(f"{c.name}/") and not c.progress_bar for c in self.collectors)

    # --- what could not be seen, and how the run was configured ---

    def _note_unobserved(self) -> None:
        reasons: dict[str, dict[str, str]] = {}
        for (view, name), reason in self._missed.items():
            if any(c.key == view or c.name == view for c in self.collectors) and not self._is_observed(view, name):
                reasons.setdefault(name, {})[view] = reason
        kept = dict(self.recording.unobserved)
        for name, by_view in zip(known_names(kept, list(reasons)), reasons.values(), strict=True):
            if len(set(by_view.values())) == 1:
                kept[name] = f"{', '.join(by_view)}: {next(iter(by_view.values()))}"
            else:
                kept[name] = "; ".join(f"{view}: {reason}" for view, reason in by_view.items())
        self.recording.unobserved = kept

    def _is_observed(self, view: str, name: str) -> bool:
        return view in self.recording and self._known_names(view, [name])[0] in self.recording[view].names

    def _describe(self, model: Any) -> None:
        about = self.recording.metadata
        about.setdefault("started", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        about["model"] = model.name
        about["parameters"] = sum(math.prod(variable.shape) for variable in model.weights)
        about["collectors"] = [{"collector": type(c).__name__, **c.get_config()} for c in self.collectors]
        about["versions"] = {"keras": keras.__version__, "tensorflow": tf.__version__}
        optimizer = getattr(model, "optimizer", None)
        about["optimizer"] = None if optimizer is None else type(optimizer).__name__


def states_of(statistic: Statistic, groups: Sequence[Group], context: Context) -> Any:
    """The states of the groups, below each other, the pieces of a group merged."""
    groups = [[piece for piece in group if piece.has(statistic)] for group in groups]
    rows = [statistic.rows(group[0].spec) for group in groups]
    ends = np.cumsum(rows)
    rounds = max(len(group) for group in groups)
    parts = _partials(statistic, [group[k] for k in range(rounds) for group in groups if k < len(group)], context)
    state, start = parts[: ends[-1]], int(ends[-1])
    for k in range(1, rounds):
        which = [i for i, group in enumerate(groups) if k < len(group)]
        index = np.concatenate([np.arange(ends[i] - rows[i], ends[i]) for i in which])
        merged = statistic.merge(tf.gather(state, index), parts[start : start + len(index)], tf)
        state = tf.tensor_scatter_nd_update(state, index[:, None], merged)
        start += len(index)
    return state


def _partials(statistic: Statistic, pieces: Sequence[Piece], context: Context) -> Any:
    open_pieces = [piece for piece in pieces if piece.values is not None]
    if len(open_pieces) == len(pieces):
        return statistic.partials(pieces, context)
    rows = [statistic.rows(piece.spec) for piece in open_pieces]
    parts = iter(tf.split(statistic.partials(open_pieces, context), rows) if open_pieces else [])
    return tf.concat([next(parts) if p.values is not None else p.states[statistic.name] for p in pieces], axis=0)


def _column(values: Sequence[Any]) -> np.ndarray:
    """The values of all tensors as one array; a missing one takes the others' shape."""
    shape = max((np.shape(value) for value in values), key=len)
    return np.array([np.broadcast_to(np.asarray(value, np.float64), shape) for value in values])


def _key(collector: Collector, statistic: Statistic) -> str:
    return f"{collector.name}|{statistic.name}"
