"""Layer outputs and their gradients: taps on `layer.call`, there only while a step is traced or run."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_introspect.capture import internals
from keras_introspect.capture.capture import Capture, Seen, activate, active
from keras_introspect.capture.twins import early_twin

_LOCK = threading.RLock()

HEAD_REASON = (
    "its gradient does not exist in the step: the cross-entropy is computed from the logits, not from these "
    "probabilities"
)
FUNCTION_REASON = "it is called inside a tf.function of its own, whose trace outlives the step"
INTEGER_REASON = "it returns no floating-point tensor"
LOOP_REASON = "it is called inside a loop or branch within the step"
VARYING_REASON = "of its calls inside loops, those are not observed whose shape behind the first axis is not known"


class LayerTaps:
    """Context: taps every layer of a model, refcounted, since replica threads share the layers.

    The taps are instance attributes over `layer.call`; they hand tensors to the thread's active capture. Sublayers that
    a layer makes while it is built are tapped as they appear.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._users = 0
        self._tapped: dict[int, tuple[Any, list[str]]] = {}

    def __enter__(self) -> None:
        with _LOCK:
            self._users += 1
            self._tap_all(self._model)

    def __exit__(self, *_: object) -> None:
        with _LOCK:
            self._users -= 1
            if self._users == 0:
                for owner, attributes in self._tapped.values():
                    for attribute in attributes:
                        owner.__dict__.pop(attribute, None)
                self._tapped.clear()

    def _tap_all(self, owner: Any) -> None:
        for layer in internals.flatten_layers(owner):
            if id(layer) not in self._tapped:
                self._tap(layer)
        if owner is self._model and id(owner) not in self._tapped:
            self._put(owner, "call", self._announcing(owner, owner.call))

    def _tap(self, layer: Any) -> None:
        if internals.calls_its_cell_for_shapes(layer):
            self._put(layer, "inner_loop", _announcing_loop(layer, layer.inner_loop))
        # Keras ≥ 3.10: Operation.__call__ picks the function to run by these two private attributes.
        if getattr(layer, "_remat_mode", None) is not None:
            original = layer.rematerialized_call

            def rematerialized_call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                return self._observing(layer, original(fn, *args, **kwargs))

            self._put(layer, "rematerialized_call", rematerialized_call)
        elif getattr(layer, "quantization_mode", None) is not None:
            self._put(layer, "quantized_call", self._observing(layer, layer.quantized_call))
        else:
            self._put(layer, "call", self._observing(layer, layer.call))

    def _put(self, owner: Any, attribute: str, function: Any) -> None:
        if attribute in owner.__dict__:
            return  # somebody else's patch, such as Keras's own calibration: leave it
        owner.__dict__[attribute] = function  # not setattr: Keras would track it
        self._tapped.setdefault(id(owner), (owner, []))[1].append(attribute)

    def _announcing(self, owner: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a call so that the layers made in `build`, just before it, are tapped too."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with _LOCK:
                if self._users:
                    self._tap_all(owner)
            capture = active()
            if capture is None or internals.is_not_a_real_call():
                return function(*args, **kwargs)
            capture.enter_call(owner)
            try:
                return function(*args, **kwargs)
            finally:
                capture.leave_call()

        return call

    def _observing(self, layer: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        announced = self._announcing(layer, function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            capture = active()
            if capture is None or internals.is_not_a_real_call():
                return announced(*args, **kwargs)
            if capture.is_call_for_shapes():
                with activate(None):
                    return announced(*args, **kwargs)
            if isinstance(kwargs.get("training"), bool):  # Keras hands it on by name, also where it found it out
                capture.phases.setdefault(capture.names.of(layer), set()).add(kwargs["training"])
            return _observe(capture, layer, announced(*args, **kwargs))

        return call


def _announcing_loop(layer: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner_loop(*args: Any, **kwargs: Any) -> Any:
        capture = active()
        if capture is not None:
            capture.enter_loop(layer)
        return function(*args, **kwargs)

    return inner_loop


def _observe(capture: Capture, layer: Any, outputs: Any) -> Any:
    name = capture.names.of(layer)
    capture.called[id(layer)] = layer
    in_loop = not capture.in_step_graph()
    if in_loop and not internals.inside_control_flow_of(internals.current_graph(), capture.graph):
        capture.miss(name, FUNCTION_REASON)
        return outputs
    flat = keras.tree.flatten(outputs)
    observed, floats = [], 0
    for i, tensor in enumerate(flat):
        key = name if i == 0 else f"{name}:{i}"
        values = _values_of(tensor)
        # A variable is left alone: who gets one may want to assign to it.
        if isinstance(values, tf.Tensor) and values.dtype.is_floating:
            floats += 1
            observe = _observe_in_loop if in_loop else _observe_tensor
            tensor = observe(capture, layer, key, tensor, values)
        observed.append(tensor)
    if not floats:
        dtypes = sorted({str(getattr(tensor, "dtype", type(tensor).__name__)) for tensor in flat})
        capture.miss(name, f"{INTEGER_REASON} but {', '.join(dtypes) or 'nothing'}")
    return keras.tree.pack_sequence_as(outputs, observed)


def _observe_tensor(capture: Capture, layer: Any, key: str, tensor: Any, values: Any) -> Any:
    stopped = internals.tape_is_stopped()
    if capture.wanted.outputs:
        capture.add_output(key, Seen(values, layer, recomputed=not stopped))
    if not capture.wanted.output_gradients or stopped:
        return tensor
    if internals.hides_logits(tensor):
        capture.missed[("output_gradients", key)] = (
            "Keras's cross-entropies look for the logits behind it, which a tap would hide"
        )
        return tensor
    tapped = _with_values(tensor, _tap(capture, layer, key, values))
    internals.copy_tensor_annotations(tensor, tapped)
    return tapped


def _observe_in_loop(capture: Capture, layer: Any, key: str, tensor: Any, values: Any) -> Any:
    observe = capture.observe_in_loop if capture.wanted.outputs else None
    if observe is not None and observe(key, layer, early_twin(values)):
        capture.add_output(key, Seen(None, layer))
    else:
        capture.missed[("layer_outputs", key)] = LOOP_REASON
    if not capture.wanted.output_gradients or internals.tape_is_stopped():
        return tensor
    tapped = None if internals.hides_logits(tensor) else capture.tap_in_loop(key, layer, values)
    if tapped is None:
        capture.missed[("output_gradients", key)] = LOOP_REASON
        return tensor
    tapped = _with_values(tensor, tapped)
    internals.copy_tensor_annotations(tensor, tapped)
    return tapped


def _values_of(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.flat_values
    if isinstance(tensor, tf.SparseTensor):
        return tensor.values
    return tensor


def _with_values(tensor: Any, values: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.with_flat_values(values)
    if isinstance(tensor, tf.SparseTensor):
        return tf.SparseTensor(tensor.indices, values, tensor.dense_shape)
    return values


def _tap(capture: Capture, layer: Any, key: str, values: Any) -> Any:
    """The same tensor, whose gradient passes by the capture in whichever tape the user holds."""
    call = capture.next_tap(key)

    @tf.custom_gradient
    def tap(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(dy: Any) -> Any:
            if capture.in_step_graph():
                capture.add_output_gradient(key, Seen(tf.convert_to_tensor(dy), layer, call=call))
            return dy

        return tf.identity(x), gradient

    return tap(values)
