"""An exception of the user's model passes through with its own traceback, and leaves nothing of ours behind."""

import traceback
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import keras_introspect as ki
from compatibility.constructs import numbers

PATCHED = {
    "call",
    "apply",
    "quantized_call",
    "rematerialized_call",
    "_all_reduce_sum_gradients",
    "update_state",
    "result",
}


class Mine(Exception):
    """The user's own."""


class Fails(layers.Layer):
    """Fails when told to."""

    where = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = layers.Dense(3, name="inner")

    def build(self, shape: Any) -> None:
        self.inner.build(shape)
        self.built = True

    def call(self, x: Any) -> Any:
        if self.where == "call":
            raise Mine("in the layer's call")
        return self.inner(x)


def loss_of(layer: Fails) -> Callable[..., Any]:
    def loss(y: Any, prediction: Any) -> Any:
        if layer.where == "loss":
            raise Mine("in the loss")
        return keras.ops.mean((y - prediction) ** 2)

    return loss


class Optimizer(keras.optimizers.SGD):
    layer: Any = None

    def update_step(self, *args: Any, **kwargs: Any) -> None:
        if self.layer is not None and self.layer.where == "optimizer":
            raise Mine("in the optimizer")
        super().update_step(*args, **kwargs)


class Callback(keras.callbacks.Callback):
    def __init__(self, layer: Fails) -> None:
        super().__init__()
        self.layer = layer

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.layer.where == "callback":
            raise Mine("in a callback")


def patched(model: Any) -> list[str]:
    holders = [model, *model._flatten_layers(), model.optimizer, *model.metrics]
    return [f"{holder.name}.{name}" for holder in holders for name in PATCHED & set(vars(holder))]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("where", ["call", "loss", "optimizer", "callback"])
def test_an_exception_passes_and_the_model_trains_afterwards(where: str, eager: bool) -> None:
    x, y = numbers(3), numbers(1)

    def compiled(model: Any, layer: Fails) -> None:
        optimizer = Optimizer(0.1)
        optimizer.layer = layer
        model.compile(optimizer, loss_of(layer), run_eagerly=eager, collectors="all")

    def build() -> tuple[Any, Fails]:
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(1)
        fails = Fails(name="fails")
        return ki.IntrospectiveSequential([keras.Input((3,)), fails, layers.Dense(1, name="head")], name="net"), fails

    def fit(model: Any, layer: Fails) -> Any:
        callbacks = [Callback(layer)]
        return model.fit(x, y, batch_size=8, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)

    model, layer = build()
    compiled(model, layer)
    layer.where = where
    with pytest.raises(Mine) as raised:
        fit(model, layer)
    files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert files[-1] == __file__  # the innermost frame is the user's own line
    assert not patched(model)

    layer.where = ""
    weights = model.get_weights()
    compiled(model, layer)  # as plain Keras needs it, whose trace was broken
    fit(model, layer)
    recording = model.recording
    assert len(recording["gradients"].epochs) == 1

    other, untroubled = build()
    other.set_weights(weights)
    compiled(other, untroubled)
    fit(other, untroubled)
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    for view in recording:
        for statistic in recording[view].statistics:
            np.testing.assert_array_equal(
                recording[view].epoch(statistic), other.recording[view].epoch(statistic), err_msg=f"{view} {statistic}"
            )


def test_the_spies_see_the_patches_that_a_step_needs() -> None:
    """Or the test above could not fail."""
    seen: list[str] = []

    class Looks(layers.Layer):
        def call(self, x: Any) -> Any:
            if models:
                seen.extend(patched(models[0]))
            return x

    models: list[Any] = []
    model = ki.IntrospectiveSequential(
        [keras.Input((3,)), Looks(name="looks"), layers.Dense(1, name="head")], name="net"
    )
    models.append(model)
    model.compile("sgd", "mse", collectors="all", run_eagerly=True)
    model.fit(numbers(3), numbers(1), batch_size=20, epochs=1, verbose=0)
    assert {"looks.call", "head.call"} <= set(seen)
    assert any(name.endswith(".apply") for name in seen)
