"""Every construct trains as in plain Keras, and what is recorded of it is what the spies saw."""

from typing import Any

import pytest

from compatibility.cases import INSTRUMENTED
from compatibility.checks import GRAPH, PLAIN_FAILS, check, check_that_plain_keras_fails
from compatibility.modes import MODES
from compatibility.own_steps import CONSTRUCTS
from oldest import needs_keras_3_13

# Some five seconds each: these are left to the slow tests, where others cover most of what they do.
SLOW = {
    "attention_scores",
    "attentions",
    "bidirectional_gru",
    "constrained",
    "contrastive",
    "convolutional_lstm",
    "convolutions",
    "deep",
    "densely_connected",
    "distillation",
    "encoder_decoder",
    "fori_loop",
    "functional_subclass",
    "gradient_penalty",
    "layers_in_containers",
    "masks",
    "own_compile_and_fit",
    "own_compute_loss",
    "preprocessing",
    "scan",
    "sequential_in_functional",
    "sequential_unbuilt",
    "sparse",
    "subclass_in_functional",
    "tied_weights",
    "transformer",
    "variational",
}
NEEDS_KERAS_3_13 = {"reversible_embedding"}  # a layer of that name
QUICK_EAGERLY = {"sequential", "shared_layer", "structured_outputs", "custom_cells", "rematerialised", "cond"}


def parameters(quick: set[str] = set(CONSTRUCTS) - SLOW) -> list[Any]:
    def marks(name: str) -> list[Any]:
        return [
            *([] if name in quick else [pytest.mark.long]),
            *([needs_keras_3_13] if name in NEEDS_KERAS_3_13 else []),
        ]

    return [pytest.param(name, marks=marks(name)) for name in CONSTRUCTS]


@pytest.mark.parametrize("name", parameters())
def test_a_construct(name: str) -> None:
    if (name, "graph") in PLAIN_FAILS:
        check_that_plain_keras_fails(CONSTRUCTS[name], GRAPH)
    else:
        check(CONSTRUCTS[name], GRAPH)


@pytest.mark.parametrize("name", parameters(QUICK_EAGERLY))
def test_a_construct_eagerly(name: str) -> None:
    """The rows and their numbers are those of graph mode, calls inside loops included."""
    if (name, "eager") in PLAIN_FAILS:
        check_that_plain_keras_fails(CONSTRUCTS[name], MODES["eager"])
    else:
        check(CONSTRUCTS[name], MODES["eager"])


@pytest.mark.long
@pytest.mark.parametrize("name", parameters())
def test_a_construct_through_instrument(name: str) -> None:
    if (name, "graph") not in PLAIN_FAILS:
        check(CONSTRUCTS[name], GRAPH, INSTRUMENTED)
