"""How far a step moves a variable, against its size."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic
from keras_introspect.statistics.bundles import squares_of
from keras_introspect.statistics.spec import TensorSpec


class UpdateRatio(Statistic):
    """The size of the updates against that of the variable: of `Updates` alone.

    `update_ratio` = rms(update) / rms(variable before the step) = sqrt(Σ u² / Σ w²), the sums over all elements and all
    steps of the epoch in which the optimizer moved the variable: under gradient accumulation, the last of each round.
    About 1e-3 is customary. NaN of a variable that is zero, such as a fresh bias, and of steps that are not finite.

    State, one row: Σ u², Σ w². Merged by adding.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("kernel", (2,), batched=False, channel_axis=0)
    >>> piece = Piece(tf.constant([0.03, 0.04]), spec, beside={"weights": tf.constant([3.0, 4.0]), "moved": True})
    >>> statistic = UpdateRatio()
    >>> result = statistic.result(statistic.partials([piece], Context()).numpy(), spec)
    >>> round(float(result["update_ratio"]), 4)
    0.01
    """

    name = "update_ratio"
    series = ("update_ratio",)
    only_of = ("updates",)
    initial: ClassVar[tuple[float, ...]] = (0.0, 0.0)

    def takes(self, piece: Piece) -> bool:
        return "weights" in piece.beside

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        moved = tf.stack([tf.cast(piece.beside["moved"], tf.float64) for piece in pieces])
        weights = [piece._replace(values=piece.beside["weights"], zeros=None) for piece in pieces]
        squares = tf.stack([squares_of(pieces, context), squares_of(weights, context)], axis=1)
        finite = tf.reduce_all(tf.math.is_finite(squares), axis=1, keepdims=True)
        return tf.where(finite, squares * moved[:, None], tf.zeros_like(squares))

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return a + b

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        return self.step_result(state[0])

    def kept(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        return {"squares": state[0]}

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        updates, weights = np.moveaxis(np.asarray(vectors, np.float64), -1, 0)
        return {"update_ratio": np.sqrt(updates / np.where(weights > 0, weights, np.nan))}
