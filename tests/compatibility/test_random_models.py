"""Random small graphs of random layers, random batch splits, random modes: the same demands on every one."""

import functools
from typing import Any

import hypothesis
import keras
import pytest
from hypothesis import strategies as st
from keras import layers

from compatibility.cases import Case, Construct, Kit
from compatibility.checks import check
from compatibility.constructs import numbers
from compatibility.modes import MODES

WIDTHS = (2, 3, 4)
# Each takes and gives (batch, time, channels); the number of channels may change.
LAYERS: dict[str, Any] = {
    "dense": lambda name, n: layers.Dense(n, name=name),
    "dense_tanh": lambda name, n: layers.Dense(n, activation="tanh", name=name),
    "dense_relu": lambda name, n: layers.Dense(n, activation="relu", kernel_regularizer="l2", name=name),
    "conv": lambda name, n: layers.Conv1D(n, 3, padding="same", activation="elu", name=name),
    "depthwise": lambda name, n: layers.SeparableConv1D(n, 2, padding="same", name=name),
    "norm": lambda name, n: layers.BatchNormalization(name=name),
    "layer_norm": lambda name, n: layers.LayerNormalization(name=name),
    "dropout": lambda name, n: layers.Dropout(0.3, seed=n, name=name),
    "noise": lambda name, n: layers.GaussianNoise(0.1, seed=n, name=name),
    "relu": lambda name, n: layers.ReLU(name=name),
    "gelu": lambda name, n: layers.Activation("gelu", name=name),
    "softmax": lambda name, n: layers.Softmax(name=name),
    "prelu": lambda name, n: layers.PReLU(name=name),
    "simple_rnn": lambda name, n: layers.SimpleRNN(n, return_sequences=True, name=name),
    "permuted": lambda name, n: layers.Reshape((4, -1), name=name),
    "scaled": lambda name, n: layers.Rescaling(0.5, offset=0.1, name=name),
}
JOINS = {
    "add": lambda name: layers.Add(name=name),
    "multiply": lambda name: layers.Multiply(name=name),
    "concatenate": lambda name: layers.Concatenate(name=name),
    "average": lambda name: layers.Average(name=name),
}

# A node: a layer of some width on an earlier tensor, or a join of two earlier ones. Indices wrap around.
nodes = st.one_of(
    st.tuples(st.sampled_from(sorted(LAYERS)), st.sampled_from(WIDTHS), st.integers(0, 30)),
    st.tuples(st.sampled_from(sorted(JOINS)), st.integers(0, 30), st.integers(0, 30)),
)
graphs = st.lists(nodes, min_size=1, max_size=7)


def build(graph: list[Any], batch: int, kit: Kit) -> Case:
    inputs = keras.Input((4, 3))
    tensors = [inputs, layers.Dense(3, name="first")(inputs)]
    for i, (kind, a, b) in enumerate(graph):
        name = f"{kind}{i}"
        if kind in LAYERS:
            tensors.append(LAYERS[kind](name, a)(tensors[b % len(tensors)]))
            continue
        one, two = tensors[a % len(tensors)], tensors[b % len(tensors)]
        if kind != "concatenate" and one.shape[-1] != two.shape[-1]:
            two = layers.Dense(one.shape[-1], name=f"match{i}")(two)
        tensors.append(JOINS[kind](name)([one, two]))
    used = layers.Concatenate(name="last")(tensors[-2:])
    outputs = layers.Dense(1, name="head")(layers.GlobalAveragePooling1D(name="pool")(used))
    return Case(kit.Model(inputs, outputs), numbers(4, 3), numbers(1), fit={"batch_size": batch})


def check_graph(graph: list[Any], batch: int, mode: str) -> bool:
    """Checks one graph; the weights to rounding, since sums of three depend on the order in which threads come."""
    names = "in loops" if any(kind == "simple_rnn" for kind, *_ in graph) else ""
    build_it = functools.partial(build, graph, batch)
    construct = Construct("random", "random", "random", build_it, may_be_partial=True, repeatable=False)
    hypothesis.note(f"{graph} {batch} {mode} {names}")
    return check(construct, MODES[mode])


SETTINGS = {"deadline": None, "derandomize": True, "print_blob": False, "database": None}
modes = st.sampled_from(["graph", "eager", "steps_per_execution_4", "accumulation", "clipnorm", "ema", "weight_decay"])
EXACT = 0.85  # of random graphs, at least, train to the same bits as in plain Keras


def test_random_graphs() -> None:
    check_some(3, st.sampled_from([7, 8, 20]))


@pytest.mark.long
def test_many_random_graphs() -> None:
    check_some(40, st.integers(3, 20))


def check_some(number: int, batches: st.SearchStrategy[int]) -> None:
    exact = []

    @hypothesis.settings(max_examples=number, **SETTINGS)
    @hypothesis.given(graphs, batches, modes)
    def run(graph: list[Any], batch: int, mode: str) -> None:
        exact.append(check_graph(graph, batch, mode))

    run()
    assert sum(exact) >= EXACT * len(exact), f"{sum(exact)} of {len(exact)} to the last bit"
