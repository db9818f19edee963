"""The batch's own value of each metric, while Keras's run on."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_introspect.capture.capture import Capture, active
from keras_introspect.capture.internals import is_not_a_real_call
from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.capture.taps import Taps

RAW_REASON = "it keeps its state in a tf.Variable that Keras does not know of: give it one by add_variable"
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
        with _untouched(metric) as left_out:
            own[id(metric)] = (metric, _result_of(metric, calls))
        capture.missed.update({("metrics", name): RAW_REASON for name in left_out})
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
    for name, value in values.items():
        if value is LEFT_OUT:
            continue
        value = tf.convert_to_tensor(value)
        if value.shape.rank == 0 and (value.dtype.is_floating or value.dtype.is_integer):
            scalars[name] = tf.cast(value, tf.float64)
        else:
            capture.missed[("metrics", name)] = f"it is no number but {value.dtype.name} of shape {value.shape}"
    return scalars


@contextlib.contextmanager
def _untouched(metric: Any) -> Iterator[list[str]]:
    """Context: a metric may be used within a stateless scope, without a trace in what the scope does not hold.

    A metric, be it part of another, that holds a `tf.Variable` does nothing meanwhile, and gives `LEFT_OUT`; the list
    yielded names those. Python attributes are given back, lists, dicts and sets with what was in them.
    """
    parts = _with_parts(metric)
    before = [(part, dict(vars(part)), {k: _items(v) for k, v in vars(part).items()}) for part in parts]
    raw = [part for part in parts if _holds_raw_variables(part)]
    for part in raw:
        part.__dict__.update(update_state=_nothing, reset_state=_nothing, result=_left_out)
    try:
        yield [part.name for part in raw]
    finally:
        for part, attributes, items in before:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            for name, kept in items.items():
                if kept is not None and not _same(kept, attributes[name]):
                    attributes[name].clear()
                    (attributes[name].extend if isinstance(kept, list) else attributes[name].update)(kept)


def _with_parts(metric: Any) -> list[Any]:
    """A metric and those that it is made of."""
    held = [part for value in vars(metric).values() for part in (value if isinstance(value, list) else [value])]
    inner = {id(part): part for part in held if isinstance(part, keras.metrics.Metric)}
    return [metric, *(below for part in inner.values() for below in _with_parts(part))]


def _holds_raw_variables(metric: Any) -> bool:
    """Whether a metric itself holds a `tf.Variable`: Keras's stateless scope would not keep that from being written."""
    held: list[Any] = []
    for value in vars(metric).values():
        held += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    return any(isinstance(v, tf.Variable) or (isinstance(v, tf.Module) and v.variables) for v in held)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _left_out() -> str:
    return LEFT_OUT


def _items(value: Any) -> Any:
    """A shallow copy of a list, dict or set; `None` of anything else."""
    return next((kind(value) for kind in (list, dict, set) if isinstance(value, kind)), None)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return list(one) == list(other) and all(one[key] is other[key] for key in one)
    return bool(one == other)


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
