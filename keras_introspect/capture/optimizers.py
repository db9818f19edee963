"""Gradients as they reach the optimizers, and the scale that is on them."""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from keras_introspect.capture.capture import Capture, Seen, active
from keras_introspect.capture.taps import Taps


def optimizers_of(model: Any) -> list[Any]:
    """`model.optimizer` and every optimizer that the model holds as an attribute, in a list, tuple or dict."""
    found: list[Any] = []

    def look(value: Any, depth: int) -> None:
        if isinstance(value, keras.optimizers.Optimizer):
            if not any(value is other for other in found):
                found.append(value)
        elif depth and isinstance(value, dict):
            for item in value.values():
                look(item, depth - 1)
        elif depth and isinstance(value, (list, tuple)):
            for item in value:
                look(item, depth - 1)

    look(getattr(model, "optimizer", None), 0)
    for value in list(vars(model).values()):
        look(value, 2)
    return found


class OptimizerTaps(Taps):
    """Context: taps `apply` of every optimizer of a model."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, optimizers_of, {"apply": _observing})


def _observing(optimizer: Any, original: Any) -> Any:
    def apply(grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        capture = active()
        # A LossScaleOptimizer calls its inner optimizer's apply in turn: the outer call has it all.
        if capture is None or capture.applying or not capture.in_step_graph():
            return original(grads, trainable_variables, **kwargs)
        grads = list(grads)
        # Keras ≥ 3.10 keeps what an optimizer was built for in _trainable_variables, its default here.
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        reduced = observe_gradients(capture, optimizer, grads, variables)
        capture.applying = True
        try:
            with reduced:
                return original(grads, trainable_variables if trainable_variables is None else variables, **kwargs)
        finally:
            capture.applying = False

    return apply


def observe_gradients(capture: Capture, optimizer: Any, grads: list[Any], variables: list[Any]) -> Any:
    """Notes what `apply` was given; returns the context to run it in."""
    scale = loss_scale(optimizer)
    if capture.iterations is None:
        capture.iterations = tf.identity(tf.convert_to_tensor(optimizer.iterations))  # as before the step
    capture.loss_scale = scale if capture.loss_scale is None else capture.loss_scale
    if capture.wanted.metrics and capture.learning_rate is None:
        capture.learning_rate = tf.identity(tf.convert_to_tensor(optimizer.learning_rate))
    if capture.wanted.applied:
        iterations = tf.identity(tf.convert_to_tensor(optimizer.iterations))
        for variable in variables:
            capture.optimizers[id(variable)] = (optimizer, iterations)
    if capture.wanted.values_before:
        for variable in variables:
            capture.keep_value(variable)
    if not capture.wanted.gradients:
        return contextlib.nullcontext()
    # float8 training keeps scales in variables whose "gradient" is their next value (Keras ≥ 3.5).
    pairs = [
        (gradient, variable)
        for gradient, variable in zip(grads, variables, strict=False)
        if gradient is not None and not getattr(variable, "overwrite_with_gradient", False)
    ]
    if not several_replicas():
        for gradient, variable in pairs:
            seen = _unscaled(_dense_rows(gradient), scale)
            capture.add_gradient(variable, seen)
            if capture.wanted.applied:
                capture.applied[id(variable)] = _with_accumulated(optimizer, variable, seen)
        return contextlib.nullcontext()
    if _reduces_what_it_was_given(optimizer) and len(pairs) == sum(gradient is not None for gradient in grads):
        return _ReadReduction(capture, optimizer, [variable for _, variable in pairs])
    context = tf.distribute.get_replica_context()
    own = [gradient for gradient, _ in pairs]
    sums = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
    parts = _norms_of_parts(capture, own)
    for gradient, (_, variable), part in zip(sums, pairs, parts, strict=True):
        if part is not None and scale is not None:
            part = unscaled(unscaled(part, scale), scale)
        capture.add_gradient(variable, _unscaled(_dense_rows(gradient), scale)._replace(part=part))
    return contextlib.nullcontext()


def _norms_of_parts(capture: Capture, own: list[Any]) -> list[Any]:
    """The mean squared norm over replicas of each gradient, of a loss of the replica's own; none of a sparse one.

    What a replica computes is the gradient of its share of the loss: a replica's own is n times that.
    """
    if not capture.wanted.parts:
        return [None] * len(own)
    dense = [i for i, gradient in enumerate(own) if isinstance(gradient, tf.Tensor)]
    found: list[Any] = [None] * len(own)
    if dense:
        squares = tf.stack([2.0 * tf.nn.l2_loss(tf.cast(own[i], tf.float32)) for i in dense])
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, squares)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        for i, square in zip(dense, tf.unstack(replicas * sums, num=len(dense)), strict=True):
            found[i] = square
    return found


def accumulation_steps(optimizer: Any) -> int:
    """Over how many steps an optimizer accumulates gradients before it applies them; 1 where it does not."""
    return getattr(optimizer, "inner_optimizer", optimizer).gradient_accumulation_steps or 1


def several_replicas() -> bool:
    """Whether the step runs on several replicas at once."""
    return tf.distribute.has_strategy() and tf.distribute.get_strategy().num_replicas_in_sync > 1


def _reduces_what_it_was_given(optimizer: Any) -> bool:
    """Whether the optimizer sums its gradients over replicas as they are, neither clipped nor accumulated before."""
    return not (
        isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        or any(
            getattr(optimizer, attribute, None)
            for attribute in ("clipnorm", "global_clipnorm", "clipvalue", "gradient_accumulation_steps")
        )
    )


class _ReadReduction:
    """Context: reads the sums over replicas where the optimizer makes them, so that nothing is communicated twice.

    Keras ≥ 3.10 makes them in `_all_reduce_sum_gradients`, of gradients whose loss scale is divided out.
    """

    def __init__(self, capture: Capture, optimizer: Any, variables: list[Any]) -> None:
        self._capture = capture
        self._optimizer = optimizer
        self._variables = variables

    def __enter__(self) -> None:
        original = type(self._optimizer)._all_reduce_sum_gradients.__get__(self._optimizer)
        capture, variables = self._capture, self._variables

        def all_reduce_sum_gradients(grads_and_vars: Any) -> Any:
            grads_and_vars = list(grads_and_vars)
            own = [gradient for gradient, _ in grads_and_vars if gradient is not None]
            reduced = original(grads_and_vars)
            # In the replica's own thread: another replica's capture is active there.
            seen_by = active() or capture
            sums = [gradient for gradient, _ in reduced if gradient is not None]
            parts = _norms_of_parts(seen_by, own)
            for gradient, variable, part in zip(sums, variables, parts, strict=True):
                seen_by.add_gradient(variable, _dense_rows(gradient)._replace(part=part))
            return reduced

        self._optimizer.__dict__["_all_reduce_sum_gradients"] = all_reduce_sum_gradients

    def __exit__(self, *_: object) -> None:
        self._optimizer.__dict__.pop("_all_reduce_sum_gradients", None)


def loss_scale(optimizer: Any) -> Any:
    """What the loss was multiplied by: a float32 scalar tensor, read now, before `apply` changes it, or `None`."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        scale = optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
        return tf.cast(tf.convert_to_tensor(scale), tf.float32)
    factor = getattr(optimizer, "loss_scale_factor", None)
    return None if not factor else tf.constant(float(factor), tf.float32)


def unscaled(values: Any, scale: Any) -> Any:
    """Divides the loss scale out, in float32: in float16 the quotient may underflow."""
    if scale is None:
        return values
    values = values if values.dtype == tf.float64 else tf.cast(values, tf.float32)
    return values / tf.cast(scale, values.dtype)


def _unscaled(seen: Seen, scale: Any) -> Seen:
    return seen._replace(values=unscaled(seen.values, scale))


def _dense_rows(gradient: Any) -> Seen:
    """A sparse gradient as the sums of its repeated rows, and the number of elements that it leaves zero.

    The gradient of an embedding lists a row for each lookup, the same row many times. What the optimizer applies is
    their sum; and what statistics describe. The full matrix is never made where it has more rows than were looked up.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return Seen(tf.convert_to_tensor(gradient))
    rows = tf.cast(gradient.dense_shape[0], tf.int64)
    indices = tf.cast(gradient.indices, tf.int64)
    values = gradient.values
    looked_up = tf.shape(indices, tf.int64)[0]
    order = tf.argsort(indices)
    indices, values = tf.gather(indices, order), tf.gather(values, order)
    is_new = tf.concat([tf.zeros_like(indices[:1]), tf.cast(indices[1:] != indices[:-1], tf.int64)], axis=0)
    kept = tf.minimum(rows, looked_up)  # no more rows than these can differ; what stays empty of them is zero in truth
    summed = tf.math.unsorted_segment_sum(values, tf.cumsum(is_new), kept)
    width = tf.reduce_prod(tf.shape(values, tf.int64)[1:])
    places = tf.math.unsorted_segment_max(indices, tf.cumsum(is_new), kept)  # of what stays empty, the lowest integer
    return Seen(summed, zeros=(rows - kept) * width, rows=tf.maximum(places, 0))


def _with_accumulated(optimizer: Any, variable: Any, seen: Seen) -> Seen:
    """The mean gradient of the round of accumulation steps so far, this step's among them: what is applied at its end.

    Keras ≥ 3.10 keeps the sum of the steps before in `_accumulated_gradients`, by `_get_variable_index`.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    steps = accumulation_steps(optimizer)
    if steps == 1 or not inner.built or seen.zeros is not None:
        return seen
    earlier = tf.convert_to_tensor(inner._accumulated_gradients[inner._get_variable_index(variable)])
    return Seen((seen.values + tf.cast(earlier, seen.values.dtype)) / steps)
