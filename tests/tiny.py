"""Models of a few weights, of every way that Keras has of writing one, for tests that train and save many of them."""

from typing import Any

import keras
import numpy as np
from keras import layers

import keras_introspect as ki

KINDS = ("functional", "sequential", "subclassed", "instrumented", "instrumented_subclass")
BATCH = 8


def data(samples: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Twenty samples are two batches of 8 and one of 4."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(samples, 4)).astype("float32")
    return x, (x.sum(axis=1, keepdims=True) + 0.5).astype("float32")


def _layers() -> list[Any]:
    return [layers.Dense(6, activation="relu", name="hidden"), layers.Dense(1, name="head", dtype="float32")]


@keras.saving.register_keras_serializable("keras_introspect_tests")
class TinyNet(ki.IntrospectiveModel):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden, self.head = _layers()

    def build(self, shape: Any) -> None:
        self.hidden.build(shape)
        self.head.build((shape[0], 6))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.head(self.hidden(x))


@keras.saving.register_keras_serializable("keras_introspect_tests")
class TinyPlainNet(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden, self.head = _layers()

    def build(self, shape: Any) -> None:
        self.hidden.build(shape)
        self.head.build((shape[0], 6))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.head(self.hidden(x))


def _graph() -> tuple[Any, Any]:
    inputs = keras.Input((4,), name="x")
    hidden, head = _layers()
    return inputs, head(hidden(inputs))


def build(kind: str, seed: int = 3) -> Any:
    """One of `KINDS`, built; the same seed gives the same weights."""
    keras.utils.set_random_seed(seed)
    if kind == "functional":
        return ki.IntrospectiveModel(*_graph(), name="net")
    if kind == "instrumented":
        return ki.instrument(keras.Model(*_graph(), name="net"))
    if kind == "sequential":
        return ki.IntrospectiveSequential([keras.Input((4,)), *_layers()], name="net")
    model = TinyNet(name="net") if kind == "subclassed" else ki.instrument(TinyPlainNet(name="net"))
    model.build((None, 4))
    return model


def build_plain(kind: str = "functional", seed: int = 3) -> Any:
    """What `build` makes, as a plain Keras model."""
    keras.utils.set_random_seed(seed)
    if kind in ("functional", "instrumented"):
        return keras.Model(*_graph(), name="net")
    if kind == "sequential":
        return keras.Sequential([keras.Input((4,)), *_layers()], name="net")
    model = TinyPlainNet(name="net")
    model.build((None, 4))
    return model


def collectors() -> list[Any]:
    return [
        ki.Weights("moments"),
        ki.Gradients("moments", per_step=True),
        ki.LayerOutputs(["moments", "activity"]),
    ]


def compiled(model: Any, observe: Any = None, **arguments: Any) -> Any:
    model.compile(
        **{"optimizer": keras.optimizers.Adam(0.05, name="adam"), "loss": "mse", "run_eagerly": True, **arguments},
        collectors=collectors() if observe is None else observe,
    )
    return model


def train(model: Any, epochs: int = 1, initial_epoch: int = 0, **arguments: Any) -> Any:
    """`fit` up to the epoch `epochs`, quietly and in the same order."""
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": epochs, "initial_epoch": initial_epoch}
    return model.fit(*data(), **{**options, **arguments})


def assert_same(a: ki.Recording, b: ki.Recording, metadata: bool = True) -> None:
    """Compares recordings bit by bit; their times of day apart."""
    assert list(a) == list(b)
    np.testing.assert_array_equal(a.epochs, b.epochs)
    for view in a:
        s, t = a[view], b[view]
        assert (s.names, s.shapes, s.statistics, s.step_statistics) == (
            t.names,
            t.shapes,
            t.statistics,
            t.step_statistics,
        )
        np.testing.assert_array_equal(s.epochs, t.epochs)
        np.testing.assert_array_equal(s.steps, t.steps)
        for key in s.statistics:
            np.testing.assert_array_equal(s.epoch(key), t.epoch(key), err_msg=f"{view} {key}")
        for key in s.step_statistics:
            np.testing.assert_array_equal(s.step(key), t.step(key), err_msg=f"{view} {key} by step")
    assert set(a.logs) == set(b.logs)
    for key in a.logs:
        np.testing.assert_array_equal(a.logs[key], b.logs[key], err_msg=key)
    assert a.unobserved == b.unobserved
    if metadata:
        assert {**a.metadata, "started": 0} == {**b.metadata, "started": 0}
