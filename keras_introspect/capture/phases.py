"""Spying on a forward pass outside of training: which layers are called with what, and what they return."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras_introspect.capture.internals import flatten_layers

OnCall = Callable[[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextlib.contextmanager
def spying(model: Any, on_call: OnCall) -> Iterator[None]:
    """Context: `on_call(layer, call, args, kwargs)` stands for the `call` of every layer of a model."""
    tapped = []
    try:
        for layer in flatten_layers(model):
            if "call" not in layer.__dict__:
                layer.__dict__["call"] = _wrapped(layer, layer.call, on_call)
                tapped.append(layer)
        yield
    finally:
        for layer in tapped:
            layer.__dict__.pop("call", None)


def _wrapped(layer: Any, original: Callable[..., Any], on_call: OnCall) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return on_call(layer, original, args, kwargs)

    return call


@contextlib.contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """Context: gives every variable of a model, seeds and metrics too, its value back at the end."""
    variables = [*model.variables, *(v for metric in model.metrics for v in metric.variables)]
    before = [(variable, variable.numpy()) for variable in variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)
