"""The batch's own value of each metric, while Keras's run on."""

from typing import Any

import keras
import tensorflow as tf

from keras_introspect.capture.capture import Capture, active
from keras_introspect.capture.internals import is_not_a_real_call
from keras_introspect.capture.optimizers import several_replicas
from keras_introspect.capture.taps import Taps


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
    own = {id(metric): (metric, _result_of(metric, calls)) for metric, calls in capture.metric_calls.values()}
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
    known = {metric.name for metric, _ in own.values()}
    for name, value in logs.items():
        if name not in values and name not in known:
            values[name] = _mean_over_replicas(value)
    scalars = {}
    for name, value in values.items():
        value = tf.convert_to_tensor(value)
        if value.shape.rank == 0 and (value.dtype.is_floating or value.dtype.is_integer):
            scalars[name] = tf.cast(value, tf.float64)
        else:
            capture.missed[("metrics", name)] = f"it is no number but {value.dtype.name} of shape {value.shape}"
    return scalars


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
