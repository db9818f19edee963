"""What a step costs beside Keras's own: nothing goes to the host, the graph is linear in tensors, memory is flat."""

import collections
import gc
import math
import re
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

import keras_introspect as ki
import kinds
from keras_introspect.observer import BUFFER_STEPS
from processes import printed
from step_programs import EPOCHS, STEPS, batches, bytes_a_step, chain, every_view
from traced import find_tf_function, operations_of

# Operations that hand something to the host: Python functions, sends, prints, files, queues that Python reads.
_TO_HOST = re.compile(
    r"PyFunc|Send|Recv|Print|Summary|Write(?!Variable)|Save|Outfeed|Infeed|HostCompute|Enqueue|Dlpack"
)

OBSERVED: dict[str, Callable[[], Any]] = {
    "default": lambda: "default",
    "all": lambda: "all",
    "per_step": lambda: every_view(per_step=True),
    "every": lambda: every_view(every=3, per_step=True),
    "metrics": lambda: [ki.StepMetrics(), ki.Gradients("signal_to_noise"), ki.LayerOutputs("per_unit", phase="both")],
}
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("default", "all", "per_step")]


class Printing(ki.Statistic):
    """What the tests must find: a statistic that hands its tensors to Python."""

    name = "printing"
    series = ("nothing",)
    initial = (0.0,)

    def partials(self, pieces: Any, context: Any) -> Any:
        sums = [tf.reduce_sum(tf.numpy_function(lambda x: x, [piece.values], tf.float32)) for piece in pieces]
        return tf.cast(tf.stack(sums), tf.float64)[:, None]

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return a + b

    def result(self, state: np.ndarray, spec: Any) -> dict[str, Any]:
        return {"nothing": state[0, 0]}


def compiled(observe: Any, widths: Sequence[int] = (6, 4)) -> Any:
    """A chain that is compiled with collectors; `None`: a plain Keras model."""
    model = chain(widths, keras.Model if observe is None else ki.IntrospectiveModel)
    model.compile("adam", "mse", metrics=["mae"], **({} if observe is None else {"collectors": observe}))
    return model


def operations(model: Any) -> collections.Counter[str]:
    """How often each kind of operation occurs in the traced train step, with all functions that it calls."""
    x, y = next(iter(batches(1)))
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=(x, y))
    specs = tuple(tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in (x, y))
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False, input_signature=specs)
    return operations_of(step.get_concrete_function().graph)


def to_host(found: collections.Counter[str]) -> collections.Counter[str]:
    return collections.Counter({name: number for name, number in found.items() if _TO_HOST.search(name)})


# --- nothing of a step goes to the host ---


@pytest.mark.parametrize("observe", ["every", "metrics", *LONG])
def test_no_operation_of_the_step_reaches_the_host(observe: str) -> None:
    plain, ours = operations(compiled(None)), operations(compiled(OBSERVED[observe]()))
    assert sum(ours.values()) > sum(plain.values()) + 50  # collectors are in it
    assert to_host(ours) == to_host(plain)


def test_an_operation_that_reaches_the_host_is_found() -> None:
    model = compiled([ki.LayerOutputs(statistics=Printing())])
    assert sum(to_host(operations(model)).values()) >= len(model.layers) - 1


def executed(model: Any, steps: int, folder: Path) -> collections.Counter[str]:
    """How often each kind of operation ran in an epoch, by TensorFlow's profiler; one epoch has gone before."""
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    model.fit(batches(steps), epochs=1, verbose=0, shuffle=False)
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options)
    try:
        model.fit(batches(steps), epochs=1, verbose=0, shuffle=False)
    finally:
        tf.profiler.experimental.stop()
    (file,) = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    found: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            name = plane.event_metadata[event.metadata_id].name
            if re.fullmatch(r"\S+:\w+", name):  # node:Operation
                found[name.rpartition(":")[2]] += 1
    return found


@pytest.mark.parametrize("observe", ["all", pytest.param("every", marks=pytest.mark.long)])
def test_no_operation_that_ran_reaches_the_host(observe: str, tmp_path: Path) -> None:
    steps = 12
    found = executed(compiled(OBSERVED[observe]()), steps, tmp_path)
    assert sum(number for name, number in found.items() if name.endswith("MatMul")) >= 3 * steps  # the training
    assert found["L2Loss"] + found["EuclideanNorm"] >= steps / 3  # the statistics
    # TensorFlow sends itself some constants that it computes before the first step.
    assert sum(to_host(found).values()) < steps / 3


def test_an_operation_that_ran_and_reaches_the_host_is_found(tmp_path: Path) -> None:
    model = compiled([ki.LayerOutputs(statistics=Printing())])
    assert sum(to_host(executed(model, 3, tmp_path)).values()) >= 3 * (len(model.layers) - 1)


class Counted:
    tensors = 0


@pytest.fixture
def to_numpy(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Counts the tensors that Python gets the values of."""
    counted = Counted()
    convert = ops._EagerTensorBase._numpy

    def counting(self: Any) -> Any:
        counted.tensors += 1
        return convert(self)

    def wrapped(function: Any) -> Any:
        def counting(value: Any, *args: Any, **kwargs: Any) -> Any:
            before = counted.tensors
            found = function(value, *args, **kwargs)
            if isinstance(value, ops._EagerTensorBase):  # whose memory NumPy may look at without asking it
                counted.tensors = before + 1
            return found

        return counting

    monkeypatch.setattr(ops._EagerTensorBase, "_numpy", counting)
    for name in ("array", "asarray"):
        monkeypatch.setattr(np, name, wrapped(getattr(np, name)))
    return counted


def conversions(counted: Counted, observe: Any, *lengths: int) -> list[int]:
    """How many tensors Python gets the values of in an epoch of each length."""
    model = compiled(observe)
    model.fit(batches(4), epochs=1, verbose=0, shuffle=False)
    found = []
    for length in lengths:
        counted.tensors = 0
        model.fit(batches(length), epochs=1, verbose=0, shuffle=False)
        found.append(counted.tensors)
    return found


def test_every_way_to_the_values_is_counted(to_numpy: Counted) -> None:
    tensor = tf.constant([1.0, 2.0])
    first, positive = tensor[0], tensor[0] > 0
    ways = (tensor.numpy, lambda: np.asarray(tensor), lambda: np.array(tensor), lambda: float(first))
    for convert in (*ways, lambda: bool(positive), lambda: keras.ops.convert_to_numpy(tensor)):
        to_numpy.tensors = 0
        convert()
        assert to_numpy.tensors == 1


@pytest.mark.parametrize("observe", ["all", *(name for name in LONG if name.values[0] == "default")])
def test_python_gets_values_once_an_epoch(observe: str, to_numpy: Counted) -> None:
    few, many = conversions(to_numpy, None, 10, 40)
    assert many - few >= 30  # Keras asks in each step whether the data have ended
    ours, more = conversions(to_numpy, observe, 10, 40)
    assert ours - few >= len(every_view())  # reading the accumulators is seen
    assert more - ours == many - few


@pytest.mark.parametrize(
    ("observe", "statistics"),
    [
        (lambda: [ki.Gradients("moments", per_step=True), ki.LayerOutputs("moments", per_step=True)], 2),
        pytest.param(lambda: every_view(per_step=True), 3 + 3 + 5 + 3 + 3, marks=pytest.mark.long),
    ],
)
def test_single_steps_come_in_blocks(observe: Callable[[], Any], statistics: int, to_numpy: Counted) -> None:
    lengths = 10, BUFFER_STEPS - 1, BUFFER_STEPS + 10, 2 * BUFFER_STEPS + 10
    few, many = conversions(to_numpy, None, 10, 40)
    by_keras = (many - few) // 30
    counts = zip(conversions(to_numpy, observe(), *lengths), lengths, strict=True)
    short, longer, two, three = (count - by_keras * length for count, length in counts)
    assert longer == short  # one block, at the end of the epoch
    assert three - two == two - short > 0  # every 256 steps, as much again
    # of a view: how many steps there were, their numbers, which tensors they had, and a matrix a statistic
    assert two - short <= 3 * len(observe()) + statistics


# --- the graph ---


def extra(observe: str, widths: Sequence[int]) -> int:
    """How many operations the collectors add to the step of a chain."""
    return sum(operations(compiled(observe, widths)).values()) - sum(operations(compiled(None, widths)).values())


@pytest.mark.parametrize(
    ("observe", "widths", "sizes"),
    [
        ("default", "different", (2, 4, 8)),
        *(
            pytest.param(observe, widths, (8, 16, 32), marks=pytest.mark.long)
            for observe in ("default", "all")
            for widths in ("different", "same")
        ),
    ],
)
def test_the_graph_is_linear_in_the_tensors(observe: str, widths: str, sizes: tuple[int, ...]) -> None:
    few, some, many = (extra(observe, [3 + i if widths == "different" else 6 for i in range(n)]) for n in sizes)
    assert few < some < many
    assert many - some == pytest.approx(2 * (some - few), rel=0.05)


def test_a_step_is_traced_once() -> None:
    model = compiled([ki.Weights("moments"), ki.LayerOutputs("moments", per_step=True)])
    counts, sizes = [], []
    for steps in (3, BUFFER_STEPS + 4):
        model.fit(batches(steps), epochs=2, verbose=0, shuffle=False)
        function = find_tf_function(model.train_function)
        counts.append(function.experimental_get_tracing_count())
        sizes.append(len(function.get_concrete_function(iter(batches(steps))).graph.get_operations()))
    assert counts == [1, 1]
    assert len(set(sizes)) == 1


# --- memory of the host ---


class Traced(keras.callbacks.Callback):
    """The memory of Python and NumPy, after some of the steps."""

    def __init__(self, *after: int) -> None:
        super().__init__()
        self.after = after
        self.bytes: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 == self.after[0] and not self.bytes:
            tracemalloc.start()
        if batch + 1 in self.after:
            gc.collect()
            self.bytes.append(tracemalloc.get_traced_memory()[0])


def python_growth(observe: Any, start: int, end: int) -> tuple[int, Any]:
    """By how many bytes the memory of Python grows between two steps of an epoch; and the model."""
    model, traced = compiled(observe), Traced(start, end)
    try:
        model.fit(batches(end + 1), epochs=1, verbose=0, shuffle=False, callbacks=[traced])
    finally:
        tracemalloc.stop()
    return traced.bytes[1] - traced.bytes[0], model


def test_python_keeps_nothing_of_a_step_but_what_is_recorded() -> None:
    start, end = BUFFER_STEPS - 50, 2 * BUFFER_STEPS - 50
    single = [ki.Gradients("moments", per_step=True), ki.LayerOutputs("moments", per_step=True)]
    plain, _ = python_growth(None, start, end)
    epochs_only, _ = python_growth([ki.Weights(), ki.Gradients("moments"), ki.LayerOutputs("moments")], start, end)
    steps, model = python_growth(single, start, end)
    recorded = BUFFER_STEPS * bytes_a_step(model.recording)
    assert recorded > 100_000
    less_than_an_array_a_step = BUFFER_STEPS * 64  # it takes more, however small
    assert epochs_only < plain + less_than_an_array_a_step
    assert recorded <= steps < plain + recorded + less_than_an_array_a_step


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident set from /proc")
@pytest.mark.parametrize("observe", ["all", "per_step"])
def test_memory_is_flat_over_thousands_of_steps(observe: str) -> None:
    plain, ours = (printed("step_programs.py", program) for program in ("plain", observe))
    recorded = STEPS * (EPOCHS - 1) * ours["bytes_a_step"]
    grown, expected = (found["resident"][-1] - found["resident"][0] for found in (ours, plain))
    assert (recorded > 10e6) == (observe == "per_step")
    assert 0.8 * recorded <= grown < expected + 1.1 * recorded + 4e6


# --- memory of the device ---


@pytest.mark.parametrize(
    "kind", ["conv", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("recurrent", "transformer"))]
)
def test_bytes_of_an_accumulator(kind: str) -> None:
    model = kinds.build(kind, ki.IntrospectiveModel)
    model.compile(kinds.optimizer(), kinds.loss(), collectors="all")
    x, y = kinds.data(kind)
    model.fit(x, y, batch_size=kinds.BATCH, epochs=1, verbose=0)
    cost = model.introspection_cost()
    assert cost.by_statistic["weights"] == {}  # taken from the variables themselves
    for view in ("gradients", "updates", "layer_outputs", "output_gradients"):
        series, parts = model.recording[view], cost.by_statistic[view]
        tensors = len(series.names)
        assert 0 < parts["moments"] < 256 * tensors
        assert 0 < parts["quantiles"] < 12 * 1024 * tensors
        # Channels are the last axis, positions all between it and the batch.
        shapes = [shape[1:] if "output" in view else shape for shape in series.shapes]
        channels = sum((shape[-1] or 1) if shape else 1 for shape in shapes)
        positions = sum(math.prod(shape[:-1]) for shape in shapes if len(shape) > 1 and None not in shape)
        positions = positions if "output" in view else 0
        assert 0 < parts["activity"] <= 8 * (channels + positions + tensors)
