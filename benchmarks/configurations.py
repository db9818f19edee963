"""What is observed: presets, their parts one by one, and what stands beside them."""

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki
from benchmarks.by_hand import ByHand
from keras_introspect.collectors import PRESETS
from keras_introspect.statistics import NAMED

PLAIN = "plain"  # keras.Model: what all others are compared with


class Configuration(NamedTuple):
    """How a model is made, compiled and trained; collectors belong to one model, so they are made anew for each.

    Attributes:
        loop: from the compiled model and the mode to what trains an epoch on data, where that is not `fit`.
    """

    introspective: bool = True
    collectors: Callable[[], Any] = lambda: None
    callbacks: Callable[[], list[Any]] = list
    loop: Callable[[Any, str], Callable[[Any], Any]] | None = None

    def compile_arguments(self) -> dict[str, Any]:
        return {"collectors": self.collectors()} if self.introspective else {}


class Floor(ki.Statistic):
    """The least that can be taken of a tensor: one sum over it."""

    name = "floor"
    series = ("sum",)
    initial: ClassVar[tuple[float, ...]] = (0.0,)

    def partials(self, pieces: Sequence[Any], context: Any) -> Any:
        return tf.stack([tf.cast(tf.reduce_sum(piece.values), tf.float64) for piece in pieces])[:, None]

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return a + b

    def result(self, state: np.ndarray, spec: Any) -> dict[str, Any]:
        return {"sum": state[0, 0]}


def _every_view(**arguments: Any) -> Callable[[], Any]:
    return lambda: [type(collector)(**arguments) for collector in PRESETS["all"]()]


def _wherever(statistic: str) -> Callable[[], Any]:
    """The statistic in every view that can have it."""
    views = NAMED[statistic].only_of or tuple(collector.key for collector in PRESETS["all"]())
    return lambda: [type(c)(statistics=statistic) for c in PRESETS["all"]() if c.key in views]


def _only(cls: type) -> Callable[[], Any]:
    return lambda: [cls()]


def _tensorboard() -> list[Any]:
    folder = tempfile.mkdtemp(prefix="benchmark_tensorboard_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [keras.callbacks.TensorBoard(folder, histogram_freq=1, write_graph=False)]


def _configurations() -> dict[str, Configuration]:
    found = {"none": Configuration()}
    found |= {preset: Configuration(collectors=make) for preset, make in PRESETS.items()}
    found["all_per_step"] = Configuration(collectors=_every_view(per_step=True))
    found |= {c.name: Configuration(collectors=_only(type(c))) for c in PRESETS["all"]()}
    found["metrics"] = Configuration(collectors=_only(ki.StepMetrics))
    found |= {name: Configuration(collectors=_wherever(name)) for name in NAMED}
    found["floor"] = Configuration(collectors=_every_view(statistics=Floor()))
    found["by_hand"] = Configuration(introspective=False, loop=ByHand)
    if importlib.util.find_spec("tensorboard"):
        found["tensorboard"] = Configuration(introspective=False, callbacks=_tensorboard)
    return found


CONFIGURATIONS = _configurations()
