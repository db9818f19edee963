"""What a program is, and the register of all of them."""

import inspect
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers

import keras_introspect as ki
from benchmarks.diagnosis import data
from benchmarks.diagnosis.data import Split


class Task(NamedTuple):
    """A model that is to be trained, how, and how good it then is.

    Attributes:
        model: an introspective model, not compiled yet.
        compile: arguments of `compile`, collectors apart.
        fit: arguments of `fit`.
        quality: from the trained model to a number, the higher the better; comparable with that of the twin.
    """

    model: Any
    compile: dict[str, Any]
    fit: dict[str, Any]
    quality: Callable[[Any], float]


@dataclass(frozen=True)
class Program:
    """One training program.

    Attributes:
        name: its key in `PROGRAMS`.
        build: from a seeded generator to the task; Keras's own seeds are set before.
        kinds: of findings that name its cause; the first is the row of the table. None for a healthy program.
        twin: of a faulty program, the name of the healthy one that it is to be worse than.
        development: whether thresholds may be chosen by it.
        about: what it is, with the source of a faulty one.
        text: its source code, with that of all it calls here.
    """

    name: str
    build: Callable[[np.random.Generator], Task]
    kinds: tuple[str, ...] = ()
    twin: str | None = None
    development: bool = True
    about: str = ""
    text: str = ""

    @property
    def faulty(self) -> bool:
        return bool(self.kinds)


PROGRAMS: dict[str, Program] = {}

Pair = Callable[[np.random.Generator, bool], Task]
Single = Callable[[np.random.Generator], Task]


def pair(*kinds: str, development: bool = True) -> Callable[[Pair], Pair]:
    """Registers a faulty program under the function's name, and its twin under that and `_twin`.

    The function takes a generator and whether the fault is to be in; its docstring says what the fault is.
    """

    def register(function: Pair) -> Pair:
        name = function.__name__
        about, text = " ".join((function.__doc__ or "").split()), _text(function)
        twin = f"{name}_twin"
        _add(Program(name, lambda rng: function(rng, True), kinds, twin, development, about, text))
        _add(Program(twin, lambda rng: function(rng, False), (), None, development, f"twin of: {about}", text))
        return function

    return register


def healthy(development: bool = True) -> Callable[[Single], Single]:
    """Registers an ordinary training, in which there is nothing to find."""

    def register(function: Single) -> Single:
        about = " ".join((function.__doc__ or "").split())
        _add(Program(function.__name__, function, (), None, development, about, _text(function)))
        return function

    return register


def _add(program: Program) -> None:
    if program.name in PROGRAMS:
        raise ValueError(f"two programs are named {program.name!r}; give one of the functions another name.")
    PROGRAMS[program.name] = program


def _text(function: Any) -> str:
    """The source of a function or class, and of what it names in this folder, each once; without their decorators,
    which say what is expected and not what is trained.
    """
    found: dict[Any, str] = {}
    waiting = [function]
    while waiting:
        item = waiting.pop()
        if item in found:
            continue
        source = inspect.getsource(item)
        found[item] = source[re.search(r"^(def|class) ", source, re.MULTILINE).start() :]
        names = {token.string for token in tokenize.generate_tokens(io.StringIO(found[item]).readline)}
        known = vars(data) | vars(sys.modules[item.__module__])
        waiting += [
            other
            for name in sorted(names & known.keys())
            if inspect.isfunction(other := known[name]) or inspect.isclass(other)
            if other.__module__.startswith("benchmarks.diagnosis") and other not in (Task, data.Split)
        ]
    return "\n".join(found.values())


# --- what most programs are made of ---


def dense(
    features: int,
    widths: Iterable[int],
    units: int,
    activation: str | None = None,
    hidden: str = "relu",
    start: Any = "glorot_uniform",
) -> Any:
    """A sequential model of dense layers: hidden ones of these widths, then a head of so many units."""
    return ki.IntrospectiveSequential(
        [
            keras.Input((features,)),
            *[
                layers.Dense(width, activation=hidden, kernel_initializer=start, name=f"hidden{i}")
                for i, width in enumerate(widths, 1)
            ],
            layers.Dense(units, activation=activation, kernel_initializer=start, name="head"),
        ],
        name="net",
    )


def stack(shape: tuple[int, ...], *parts: Any) -> Any:
    """A sequential model of these layers."""
    return ki.IntrospectiveSequential([keras.Input(shape), *parts], name="net")


def on_frozen(backbone: Any, found: Split, epochs: int = 5) -> Any:
    """Trains the backbone to tell pairs of digits apart, freezes it, and puts a head for all ten on it."""
    before = keras.Sequential([backbone, layers.Dense(5, activation="softmax")])
    before.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    before.fit(found.x, found.y // 2, epochs=epochs, verbose=0)
    backbone.trainable = False
    inputs = keras.Input(backbone.input_shape[1:])
    outputs = layers.Dense(10, activation="softmax", name="head")(backbone(inputs))
    return ki.IntrospectiveModel(inputs, outputs, name="net")


def classify(
    model: Any, found: Split, optimizer: Any = None, loss: Any = "sparse_categorical_crossentropy", **fit: Any
) -> Task:
    """A task with labels 0, 1, …; its quality is the accuracy on the validation part."""
    return Task(
        model,
        {"optimizer": optimizer or keras.optimizers.Adam(3e-3), "loss": loss, "metrics": ["accuracy"]},
        fitting(found, **fit),
        accuracy(found.x_validation, found.y_validation),
    )


def regress(model: Any, found: Split, optimizer: Any = None, loss: Any = "mse", **fit: Any) -> Task:
    """A task with real targets; its quality is R² on the validation part."""
    return Task(
        model,
        {"optimizer": optimizer or keras.optimizers.Adam(3e-3), "loss": loss},
        fitting(found, **fit),
        r_squared(found.x_validation, found.y_validation),
    )


def fitting(found: Split, epochs: int = 10, batch_size: int = 64, **more: Any) -> dict[str, Any]:
    return {
        "x": found.x,
        "y": found.y,
        "validation_data": (found.x_validation, found.y_validation),
        "epochs": epochs,
        "batch_size": batch_size,
    } | more


def accuracy(x: Any, labels: np.ndarray, batch_size: int = 64) -> Callable[[Any], float]:
    """Labels of one column, or one-hot; of one output unit 0.5 is the threshold."""
    truth = np.argmax(labels, -1) if labels.ndim > 1 and labels.shape[-1] > 1 else labels.reshape(-1)

    def quality(model: Any) -> float:
        output = np.nan_to_num(np.asarray(model.predict(x, batch_size=batch_size, verbose=0)))
        guess = np.argmax(output, -1) if output.shape[-1] > 1 else output[..., 0] > 0.5
        return float(np.mean(guess == truth))

    return quality


def r_squared(x: Any, targets: np.ndarray) -> Callable[[Any], float]:
    """1 − squared error / variance, in the targets' own units; not below −1, which also stands for not finite."""

    def quality(model: Any) -> float:
        output = np.asarray(model.predict(x, verbose=0), float).reshape(targets.shape)
        if not np.isfinite(output).all():
            return -1.0
        error = np.mean((output - targets) ** 2) / np.mean((targets - targets.mean(axis=0)) ** 2)
        return float(max(-1.0, 1 - error))

    return quality
