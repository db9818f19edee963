"""Looking at a tensor without being seen by TensorFlow's graph optimizer.

Grappler regroups chains of additions and multiplications whose intermediate results nobody else uses, and a regrouped
sum rounds otherwise. A statistic that reads such a result is somebody: it would change the last bit of the training. So
it reads a twin, computed once more from the same inputs. Twins are made in an `attribute_scope`: without
its attribute grappler would find that they are the same and join them again.
"""

from typing import Any

import tensorflow as tf

from keras_introspect.capture.internals import is_ours

# What the arithmetic optimizer regroups (AddOpsRewrite, HoistCommonFactorOutOfAggregation, MinimizeBroadcasts).
_REGROUPED = {
    "Add": lambda inputs: tf.raw_ops.AddV2(x=inputs[0], y=inputs[1]),
    "AddV2": lambda inputs: tf.raw_ops.AddV2(x=inputs[0], y=inputs[1]),
    "AddN": lambda inputs: tf.raw_ops.AddN(inputs=list(inputs)),
    "Mul": lambda inputs: tf.raw_ops.Mul(x=inputs[0], y=inputs[1]),
    "Sub": lambda inputs: tf.raw_ops.Sub(x=inputs[0], y=inputs[1]),
    "Neg": lambda inputs: tf.raw_ops.Neg(x=inputs[0]),
    "RealDiv": lambda inputs: tf.raw_ops.RealDiv(x=inputs[0], y=inputs[1]),
}
# The bias after one of these is fused into it.
_FUSED_WITH_BIAS = {"MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "BatchMatMul", "BatchMatMulV2", "Einsum"}
# These read a shape, and are folded away before.
_SHAPE_ONLY = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"}
_TRANSPARENT = {"Identity", "IdentityN", "StopGradient", "PreventGradient"}
_DEPTH = 8


def twin(tensor: Any) -> Any:
    """The tensor itself, or an equal one, whose use leaves the optimization of the step's graph as it is."""
    if tf.executing_eagerly() or not isinstance(tensor, tf.Tensor):
        return tensor
    return _twin(tensor, _DEPTH)


def _twin(tensor: Any, depth: int) -> Any:
    op = _origin(tensor)
    if depth == 0 or op.type not in _REGROUPED:
        return tensor
    users = _kinds_of_users(op.outputs[0])
    if len(users) > 1:
        return tensor
    # The bias after a product is fused into it, unless it has another use, which a twin would be: fused, it is not
    # regrouped. But where the chain goes on, it is regrouped first.
    if not users & _REGROUPED.keys() and any(_origin(source).type in _FUSED_WITH_BIAS for source in op.inputs):
        return tensor
    return _REGROUPED[op.type]([_twin(source, depth - 1) for source in op.inputs])


def _origin(tensor: Any) -> Any:
    op = tensor.op
    while op.type in _TRANSPARENT and len(op.inputs) == 1:
        op = op.inputs[0].op
    return op


def _kinds_of_users(tensor: Any) -> set[str]:
    """The kinds of operations that use the values of a tensor, looking through identities.

    Kinds, not operations: two equal ones are joined before chains are regrouped, and count as one.
    """
    kinds: set[str] = set()
    for op in tensor.consumers():
        if op.type in _TRANSPARENT:
            for output, source in zip(op.outputs, op.inputs, strict=False):
                if source is tensor:
                    kinds |= _kinds_of_users(output)
        elif op.type not in _SHAPE_ONLY and not is_ours(op):
            kinds.add(op.type)
    return kinds
