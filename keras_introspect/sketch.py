"""The bins of the log-linear sketch: signed, and finer where values usually lie; and what it tells. NumPy only."""

import math
from typing import Any, NamedTuple

import numpy as np

# (first exponent, bins an octave as a power of two): 16 bins an octave from 2^-32 to 2^8, coarser towards the ends.
_REGIONS = ((-126, 1), (-64, 3), (-32, 4), (8, 3), (32, 1))
_KEY_BITS = 13  # the sign, 8 bits of exponent and 4 of mantissa of a float32: what the bins are told by
_MANTISSA_BITS = 4


class Bins(NamedTuple):
    """The layout of the sketch.

    Attributes:
        lower: float64, shape (B,): lower edges of the finite bins, ascending.
        upper: their upper edges; the zero bin is [0, 0].
        zero: index of the zero bin among the B finite ones.
        of_key: int32, shape (65536,): bin of a float32 by its upper half; B for −∞, B + 1 for +∞, B + 2 for NaN.
        size: B + 3.
    """

    lower: np.ndarray
    upper: np.ndarray
    zero: int
    of_key: np.ndarray
    size: int


def _layout() -> Bins:
    keys = np.arange(2 ** (_KEY_BITS - 1))
    exponent = (keys >> _MANTISSA_BITS) - 127
    mantissa = keys & (2**_MANTISSA_BITS - 1)
    octave_bits = np.zeros(len(keys), int)
    for first, bits in _REGIONS:
        octave_bits[exponent >= first] = bits
    normal = (exponent >= -126) & (exponent <= 127)
    # A bin holds the keys that share exponent and leading mantissa bits.
    leading = mantissa >> (_MANTISSA_BITS - octave_bits)
    start = normal & (mantissa == leading << (_MANTISSA_BITS - octave_bits))
    number = np.cumsum(start) - 1  # of the bin, from the smallest magnitude up
    magnitudes = int(start.sum())
    lower = np.ldexp(1.0 + leading / 2.0**octave_bits, exponent)[start]
    upper = np.append(lower[1:], np.finfo(np.float32).max)

    # Finite bins: negative from large to small, negative underflow, zero, positive underflow, positive.
    tiny = np.ldexp(1.0, -126)
    finite_lower = np.concatenate([-upper[::-1], [-tiny, 0.0, 0.0], lower])
    finite_upper = np.concatenate([-lower[::-1], [0.0, 0.0, tiny], upper])
    zero = magnitudes + 1
    count = len(finite_lower)

    positive = np.where(normal, zero + 2 + number, 0)
    negative = np.where(normal, zero - 2 - number, 0)
    below = exponent < -126
    positive[below], negative[below] = zero + 1, zero - 1
    positive[0] = negative[0] = zero  # smaller than 2^-130 counts as zero
    above = exponent > 127
    infinite = above & (mantissa == 0)
    positive[above], negative[above] = count + 2, count + 2
    positive[infinite], negative[infinite] = count + 1, count
    of_key = np.repeat(np.concatenate([positive, negative]), 2 ** (16 - _KEY_BITS)).astype(np.int32)
    return Bins(finite_lower, finite_upper, zero, of_key, count + 3)


BINS = _layout()
_FINITE = BINS.size - 3
CENTRES = np.log10(np.sqrt(np.maximum(BINS.lower, 2.0**-130) * np.maximum(BINS.upper, 2.0**-130)))[BINS.zero + 1 :]


def read_out(counts: np.ndarray, low: float, high: float, levels: np.ndarray) -> dict[str, Any]:
    """The series of `Quantiles` from a sketch.

    Args:
        counts: shape (BINS.size,): the weight in each bin.
        low: the minimum.
        high: the maximum.
        levels: shape (Q,), percent.
    """
    counts = np.asarray(counts, np.float64)[:_FINITE]
    zero = BINS.zero
    values = quantiles_between(counts, low, high, levels)
    magnitude = counts[zero:].copy()
    magnitude[1:] += counts[:zero][::-1]
    largest, smallest = max(abs(low), abs(high)), 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    magnitudes = quantiles(magnitude, BINS.lower[zero:], BINS.upper[zero:], levels, smallest, largest)
    if counts.any():
        magnitudes[levels == 100] = largest
    negative, positive = counts[:zero].sum(), counts[zero + 1 :].sum()
    return {
        "quantiles": values,
        "magnitude_quantiles": magnitudes,
        "sign_balance": (positive - negative) / (positive + negative) if positive + negative else math.nan,
        **_log_magnitude(magnitude[1:]),
    }


def quantiles_between(counts: np.ndarray, low: float, high: float, levels: np.ndarray) -> np.ndarray:
    """The quantiles alone, from a sketch of values between two extremes: see `read_out`."""
    counts = np.asarray(counts, np.float64)[:_FINITE]
    values = quantiles(counts, BINS.lower, BINS.upper, levels, low, high)
    if counts.any():
        values[levels == 0], values[levels == 100] = low, high
    return values


def _log_magnitude(counts: np.ndarray) -> dict[str, float]:
    filled = np.flatnonzero(counts)
    if not len(filled):
        return {"log_magnitude_mean": math.nan, "log_magnitude_std": math.nan}
    counts, centres = counts[filled], CENTRES[filled]
    total = counts.sum()
    mean = float(np.sum(counts * centres) / total)
    deviation = math.sqrt(float(np.sum(counts * (centres - mean) ** 2) / total))
    return {"log_magnitude_mean": mean, "log_magnitude_std": deviation}


def quantiles(
    counts: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    levels: np.ndarray,
    low: float = -math.inf,
    high: float = math.inf,
) -> np.ndarray:
    """Quantiles of binned values, interpolated inside the bin.

    Args:
        counts: shape (B,): how much fell into each bin, ascending.
        lower: shape (B,): lower edges.
        upper: shape (B,): upper edges.
        levels: shape (Q,), percent.
        low: no value is below it: edges beyond it hold nothing, and interpolation stays inside.
        high: none is above it.

    Returns:
        Shape (Q,); NaN of nothing.
    """
    filled = np.flatnonzero(counts)
    if not len(filled):
        return np.full(len(levels), np.nan)
    counts = counts[filled].astype(np.float64)
    lower, upper = np.clip(lower[filled], low, high), np.clip(upper[filled], low, high)
    above = np.cumsum(counts)
    rank = np.asarray(levels, np.float64) / 100.0 * above[-1]
    i = np.minimum(np.searchsorted(above, rank), len(above) - 1)
    inside = (rank - (above[i] - counts[i])) / counts[i]
    return lower[i] + np.clip(inside, 0.0, 1.0) * (upper[i] - lower[i])
