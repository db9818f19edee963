"""One model's introspection: runs the step under the taps, accumulates, and reads once an epoch."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture import Capture, LayerNames, LayerTaps, OptimizerTaps, Wanted, activate
from keras_introspect.collectors import Collector
from keras_introspect.collectors.base import Group
from keras_introspect.recording import Recording
from keras_introspect.state import Accumulator, IntrospectionState
from keras_introspect.statistics import Statistic, TensorSpec


class Observer:
    """Ties collectors to a model's state; made at each `compile`.

    Args:
        collectors: what to observe.
        state: where recording and accumulators live; it outlasts the observer.
    """

    def __init__(self, collectors: Sequence[Collector], state: IntrospectionState) -> None:
        self.collectors = tuple(collectors)
        self.state = state
        self._wanted = Wanted(*(any(flags) for flags in zip(*(c.wanted for c in collectors), strict=True)))
        self._names = LayerNames()
        self._missed: dict[tuple[str, str], str] = {}
        self._checked = False
        self._taps: tuple[LayerTaps, OptimizerTaps] | None = None
        self._accumulators = {
            _key(c, s): Accumulator(s, c.replicated) for c in collectors for s in c.statistics if not c.at_epoch_end
        }
        state.use(self._accumulators)

    @property
    def recording(self) -> Recording:
        return self.state.recording

    # --- the step ---

    def run_step(self, model: Any, train_step: Callable[[Any], Any], data: Any) -> Any:
        """Runs `train_step(data)`, Keras's or the user's, untouched, and accumulates what came by."""
        if self._taps is None:
            self._taps = (LayerTaps(model), OptimizerTaps(model))
        layer_taps, optimizer_taps = self._taps
        capture = Capture(model, self._wanted, self._names)
        if self._wanted.values_before:
            for variable in model.trainable_variables:
                capture.keep_value(variable)
        with activate(capture), layer_taps, optimizer_taps:
            logs = train_step(data)
        self._accumulate(model, capture)
        return logs

    def _accumulate(self, model: Any, capture: Capture) -> None:
        if not self._checked:
            self.check_selections(model)
        for collector in self.collectors:
            if collector.at_epoch_end:
                continue
            groups = collector.groups(capture)
            if groups:
                self._accumulate_groups(collector, groups, capture.iterations)
        self._missed.update(capture.missed)

    def _accumulate_groups(self, collector: Collector, groups: list[Group], iterations: Any) -> None:
        specs = [group[0].spec for group in groups]
        for statistic in collector.statistics:  # variables are made outside any branch
            self._accumulators[_key(collector, statistic)].segment(specs)

        def observe() -> None:
            for statistic in collector.statistics:
                self._accumulators[_key(collector, statistic)].update(states_of(statistic, groups), specs)

        if collector.every == 1 or iterations is None:
            observe()
        else:
            tf.cond(tf.equal(iterations % collector.every, 0), observe, lambda: None)

    def check_selections(self, model: Any) -> None:
        """Raises if `layers=` of a collector names something that the built model does not have."""
        for collector in self.collectors:
            collector.selection.check(collector.candidates(model), type(collector).__name__)
        self._checked = True

    # --- the epoch ---

    def begin_epoch(self) -> None:
        for accumulator in self._accumulators.values():
            accumulator.reset()

    def end_epoch(self, model: Any, epoch: int) -> dict[str, float]:
        """Reads the accumulators into the recording.

        Args:
            model: the observed model.
            epoch: Keras's number of the epoch; the recording goes on counting where an earlier `fit` ended.

        Returns:
            The epoch logs of all collectors.
        """
        recorded = self.recording.epochs
        self.epoch = max(int(epoch), int(recorded[-1]) + 1 if len(recorded) else 0)
        logs: dict[str, float] = {}
        for collector in self.collectors:
            names, shapes, values = self._read(collector, model)
            if names:
                self.recording.add_epoch(collector.name, self.epoch, names, shapes, values)
            logs.update(self._logs(collector, names, values))
        self._note_unobserved()
        self._describe(model)
        return logs

    def add_logs(self, logs: dict[str, Any]) -> None:
        """Keeps Keras's epoch logs in the recording, without our own."""
        ours = tuple(f"{collector.name}/" for collector in self.collectors)
        self.recording.add_logs(self.epoch, {k: v for k, v in logs.items() if not k.startswith(ours)})

    def _read(self, collector: Collector, model: Any) -> tuple[list[str], list[tuple[int | None, ...]], dict[str, Any]]:
        columns: dict[str, dict[str, float]] = {}
        shapes: dict[str, tuple[int | None, ...]] = {}
        for statistic in collector.statistics:
            for name, (spec, state) in self._states(collector, statistic, model).items():
                shapes[name] = spec.shape
                columns.setdefault(name, {}).update(statistic.result(state, spec))
        names = list(shapes)
        series = dict.fromkeys(key for column in columns.values() for key in column)
        values = {key: np.array([columns[name].get(key, np.nan) for name in names], np.float64) for key in series}
        return names, list(shapes.values()), values

    def _states(
        self, collector: Collector, statistic: Statistic, model: Any
    ) -> dict[str, tuple[TensorSpec, np.ndarray]]:
        if not collector.at_epoch_end:
            return self._accumulators[_key(collector, statistic)].read()
        groups = collector.groups_at_epoch_end(model)  # type: ignore[attr-defined]
        if not groups:
            return {}
        rows = states_of(statistic, groups).numpy()
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
        for name, by_view in reasons.items():
            if len(set(by_view.values())) == 1:
                self.recording.unobserved[name] = f"{', '.join(by_view)}: {next(iter(by_view.values()))}"
            else:
                self.recording.unobserved[name] = "; ".join(f"{view}: {reason}" for view, reason in by_view.items())

    def _is_observed(self, view: str, name: str) -> bool:
        return view in self.recording and name in self.recording[view].names

    def _describe(self, model: Any) -> None:
        about = self.recording.metadata
        about.setdefault("started", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        about["model"] = model.name
        about["parameters"] = int(model.count_params())
        about["collectors"] = [{"collector": type(c).__name__, **c.get_config()} for c in self.collectors]
        about["versions"] = {"keras": keras.__version__, "tensorflow": tf.__version__}
        optimizer = getattr(model, "optimizer", None)
        about["optimizer"] = None if optimizer is None else type(optimizer).__name__


def states_of(statistic: Statistic, groups: Sequence[Group]) -> Any:
    """The states of the groups, below each other, the pieces of a group merged."""
    rows = [statistic.rows(group[0].spec) for group in groups]
    ends = np.cumsum(rows)
    rounds = max(len(group) for group in groups)
    pieces = [group[k] for k in range(rounds) for group in groups if k < len(group)]
    parts = statistic.partials(pieces)
    state, start = parts[: ends[-1]], int(ends[-1])
    for k in range(1, rounds):
        which = [i for i, group in enumerate(groups) if k < len(group)]
        index = np.concatenate([np.arange(ends[i] - rows[i], ends[i]) for i in which])
        merged = statistic.merge(tf.gather(state, index), parts[start : start + len(index)], tf)
        state = tf.tensor_scatter_nd_update(state, index[:, None], merged)
        start += len(index)
    return state


def _key(collector: Collector, statistic: Statistic) -> str:
    return f"{collector.name}|{statistic.name}"
