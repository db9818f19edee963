"""The distribution of the values: quantiles, sign, orders of magnitude."""

import functools
import math
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from keras_introspect.sketch import BINS, CENTRES, read_out
from keras_introspect.statistics.base import (
    VECTOR,
    WIDE_VECTOR,
    Context,
    Piece,
    Statistic,
    flat,
    once,
    zeros_of,
)
from keras_introspect.statistics.bundles import Bundle, bundles, in_order, sizes, sums_of, unless_exact
from keras_introspect.statistics.spec import TensorSpec

DEFAULT_LEVELS = (0.0, 12.5, 25.0, 37.5, 50.0, 62.5, 75.0, 87.5, 100.0)
_FINITE = BINS.size - 3


def checked_levels(levels: Sequence[float] | np.ndarray) -> np.ndarray:
    """Percentages as an array, shape (Q,).

    Raises:
        ValueError: they are not ascending percentages from 0 to 100.
    """
    chosen = np.asarray(levels, np.float64)
    ascending = chosen.ndim == 1 and len(chosen) and np.all(np.diff(chosen) > 0)
    if not ascending or not 0 <= chosen[0] <= chosen[-1] <= 100:
        raise ValueError(
            f"levels={levels!r}; expected ascending percentages from 0 to 100, such as (0, 25, 50, 75, 100)."
        )
    return chosen


class Quantiles(Statistic):
    """Quantiles of values and magnitudes, from a mergeable sketch of a sample.

    `quantiles` and `magnitude_quantiles` (of |x|) at `levels`; `sign_balance` = (positive − negative) / (positive +
    negative elements), from −1 to 1, zeros left out; `log_magnitude_mean` and `log_magnitude_std` of log10|x| over the
    non-zero elements. Over the finite elements of the observed steps.

    Each step, up to `sample` elements of a tensor are drawn, one anywhere in each of as many equal parts, without
    touching any random state of Keras or TensorFlow, and counted, weighted by what they stand for, in bins a sixteenth
    of an octave wide between 2^-32 and 2^8, an eighth from 2^-64 to 2^32, and half an octave beyond. So a quantile is
    off by no more than a bin in value, 1/16 of it in the inner range, and by about 50 / √(elements drawn in the epoch)
    percent in rank. Levels 0 and 100 are exact: they are the minimum and maximum of all elements. A tensor of no more
    elements than `sample` is counted whole. Float64 values beyond the range of float32 count as infinite.

    State, one row of float32: the weight in each bin, then minimum and maximum. Merged by adding, and by the extremes.
    Binned like the DDSketch of Masson, Rim and Lee (2019), linearly within an octave.

    Args:
        levels: percent, ascending, from 0 to 100.
        sample: how many elements of a tensor are drawn a step; `None` takes all.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("x", (5,), batched=False, channel_axis=0)
    >>> statistic = Quantiles(levels=[0, 50, 100])
    >>> state = statistic.partials([Piece(tf.constant([-2.0, 0.0, 0.5, 3.0, 8.0]), spec)], Context()).numpy()
    >>> result = statistic.result(state, spec)
    >>> [round(float(q), 2) for q in result["quantiles"]], float(result["sign_balance"])
    ([-2.0, 0.52, 8.0], 0.5)
    """

    name = "quantiles"
    series: ClassVar[tuple[str, ...]] = (
        "quantiles",
        "magnitude_quantiles",
        "sign_balance",
        "log_magnitude_mean",
        "log_magnitude_std",
    )
    initial: ClassVar[tuple[float, ...]] = (*[0.0] * BINS.size, math.inf, -math.inf)
    dtype = "float32"

    def __init__(self, levels: Sequence[float] | np.ndarray = DEFAULT_LEVELS, sample: int | None = 4096) -> None:
        if sample is not None and (not isinstance(sample, int) or sample < 1):
            raise ValueError(f"sample={sample!r}; expected a positive number of elements, or None for all of them.")
        self.levels = checked_levels(levels)
        self.sample = sample

    @property
    def quantile_levels(self) -> np.ndarray:
        return self.levels

    # --- on the device ---

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        state = self._counts(pieces, context)
        zeros = zeros_of(pieces)
        if zeros is not None:
            state += tf.cast(zeros, tf.float32)[:, None] * tf.one_hot(BINS.zero, self.fields)[None]
        return with_extremes(state, _extremes(pieces, zeros, context))

    def _counts(self, pieces: Sequence[Piece], context: Context) -> Any:
        """The weight in each bin, and two columns more: (P, fields)."""
        found = bundles(pieces, context)
        samples = samples_of(found, self.sample, context)
        counts = [self.count(sample.values, sample.weights, context) for sample in samples]
        return in_order(counts, [bundle for sample in samples for bundle in sample.bundles])

    def count(self, values: Any, weights: Any, context: Context) -> Any:
        """The weight in each bin, and two columns more, of the values (R, N) with weights (R,): (R, fields)."""
        counts = _count(values, context.xla, exact=self.sample is not None)  # float32 counts no further than 2^24
        return counts if weights is None else counts * weights[:, None]

    def update(self, state: Any, new: Any, specs: Sequence[TensorSpec]) -> Any:
        low, high = _LOW, _LOW + 1  # the same as merging, in fewer passes
        ends = [tf.minimum(state[:, low], new[:, low]), tf.maximum(state[:, high], new[:, high])]
        return with_extremes(state + new, tf.stack(ends, axis=1))

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        column = np.arange(self.fields)
        extreme = xp.where(column == _LOW, xp.minimum(a, b), xp.maximum(a, b))
        return xp.where(column >= _LOW, extreme, a + b)

    # --- single steps: the same read-out, on the device ---

    @property
    def step_fields(self) -> int:
        return 2 * len(self.levels) + 3

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        counts, low, high = state[:, :_FINITE], state[:, _LOW : _LOW + 1], state[:, _LOW + 1 : _LOW + 2]
        zero = BINS.zero
        mirrored = tf.reverse(counts[:, :zero], axis=[1])
        magnitude = counts[:, zero:] + tf.pad(mirrored, [[0, 0], [1, 0]])
        largest = tf.maximum(tf.abs(low), tf.abs(high))
        smallest = tf.where((low <= 0) & (high >= 0), tf.zeros_like(low), tf.minimum(tf.abs(low), tf.abs(high)))
        values = step_values_at(self.levels, state)
        upper = BINS.upper[zero:]
        magnitudes = _quantiles(self.levels, magnitude, BINS.lower[zero:], upper, smallest, largest, None)
        negative = tf.reduce_sum(counts[:, :zero], axis=1)
        positive = tf.reduce_sum(counts[:, zero + 1 :], axis=1)
        nonzero = magnitude[:, 1:]
        centres = tf.constant(CENTRES, tf.float32)
        total = tf.reduce_sum(nonzero, axis=1)
        mean = tf.linalg.matvec(nonzero, centres) / total
        deviation = tf.reduce_sum(nonzero * (centres[None] - mean[:, None]) ** 2, axis=1) / total
        numbers = tf.stack([(positive - negative) / total, mean, tf.sqrt(deviation)], axis=1)
        return tf.concat([values, magnitudes, numbers], axis=1)

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        number = len(self.levels)
        return {
            "quantiles": vectors[..., :number],
            "magnitude_quantiles": vectors[..., number : 2 * number],
            "sign_balance": vectors[..., -3],
            "log_magnitude_mean": vectors[..., -2],
            "log_magnitude_std": vectors[..., -1],
        }

    # --- read-out ---

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        row = state[0]
        return read_out(row[: BINS.size], float(row[_LOW]), float(row[_LOW + 1]), self.levels)

    def kept(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        return {"sketch": state[0, : BINS.size], "extremes": state[0, BINS.size :]}

    def get_config(self) -> dict[str, Any]:
        return {"levels": self.levels.tolist(), "sample": self.sample}


_LOW = BINS.size  # column of the minimum; the maximum follows


def step_values_at(levels: np.ndarray, state: Any) -> Any:
    """Quantiles of the values from the states (L, fields) of one step, on the device: (L, Q)."""
    low, high = state[:, _LOW : _LOW + 1], state[:, _LOW + 1 : _LOW + 2]
    return _quantiles(levels, state[:, :_FINITE], BINS.lower, BINS.upper, low, high, low)


def _quantiles(levels: np.ndarray, counts: Any, lower: Any, upper: Any, low: Any, high: Any, lowest: Any) -> Any:
    """`sketch.quantiles` on the device, of many sketches: counts (L, B), low and high (L, 1) → (L, Q)."""
    above = tf.cumsum(counts, axis=1)
    total = above[:, -1:]
    rank = tf.maximum(tf.constant(levels / 100.0, tf.float32)[None] * total, 1e-30)  # never an empty bin
    i = tf.minimum(tf.searchsorted(above, rank), counts.shape[1] - 1)
    inside = tf.gather(counts, i, batch_dims=1)
    part = tf.math.divide_no_nan(rank - (tf.gather(above, i, batch_dims=1) - inside), inside)
    left = tf.clip_by_value(tf.gather(tf.constant(lower, tf.float32), i), low, high)
    right = tf.clip_by_value(tf.gather(tf.constant(upper, tf.float32), i), low, high)
    values = left + tf.clip_by_value(part, 0.0, 1.0) * (right - left)
    if lowest is not None:
        values = tf.where(levels == 0.0, lowest, values)
    values = tf.where(levels == 100.0, high, values)
    return tf.where(total > 0, values, math.nan)


NOTHING = np.uint32(0xFFFFFFFF).view(np.float32)  # fills up samples: a NaN that no computation yields
_OF_KEY = np.append(BINS.of_key[:-1], np.int32(BINS.size))  # it falls in a bin that there is not


def _bins_of(x: Any) -> Any:
    """The bins of float32 values, by their upper halves: shifting 32 bits takes several times as long."""
    keys = tf.bitcast(x, tf.uint16)[..., _UPPER]
    return tf.gather(tf.constant(_OF_KEY), tf.cast(keys, tf.int32))


_UPPER = 1 if sys.byteorder == "little" else 0


@once(VECTOR, WIDE_VECTOR)
def _sample_of(x: Any, uniform: Any) -> Any:
    """A sample of a vector, or all of a short one, filled up with nothing; and for how many elements each stands."""
    size, most = tf.size(x), tf.size(uniform)
    number = tf.minimum(size, most)
    positions = tf.where(size > most, _scaled(uniform, size), tf.range(most))[:number]
    rest = tf.fill(tf.shape(uniform), NOTHING)[number:]
    weight = tf.math.divide_no_nan(tf.cast(size, tf.float64), tf.cast(number, tf.float64))
    return tf.concat([tf.gather(x, positions), rest], axis=0), tf.cast(weight, tf.float32)


class Sample(NamedTuple):
    """Elements of some tensors, a row each.

    Attributes:
        bundles: of the tensors.
        values: float32, (R, N); rows of fewer elements are filled up with a NaN that lies in no bin.
        weights: float32, (R,), for how many elements each of a row stands; `None`: for itself.
    """

    bundles: Sequence[Bundle]
    values: Any
    weights: Any


def samples_of(found: Sequence[Bundle], number: int | None, context: Context) -> list[Sample]:
    """Up to `number` elements of each tensor, `None` for all: at places that depend on shapes and the step alone."""

    def is_whole(bundle: Bundle) -> bool:
        size = bundle.shape.num_elements()
        return number is None or (size is not None and size <= number)

    samples = [sample for bundle in found if is_whole(bundle) for sample in _all_elements(bundle, context)]
    rest = [bundle for bundle in found if not is_whole(bundle)]
    if number is None or not rest:
        return samples
    uniform = _uniform(number, context)
    samples += [_sample_of_rows(bundle, uniform) for bundle in rest if bundle.owners is not None]
    others = [bundle for bundle in rest if bundle.owners is None]
    if others:
        parts = [_sample(bundle, uniform, context) for bundle in others]
        drawn, weights = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        drawn = tf.ensure_shape(drawn, [sum(len(bundle.members) for bundle in others), number])
        samples.append(Sample(others, drawn, weights))
    return samples


def _sample(bundle: Bundle, uniform: Any, context: Context) -> tuple[Any, Any]:
    """As many elements of each member as `uniform` has, (members, sample), and for how many each stands, (members,)."""
    members, size = len(bundle.members), bundle.shape.num_elements()
    if size is None:
        row, weight = _sample_of(tf.cast(flat(bundle.values, context), tf.float32), uniform)
        return row[None], weight[None]
    positions = context.shared(f"positions in {size}", uniform, lambda u: _scaled(u, size))
    if members == 1:
        drawn = tf.gather(flat(bundle.values, context), positions)[None]
    else:
        drawn = tf.gather(tf.reshape(bundle.values, [members, -1]), positions, axis=1)
    return tf.cast(drawn, tf.float32), np.full(members, size / uniform.shape[0], np.float32)


def _sample_of_rows(bundle: Bundle, uniform: Any) -> Sample:
    """The same of each member of a bundle of rows, at once; no wider than the largest of them needs."""
    most = uniform.shape[0]
    lengths = bundle.lengths * bundle.elements.shape[1]
    width = tf.minimum(most, tf.reduce_max(lengths))
    size = lengths[:, None]
    scaled = tf.cast(uniform[None, :width] * tf.cast(size, tf.float64), tf.int32)
    index = tf.where(size > most, scaled, tf.range(width)[None])
    inside = index < size
    index = tf.where(inside, index + tf.cumsum(size, exclusive=True), 0)
    drawn = tf.ensure_shape(tf.gather(tf.reshape(bundle.values, [-1]), index), [len(bundle.members), None])
    number = tf.cast(tf.minimum(lengths, most), tf.float64)
    weights = tf.math.divide_no_nan(tf.cast(lengths, tf.float64), number)
    drawn = tf.where(inside, tf.cast(drawn, tf.float32), NOTHING)
    return Sample([bundle], drawn, tf.cast(weights, tf.float32))


def _all_elements(bundle: Bundle, context: Context) -> list[Sample]:
    """All elements; of tensors that vary in size, one by one."""
    members = len(bundle.members)
    if bundle.owners is None:
        x = bundle.values if members > 1 else flat(bundle.values, context)
        return [Sample([bundle], tf.reshape(tf.cast(x, tf.float32), [members, -1]), None)]
    vectors = tf.split(bundle.elements, bundle.lengths, num=members)
    parts = [bundle._replace(members=(i,)) for i in bundle.members]
    return [Sample([p], tf.reshape(tf.cast(x, tf.float32), [1, -1]), None) for p, x in zip(parts, vectors, strict=True)]


def _count(values: Any, xla: bool, exact: bool = True) -> Any:
    """How many values of each row lie in each bin: float32, (rows, fields); the last two columns are of no use.

    XLA does not know the operation, which is the faster one.
    """
    bins = _bins_of(values)
    dtype = tf.float32 if exact else tf.int32
    rows, width = bins.shape[0], BINS.size + 2
    if not xla:
        counts = tf.raw_ops.DenseBincount(input=bins, size=width, weights=tf.constant([], dtype), binary_output=False)
    else:
        places = tf.reshape(bins + width * np.arange(rows, dtype=np.int32)[:, None], [-1])
        counts = tf.math.unsorted_segment_sum(tf.ones_like(places, dtype), places, rows * width)
        counts = tf.reshape(counts, [rows, width])
    return tf.cast(counts, tf.float32)


def with_extremes(state: Any, extremes: Any) -> Any:
    """The states with other minima and maxima: in place, where nobody else uses them."""
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=state, begin=[0, _LOW], end=[0, 0], strides=[1, 1], value=extremes, begin_mask=1, end_mask=3
    )


@once(VECTOR)
def _finite_ends(x: Any) -> Any:
    finite = tf.math.is_finite(x)
    low, high = tf.fill(tf.shape(x), math.inf), tf.fill(tf.shape(x), -math.inf)
    return tf.stack([tf.reduce_min(tf.where(finite, x, low)), tf.reduce_max(tf.where(finite, x, high))])


def _extremes(pieces: Sequence[Piece], zeros: Any, context: Context) -> Any:
    """Minimum and maximum of all finite elements: float32, shape (P, 2)."""
    sums = sums_of(pieces, context)
    nothing = sizes(pieces)[:, None] == 0.0
    none = tf.constant([[math.inf, -math.inf]], tf.float32)
    ends = tf.where(nothing, none, tf.cast(sums[:, 2:], tf.float32))
    finite = tf.reduce_all(nothing | tf.math.is_finite(sums))
    ends = unless_exact(finite, ends, _all_finite_ends, bundles(pieces, context))
    if zeros is None:
        return ends
    low, high = ends[:, 0], ends[:, 1]
    some = zeros > 0
    return tf.stack([tf.where(some, tf.minimum(low, 0.0), low), tf.where(some, tf.maximum(high, 0.0), high)], axis=1)


def _all_finite_ends(vectors: Sequence[Any]) -> Any:
    return tf.stack([_finite_ends(tf.cast(x, tf.float32)) for x in vectors])


def _scaled(uniform: Any, size: Any) -> Any:
    return tf.cast(uniform * tf.cast(size, tf.float64), tf.int32)


def _uniform(number: int, context: Context) -> Any:
    return context.shared(f"uniform {number}", context.step, functools.partial(_hashed, number))


def _hashed(number: int, step: Any) -> Any:
    """Numbers that depend on the step alone, one anywhere in each of `number` equal parts of [0, 1), ascending.

    They look random, and no generator's state is touched: a counter hashed by the 32-bit mixer of Wellons (2018,
    "hash-prospector", lowbias32), in int64: the same in eager mode, in graphs and under XLA, where TensorFlow's own
    stateless generators differ.
    """
    mask = tf.constant(0xFFFFFFFF, tf.int64)
    h = tf.bitwise.bitwise_and(tf.range(number, dtype=tf.int64) + tf.cast(step, tf.int64) * number, mask)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        h = tf.bitwise.bitwise_xor(h, tf.bitwise.right_shift(h, tf.constant(shift, tf.int64)))
        h = tf.bitwise.bitwise_and(h * factor, mask)
    return (tf.cast(h, tf.float64) / 2.0**32 + np.arange(number)) / number
