"""The batch's own value of each metric, while Keras's run on."""

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture.capture import Capture, active
from keras_introspect.capture.internals import is_not_a_real_call
from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.capture.taps import Taps

IMPURE_REASON = (
    "its value for a batch alone cannot be had unnoticed: it keeps state outside of Keras's variables, draws random "
    "numbers or calls Python"
)
LEFT_OUT = "left out"  # in place of a value


class MetricTaps(Taps):
    """Context: taps `update_state` and `result` of all metrics of a model."""

    def __init__(self, model: Any) -> None:
        methods = {"update_state": _observing, "result": _noting}
        super().__init__(model, lambda model: list(model.metrics), methods)


def _observing(metric: Any, original: Any) -> Any:
    def update_state(*args: Any, **kwargs: Any) -> Any:
        capture = active()
        if capture is not None and capture.in_step_graph() and not is_not_a_real_call():
            capture.metric_calls.setdefault(id(metric), (metric, []))[1].append((args, kwargs))
        return original(*args, **kwargs)

    return update_state


def _noting(metric: Any, original: Any) -> Any:
    def result() -> Any:
        value = original()
        capture = active()
        if capture is not None and capture.in_step_graph() and not is_not_a_real_call():
            capture.metric_results.append((metric, value))
        return value

    return result


def values_of_step(capture: Capture) -> dict[str, Any]:
    """The loss and the metrics of this step's batch alone: name → float64 scalar.

    Each metric is reset, updated with what it was given in the step, and read, all in a `keras.StatelessScope`, so that
    its own running state is left alone. Its value goes by the name under which the step returned it. What the step
    returned besides, such as the losses of a training step of the user's own, is taken as it is.
    """
    own = {}
    for metric, calls in capture.metric_calls.values():
        left_out = _to_leave_out(metric, calls)
        capture.missed.update({("metrics", part.name): IMPURE_REASON for part in left_out})
        with _untouched(metric, left_out):
            own[id(metric)] = (metric, _result_of(metric, calls))
    known = {metric.name for metric, _ in own.values()}
    logs = capture.logs if isinstance(capture.logs, dict) else {}
    values: dict[str, Any] = {}
    renamed = set()
    for name, value in logs.items():
        metric = next((m for m, result in capture.metric_results if result is value and id(m) in own), None)
        if metric is not None and metric.name != name and not isinstance(value, dict):
            values[name] = own[id(metric)][1]
            renamed.add(id(metric))
    for key, (metric, result) in own.items():
        if isinstance(result, dict):
            values.update(result)
        elif key not in renamed or metric.name in logs:
            values[metric.name] = result
    for name, value in logs.items():
        if name not in values and name not in known:
            values[name] = _mean_over_replicas(value)
    scalars = {}
    for name, value in _leaves(values):
        if value is LEFT_OUT:
            continue
        value = tf.convert_to_tensor(value)
        if value.shape.rank == 0 and (value.dtype.is_floating or value.dtype.is_integer):
            scalars[name] = tf.cast(value, tf.float64)
        else:
            capture.missed[("metrics", name)] = f"it is no number but {value.dtype.name} of shape {value.shape}"
    return scalars


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, those of dicts within it too, which is how Keras flattens its logs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield name, value


@contextlib.contextmanager
def _untouched(metric: Any, left_out: Sequence[Any] = ()) -> Iterator[None]:
    """Context: a metric may be used within a stateless scope, without a trace in what the scope does not hold.

    Its Python attributes are given back, those of the metrics within it too, lists, dicts, sets and arrays with what
    was in them. Those left out do nothing meanwhile, and give `LEFT_OUT`.
    """
    parts = _with_parts(metric)
    before = [(part, dict(vars(part)), [_snapshot(value) for value in vars(part).values()]) for part in parts]
    for part in left_out:
        part.__dict__.update(update_state=_nothing, reset_state=_nothing, result=_left_out)
    try:
        yield
    finally:
        for part, attributes, snapshots in before:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            for snapshot in snapshots:
                _restore(snapshot)


def _parts_of(metric: Any) -> list[Any]:
    """The metrics that a metric holds."""
    held = [part for value in vars(metric).values() for part in (value if isinstance(value, list) else [value])]
    return list({id(part): part for part in held if isinstance(part, keras.metrics.Metric)}.values())


def _with_parts(metric: Any) -> list[Any]:
    """A metric and those that it is made of, at all depths."""
    return [metric, *(below for part in _parts_of(metric) for below in _with_parts(part))]


_CHECKED: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()  # for eager steps: once is enough


def _to_leave_out(metric: Any, calls: list[Any]) -> list[Any]:
    """The metrics, of those that make up this one, whose use outside of the step would be noticed.

    Keras's stateless scope holds back what is written to Keras's variables. What else a metric does, such as writing a
    `tf.Variable`, drawing random numbers or calling Python, shows in a trace that is never run.
    """
    if metric in _CHECKED and tf.executing_eagerly():
        return _CHECKED[metric]
    found: list[Any] = []
    if not _is_pure(metric, calls, ()):
        parts = _of_the_user(metric)
        found = [part for part in parts if not _is_pure(metric, calls, [other for other in parts if other is not part])]
    _CHECKED[metric] = found
    return found


def _of_the_user(metric: Any) -> list[Any]:
    """The metrics that were given to `compile`, where this is what Keras holds them in; else the metric itself."""
    if type(metric).__module__.endswith(".compile_utils"):
        return [below for part in _parts_of(metric) for below in _of_the_user(part)]
    return [metric]


def _is_pure(metric: Any, calls: list[Any], left_out: Sequence[Any]) -> bool:
    with _untouched(metric, left_out):
        try:
            trace = tf.function(lambda: _used(metric, calls), autograph=False).get_concrete_function()
        except Exception:  # of many types: what cannot be traced, such as float(tensor), cannot be looked at
            return False
    return all(not op.op_def.is_stateful or op.type in _HARMLESS for op in trace.graph.get_operations())


_HARMLESS = {"ReadVariableOp", "Assert", "If", "While", "VarIsInitializedOp"}


def _used(metric: Any, calls: list[Any]) -> list[Any]:
    """What comes of resetting, updating and reading a metric; its own state is held back."""
    with keras.StatelessScope():
        metric.reset_state()
        for args, kwargs in calls:
            metric.update_state(*args, **kwargs)
        return [value for value in tf.nest.flatten(metric.result()) if tf.is_tensor(value)]


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _left_out() -> str:
    return LEFT_OUT


_Snapshot = tuple[Any, Any, list[Any]] | None  # a container, what was in it, and the snapshots of that


def _snapshot(value: Any) -> _Snapshot:
    """What is in a list, dict, set or array, and in those within it; `None` of anything else."""
    if isinstance(value, np.ndarray):
        return value, value.copy(), []
    kind = next((kind for kind in (list, dict, set) if isinstance(value, kind)), None)
    if kind is None:
        return None
    inner = value.values() if isinstance(value, dict) else value
    return value, kind(value), [_snapshot(part) for part in inner if not isinstance(part, keras.metrics.Metric)]


def _restore(snapshot: _Snapshot) -> None:
    if snapshot is None:
        return
    value, content, inner = snapshot
    if isinstance(value, np.ndarray):
        value[...] = content
    elif not _same(content, value):
        value.clear()
        (value.extend if isinstance(value, list) else value.update)(content)
    for part in inner:
        _restore(part)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return list(one) == list(other) and all(one[key] is other[key] for key in one)
    return bool(one == set(other))


def _result_of(metric: Any, calls: list[Any]) -> Any:
    with keras.StatelessScope() as scope:
        metric.reset_state()
        for args, kwargs in calls:
            metric.update_state(*args, **kwargs)
        if not several_replicas():
            return metric.result()
    # Keras sums the replicas' states of a metric when it reads them: so here.
    context = tf.distribute.get_replica_context()
    shares = [tf.convert_to_tensor(scope.get_current_value(v)) for v in metric.variables]
    sums = context.all_reduce(tf.distribute.ReduceOp.SUM, shares) if shares else []
    with keras.StatelessScope(state_mapping=list(zip(metric.variables, sums, strict=True))):
        return metric.result()


def _mean_over_replicas(value: Any) -> Any:
    value = tf.convert_to_tensor(value)
    if not several_replicas() or not value.dtype.is_floating:
        return value
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, value)
