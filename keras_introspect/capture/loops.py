"""Tensors inside loops and branches, and their gradients.

No tensor gets out of a loop. What a layer returns in each iteration is put into a TensorArray of the step's graph, from
which all are taken after it. XLA knows no such array, and neither can one be given to a loop of which the gradient of a
gradient may be asked: there, layer outputs are merged into variables.

In the backward pass of a loop body no variable may be touched (TensorFlow #50170), and nothing keeps in order what is
written to a TensorArray. A probe lets sums out: a row of zeros enters the loop from the step's graph, each tap inside
returns its sums as the gradient of that row, and automatic differentiation adds them up over the iterations. What
arrives as the gradient of the probe is exact for sums; minimum, maximum and single channels cannot be had this way.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_introspect.capture.internals import with_gradient
from keras_introspect.capture.twins import early_twin

SUMS = ("count", "total", "squares", "total_abs", "nonfinite", "nonzero")


class Carrier:
    """Brings a tensor out of a loop or branch: all that it was there, below each other along the first axis.

    Not under XLA, which knows no TensorArray that grows.

    Args:
        graph: of the step.
        values: what the tensor is like: of a known shape but for the first axis.
    """

    def __init__(self, graph: Any, values: Any) -> None:
        self._shape, self._dtype = values.shape[1:], values.dtype
        with graph.as_default():
            self._handle, _ = tf.raw_ops.TensorArrayV3(
                size=0,
                dtype=self._dtype,
                element_shape=[None, *self._shape],
                dynamic_size=True,
                clear_after_read=False,
                identical_element_shapes=False,
            )

    @staticmethod
    def takes(values: Any) -> bool:
        """Whether such a tensor can be carried."""
        return values.shape.rank not in (None, 0) and values.shape[1:].is_fully_defined()

    def add(self, values: Any) -> None:
        """Takes the tensor of one iteration, in its body: one like the first."""
        flow = tf.zeros([])
        number = tf.raw_ops.TensorArraySizeV3(handle=self._handle, flow_in=flow)
        tf.raw_ops.TensorArrayWriteV3(handle=self._handle, index=number, value=values, flow_in=flow)

    @functools.cached_property
    def all(self) -> tuple[Any, Any]:
        """After the loop: the tensors of all iterations, (sum of their first axes, ...), and that of the last one."""
        rows, lengths = tf.raw_ops.TensorArrayConcatV3(
            handle=self._handle, flow_in=tf.zeros([]), dtype=self._dtype, element_shape_except0=self._shape
        )
        rows.set_shape([None, *self._shape])
        last = tf.reduce_sum(lengths[-1:])  # of no iteration, none
        return rows, rows[tf.shape(rows, tf.int64)[0] - last :]


class Probe:
    """One row of zeros a layer output, made in the step's graph under the user's tape.

    Args:
        variable: float64, shape (rows, sums), all zero, trainable: a tape watches what is read from it.
        rows: name of a layer output → its row, shared by the probes of a step.
        receive: is handed the gradient of the whole probe in each backward pass.
    """

    def __init__(self, variable: Any, rows: dict[str, int], receive: Callable[[Any], None]) -> None:
        @tf.custom_gradient
        def enter(zeros: Any) -> tuple[Any, Callable[[Any], Any]]:
            def gradient(sums: Any) -> Any:
                receive(sums)
                return tf.zeros_like(sums)

            return tf.identity(zeros), gradient

        self._zeros = enter(tf.convert_to_tensor(variable))
        self._rows = rows
        self._capacity = int(variable.shape[0])

    def tap(self, name: str, values: Any) -> Any | None:
        """The same tensor, whose gradient adds its sums to the probe; `None` where the probe is full."""
        row = self._rows.setdefault(name, len(self._rows))
        if row >= self._capacity:
            return None
        mask = tf.one_hot(row, self._capacity, dtype=tf.float64)[:, None]

        def gradient(dy: Any) -> tuple[Any, Any]:
            return dy, mask * sums_of_gradient(early_twin(dy))[None]

        # tf.custom_gradient would let the loop keep the tensor for the backward pass; then it is fused with nothing.
        return with_gradient(values, self._zeros, gradient)


def sums_of_gradient(values: Any) -> Any:
    """The `SUMS` of a tensor, float64."""
    x = tf.cast(values, tf.float64)
    finite = tf.math.is_finite(x)
    inside = tf.where(finite, x, tf.zeros_like(x))
    count = tf.reduce_sum(tf.cast(finite, tf.float64))
    size = tf.cast(tf.size(x), tf.float64)
    nonzero = tf.reduce_sum(tf.cast(tf.not_equal(x, 0.0), tf.float64))
    return tf.stack(
        [
            count,
            tf.reduce_sum(inside),
            tf.reduce_sum(inside * inside),
            tf.reduce_sum(tf.abs(inside)),
            size - count,
            nonzero,
        ]
    )
