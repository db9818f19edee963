"""Accumulators on the device.

The states of all tensors of one collector and statistic lie below each other in one variable, (rows, fields).
"""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.naming import known_names
from keras_introspect.statistics import Statistic, TensorSpec

_LOCK = threading.RLock()


class _Segment:
    """One variable: the states of one list of tensors. A retrace that sees other tensors gets another segment."""

    def __init__(self, statistic: Statistic, specs: Sequence[TensorSpec]) -> None:
        self.specs = tuple(specs)
        rows = [statistic.rows(spec) for spec in specs]
        self.ends = np.cumsum(rows)
        self.initial = statistic.empty(int(sum(rows)))
        self.variable = _create(self.initial)

    def slices(self) -> list[tuple[TensorSpec, slice]]:
        starts = [0, *self.ends[:-1]]
        return [(spec, slice(a, b)) for spec, a, b in zip(self.specs, starts, self.ends, strict=True)]

    def assign(self, value: np.ndarray, everywhere: bool) -> None:
        """Sets the state; of several replicas, only the first unless `everywhere`."""
        for i, component in enumerate(_components(self.variable)):
            component.assign(value if i == 0 or everywhere else self.initial)


class Accumulator:
    """The state of one statistic of one collector, over the steps of an epoch.

    Args:
        statistic: what is accumulated.
        replicated: whether every replica sees the same tensors (variables), or a share of the batch each.
    """

    def __init__(self, statistic: Statistic, replicated: bool) -> None:
        self.statistic = statistic
        self.replicated = replicated
        self._segments: list[_Segment] = []
        self._restored: dict[str, np.ndarray] = {}

    def update(self, state: Any, specs: Sequence[TensorSpec]) -> None:
        """Merges the states of these tensors in, on the device.

        Args:
            state: of shape (sum of the rows, fields).
            specs: the tensors.
        """
        variable = self.segment(specs).variable
        variable.assign(self.statistic.merge(tf.convert_to_tensor(variable), state, tf))

    def segment(self, specs: Sequence[TensorSpec]) -> _Segment:
        """The variable for these tensors, made where it does not exist."""
        specs = tuple(specs)
        return self._find(specs) or _across_replicas(lambda: self._find(specs) or self._add(specs))

    def _find(self, specs: tuple[TensorSpec, ...]) -> _Segment | None:
        return next((segment for segment in self._segments if segment.specs == specs), None)

    def _add(self, specs: tuple[TensorSpec, ...]) -> _Segment:
        segment = _Segment(self.statistic, specs)
        self._apply_restored(segment)
        self._segments.append(segment)
        return segment

    def read(self) -> dict[str, tuple[TensorSpec, np.ndarray]]:
        """The states by name, merged over replicas and segments: a transfer to the host."""
        states: dict[str, tuple[TensorSpec, np.ndarray]] = {}
        for segment in self._segments:
            components = [component.numpy() for component in _components(segment.variable)]
            merged = components[0]
            for other in [] if self.replicated else components[1:]:
                merged = self.statistic.merge(merged, other, np)
            for spec, rows in segment.slices():
                state = merged[rows]
                if spec.name in states and states[spec.name][1].shape == state.shape:
                    state = self.statistic.merge(states[spec.name][1], state, np)
                elif spec.name in states and not self._observed(state):
                    continue
                states[spec.name] = (spec, state)
        return states

    def _observed(self, state: np.ndarray) -> bool:
        return not np.array_equal(state, self.statistic.empty(len(state)))

    def reset(self) -> None:
        self._restored.clear()
        for segment in self._segments:
            segment.assign(segment.initial, everywhere=True)

    def restore(self, states: Mapping[str, np.ndarray]) -> None:
        """Sets the states by name; kept for tensors that are not known yet."""
        self.reset()
        self._restored = dict(states)
        for segment in self._segments:
            self._apply_restored(segment)

    def _apply_restored(self, segment: _Segment) -> None:
        value = segment.initial.copy()
        found = False
        names = known_names(self._restored, [spec.name for spec in segment.specs]) if self._restored else []
        for name, (_, rows) in zip(names, segment.slices(), strict=False):
            state = self._restored.get(name)
            if state is not None and state.shape == value[rows].shape:
                value[rows] = self._restored.pop(name)
                found = True
        if found:
            with tf.init_scope():
                segment.assign(value, everywhere=False)

    def is_untouched(self) -> bool:
        """Whether no step was traced yet, nor a state restored: told without looking at the device."""
        return not self._segments and not self._restored

    def to_save(self) -> dict[str, np.ndarray]:
        """The states by name of what was observed, and those restored for tensors that no step had yet."""
        states = {name: state for name, (_, state) in self.read().items() if self._observed(state)}
        return {**self._restored, **states}

    def take_unplaced(self) -> list[str]:
        """Gives up the restored states of tensors that no step had, or had in another shape: their names."""
        names = list(self._restored)
        self._restored.clear()
        return names

    def nbytes(self) -> int:
        return sum(segment.initial.nbytes for segment in self._segments)


class LoopScratch:
    """The state of one tensor over the iterations of a loop, within one step.

    It is merged inside the loop, taken out after it, and left empty for the next step.
    """

    def __init__(self, statistic: Statistic, spec: TensorSpec) -> None:
        self._statistic = statistic
        self._initial = statistic.empty(statistic.rows(spec))
        self._variable = _create(self._initial)

    def merge(self, state: Any) -> None:
        self._variable.assign(self._statistic.merge(tf.convert_to_tensor(self._variable), state, tf))

    def take(self) -> Any:
        state = tf.identity(tf.convert_to_tensor(self._variable))
        self._variable.assign(self._initial)
        return state


class StepBuffer:
    """Values of single steps, kept on the device until the host fetches them.

    Args:
        capacity: how many steps it holds; the host must fetch before more have passed.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lanes: dict[str, tuple[tuple[TensorSpec, ...], Any]] = {}
        self._steps: Any = None
        self._count: Any = None

    def prepare(self, lanes: Mapping[str, tuple[Sequence[TensorSpec], tuple[int, ...]]]) -> None:
        """Makes the variables: lane → (its tensors, the shape of one step's value)."""
        wanted = {lane: (tuple(specs), shape) for lane, (specs, shape) in lanes.items()}
        if self._steps is None or any(self._lanes.get(lane, ((),))[0] != specs for lane, (specs, _) in wanted.items()):
            _across_replicas(lambda: self._make(wanted))

    def _make(self, lanes: Mapping[str, tuple[tuple[TensorSpec, ...], tuple[int, ...]]]) -> None:
        if self._steps is None:
            self._steps = _create(np.zeros(self.capacity, np.int64))
            self._count = _create(np.zeros((), np.int64))
        for lane, (specs, shape) in lanes.items():
            known = self._lanes.get(lane)
            if known is None or known[0] != specs:
                self._lanes[lane] = (specs, _create(np.zeros((self.capacity, *shape), np.float64)))

    def append(self, step: Any, values: Mapping[str, Any]) -> None:
        """Adds one step, on the device.

        Args:
            step: int64 scalar: the optimizer's iterations before the step.
            values: lane → its value, of the shape that was prepared.
        """
        count = tf.convert_to_tensor(self._count)
        slot = count % self.capacity  # never out of bounds; an overflow shows in the count
        _local(self._steps).scatter_nd_update([[slot]], [tf.cast(step, tf.int64)])
        for lane, value in values.items():
            _local(self._lanes[lane][1]).scatter_nd_update([[slot]], value[None])
        self._count.assign(count + 1)

    def fetch(self) -> tuple[np.ndarray, dict[str, tuple[tuple[TensorSpec, ...], np.ndarray]]]:
        """Empties the buffer: the steps (S,), and lane → (its tensors, values (S, …)). A transfer to the host."""
        if self._count is None:
            return np.zeros(0, np.int64), {}
        count = int(_components(self._count)[0].numpy())
        if count > self.capacity:
            warnings.warn(
                f"{count} steps passed between two visits of the host, but the buffer of single steps holds "
                f"{self.capacity}: the oldest {count - self.capacity} are lost. Use a smaller steps_per_execution; in "
                "loops over train_on_batch, single steps are kept for the last ones only.",
                stacklevel=2,
            )
        kept = min(count, self.capacity)
        order = (np.arange(kept) + (count if count > self.capacity else 0)) % self.capacity
        steps = _components(self._steps)[0].numpy()[order]
        lanes = {lane: (specs, _components(v)[0].numpy()[order]) for lane, (specs, v) in self._lanes.items()}
        self.clear()
        return steps, lanes

    def clear(self) -> None:
        """Forgets the steps it holds."""
        for component in [] if self._count is None else _components(self._count):
            component.assign(np.zeros((), np.int64))

    def nbytes(self) -> int:
        return sum(8 * int(np.prod(variable.shape)) for _, variable in self._lanes.values()) + 8 * self.capacity


def probe_variable(rows: int, sums: int) -> Any:
    """All zeros, and trainable so that a gradient tape watches what is read from it: see `capture.loops`."""
    return _create(np.zeros((rows, sums), np.float64), trainable=True)


def _create(initial: np.ndarray, trainable: bool = False) -> Any:
    """A variable, also in the middle of a trace; each replica writes its own copy of it."""
    with tf.init_scope():
        if not tf.distribute.has_strategy():
            # Not tf.Variable: a variable that tf.function sees being made has it trace the step a second time.
            return ResourceVariable(initial, trainable=trainable)
        return tf.Variable(
            initial,
            trainable=trainable,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )


def _across_replicas(make: Callable[[], Any]) -> Any:
    """Calls `make` once for all replicas: they run in threads of one process, and wait for each other here.

    No lock may be held: the replica that holds it would wait for those that want it.
    """
    context = tf.distribute.get_replica_context()
    if context is not None and several_replicas():
        return context.merge_call(lambda strategy: make())
    with _LOCK:
        return make()


def _local(variable: Any) -> Any:
    """This replica's own variable: a distributed one knows no scatter."""
    components = _components(variable)
    if len(components) == 1:
        return components[0]
    replica = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
    return components[int(replica) % len(components)]


def _components(variable: Any) -> Sequence[Any]:
    """The replicas' own variables behind a distributed variable."""
    return getattr(variable, "values", None) or [variable]
