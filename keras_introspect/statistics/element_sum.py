"""The sum of a tensor over the steps, element by element."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic, flat
from keras_introspect.statistics.spec import TensorSpec


class ElementSum(Statistic):
    """Σ over the steps of the finite values of each element: what `Gradients(epoch_sum=True)` describes.

    State, float64: a row an element, its sum. Sparse gradients have none: they would have to be made dense.
    """

    name = "element_sum"
    series = ()
    initial: ClassVar[tuple[float, ...]] = (0.0, 0.0)

    def takes(self, piece: Piece) -> bool:
        return piece.values is not None and piece.zeros is None and None not in piece.spec.shape

    def rows(self, spec: TensorSpec) -> int:
        return math.prod(size or 0 for size in spec.shape)

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        values = tf.concat([tf.cast(flat(piece.values), tf.float64) for piece in pieces], axis=0)
        finite = tf.math.is_finite(values)
        inside = tf.where(finite, values, tf.zeros_like(values))
        return tf.stack([tf.cast(finite, tf.float64), inside], axis=-1)

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return a + b

    @property
    def step_fields(self) -> int:
        return 0
