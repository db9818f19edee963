"""Times the configurations of one subject in one mode, interleaved."""

import contextlib
import gc
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki
from benchmarks.by_hand import NotApplicable
from benchmarks.configurations import CONFIGURATIONS, PLAIN, Configuration
from benchmarks.subjects import Subject

MODES = ("graph", "xla", "eager", "mirrored")
LEAST_SECONDS = 0.5  # of a timed unit of the plain model; shorter ones get more steps
SEED = 0


class Times(NamedTuple):
    """Wall seconds and processor seconds (of all threads of this process)."""

    wall: float
    cpu: float


class Runner:
    """One model with its optimizer's state, ready to run the same unit again and again."""

    def __init__(self, subject: Subject, mode: str, configuration: Configuration) -> None:
        cls = ki.IntrospectiveModel if configuration.introspective else keras.Model
        self._callbacks = configuration.callbacks()
        executed = subject.steps_per_execution if mode in ("graph", "xla") else 1  # Keras 3.15 fails under replicas
        keras.utils.set_random_seed(SEED)
        with _scope(mode):
            self._model = subject.build(cls)
            self._model.compile(
                keras.optimizers.Adam(1e-5),  # learning the noise by heart would make gradients vanish
                "sparse_categorical_crossentropy",
                metrics=["accuracy"],
                steps_per_execution=executed,
                jit_compile=mode == "xla",
                run_eagerly=mode == "eager",
                **configuration.compile_arguments(),
            )
        self._epoch = self._fit if configuration.loop is None else configuration.loop(self._model, mode)
        self._start: list[tuple[Any, np.ndarray]] = []

    def _fit(self, data: Any) -> None:
        self._model.fit(data, verbose=0, shuffle=False, callbacks=list(self._callbacks))

    def run(self, data: Any) -> Times:
        """One epoch over `data`, always from the same weights: values that drift would change what is measured."""
        for variable, value in self._start:
            variable.assign(value)
        gc.collect()
        times = timed(lambda: self._epoch(data))
        if not self._start:
            steps = self._model.optimizer.iterations  # goes on counting, as the recording does
            variables = [*self._model.weights, *self._model.optimizer.variables]
            self._start = [(v, keras.ops.convert_to_numpy(v).copy()) for v in variables if v is not steps]
        return times


class Measured(NamedTuple):
    """Times of one configuration, a unit a round; or why it could not be run, or cannot be had."""

    first_call: float = float("nan")
    rounds: tuple[Times, ...] = ()
    error: str = ""
    not_applicable: str = ""


def timed(function: Callable[[], Any]) -> Times:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


def measure(subject: Subject, mode: str, names: Sequence[str], rounds: int) -> tuple[int, dict[str, Measured]]:
    """Times the plain model and the named configurations.

    Returns:
        The steps of a unit, and the times of each configuration; those of the plain model under `PLAIN`.
    """
    first: dict[str, float] = {}
    failed: dict[str, Measured] = {}
    runners: dict[str, Runner] = {}
    configurations = {PLAIN: Configuration(introspective=False)} | {name: CONFIGURATIONS[name] for name in names}
    one_call = subject.dataset(subject.steps_per_execution)
    Runner(subject, mode, configurations[PLAIN]).run(one_call)  # what TensorFlow does once a process
    for name, configuration in configurations.items():
        try:
            runners[name] = Runner(subject, mode, configuration)
            first[name] = runners[name].run(one_call).wall
        except NotApplicable as reason:
            failed[name] = Measured(not_applicable=str(reason))
        except Exception as error:  # the others are still worth measuring
            if name == PLAIN:
                raise
            runners.pop(name, None)
            failed[name] = Measured(error=f"{type(error).__name__}: {error}")

    steps = subject.steps
    while runners[PLAIN].run(subject.dataset(steps)).wall < LEAST_SECONDS:
        steps *= 2
    data = subject.dataset(steps)
    for runner in runners.values():
        runner.run(data)
    gc.collect()
    gc.freeze()  # models and graphs, which no later collection need look through

    times: dict[str, list[Times]] = {name: [] for name in runners}
    order, shuffler = list(runners), random.Random(SEED)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for name in order:
            times[name].append(runners[name].run(data))

    gc.unfreeze()
    measured = {name: Measured(first[name], tuple(times[name])) for name in runners}
    measured |= failed
    runners.clear()
    keras.backend.clear_session()
    gc.collect()
    return steps, measured


def prepare(modes: Sequence[str]) -> None:
    """What TensorFlow must be told before it starts: two mirrored replicas need two devices."""
    tf.get_logger().setLevel("ERROR")  # many models in one process look like one that is traced again and again
    if "mirrored" in modes:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def _scope(mode: str) -> Any:
    if mode == "mirrored":
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()
    return contextlib.nullcontext()
