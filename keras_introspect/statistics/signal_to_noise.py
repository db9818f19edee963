"""How much of the gradient is signal, over the steps of an epoch."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic, fields_of, flat
from keras_introspect.statistics.moments import merge_moments
from keras_introspect.statistics.spec import TensorSpec


class SignalToNoise(Statistic):
    """Element by element, how steady the gradient is over the steps of an epoch: of `Gradients` and `Updates`.

    For each element, mean and population variance over the observed steps, by Welford's update; from them, averaged
    over the elements of the variable:

    - `gsnr` = mean² / variance, where the variance is not zero: the gradient signal-to-noise ratio of Liu et al. (2020,
      "Understanding why neural networks generalize well through GSNR of parameters"). Far below 1, steps are mostly
      noise.
    - `oscillation` = 1 − |Σg| / Σ|g|, where Σ|g| is not zero: 0 where all steps push one way, 1 where they cancel out.
    - `step_cosine`: the mean cosine between the gradients of successive observed steps; negative where the steps go
      back and forth.
    - `noise_scale` = S / |G|², S the summed variance of the elements, |G|² the squared norm of the true gradient: the
      simple gradient noise scale of McCandlish et al. (2018, "An empirical model of large-batch training"), as a
      multiple of the batch size used. A larger batch pays up to about so many times. NaN where the noise hides the
      signal. Where a step's gradient has parts, of n replicas or n accumulation steps, these tell (appendix A.1 there):
      S = (P − B) / (1 − 1/n) and |G|² = (n B − P) / (n − 1), with P the mean squared norm of a part and B that of the
      gradient they make up; the batch size meant is that of a part. Elsewhere, from the steps of the epoch, with the
      sample variance: Σ variance / (Σ mean² − Σ variance / steps); there the weights move, which counts as noise too.

    NaN with fewer than two steps. Non-finite elements of a step are left out. Sparse gradients (embeddings) are not
    observed, since they would have to be made dense. Single steps are not kept.

    State, float32: a row for the cosines, one for the squared norms of parts and one for those of wholes, see
    `_rounds`; then one an element: count, mean, M2, Σ|g|, the last value; 20 bytes an element,
    five times the memory of the variables observed.

    Example:

    >>> import numpy as np, tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("kernel", (2,), batched=False, channel_axis=0)
    >>> statistic, state = SignalToNoise(), None
    >>> for gradient in ([1.0, 1.0], [3.0, -1.0]):
    ...     new = statistic.partials([Piece(tf.constant(gradient), spec)], Context())
    ...     state = new if state is None else statistic.update(state, new, [spec])
    >>> result = statistic.result(state.numpy(), spec)
    >>> result["gsnr"], result["oscillation"], round(result["step_cosine"], 3)
    (2.0, 0.5, 0.447)
    """

    name = "signal_to_noise"
    series = ("gsnr", "oscillation", "step_cosine", "noise_scale")
    only_of = ("gradients", "updates")
    initial: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0, 0.0, 0.0)
    dtype = "float32"
    version = 2

    def takes(self, piece: Piece) -> bool:
        return piece.values is not None and piece.zeros is None and None not in piece.spec.shape

    def rows(self, spec: TensorSpec) -> int:
        return _HEADERS + math.prod(size or 0 for size in spec.shape)

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        parts = []
        for piece in pieces:
            values = tf.cast(flat(piece.values), tf.float32)
            finite = tf.math.is_finite(values)
            inside = tf.where(finite, values, tf.zeros_like(values))
            one = tf.cast(finite, tf.float32)
            parts += [
                _headers(piece),
                tf.stack([one, inside, tf.zeros_like(one), tf.abs(inside), inside], axis=-1),
            ]
        return tf.concat(parts, axis=0)

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        a, b = fields_of(a, xp), fields_of(b, xp)
        last = xp.where(b[0] > 0, b[4], a[4])
        return xp.stack([*merge_moments(a, b, xp), a[3] + b[3], last], axis=-1)

    def update(self, state: Any, new: Any, specs: Sequence[TensorSpec]) -> Any:
        rows = [self.rows(spec) for spec in specs]
        cosines = [
            _cosine(before[_HEADERS:], after[_HEADERS:])
            for before, after in zip(tf.split(state[:, 4], rows), tf.split(new[:, 4], rows), strict=True)
        ]
        cosine = tf.stack(cosines)
        zero = tf.zeros_like(cosine)
        known = tf.math.is_finite(cosine)
        value = tf.where(known, cosine, zero)
        header = tf.stack([tf.cast(known, tf.float32), value, zero, tf.abs(value), zero], axis=-1)
        starts = np.cumsum([0, *rows[:-1]])
        merged = self.merge(state, tf.tensor_scatter_nd_update(new, starts[:, None], header), tf)
        rounds = _rounds(*(tf.gather(of, starts + k) for of in (state, new) for k in (1, 2)))
        places = np.concatenate([starts + 1, starts + 2])
        return tf.tensor_scatter_nd_update(merged, places[:, None], tf.concat(rounds, axis=0))

    @property
    def step_fields(self) -> int:
        return 0

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        cosines, cosine = state[0, :2].astype(np.float64)
        count, mean, m2, total_abs, _ = state[_HEADERS:].astype(np.float64).T
        several = count >= 2
        numbers = dict.fromkeys(self.series, math.nan)
        if not several.any():
            return numbers
        count, mean, m2, total_abs = count[several], mean[several], m2[several], total_abs[several]
        noisy = m2 > 0
        if noisy.any():
            numbers["gsnr"] = float(np.mean(mean[noisy] ** 2 * count[noisy] / m2[noisy]))
        moving = total_abs > 0
        if moving.any():
            share = np.abs(mean[moving]) * count[moving] / total_abs[moving]
            numbers["oscillation"] = float(np.mean(1.0 - np.minimum(share, 1.0)))
        if cosines:
            numbers["step_cosine"] = float(cosine)
        variance = m2 / (count - 1)
        noise, signal = float(np.sum(variance)), float(np.sum(mean**2 - variance / count))
        wholes, whole, _, _, parts = state[2].astype(np.float64)
        if wholes:
            part = float(state[1, 1])
            noise, signal = max(0.0, part - whole) / (1 - 1 / parts), (parts * whole - part) / (parts - 1)
        if signal > 0:
            numbers["noise_scale"] = noise / signal
        return numbers


_HEADERS = 3


def _headers(piece: Piece) -> Any:
    """The rows of one step before the elements': of the cosine nothing yet, then of the parts and of the whole.

    `piece.beside`, where the gradient has parts: `parts`, how many make up a whole; `squares`, the squared norms of
    those of this step, summed, and `number`, how many these are; `whole`, what they make up; `complete`, whether with
    this step they do.
    """
    if "parts" not in piece.beside:
        return tf.zeros((_HEADERS, 5))
    zero, beside = tf.zeros([]), piece.beside
    complete = tf.cast(beside["complete"], tf.float32)
    squares = tf.cast(beside["squares"], tf.float32)
    whole = 2.0 * tf.nn.l2_loss(tf.cast(beside["whole"], tf.float32))
    parts, number = (tf.constant(float(beside[key])) for key in ("parts", "number"))
    return tf.stack(
        [tf.zeros(5), tf.stack([zero, zero, zero, squares, number]), tf.stack([complete, whole, zero, zero, parts])]
    )


def _rounds(part: Any, whole: Any, new_part: Any, new_whole: Any) -> tuple[Any, Any]:
    """The rows of the parts and of the whole, one a tensor, after one step more.

    Of the parts: how many rounds there were, the mean squared norm of a part, nothing, and of the round that is not
    complete, the sum so far and how many parts. Of the whole: rounds, mean squared norm, nothing, nothing, parts a
    round. A round of which not all was seen, or not all is finite, does not count.
    """
    squares, number = part[:, 3] + new_part[:, 3], part[:, 4] + new_part[:, 4]
    complete, parts = new_whole[:, 0] > 0, new_whole[:, 4]
    finite = tf.math.is_finite(squares) & tf.math.is_finite(new_whole[:, 1])
    counts = complete & finite & tf.equal(number, parts)
    rounds = part[:, 0] + tf.cast(counts, tf.float32)
    share = tf.math.divide_no_nan(tf.cast(counts, tf.float32), rounds)
    zero = tf.zeros_like(rounds)

    def mean(before: Any, now: Any) -> Any:
        return before + share * tf.where(counts, now - before, zero)

    pending = (tf.where(complete, zero, value) for value in (squares, number))
    of_parts = [rounds, mean(part[:, 1], tf.math.divide_no_nan(squares, parts)), zero, *pending]
    of_whole = [rounds, mean(whole[:, 1], new_whole[:, 1]), zero, zero, tf.where(parts > 0, parts, whole[:, 4])]
    return tf.stack(of_parts, axis=1), tf.stack(of_whole, axis=1)


def _cosine(a: Any, b: Any) -> Any:
    """NaN where one of them is zero, as before the first step."""
    norms = tf.norm(a) * tf.norm(b)
    return tf.where(norms > 0, tf.tensordot(a, b, 1) / norms, math.nan)
