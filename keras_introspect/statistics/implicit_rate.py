"""The learning rate that each element of a variable really had."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_introspect.sketch import BINS, read_out
from keras_introspect.statistics.base import Context, Piece, flat
from keras_introspect.statistics.quantiles import Quantiles, sample_positions, step_values_at
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
        return super().partials([self._rates(piece, context) for piece in pieces], context)

    def _rates(self, piece: Piece, context: Context) -> Piece:
        update, gradient = flat(piece.beside["update"]), flat(piece.beside["gradients"])
        if self.sample is not None and (update.shape[0] is None or update.shape[0] > self.sample):
            drawn = sample_positions(tf.size(update), self.sample, context)
            update, gradient = tf.gather(update, drawn), tf.gather(gradient, drawn)
        counts = tf.logical_and(tf.not_equal(gradient, 0), tf.cast(piece.beside["moved"], tf.bool))
        one, gap = tf.ones([], gradient.dtype), tf.constant(np.nan, gradient.dtype)
        rates = tf.where(counts, -tf.cast(update, gradient.dtype) / tf.where(counts, gradient, one), gap)
        return Piece(rates, piece.spec)

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        sketch, (low, high) = state[0, : BINS.size], state[0, BINS.size :].tolist()
        return {
            "implicit_learning_rate": read_out(sketch, low, high, _MEDIAN)["quantiles"][0],
            "implicit_learning_rate_quantiles": read_out(sketch, low, high, self.levels)["quantiles"],
        }

    @property
    def step_fields(self) -> int:
        return 1 + len(self.levels)

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        return tf.concat([step_values_at(_MEDIAN, state), step_values_at(self.levels, state)], axis=1)

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        return {"implicit_learning_rate": vectors[..., 0], "implicit_learning_rate_quantiles": vectors[..., 1:]}


_MEDIAN = np.array([50.0])
