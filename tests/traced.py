"""What TensorFlow traced of a step, for tests that count its operations."""

import collections
import inspect
from typing import Any


def operations_of(graph: Any) -> collections.Counter[str]:
    """How often each kind of operation occurs in a graph, with all functions that it calls."""
    definition = graph.as_graph_def()
    inside = (each for function in definition.library.function for each in function.node_def)
    return collections.Counter(each.op for each in [*definition.node, *inside])


def find_tf_function(function: Any) -> Any:
    """The outermost `tf.function` behind what Keras keeps as the train function."""
    waiting, seen = [function], set()
    while waiting:
        candidate = waiting.pop(0)
        if hasattr(candidate, "get_concrete_function"):
            return candidate
        if not inspect.isfunction(candidate) or candidate in seen:
            continue
        seen.add(candidate)
        closure = inspect.getclosurevars(candidate).nonlocals.values()
        waiting += [value for value in closure if callable(value)]
    raise AssertionError(f"no tf.function behind {function}")
