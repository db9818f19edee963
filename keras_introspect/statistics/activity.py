"""Which units work, which are dead."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic, branch, once, zeros_of
from keras_introspect.statistics.bundles import (
    MANY_COLUMNS,
    Bundle,
    bundles,
    columns_of,
    in_order,
    leading_ones,
    sizes,
    without_ones,
)
from keras_introspect.statistics.spec import TensorSpec


class Activity(Statistic):
    """Zero and non-zero elements, by channel and by position.

    `activation_rate`: the fraction of non-zero elements. `dead_rate`: the fraction of channels that were zero in every
    element of every observed step of the epoch. `spatial_dead_rate`: the same over positions, the axes between batch
    and channels; NaN where there are none. A NaN element counts as non-zero: what yields NaN is not dead.

    State, one field: the number of elements, then the non-zero elements of each channel, then of each position. It is
    merged by adding. Where the number of channels or positions varies from step to step, their rate is NaN.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("x", (None, 3), batched=True, channel_axis=1)
    >>> activity = Activity()
    >>> state = activity.partials([Piece(tf.constant([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0]]), spec)], Context()).numpy()
    >>> {key: round(float(value), 3) for key, value in activity.result(state, spec).items()}
    {'activation_rate': 0.333, 'dead_rate': 0.333, 'spatial_dead_rate': nan}
    """

    name = "activity"
    series = ("activation_rate", "dead_rate", "spatial_dead_rate")
    initial: ClassVar[tuple[float, ...]] = (0.0,)

    def rows(self, spec: TensorSpec) -> int:
        return 1 + _channels(spec) + (spec.positions or 0)

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        size = sizes(pieces)
        zeros = zeros_of(pieces)
        if zeros is not None:
            size += zeros
        found = bundles(pieces, context)
        parts = []
        for bundle in found:
            counts = _nonzero(bundle, context)
            of_members = size if len(found) == 1 else tf.gather(size, np.array(bundle.members))
            parts.append(tf.reshape(tf.concat([of_members[:, None], *counts], axis=1), [-1]))
        return in_order(parts, found, [self.rows(piece.spec) for piece in pieces])[:, None]

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return a + b

    def restated(self, state: np.ndarray, spec: TensorSpec, wider: TensorSpec) -> np.ndarray | None:
        size, channels, positions = np.split(state, [1, 1 + _channels(spec)])
        if _channels(wider) != _channels(spec):
            channels = channels.sum(axis=0, keepdims=True)
        return np.concatenate([size, channels, positions if wider.positions == spec.positions else positions[:0]])

    @property
    def step_fields(self) -> int:
        return 4

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        rows = [self.rows(spec) for spec in specs]
        starts = np.cumsum([0, *rows[:-1]])
        channels = np.array([_channels(spec) for spec in specs])
        positions = np.array([spec.positions or 0 for spec in specs])
        counts = state[:, 0]
        first = np.full(sum(rows), len(specs), np.int32)  # the last segment takes the rows of no concern
        second = first.copy()
        for i, start in enumerate(starts):
            first[start + 1 : start + 1 + channels[i]] = i
            second[start + 1 + channels[i] : start + rows[i]] = i
        dead = tf.cast(tf.equal(counts, 0.0), tf.float64)
        known = np.array([spec.channels is not None for spec in specs])
        return tf.stack(
            [
                tf.gather(counts, starts),
                tf.math.unsorted_segment_sum(counts, first, len(specs) + 1)[:-1],
                tf.math.unsorted_segment_sum(dead, first, len(specs) + 1)[:-1] * _share(channels * known),
                tf.math.unsorted_segment_sum(dead, second, len(specs) + 1)[:-1] * _share(positions),
            ],
            axis=-1,
        )

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        size, nonzero, dead, spatial = np.moveaxis(vectors, -1, 0)
        some = np.where(size > 0, size, np.nan)
        gap = np.where(size > 0, 0.0, np.nan)
        return {"activation_rate": nonzero / some, "dead_rate": dead + gap, "spatial_dead_rate": spatial + gap}

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        counts = state[:, 0]
        if counts[0] == 0:
            return dict.fromkeys(self.series, math.nan)
        channels = counts[1 : 1 + _channels(spec)]
        positions = counts[1 + _channels(spec) :]
        return {
            "activation_rate": channels.sum() / counts[0],
            "dead_rate": np.mean(channels == 0) if spec.channels is not None else math.nan,
            "spatial_dead_rate": np.mean(positions == 0) if len(positions) else math.nan,
        }

    def kept(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        size, channels, positions = np.split(state[:, 0], [1, 1 + _channels(spec)])
        units = channels if spec.channels is not None else channels[:0]
        return {"elements": size, "zero_channels": units == 0, "zero_positions": positions == 0}


def _channels(spec: TensorSpec) -> int:
    """Rows for channels: one for them all where their number varies."""
    return 1 if spec.channels is None else spec.channels


def _share(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers > 0, 1.0 / np.maximum(numbers, 1), np.nan)


def _nonzero(bundle: Bundle, context: Context) -> list[Any]:
    """Non-zero elements of each channel and position: float64, (members, channels) and (members, positions)."""
    spec = bundle.spec
    rank, members = len(spec.shape), len(bundle.members)
    nonzero = tf.cast(bundle.elements, tf.bool)  # NaN is not zero
    if spec.channel_axis is None:
        if members == 1:
            nonzero = tf.reshape(nonzero, [1, -1, 1])
        counts = tf.cast(bundle.sums(tf.cast(nonzero, tf.float32)), tf.float64)
        return [tf.reduce_sum(counts, axis=1, keepdims=True)]
    # A float32 sum over one axis is exact up to 2^24 elements; the rest, a small tensor, is summed in float64.
    axis, shape = spec.channel_axis, bundle.shape
    ones = leading_ones(shape) if members == 1 and not spec.positions else 0
    if 0 < ones < axis:
        nonzero, axis, shape, rank = without_ones(nonzero, ones), axis - ones, shape[ones:], rank - ones
    columns = columns_of(nonzero)
    if members > 1:
        counts = tf.cast(bundle.sums(tf.cast(nonzero, tf.float32)), tf.float64)
    elif rank == 1:
        counts = tf.cast(nonzero, tf.float64)[None]
    elif columns is None or columns % 8 or columns < MANY_COLUMNS or context.xla:
        counts = tf.cast(tf.reduce_sum(tf.cast(nonzero, tf.float32), axis=0), tf.float64)[None]
    else:
        counts = _by_column(tf.reshape(nonzero, [-1, columns]))
    if rank == 1:
        return [_all_in_one(counts, spec)]
    if shape[1:].is_fully_defined():
        counts = tf.reshape(counts, [members, *shape[1:]])
    channels = tf.reduce_sum(counts, axis=[i for i in range(1, rank) if i != axis])
    found = [_all_in_one(channels, spec)]
    if spec.positions:
        found.append(tf.reshape(tf.reduce_sum(counts, axis=axis), [members, -1]))
    return found


_FLAGS = tf.TensorSpec([None, None], tf.bool)


@once(_FLAGS)
def _counted(flags: Any) -> Any:
    return tf.cast(tf.reduce_sum(tf.cast(flags, tf.float32), axis=0), tf.float64)


@once(_FLAGS)
def _packed(flags: Any) -> Any:
    """The same for up to 255 rows, of whole bytes, eight of them in one integer: no byte runs over into the next."""
    rows = tf.shape(flags)[0]
    words = tf.bitcast(tf.reshape(tf.cast(flags, tf.uint8), [rows, -1, 8]), tf.int64)
    return tf.cast(tf.reshape(tf.bitcast(tf.reduce_sum(words, axis=0), tf.uint8), [-1]), tf.float64)


@once(_FLAGS)
def _by_column(flags: Any) -> Any:
    """How many are true in each column, of which there are a multiple of eight: float64."""
    return branch(tf.shape(flags)[0] < 256, _packed, _counted, flags)


def _all_in_one(channels: Any, spec: TensorSpec) -> Any:
    return tf.reduce_sum(channels, axis=1, keepdims=True) if spec.channels is None else channels
