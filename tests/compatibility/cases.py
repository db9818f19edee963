"""Training one case three ways: plain Keras, ours, and plain Keras under the spies."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import keras_introspect as ki

STATISTICS = ["moments", "activity"]


class Kit:
    """The classes that a case builds its model from."""

    def __init__(self, model: type, sequential: type, finish: Callable[[Any], Any] = lambda model: model) -> None:
        self.Model = model
        self.Sequential = sequential
        self.finish = finish


PLAIN = Kit(keras.Model, keras.Sequential)
OURS = Kit(ki.IntrospectiveModel, ki.IntrospectiveSequential)
INSTRUMENTED = Kit(keras.Model, keras.Sequential, ki.instrument)


@dataclasses.dataclass
class Case:
    """A model and the data it trains on.

    Attributes:
        model: not compiled; of the classes of the kit.
        x: what `fit` takes.
        y: what `fit` takes.
        compile: arguments of `compile`; a loss and an optimizer unless it says otherwise.
        fit: further arguments of `fit`.
    """

    model: Any
    x: Any
    y: Any = None
    compile: dict[str, Any] = dataclasses.field(default_factory=dict)
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Construct:
    """A row of the table.

    Attributes:
        name: the function's.
        title: for the page.
        group: heading on the page.
        build: from a kit to a case.
        partial: a piece of every reason that is given for what is not observed; `None` where all is.
        plain_fails: why plain Keras itself cannot train it; then the test holds that it cannot.
        oracle: builds what the spies watch, where that is not the case itself (rematerialised layers run twice).
        tolerance: relative, between an eager step and a traced one.
        may_be_partial: whether anything may be unobserved, if only a reason is given.
        repeatable: whether plain Keras, trained twice, comes to the same bits; else weights are compared to rounding.
    """

    name: str
    title: str
    group: str
    build: Callable[[Kit], Case]
    partial: str | None = None
    plain_fails: str | None = None
    oracle: Callable[[Kit], Case] | None = None
    tolerance: float = 1e-5
    may_be_partial: bool = False
    repeatable: bool = True


def collectors() -> list[Any]:
    kinds = (ki.Weights, ki.Gradients, ki.Updates, ki.LayerOutputs, ki.OutputGradients)
    return [kind(STATISTICS) for kind in kinds]


def prepared(
    build: Callable[[Kit], Case],
    kit: Kit,
    scope: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    seed: int = 3,
) -> Case:
    keras.utils.clear_session(free_memory=False)  # names that Keras gives by counting begin anew
    keras.utils.set_random_seed(seed)
    with scope():
        case = build(kit)
    case.model = kit.finish(case.model)
    return case


def compile_arguments(case: Case, **changes: Any) -> dict[str, Any]:
    usual = {} if "optimizer" in case.compile else {"optimizer": keras.optimizers.SGD(0.05, momentum=0.9)}
    return {"loss": "mse", **usual, **case.compile, **changes}


def fit_arguments(case: Case, **changes: Any) -> dict[str, Any]:
    batches = {"batch_size": 8} if isinstance(case.x, (np.ndarray, dict, list, tuple)) else {}
    return {"x": case.x, "y": case.y, **batches, "epochs": 1, "shuffle": False, "verbose": 0, **case.fit, **changes}
