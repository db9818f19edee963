"""Every way of training a model that people have: the columns of the table."""

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

import keras_introspect as ki
from compatibility.cases import Case, collectors, compile_arguments, fit_arguments
from compatibility.constructs import SAMPLES

MODES: dict[str, "Mode"] = {}
Changes = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Mode:
    """A column of the table.

    Attributes:
        name: the function's.
        title: for the page.
        train: trains a case, with further arguments of `compile`.
        exact: whether the weights are plain Keras's bit for bit; under XLA, to rounding.
        tolerance: between what is recorded and what an eager step computes.
        weights_tolerance: absolute, where they are not exact.
        policy: the dtype policy in force.
        scope: makes the context in which the model is built, and that in which it is trained; the spies do without.
    """

    name: str
    title: str
    group: str
    train: Callable[..., None]
    exact: bool = True
    tolerance: float = 1e-5
    weights_tolerance: float = 0.0
    policy: str = "float32"
    scope: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def mode(title: str, group: str, **facts: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(train: Callable[..., None]) -> Callable[..., None]:
        name = train.__name__.strip("_")
        MODES[name] = Mode(name, title, group, train, **facts)
        return train

    return add


def compiled(case: Case, further: Changes, **changes: Any) -> Any:
    case.model.compile(**compile_arguments(case, **{**changes, **further}))
    return case.model


def batches(case: Case) -> list[tuple[Any, Any]]:
    return [(case.x[i : i + 8], case.y[i : i + 8]) for i in range(0, SAMPLES, 8)]


def simply(case: Case, further: Changes, fit: Changes | None = None, **changes: Any) -> None:
    compiled(case, further, **changes).fit(**fit_arguments(case, **(fit or {})))


def _of_compile(title: str, group: str, name: str, changes: Callable[[], Changes], **facts: Any) -> None:
    def train(case: Case, further: Changes, **fit: Any) -> None:
        simply(case, further, fit, **changes())

    train.__name__ = name
    mode(title, group, **facts)(train)


# --- how the step runs ---

RUNNING = "How the step runs"

_of_compile("Graph: as `fit` runs it", RUNNING, "graph", dict)
_of_compile("Eager: `run_eagerly=True`", RUNNING, "eager", lambda: {"run_eagerly": True})


@mode("XLA: `jit_compile=True`", RUNNING, exact=False, tolerance=2e-4, weights_tolerance=2e-5)
def xla(case: Case, further: Changes, **fit: Any) -> None:
    def nothing_dropped(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        return tf.identity(inputs)

    # Compiled, dropout draws other numbers than in the eager step of the spies.
    with mock.patch.object(keras.src.backend.random, "dropout", nothing_dropped):
        simply(case, further, fit, jit_compile=True)


_of_compile("`jit_compile=False`", RUNNING, "no_jit", lambda: {"jit_compile": False})
for _steps in (4, 50):
    _of_compile(
        f"`steps_per_execution={_steps}`, which does not divide the steps",
        RUNNING,
        f"steps_per_execution_{_steps}",
        lambda steps=_steps: {"steps_per_execution": steps},
    )


@mode("`steps_per_execution=4`, two steps of them unrolled", RUNNING)
def unrolled(case: Case, further: Changes, **fit: Any) -> None:
    model = compiled(case, further, steps_per_execution=4)
    model.unrolled_steps_per_execution = 2  # an attribute of Keras's trainer, which `compile` has no argument for
    model.fit(**fit_arguments(case, **fit))


@mode("A loop over `train_on_batch`", RUNNING)
def train_on_batch(case: Case, further: Changes, **fit: Any) -> None:
    model = compiled(case, further)
    callbacks = keras.callbacks.CallbackList(fit.get("callbacks"), model=model)
    callbacks.on_epoch_begin(0)
    for batch, (x, y) in enumerate(batches(case)):
        callbacks.on_train_batch_begin(batch)
        model.train_on_batch(x, y)
        callbacks.on_train_batch_end(batch)
    if "collectors" in further:
        model.__dict__["_introspection_observer"].reading.end_epoch(model, 0)  # a loop of one's own has no epochs


# --- precision ---

PRECISION = "Precision"


def _with_policy(name: str, policy: str, title: str, scale: float | None = None, **facts: Any) -> None:
    def train(case: Case, further: Changes, **fit: Any) -> None:
        optimizer: Any = keras.optimizers.SGD(0.05, momentum=0.9)
        if scale is not None:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale)
        simply(case, further, fit, optimizer=optimizer)

    train.__name__ = name
    mode(title, PRECISION, policy=policy, **facts)(train)


_with_policy("mixed_float16", "mixed_float16", "`mixed_float16`", 2.0**10, tolerance=0.03)
_with_policy("overflow", "mixed_float16", "`mixed_float16`, the loss scale overflowing", 2.0**40, tolerance=0.03)
_with_policy("mixed_bfloat16", "mixed_bfloat16", "`mixed_bfloat16`", tolerance=0.1)
_with_policy("float64", "float64", "`float64`", tolerance=1e-6)


# --- optimizers ---

OPTIMIZERS = "What the optimizer does"
for _name, _title, _arguments in (
    ("accumulation", "Gradient accumulation", {"gradient_accumulation_steps": 2}),
    ("ema", "Exponential moving average of the weights", {"use_ema": True, "ema_overwrite_frequency": 2}),
    ("clipnorm", "`clipnorm`", {"clipnorm": 0.1}),
    ("global_clipnorm", "`global_clipnorm`", {"global_clipnorm": 0.1}),
    ("clipvalue", "`clipvalue`", {"clipvalue": 0.01}),
    ("weight_decay", "Weight decay", {"weight_decay": 0.01}),
):
    _of_compile(
        _title,
        OPTIMIZERS,
        _name,
        lambda arguments=_arguments: {"optimizer": keras.optimizers.SGD(0.05, momentum=0.9, **arguments)},
    )

# --- data ---

DATA = "Where the data come from"


class _Batches(keras.utils.PyDataset):
    def __init__(self, batches: list[tuple[Any, Any]]) -> None:
        super().__init__()
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


def _of_data(title: str, name: str, data: Callable[[Case], Changes]) -> None:
    def train(case: Case, further: Changes, **fit: Any) -> None:
        simply(case, further, {**data(case), **fit})

    train.__name__ = name
    mode(title, DATA)(train)


def _generator(case: Case) -> Changes:
    """One that goes on for all epochs: Keras asks the same generator for the batches of the next one."""
    return {
        **_nothing,
        "x": (batch for _ in itertools.count() for batch in batches(case)),
        "steps_per_epoch": len(list(batches(case))),
    }


def _frame(case: Case) -> Changes:
    return {"y": pd.DataFrame(case.y.reshape(SAMPLES, -1))}


def _sample_weights(case: Case) -> Changes:
    """A number a sample; a number a token, where each token has a label: Keras takes no other there."""
    weights = np.linspace(0.5, 2.0, SAMPLES, dtype="float32")
    tokens = case.y.ndim == 2 and case.y.dtype.kind == "i"
    return {"sample_weight": np.broadcast_to(weights[:, None], case.y.shape) if tokens else weights}


_nothing: Changes = {"y": None, "batch_size": None}
_of_data("Sample weights", "sample_weights", _sample_weights)
_of_data("Class weights", "class_weights", lambda case: {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}})
_of_data(
    "`tf.data`",
    "tf_data",
    lambda case: {**_nothing, "x": tf.data.Dataset.from_tensor_slices((case.x, case.y)).batch(8)},
)
_of_data("A generator", "generator", _generator)
_of_data("`keras.utils.PyDataset`", "py_dataset", lambda case: {**_nothing, "x": _Batches(batches(case))})
_of_data("pandas", "pandas", _frame)

# --- several fits ---

FITS = "Several fits, several models"


@mode("Compiled again between two fits", FITS)
def recompiled(case: Case, further: Changes, **fit: Any) -> None:
    simply(case, further, fit)
    case.compile = {**case.compile, "optimizer": keras.optimizers.SGD(0.02, momentum=0.5, nesterov=True)}
    simply(case, further, {**fit, "initial_epoch": 1, "epochs": 2})


@mode("`trainable` changed between two fits", FITS)
def trainable_changed(case: Case, further: Changes, **fit: Any) -> None:
    simply(case, further, fit)
    first = next(layer for layer in case.model.layers if layer.trainable_variables)
    first.trainable = False
    case.compile = {**case.compile, "optimizer": keras.optimizers.SGD(0.05)}
    simply(case, further, {**fit, "initial_epoch": 1, "epochs": 2})


def company(further: Changes) -> Callable[[], Any]:
    """Trains another model, observed if the first is, an epoch a call. The spies, who watch all, get none."""
    if "run_eagerly" in further:
        return lambda: None
    seen = "collectors" in further
    other = (ki.IntrospectiveSequential if seen else keras.Sequential)(
        [keras.layers.Dense(4, activation="relu", name="hidden"), keras.layers.Dense(1, name="head")]
    )
    other.compile(keras.optimizers.SGD(0.05), "mse", **({"collectors": collectors()} if seen else {}))
    x = np.random.default_rng(5).normal(size=(SAMPLES, 3)).astype("float32")

    def train() -> None:
        other.fit(x, x[:, :1], batch_size=8, verbose=0)
        if seen:
            names = other.recording["layer_outputs"].names
            assert [name.split("/")[-1] for name in names] == ["hidden", "head"]

    return train


@mode("Another model trained in turn with it", FITS)
def in_turn(case: Case, further: Changes, **fit: Any) -> None:
    train = company(further)
    model = compiled(case, further)
    for epoch in range(2):
        train()
        model.fit(**fit_arguments(case, **{**fit, "initial_epoch": epoch, "epochs": epoch + 1}))


@mode("Another model trained in another thread at the same time", FITS)
def in_threads(case: Case, further: Changes, **fit: Any) -> None:
    train = company(further)
    stop, wrong = threading.Event(), []

    def repeatedly() -> None:
        try:
            while not stop.is_set():
                train()
        except BaseException as error:  # handed to the thread that waits
            wrong.append(error)

    thread = threading.Thread(target=repeatedly)
    model = compiled(case, further)
    thread.start()
    try:
        model.fit(**fit_arguments(case, **{**fit, "epochs": 2}))
    finally:
        stop.set()
        thread.join()
    assert not wrong, wrong


# --- several devices: a column of its own, in processes of its own ---


@functools.cache
def _two_replicas() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


MIRRORED = Mode(
    "mirrored",
    "`MirroredStrategy`, two devices",
    "Several devices",
    MODES["graph"].train,
    tolerance=1e-4,
    scope=lambda: _two_replicas().scope(),
)
