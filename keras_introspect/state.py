"""Accumulators on the device, and all that a model's files keep of us.

The states of all tensors of one collector and statistic lie below each other in one variable, (rows, fields). Everything
that is saved, accumulators and recording, is one blob of bytes, the same in every file format.
"""

import io
import json
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_introspect.capture.internals import KerasSaveable
from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.recording import Recording
from keras_introspect.statistics import Statistic, TensorSpec

_LOCK = threading.RLock()
_BLOB = "introspection"
_META = "state.json"
STATE_VERSION = 1


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
        for spec, rows in segment.slices():
            state = self._restored.get(spec.name)
            if state is not None and state.shape == value[rows].shape:
                value[rows] = self._restored.pop(spec.name)
                found = True
        if found:
            with tf.init_scope():
                segment.assign(value, everywhere=False)

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
        self._steps.scatter_nd_update([[slot]], [tf.cast(step, tf.int64)])
        for lane, value in values.items():
            self._lanes[lane][1].scatter_nd_update([[slot]], value[None])
        self._count.assign(count + 1)

    def fetch(self) -> tuple[np.ndarray, dict[str, tuple[tuple[TensorSpec, ...], np.ndarray]]]:
        """Empties the buffer: the steps (S,), and lane → (its tensors, values (S, …)). A transfer to the host."""
        if self._count is None:
            return np.zeros(0, np.int64), {}
        count = int(_components(self._count)[0].numpy())
        kept = min(count, self.capacity)
        steps = _components(self._steps)[0].numpy()[:kept]
        lanes = {lane: (specs, _components(v)[0].numpy()[:kept]) for lane, (specs, v) in self._lanes.items()}
        for component in _components(self._count):
            component.assign(np.zeros((), np.int64))
        return steps, lanes

    def nbytes(self) -> int:
        return sum(8 * int(np.prod(variable.shape)) for _, variable in self._lanes.values()) + 8 * self.capacity


def probe_variable(rows: int, sums: int) -> Any:
    """All zeros, and trainable so that a gradient tape watches what is read from it: see `capture.loops`."""
    return _create(np.zeros((rows, sums), np.float64), trainable=True)


def _create(initial: np.ndarray, trainable: bool = False) -> Any:
    """A variable, also in the middle of a trace; each replica writes its own copy of it."""
    with tf.init_scope():
        if not tf.distribute.has_strategy():
            return tf.Variable(initial, trainable=trainable)
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


def _components(variable: Any) -> Sequence[Any]:
    """The replicas' own variables behind a distributed variable."""
    return getattr(variable, "values", None) or [variable]


class IntrospectionState(tf.train.experimental.PythonState, KerasSaveable):
    """What a model keeps for us: one object, saved by Keras's files and TensorFlow's checkpoints alike.

    Attributes:
        recording: what was observed.
        accumulators: "collector|statistic" → accumulator, of the collectors compiled now.
    """

    def __init__(self) -> None:
        self.name = "introspection"
        self.recording = Recording()
        self.accumulators: dict[str, Accumulator] = {}
        self._restored: dict[str, dict[str, np.ndarray]] = {}

    def _obj_type(self) -> str:
        return "Metric"  # Keras's saver takes a closed list of kinds (≥ 3.10); this one adds no behaviour

    def use(self, accumulators: dict[str, Accumulator]) -> None:
        """Takes the accumulators of newly compiled collectors; restored states that fit them are kept."""
        self.accumulators = accumulators
        self._hand_out()

    def _hand_out(self) -> None:
        for key, accumulator in self.accumulators.items():
            if key in self._restored:
                accumulator.restore(self._restored.pop(key))

    # --- one blob ---

    def serialize(self) -> bytes:
        """Everything as bytes: called by `tf.train.Checkpoint`."""
        arrays: dict[str, np.ndarray] = {"recording": np.frombuffer(self.recording.to_bytes(), np.uint8)}
        index: list[tuple[str, str]] = []
        for key, accumulator in self.accumulators.items():
            for name, (_, state) in accumulator.read().items():
                arrays[f"state/{len(index)}"] = state
                index.append((key, name))
        meta = {"format": "keras_introspect state", "version": STATE_VERSION, "index": index}
        arrays[_META] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """The inverse of `serialize`.

        Raises:
            ValueError: the bytes are damaged or of a newer version; what is in memory is left as it was.
        """
        try:
            with np.load(io.BytesIO(string_value), allow_pickle=False) as file:
                meta = json.loads(file[_META].tobytes())
                if meta["version"] > STATE_VERSION:
                    raise ValueError(
                        f"it has version {meta['version']}, this keras_introspect reads up to {STATE_VERSION}"
                    )
                recording = Recording.from_bytes(file["recording"].tobytes())
                restored: dict[str, dict[str, np.ndarray]] = {}
                for i, (key, name) in enumerate(meta["index"]):
                    restored.setdefault(key, {})[name] = file[f"state/{i}"]
        except (KeyError, ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"The introspection state in this file cannot be read: {error}") from error
        self.recording = recording
        self._restored = restored
        self._hand_out()

    def save_own_variables(self, store: Any) -> None:
        """Called by Keras's `.keras` and `.weights.h5` files."""
        if self.accumulators or len(self.recording) or len(self.recording.epochs):
            store[_BLOB] = np.frombuffer(self.serialize(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        if _BLOB in store.keys():  # noqa: SIM118 - a store of Keras is no mapping
            self.deserialize(np.asarray(store[_BLOB]).tobytes())
