"""Which units work, which are dead."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic
from keras_introspect.statistics.spec import TensorSpec


class Activity(Statistic):
    """Zero and non-zero elements, by channel and by position.

    `activation_rate`: the fraction of non-zero elements. `dead_rate`: the fraction of channels that were zero in every
    element of every observed step of the epoch. `spatial_dead_rate`: the same over positions, the axes between batch
    and channels; NaN where there are none. A NaN element counts as non-zero: what yields NaN is not dead.

    State, one field: the number of elements and of non-zero elements, then the non-zero elements of each channel, then
    of each position. It is merged by adding. Channels or positions whose number varies from step to step are left out.

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
        return 2 + (spec.channels or 0) + (spec.positions or 0)

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        return tf.concat([self._counts(piece) for piece in pieces], axis=0)[:, None]

    def _counts(self, piece: Piece) -> Any:
        values, spec = piece.values, piece.spec
        size = tf.cast(tf.size(values, tf.int64), tf.float64)
        if piece.zeros is not None:
            size += tf.cast(piece.zeros, tf.float64)
        nonzero = tf.cast(tf.not_equal(values, tf.zeros([], values.dtype)), tf.float32)
        axes = list(range(len(spec.shape)))
        if spec.channel_axis is None:
            total = tf.cast(tf.reduce_sum(nonzero), tf.float64)
            return tf.stack([size, total, total])
        if len(axes) > 1:  # a float32 sum over one axis is exact up to 2^24 elements; the rest is summed in float64
            nonzero = tf.reduce_sum(nonzero, axis=0, keepdims=True)
        nonzero = tf.cast(nonzero, tf.float64)
        channels = tf.reduce_sum(nonzero, axis=[axis for axis in axes if axis != spec.channel_axis])
        counts = [size[None], tf.reduce_sum(channels)[None]]
        if spec.channels is not None:
            counts.append(channels)
        if spec.positions:
            positions = tf.reduce_sum(nonzero, axis=[axis for axis in axes if axis not in spec.position_axes])
            counts.append(tf.reshape(positions, [-1]))
        return tf.concat(counts, axis=0)

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return a + b

    @property
    def step_fields(self) -> int:
        return 4

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        rows = [self.rows(spec) for spec in specs]
        starts = np.cumsum([0, *rows[:-1]])
        counts = state[:, 0]
        size, nonzero = tf.gather(counts, starts), tf.gather(counts, starts + 1)
        dead = tf.cast(tf.equal(counts, 0.0), tf.float64)
        parts = []
        channels = np.array([spec.channels or 0 for spec in specs])
        positions = np.array([spec.positions or 0 for spec in specs])
        for first, number in ((starts + 2, channels), (starts + 2 + channels, positions)):
            owner = np.full(sum(rows), len(specs), np.int32)  # the last segment takes the rows of no concern
            for i in range(len(specs)):
                owner[first[i] : first[i] + number[i]] = i
            share = np.where(number > 0, 1.0 / np.maximum(number, 1), np.nan)
            parts.append(tf.math.unsorted_segment_sum(dead, owner, len(specs) + 1)[:-1] * share)
        return tf.stack([size, nonzero, *parts], axis=-1)

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        size, nonzero, dead, spatial = np.moveaxis(vectors, -1, 0)
        some = np.where(size > 0, size, np.nan)
        gap = np.where(size > 0, 0.0, np.nan)
        return {"activation_rate": nonzero / some, "dead_rate": dead + gap, "spatial_dead_rate": spatial + gap}

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        counts = state[:, 0]
        if counts[0] == 0:
            return dict.fromkeys(self.series, math.nan)
        channels = counts[2 : 2 + (spec.channels or 0)]
        positions = counts[2 + (spec.channels or 0) :]
        return {
            "activation_rate": counts[1] / counts[0],
            "dead_rate": np.mean(channels == 0) if len(channels) else math.nan,
            "spatial_dead_rate": np.mean(positions == 0) if len(positions) else math.nan,
        }
