"""Accumulators on the device.

The states of all tensors of one collector and statistic lie below each other in one variable, (rows, fields).
"""

import functools
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.naming import known_names
from keras_introspect.statistics import Statistic, TensorSpec
from keras_introspect.workers import is_first_worker, shares_of_workers

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
        """Takes one step more in, on the device.

        Args:
            state: of the step, of shape (sum of the rows, fields).
            specs: the tensors.
        """
        variable = self.segment(specs).variable
        variable.assign(self.statistic.update(tf.convert_to_tensor(variable), state, specs))

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

    def read(self, across_workers: bool = True) -> dict[str, tuple[TensorSpec, np.ndarray]]:
        """The states by name, merged over replicas and segments: a transfer to the host.

        Args:
            across_workers: merge the states of several workers too, which all must ask for them at the same point.
        """
        states: dict[str, tuple[TensorSpec, np.ndarray]] = {}
        for segment in self._segments:
            components = [component.numpy() for component in _components(segment.variable)]
            merged = components[0]
            for other in [] if self.replicated else components[1:]:
                merged = self.statistic.merge(merged, other, np)
            if across_workers and not self.replicated:
                shares = shares_of_workers(segment.variable, merged)
                merged = functools.reduce(lambda a, b: self.statistic.merge(a, b, np), shares)
            for spec, rows in segment.slices():
                known = states.get(spec.name)
                if known is None or not self._observed(known[1]):
                    states[spec.name] = (spec, merged[rows])
                elif self._observed(merged[rows]):
                    states[spec.name] = self._pooled(known, (spec, merged[rows]))
        return states

    def _pooled(
        self, a: tuple[TensorSpec, np.ndarray], b: tuple[TensorSpec, np.ndarray]
    ) -> tuple[TensorSpec, np.ndarray]:
        """The state of one tensor that had two shapes in the epoch."""
        spec = a[0].joined(b[0])
        states = [self.statistic.restated(state, known, spec) for known, state in (a, b)]
        if states[0] is None or states[1] is None:
            return b  # a statistic that cannot pool shapes describes the newest
        return spec, self.statistic.merge(states[0], states[1], np)

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
        # Of several workers, the first: what is restored is to count once.
        if found and (self.replicated or is_first_worker(segment.variable)):
            with tf.init_scope():
                segment.assign(value, everywhere=False)

    def is_untouched(self) -> bool:
        """Whether no step was traced yet, nor a state restored: told without looking at the device."""
        return not self._segments and not self._restored

    def to_save(self) -> dict[str, np.ndarray]:
        """The states by name of what was observed, and those restored for tensors that no step had yet.

        Of several workers, this one's share: one of them may be the only one to save.
        """
        states = {name: state for name, (_, state) in self.read(across_workers=False).items() if self._observed(state)}
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
        self._variable = _create_for_this_replica(self._initial)

    def nbytes(self) -> int:
        return self._initial.nbytes

    def merge(self, state: Any) -> None:
        self._variable.assign(self._statistic.merge(tf.convert_to_tensor(self._variable), state, tf))

    def take(self) -> Any:
        state = tf.identity(tf.convert_to_tensor(self._variable))
        self._variable.assign(self._initial)
        return state


class _Layout(NamedTuple):
    """The part of a `StepBuffer` that one list of tensors fills: variables of `capacity` rows.

    Attributes:
        specs: lane → its tensors.
        values: lane → variable (capacity, …).
        stamps: variable (capacity,): the count of the step that was written into a row.
    """

    specs: Mapping[str, tuple[TensorSpec, ...]]
    values: Mapping[str, Any]
    stamps: Any


_Block = tuple[np.ndarray, dict[str, tuple[tuple[TensorSpec, ...], np.ndarray]]]


class StepBuffer:
    """Values of single steps, kept on the device until the host fetches them.

    Args:
        capacity: how many steps it holds; the host must fetch before more have passed.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._layouts: list[_Layout] = []
        self._steps: Any = None
        self._count: Any = None

    def layout(self, lanes: Mapping[str, tuple[Sequence[TensorSpec], tuple[int, ...]]]) -> _Layout:
        """The variables for lane → (its tensors, the shape of one step's value), made where they do not exist."""
        specs = {lane: tuple(tensors) for lane, (tensors, _) in lanes.items()}
        shapes = {lane: shape for lane, (_, shape) in lanes.items()}
        return self._find(specs) or _across_replicas(lambda: self._find(specs) or self._add(specs, shapes))

    def _find(self, specs: Mapping[str, tuple[TensorSpec, ...]]) -> _Layout | None:
        return next((layout for layout in self._layouts if layout.specs == specs), None)

    def _add(self, specs: Mapping[str, tuple[TensorSpec, ...]], shapes: Mapping[str, tuple[int, ...]]) -> _Layout:
        if self._count is None:
            self._steps = _create(np.zeros(self.capacity, np.int64))
            self._count = _create(np.zeros((), np.int64))
        values = {lane: _create(np.zeros((self.capacity, *shape), np.float64)) for lane, shape in shapes.items()}
        layout = _Layout(specs, values, _create(np.full(self.capacity, -1, np.int64)))
        self._layouts.append(layout)
        return layout

    def append(self, layout: _Layout, step: Any, values: Mapping[str, Any]) -> None:
        """Adds one step, on the device, when its values are there.

        TensorFlow runs what does not depend on the data also in the call in which a generator turns out to be at its
        end: the step would be counted, and have no values.

        Args:
            layout: of the tensors that the step had.
            step: int64 scalar: the optimizer's iterations before the step.
            values: lane → its value, of the shape in the layout.
        """
        with tf.control_dependencies(list(values.values())):
            count = tf.convert_to_tensor(self._count)
            slot = count % self.capacity  # never out of bounds; an overflow shows in the count
            for lane, value in values.items():
                _local(layout.values[lane]).scatter_nd_update([[slot]], value[None])
            _local(self._steps).scatter_nd_update([[slot]], [tf.cast(step, tf.int64)])
            _local(layout.stamps).scatter_nd_update([[slot]], [count])
            self._count.assign(count + 1)

    def fetch(self) -> tuple[np.ndarray, list[_Block]]:
        """Empties the buffer: a transfer to the host.

        Returns:
            The steps (S,); and for each list of tensors that there was in them: which of the S steps had it (R,), and
            lane → (its tensors, values (R, …)).
        """
        if self._count is None:
            return np.zeros(0, np.int64), []
        count = int(_components(self._count)[0].numpy())
        if count > self.capacity:
            warnings.warn(
                f"{count} steps passed between two visits of the host, but the buffer of single steps holds "
                f"{self.capacity}: the oldest {count - self.capacity} are lost. Use a smaller steps_per_execution; in "
                "loops over train_on_batch, single steps are kept for the last ones only.",
                stacklevel=2,
            )
        counts = np.arange(max(0, count - self.capacity), count)
        slots = counts % self.capacity
        found: list[_Block] = []
        for layout in self._layouts if count else []:
            here = np.flatnonzero(_components(layout.stamps)[0].numpy()[slots] == counts)
            if len(here):
                lanes = {
                    lane: (layout.specs[lane], _components(variable)[0].numpy()[slots[here]])
                    for lane, variable in layout.values.items()
                }
                found.append((here, lanes))
        steps = _components(self._steps)[0].numpy()[slots]
        self.clear()
        return steps, found

    def clear(self) -> None:
        """Forgets the steps it holds."""
        for component in [] if self._count is None else _components(self._count):
            component.assign(np.zeros((), np.int64))
        for layout in self._layouts:
            for component in _components(layout.stamps):
                component.assign(np.full(self.capacity, -1, np.int64))

    def nbytes(self) -> int:
        """Bytes on the device."""
        if not self._layouts:
            return 0
        kept = sum(8 * math.prod(v.shape) for layout in self._layouts for v in layout.values.values())
        return kept + 8 * self.capacity * (len(self._layouts) + 1) + 8


def probe_variable(rows: int, sums: int) -> Any:
    """All zeros, and trainable so that a gradient tape watches what is read from it: see `capture.loops`."""
    return _create_for_this_replica(np.zeros((rows, sums), np.float64), trainable=True)


def counter() -> Any:
    """An int64 scalar that starts at zero."""
    return _across_replicas(lambda: _create(np.zeros((), np.int64)))


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


def _create_for_this_replica(initial: np.ndarray, trainable: bool = False) -> Any:
    """A variable that no other replica knows of: it can be made where replicas cannot wait for each other, in loops."""
    devices = tf.distribute.get_strategy().extended.worker_devices if several_replicas() else [None]
    with tf.init_scope(), tf.device(devices[replica_id() % len(devices)]):  # workers have those of their own only
        return ResourceVariable(initial, trainable=trainable)


def replica_id() -> int:
    """Which of several replicas runs, or is traced, in this thread; 0 where there is one."""
    context = tf.distribute.get_replica_context()
    number = None if context is None else tf.get_static_value(context.replica_id_in_sync_group)
    return 0 if number is None else int(number)


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
