"""Every private name of Keras and TensorFlow that we touch, each with the reason; `tests/capture` pins them.

Tried with Keras 3.10 to 3.15 and TensorFlow 2.18 to 2.21.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.models.functional import Functional
from keras.src.models.model import functional_init_arguments
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.utils.naming import auto_name
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import record
from tensorflow.python.ops.control_flow_v2_func_graphs import CondBranchFuncGraph, WhileBodyFuncGraph

__all__ = [
    "Functional",
    "KerasSaveable",
    "attribute_scope",
    "auto_name",
    "calls_its_cell_for_shapes",
    "copy_of",
    "copy_tensor_annotations",
    "current_graph",
    "flatten_layers",
    "functional_init_arguments",
    "hides_logits",
    "inside_control_flow_of",
    "is_not_a_real_call",
    "is_ours",
    "is_stateful",
    "is_validation_of_fit",
    "own_variables",
    "room_in",
    "spans_workers",
    "sublayers",
    "tape_is_stopped",
    "with_gradient",
]


_ATTRIBUTE = "_keras_introspect"


def current_graph() -> Any:
    """The graph being traced, or `None` when running eagerly."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def tape_is_stopped() -> bool:
    """Whether gradient recording is paused, as it is in the forward pass of `tf.recompute_grad` (`keras.remat`)."""
    return bool(pywrap_tfe.TFE_Py_TapeSetIsStopped())


def is_not_a_real_call() -> bool:
    """Whether a layer is called for its output spec only, or statelessly: nothing is computed then."""
    return bool(in_symbolic_scope() or in_stateless_scope())


def inside_control_flow_of(graph: Any, root: Any) -> bool:
    """Whether `graph` hangs below `root` by loop bodies and branches only.

    A user's own `tf.function`, or the function of `Dataset.map`, is traced once and outlives the step: it must not be
    touched.
    """
    while graph is not None and graph is not root:
        if not isinstance(graph, (WhileBodyFuncGraph, CondBranchFuncGraph)):
            return False
        graph = getattr(graph, "outer_graph", None)
    return graph is root


def is_validation_of_fit(arguments: Mapping[str, Any]) -> bool:
    """Whether these keyword arguments of `evaluate` are those with which `fit` calls it (Keras ≥ 3.0)."""
    return bool(arguments.get("_use_cached_eval_dataset"))


def calls_its_cell_for_shapes(layer: Any) -> bool:
    """Whether a layer calls its cell before its loop: stacked cells with dropout do, and once the backend's `rnn`.

    The loop begins in `RNN.inner_loop`, and its first call of the cell is that of the backend (Keras ≥ 3.10).
    """
    return isinstance(layer, keras.layers.RNN) and not layer.unroll


def flatten_layers(model: Any) -> list[Any]:
    """Every layer of a model at all depths, without the model itself and input layers."""
    layers = model._flatten_layers(include_self=False)
    return [layer for layer in layers if not isinstance(layer, keras.layers.InputLayer)]


def sublayers(layer: Any) -> list[Any]:
    """The layers that a layer holds itself, without input layers."""
    return [child for child in layer._layers if not isinstance(child, keras.layers.InputLayer)]


def own_variables(layer: Any) -> list[Any]:
    """The variables that a layer holds itself, not those of its sublayers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def room_in(store: Any) -> tuple[float, float]:
    """The most bytes of one array, and of all arrays of one object, in a store of Keras's files.

    A shard of weights has a limit. Keras 3.10 states it in GB, and finds one shard of each object when it loads; from
    3.11 on, which keeps the list of an object's shards, it is in bytes.
    """
    limit = getattr(store, "max_shard_size", math.inf)
    if math.isinf(limit) or hasattr(store, "current_shard_filenames"):
        return limit, math.inf
    return limit * 1024**3, limit * 1024**3


def spans_workers(strategy: Any) -> bool:
    """Whether a strategy trains in several processes; asked as Keras's own trainer asks it (Keras ≥ 3.0)."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.extended._in_multi_worker_mode()


def attribute_scope() -> Any:
    """Context: operations made in it carry an attribute of ours, which keeps grappler from joining them with others."""
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    return current_graph()._attr_scope({_ATTRIBUTE: attr_value_pb2.AttrValue(b=True)})


def copy_of(op: Any, inputs: list[Any]) -> Any:
    """The output of the same operation on other inputs, made in the `attribute_scope` in force."""
    attributes = {key: value for key, value in op.node_def.attr.items() if not key.startswith("_")}
    dtypes = [output.dtype for output in op.outputs]
    copied = op.graph._create_op_internal(op.type, inputs, dtypes, attrs=attributes, op_def=op.op_def)
    return copied.outputs[0]


_COUNT = itertools.count()


def with_gradient(tensor: Any, other: Any, gradient: Callable[[Any], tuple[Any, Any]]) -> Any:
    """The same tensor in a graph, whose gradient dy is handed to both tensors as `gradient(dy)` says.

    An operation with a gradient of its own, by which loops and branches differentiate their bodies; and a note for a
    tape that is inside the same body.
    """
    name = f"KerasIntrospectTap{next(_COUNT)}"

    @tf.RegisterGradient(name)
    def _(op: Any, dy: Any, unused: Any) -> Any:
        return gradient(dy)

    with record.stop_recording(), current_graph().gradient_override_map({"IdentityN": name}):
        tapped = tf.identity_n([tensor, other])[0]
    record.record_operation(name, [tapped], [tensor, other], lambda dy: list(gradient(dy)))
    return tapped


def has_gradient_of_gradient(tensor: Any) -> bool:
    """Whether a persistent tape, or several, watch a tensor: a gradient may be asked of its gradient.

    Loops and branches then ask each resource that they are given what it holds, and a TensorArray cannot say.
    """
    return bool(pywrap_tfe.TFE_Py_TapeSetPossibleGradientTypes([tensor]) == 2)  # 0: none, 1: first order


def is_ours(op: Any) -> bool:
    """Whether an operation was made in an `attribute_scope`."""
    try:
        return bool(op.get_attr(_ATTRIBUTE))
    except ValueError:
        return False


def is_stateful(op: Any) -> bool:
    """Whether running an operation does something, or depends on something done: such are never pruned."""
    return bool(op._is_stateful)


def hides_logits(tensor: Any) -> bool:
    """Whether Keras's cross-entropies would find the logits of this tensor through the op that made it.

    They look at `tensor._keras_logits`, which a copy can carry, or else at `tensor.op.type`, which it cannot.
    """
    if hasattr(tensor, "_keras_logits") or tf.executing_eagerly():
        return False
    return getattr(getattr(tensor, "op", None), "type", None) in ("Softmax", "Sigmoid")


def copy_tensor_annotations(source: Any, target: Any) -> None:
    """Hands on what Keras ties to a tensor object: its mask, and the logits that its cross-entropies look for."""
    for attribute in ("_keras_mask", "_keras_logits"):
        value = getattr(source, attribute, None)
        if value is not None:
            setattr(target, attribute, value)
