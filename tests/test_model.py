"""The ways to make a model of ours: none changes what another makes."""

from typing import Any

import keras
import numpy as np
import pytest
from keras.src.models.functional import Functional

import keras_introspect as ki
from oldest import no_clone_of_a_model_that_makes_its_inputs

X, Y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")


def ends() -> tuple[Any, Any]:
    inputs = keras.Input((3,))
    return inputs, keras.layers.Dense(1, name="head")(keras.layers.Dense(2, name="hidden")(inputs))


class GivenInputs(keras.Model):
    """Takes its inputs and outputs, as Keras's functional models do."""

    def __init__(self, inputs: Any, outputs: Any, **kwargs: Any) -> None:
        super().__init__(inputs, outputs, **kwargs)


class MakesInputs(keras.Model):
    """Becomes functional inside its own constructor."""

    def __init__(self, **kwargs: Any) -> None:
        inputs, outputs = ends()
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)


class Called(keras.Model):
    """Has a `call` of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(2, name="hidden")
        self.head = keras.layers.Dense(1, name="head")

    def call(self, x: Any) -> Any:
        return self.head(self.hidden(x))


class Stack(keras.Sequential):
    """A Sequential of the user's own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__([keras.layers.Dense(2, name="hidden"), keras.layers.Dense(1, name="head")], **kwargs)


def mixed(base: type, *arguments: Any) -> Any:
    return type(f"Mixed{base.__name__}", (ki.IntrospectiveModel, base), {})(*arguments)


def inherited() -> Any:
    class Own(ki.IntrospectiveModel):
        def __init__(self) -> None:
            inputs, outputs = ends()
            super().__init__(inputs, outputs)

    return Own()


MAKERS = {
    "given inputs": lambda: mixed(GivenInputs, *ends()),
    "makes inputs": lambda: mixed(MakesInputs),
    "has a call": lambda: mixed(Called),
    "stack": lambda: mixed(Stack),
    "inherits, functional": inherited,
    "inherits, has a call": lambda: type("Ours", (ki.IntrospectiveModel,), dict(CALLED))(),
    "functional": lambda: ki.IntrospectiveModel(*ends()),
    "sequential": lambda: ki.IntrospectiveSequential([keras.layers.Dense(2), keras.layers.Dense(1)]),
}


def _init(self: Any) -> None:
    ki.IntrospectiveModel.__init__(self)
    self.hidden, self.head = keras.layers.Dense(2, name="hidden"), keras.layers.Dense(1, name="head")


CALLED = {"__init__": _init, "call": lambda self, x: self.head(self.hidden(x))}


@pytest.mark.parametrize("first", MAKERS)
def test_one_way_does_not_disturb_the_others(first: str) -> None:
    """Keras changes the bases of a class, and of its bases, when it becomes functional: ours stay what they are."""
    model = MAKERS[first]()
    assert ki.IntrospectiveModel.__bases__ == (keras.Model,)
    for made in (model, MAKERS["inherits, has a call"]()):
        assert isinstance(made, ki.IntrospectiveModel)
        made.compile("sgd", "mse", collectors=[ki.Weights("moments")], run_eagerly=True)
        made.fit(X, Y, verbose=0)
        assert len(made.recording["weights"].names) == 4
    assert ki.IntrospectiveModel.__bases__ == (keras.Model,)
    assert isinstance(model, Functional) == (
        first in ("given inputs", "makes inputs", "inherits, functional", "functional")
    )
    assert isinstance(ki.instrument(MakesInputs()), Functional)


@pytest.mark.parametrize(
    "kind", [GivenInputs, pytest.param(MakesInputs, marks=no_clone_of_a_model_that_makes_its_inputs), Stack]
)
def test_an_instrumented_model_is_cloned_as_a_plain_one(kind: Any) -> None:
    made = kind(*ends()) if kind is GivenInputs else kind()
    made.build((None, 3))
    plain = keras.models.clone_model(made)
    ours = keras.models.clone_model(ki.instrument(made))
    assert type(ours).__mro__[-5:] == type(plain).__mro__[-5:]
    assert [w.shape for w in ours.weights] == [w.shape for w in plain.weights]


def test_collectors_of_a_preset_and_more() -> None:
    model = MAKERS["functional"]()
    model.compile("sgd", "mse", collectors=["economy", ki.StepMetrics(), "updates"])
    assert [c.name for c in model.collectors] == ["weights", "gradients", "layer_outputs", "metrics", "updates"]
    with pytest.raises(ValueError, match=r"'gradients'.*name"):
        model.compile("sgd", "mse", collectors=["economy", ki.Gradients()])
    with pytest.raises(ValueError, match="'economy'"):
        model.compile("sgd", "mse", collectors=["economi"])


def _narrow_fit(base: type) -> type:
    class Net(base):  # type: ignore[valid-type,misc]
        def fit(self, x: Any, y: Any, **kwargs: Any) -> Any:
            return super().fit(x, 2.0 * y, **kwargs)

    return Net


def _fit_with_an_option(base: type) -> type:
    class Net(base):  # type: ignore[valid-type,misc]
        def fit(self, x: Any = None, factor: float = 1.0, callbacks: Any = None, verbose: Any = 0) -> Any:
            return super().fit(x, factor * x[:, :1], callbacks=callbacks, verbose=verbose)

    return Net


@pytest.mark.parametrize("own", [_narrow_fit, _fit_with_an_option])
def test_a_fit_of_the_users_own_is_called_as_it_was(own: Any) -> None:
    inputs = keras.Input((3,))
    model = ki.instrument(own(keras.Model)(inputs, keras.layers.Dense(1)(inputs)))
    model.compile("sgd", "mse", collectors=[ki.Weights("moments")])
    x = np.ones((8, 3), "float32")
    seen: list[int] = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    if own is _narrow_fit:
        model.fit(x, x[:, :1], verbose=0, callbacks=[callback])
    else:
        model.fit(x, 3.0, [callback])
    assert seen == [0]
    assert model.recording["weights"].epoch("rms").shape == (1, 2)


def test_a_fit_that_takes_no_callbacks_says_that_nothing_is_recorded() -> None:
    class Net(keras.Model):
        def fit(self, x: Any) -> Any:
            return super().fit(x, x[:, :1], verbose=0)

    inputs = keras.Input((3,))
    model = ki.instrument(Net(inputs, keras.layers.Dense(1)(inputs)))
    model.compile("sgd", "mse", collectors=[ki.Weights("moments")])
    with pytest.warns(UserWarning, match="takes no callbacks="):
        model.fit(np.ones((8, 3), "float32"))
