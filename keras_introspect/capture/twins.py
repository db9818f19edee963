"""Looking at a tensor without being seen by TensorFlow's graph optimizer.

Grappler regroups chains of additions and multiplications whose intermediate results nobody else uses, and a regrouped
sum rounds otherwise. A statistic that reads such a result is somebody: it would change the last bit of the training. So
it reads a twin, computed once more from the same inputs. Twins are made in an `attribute_scope`: without
its attribute grappler would find that they are the same and join them again.
"""

from collections.abc import Set
from typing import Any

import tensorflow as tf

from keras_introspect.capture.internals import attribute_scope, copy_of, is_ours, is_stateful

# What the arithmetic optimizer regroups (AddOpsRewrite, HoistCommonFactorOutOfAggregation, MinimizeBroadcasts).
_REGROUPED = {"Add", "AddV2", "AddN", "Mul", "Sub", "Neg", "RealDiv"}
# The remapper fuses a bias, and an activation behind it, into one of these, unless the sum in between has another use.
_PRODUCTS = {"MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "BatchMatMul", "BatchMatMulV2", "Einsum"}
# Fused, these round otherwise than alone; ReLU and its kin do not.
_FUSED_ACTIVATIONS = {"Tanh", "Sigmoid", "Elu", "Erf", "Selu", "Softplus"}
# These read a shape, and are folded away before.
_SHAPE_ONLY = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"}
# A chain ends before these: where nothing else uses a sum or product, no rule takes it up into them.
_ENDS_A_CHAIN = {
    "Relu",
    "Relu6",
    "ReluGrad",
    "Relu6Grad",
    "MaxPool",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
}
_TRANSPARENT = {"Identity", "IdentityN", "StopGradient", "PreventGradient"}
_DEPTH = 8


def needed(graph: Any, results: Any) -> Set[str]:
    """Names of the operations of a step that something comes of: the others are pruned before chains are regrouped.

    What is ours does not count. So a gradient that nobody asked for, such as that of a constant divisor, is no user.
    """
    waiting = [op for op in graph.get_operations() if is_stateful(op) and not is_ours(op)]
    waiting += [t.op for t in tf.nest.flatten(results) if isinstance(t, tf.Tensor) and t.graph is graph]
    found: set[str] = set()
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found.add(op.name)
            waiting += [source.op for source in op.inputs]
            waiting += op.control_inputs
    return found


def twin(tensor: Any, live: Set[str]) -> Any:
    """The tensor itself, or an equal one, whose use leaves the optimization of the step's graph as it is.

    Args:
        tensor: of the step.
        live: the operations that are `needed`.
    """
    if tf.executing_eagerly() or not isinstance(tensor, tf.Tensor):
        return tensor
    return _twin(tensor, _DEPTH, live)


def early_twin(tensor: Any) -> Any:
    """The same for a tensor whose users are still to come, as inside a loop: it may be computed again for nothing."""
    if tf.executing_eagerly() or not isinstance(tensor, tf.Tensor):
        return tensor
    with attribute_scope():
        return _early_twin(tensor, _DEPTH)


def _early_twin(tensor: Any, depth: int) -> Any:
    op = _origin(tensor)
    copied = op.type in _REGROUPED | _PRODUCTS | _FUSED_ACTIVATIONS | {"BiasAdd"} or _is_unbroadcast(op)
    if depth == 0 or len(op.outputs) != 1 or not copied:
        return tensor
    return copy_of(op, [_early_twin(source, depth - 1) for source in op.inputs])


def _is_unbroadcast(op: Any) -> bool:
    """Whether an operation belongs to the gradient of a broadcast: where nothing was broadcast, it is taken out."""
    if op.type == "Reshape":
        op = op.inputs[0].op
    return bool(op.type == "Sum" and op.inputs[1].op.type == "BroadcastGradientArgs")


def _twin(tensor: Any, depth: int, live: Set[str]) -> Any:
    op = _origin(tensor)
    if depth == 0 or len(op.outputs) != 1:
        return tensor
    users = _kinds_of_users(op.outputs[0], live)
    if op.type == "BiasAdd" or (op.type in _REGROUPED and any(_origin(i).type in _PRODUCTS for i in op.inputs)):
        # The product is computed again too: rare, since most activations belong to the layer, or are ReLU.
        optimized = bool(users) and users <= _REGROUPED | _FUSED_ACTIVATIONS
    elif _is_by_constant(op) or (depth < _DEPTH and op.type == "Const"):
        optimized = True  # constants are pushed along a chain, also past what others use
    else:
        inner = depth < _DEPTH and op.type in _PRODUCTS | _FUSED_ACTIVATIONS
        taken_up = op.type in _REGROUPED and not (depth == _DEPTH and users and users <= _ENDS_A_CHAIN)
        optimized = len(users) <= 1 and (taken_up or inner or _is_unbroadcast(op))
    return copy_of(op, [_twin(source, depth - 1, live) for source in op.inputs]) if optimized else tensor


def _is_by_constant(op: Any) -> bool:
    return op.type in ("Mul", "RealDiv") and any(_origin(source).type == "Const" for source in op.inputs)


def _origin(tensor: Any) -> Any:
    while tensor.op.type in _TRANSPARENT:
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor.op


def _kinds_of_users(tensor: Any, live: Set[str]) -> set[str]:
    """The kinds of live operations that use the values of a tensor, looking through identities.

    Kinds, not operations: two equal ones are joined before chains are regrouped, and count as one.
    """
    kinds: set[str] = set()
    for op in tensor.consumers():
        if op.name not in live:
            continue
        if op.type in _TRANSPARENT:
            for output, source in zip(op.outputs, op.inputs, strict=False):
                if source is tensor:
                    kinds |= _kinds_of_users(output, live)
        elif op.type not in _SHAPE_ONLY:
            kinds.add(op.type)
    return kinds
