"""Count, mean, deviation, norms and extremes."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import (
    VECTOR,
    WIDE_VECTOR,
    Context,
    Piece,
    Statistic,
    branch,
    fields_of,
    once,
    zeros_of,
)
from keras_introspect.statistics.bundles import bundles, magnitudes_of, sizes, sums_of, unless_exact
from keras_introspect.statistics.spec import TensorSpec

# Where the deviation is less than a fifth of the mean, a float32 sum of squares has lost digits of it.
_CANCELLATION = 0.04
# Squares below this have lost digits, or vanished, in float32.
_UNDERFLOW = 1e-30


class Moments(Statistic):
    """Moments of all finite elements of all observed steps.

    `count` (finite elements), `mean`, `std` (population), `rms` = sqrt(Σx²/count), `l2_norm` = sqrt(Σx²), `mean_abs`,
    `min`, `max`, and `nonfinite`, the number of NaN and infinite elements, which enter nothing else;
    `first_nonfinite_step`, in epochs that had one, is the first optimizer step with it.

    State, one row: count, mean, M2 = Σ(x − mean)², Σ|x|, min, max, nonfinite, its first step. Merged by the pairwise
    update of Chan, Golub and LeVeque (1979), which is exact also where |mean| is 1e4 times the deviation.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("x", (4,), batched=False, channel_axis=0)
    >>> moments = Moments()
    >>> state = moments.partials([Piece(tf.constant([1.0, 2.0, 3.0, float("nan")]), spec)], Context()).numpy()
    >>> result = moments.result(state, spec)
    >>> float(result["mean"]), float(result["max"]), int(result["nonfinite"])
    (2.0, 3.0, 1)
    """

    name = "moments"
    series = (
        "count",
        "mean",
        "std",
        "rms",
        "l2_norm",
        "mean_abs",
        "min",
        "max",
        "nonfinite",
        "first_nonfinite_step",
    )
    version = 2
    initial: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0, 0.0, math.inf, -math.inf, 0.0, math.inf)

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        total, squares, low, high = tf.unstack(sums_of(pieces, context), axis=1)
        total_abs = magnitudes_of(pieces, context)
        size = sizes(pieces)

        constant = low == high
        mean = tf.where(constant, low, tf.math.divide_no_nan(total, size))
        m2 = tf.where(constant, tf.zeros_like(squares), squares - tf.math.divide_no_nan(total * total, size))
        nothing = size == 0.0
        never = tf.fill(tf.shape(size), tf.constant(math.inf, tf.float64))
        state = tf.stack([size, mean, m2, total_abs, low, high, tf.zeros_like(size), never], axis=-1)
        state = tf.where(nothing[:, None], tf.constant([self.initial], tf.float64), state)
        # One float32 pass is exact enough, unless something is not finite, squares left the range, or cancelled.
        finite = tf.math.is_finite(squares) & tf.math.is_finite(total) & tf.math.is_finite(total_abs)
        in_range = (squares > _UNDERFLOW * size) & (m2 > _CANCELLATION * squares)
        exact = nothing | (finite & (constant | in_range))

        step = tf.cast(context.step, tf.float64)
        found = bundles(pieces, context)
        state = unless_exact(tf.reduce_all(exact), state, _carefully, found, state, exact, step)
        zeros = zeros_of(pieces)
        if zeros is None:
            return state
        some, none = tf.zeros_like(zeros), tf.fill(tf.shape(zeros), tf.constant(math.inf, tf.float64))
        low, high = tf.where(zeros > 0, some, none), tf.where(zeros > 0, some, -none)
        return self.merge(state, tf.stack([zeros, some, some, some, low, high, some, never], axis=-1), tf)

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        a, b = fields_of(a, xp), fields_of(b, xp)
        fields = [
            *merge_moments(a, b, xp),
            a[3] + b[3],
            xp.minimum(a[4], b[4]),
            xp.maximum(a[5], b[5]),
            a[6] + b[6],
            xp.minimum(a[7], b[7]),
        ]
        return xp.stack(fields, axis=-1)

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        numbers = self._numbers(state[0])
        if np.isfinite(state[0, 7]):
            numbers["first_nonfinite_step"] = state[0, 7]
        return numbers

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        return self._numbers(vectors)

    def _numbers(self, state: np.ndarray) -> dict[str, Any]:
        """From states along the last axis; NaN where nothing was observed, or nothing finite."""
        count, mean, m2, total_abs, low, high, nonfinite, _ = np.moveaxis(np.asarray(state, np.float64), -1, 0)
        some = np.where(count > 0, count, np.nan)
        mean_square = m2 / some + mean * mean
        return {
            "count": np.where(count + nonfinite > 0, count, np.nan),
            "mean": np.where(count > 0, mean, np.nan),
            "std": np.sqrt(m2 / some),
            "rms": np.sqrt(mean_square),
            "l2_norm": np.sqrt(mean_square * some),
            "mean_abs": total_abs / some,
            "min": np.where(np.isfinite(low), low, np.nan),
            "max": np.where(np.isfinite(high), high, np.nan),
            "nonfinite": np.where(count + nonfinite > 0, nonfinite, np.nan),
        }

    @staticmethod
    def state_of_sums(sums: Any) -> Any:
        """The state (1, fields) from a float64 vector: count, Σx, Σx², Σ|x|, nonfinite; without minimum and maximum."""
        count, total, squares, total_abs, nonfinite = tf.unstack(tf.cast(sums, tf.float64), num=5)
        mean = tf.math.divide_no_nan(total, count)
        m2 = tf.maximum(squares - total * mean, 0.0)
        none = tf.constant(math.inf, tf.float64)
        return tf.stack([count, mean, m2, total_abs, none, -none, nonfinite, none])[None]


def _carefully(vectors: Sequence[Any], state: Any, exact: Any, step: Any) -> Any:
    """The states of some tensors, those that are not exact taken again."""
    rows, flags = (tf.unstack(tensor, num=len(vectors)) for tensor in (state, exact))
    right = tf.stack([_corrected(*row) for row in zip(flags, vectors, rows, strict=True)])
    first = tf.where(right[:, 6] > 0, step, tf.constant(math.inf, tf.float64))
    return tf.concat([right[:, :7], first[:, None]], axis=1)


def merge_moments(a: Sequence[Any], b: Sequence[Any], xp: Any) -> tuple[Any, Any, Any]:
    """Count, mean and M2 of a union, from fields of which these are the first: Chan, Golub and LeVeque (1979)."""
    count = a[0] + b[0]
    share = b[0] / xp.where(count > 0, count, xp.ones_like(count))
    delta = b[1] - a[1]
    return count, a[1] + delta * share, a[2] + b[2] + delta * delta * a[0] * share


def _careful_state(x: Any) -> Any:
    """The state of one tensor in two float64 passes over its finite elements: slow, and right for any values."""
    x = tf.cast(x, tf.float64)
    finite = tf.math.is_finite(x)
    inside = tf.where(finite, x, tf.zeros_like(x))
    count = tf.reduce_sum(tf.cast(finite, tf.float64))
    mean = tf.math.divide_no_nan(tf.reduce_sum(inside), count)
    deviation = tf.where(finite, x - mean, tf.zeros_like(x))
    return tf.stack(
        [
            count,
            mean,
            tf.reduce_sum(deviation * deviation),
            tf.reduce_sum(tf.abs(inside)),
            tf.reduce_min(tf.where(finite, x, tf.fill(tf.shape(x), tf.constant(math.inf, tf.float64)))),
            tf.reduce_max(tf.where(finite, x, tf.fill(tf.shape(x), tf.constant(-math.inf, tf.float64)))),
            tf.cast(tf.size(x), tf.float64) - count,
            tf.constant(math.inf, tf.float64),
        ]
    )


_ROW = tf.TensorSpec([8], tf.float64)
_keep, _keep_wide = (once(spec, _ROW)(lambda x, row: tf.identity(row)) for spec in (VECTOR, WIDE_VECTOR))
_redo, _redo_wide = (once(spec, _ROW)(lambda x, row: _careful_state(x)) for spec in (VECTOR, WIDE_VECTOR))


def _corrected(exact: Any, x: Any, row: Any) -> Any:
    """The row where it is exact, or the careful state."""
    keep, redo = (_keep_wide, _redo_wide) if x.dtype == tf.float64 else (_keep, _redo)
    return branch(exact, keep, redo, x, row)
