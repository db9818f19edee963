"""The learning rate that each element of a variable really had."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_introspect.sketch import BINS, quantiles_between
from keras_introspect.statistics.base import Context, Piece
from keras_introspect.statistics.bundles import bundles, in_order
from keras_introspect.statistics.quantiles import NOTHING, Quantiles, samples_of, step_values_at, with_extremes
from keras_introspect.statistics.spec import TensorSpec


class ImplicitRate(Quantiles):
    """The implicit learning rate, −update / gradient element by element, the finite ones: of `Updates` alone.

    `implicit_learning_rate` is its median, `implicit_learning_rate_quantiles` its quantiles at `levels`. With plain SGD
    all elements have the optimizer's learning rate; momentum, Adam, weight decay and clipping show as their difference
    from it. The gradient is the one that was applied: under gradient accumulation the mean over the round, and the
    steps in between do not count.

    Each step up to `sample` elements are drawn, and go into the sketch of `Quantiles`; levels 0 and 100 are exact for
    the elements drawn.

    Args:
        levels: percent, ascending, from 0 to 100.
        sample: how many elements of a variable are drawn a step; `None` takes all.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("kernel", (2,), batched=False, channel_axis=0)
    >>> update = tf.constant([0.05, -0.025])
    >>> beside = {"update": update, "gradients": tf.constant([-0.5, 0.25]), "moved": True}
    >>> piece = Piece(update, spec, beside=beside)
    >>> statistic = ImplicitRate()
    >>> result = statistic.result(statistic.partials([piece], Context()).numpy(), spec)
    >>> round(float(result["implicit_learning_rate"]), 4)
    0.1
    """

    name = "implicit_learning_rate"
    series = ("implicit_learning_rate", "implicit_learning_rate_quantiles")
    only_of = ("updates",)

    def takes(self, piece: Piece) -> bool:
        return "gradients" in piece.beside

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        moved = tf.stack([tf.cast(piece.beside["moved"], tf.bool) for piece in pieces])
        updates, gradients = zip(*(_alike(piece) for piece in pieces), strict=True)
        found = bundles(updates, context)
        samples = [samples_of(of, self.sample, context) for of in (found, bundles(gradients, context))]
        parts = []
        for update, gradient in zip(*samples, strict=True):
            members = [i for bundle in update.bundles for i in bundle.members]
            applied = moved if members == list(range(len(pieces))) else tf.gather(moved, members)
            counts = tf.not_equal(gradient.values, 0.0) & applied[:, None] & ~tf.math.is_nan(update.values)
            rates = tf.where(counts, -update.values / tf.where(counts, gradient.values, 1.0), NOTHING)
            low = tf.reduce_min(tf.where(tf.math.is_finite(rates), rates, math.inf), axis=1)
            high = tf.reduce_max(tf.where(tf.math.is_finite(rates), rates, -math.inf), axis=1)
            parts.append(with_extremes(self.count(rates, update.weights, context), tf.stack([low, high], axis=1)))
        return in_order(parts, [bundle for sample in samples[0] for bundle in sample.bundles])

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        sketch, (low, high) = state[0, : BINS.size], state[0, BINS.size :].tolist()
        return {
            "implicit_learning_rate": quantiles_between(sketch, low, high, _MEDIAN)[0],
            "implicit_learning_rate_quantiles": quantiles_between(sketch, low, high, self.levels),
        }

    @property
    def step_fields(self) -> int:
        return 1 + len(self.levels)

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        return tf.concat([step_values_at(_MEDIAN, state), step_values_at(self.levels, state)], axis=1)

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        return {"implicit_learning_rate": vectors[..., 0], "implicit_learning_rate_quantiles": vectors[..., 1:]}


_MEDIAN = np.array([50.0])


def _alike(piece: Piece) -> tuple[Piece, Piece]:
    """What was done to the elements, and their gradients, of the same shape and dtype: both are bundled alike."""
    update, gradient = (tf.cast(piece.beside[key], tf.float32) for key in ("update", "gradients"))
    shape = update.shape.merge_with(gradient.shape)
    return Piece(tf.ensure_shape(update, shape), piece.spec), Piece(tf.ensure_shape(gradient, shape), piece.spec)
