"""What Keras before the newest, 3.10 first of all, does otherwise: plain Keras too, so the tests take it as it is."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

_KERAS = tuple(int(part) for part in version("keras").split(".")[:2])
KERAS_3_10 = _KERAS == (3, 10)


def shard_size(model: Any, size: int) -> float:
    """The `max_shard_size` of `save_weights` for shards of `size` bytes, smaller than the recording of the model.

    Keras 3.10 reads one shard of each object: there the shards are as large as the recording, which the weights come
    before, so that it has a shard of its own.
    """
    recording = len(model._introspection.serialize())
    assert recording > size, "the recording would not be cut in pieces"
    return (recording if KERAS_3_10 else size) / 1024**3


def trains_a_loaded_functional_model(test: Callable[..., None]) -> Callable[..., None]:
    """For tests of a loaded functional model with one input: Keras 3.10 warns that its inputs were a list."""
    ignored = pytest.mark.filterwarnings("ignore:The structure of `inputs` doesn't match the expected:UserWarning")
    return ignored(test) if KERAS_3_10 else test


no_clone_of_a_model_that_makes_its_inputs = pytest.mark.xfail(
    KERAS_3_10,
    reason="Keras 3.10 takes every constructor for one of (inputs, outputs), as its own hides its arguments",
    raises=TypeError,
    strict=True,
)
needs_keras_3_13 = pytest.mark.skipif(_KERAS < (3, 13), reason="Keras has this layer from 3.13 on")
