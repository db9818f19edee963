"""Mean, deviation and activation rate of each channel, and activation rate of each position."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic, fields_of
from keras_introspect.statistics.moments import merge_moments
from keras_introspect.statistics.spec import TensorSpec


class PerUnit(Statistic):
    """The moments of each channel by itself, for `series.unit(...)`.

    `mean`, `std` (population) and `activation_rate` (the fraction of non-zero elements) over the finite elements of one
    channel in all observed steps of the epoch. From the activation rates the recording derives `dead_streak`, for how
    many epochs in a row, up to this one, the channel was zero throughout, and `revivals`, how often it came back.

    `position_activation_rate` is the same rate for each position (the axes between batch and channels, flattened in
    their order), over all channels.

    State, a row a channel, then a row a position: count, mean, M2, non-zero elements; of positions, count and non-zero
    elements alone. Merged like `Moments`. Single steps are not kept. Where the number of channels varies there is
    nothing, where that of positions does, no positions.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("x", (None, 2), batched=True, channel_axis=1)
    >>> statistic = PerUnit()
    >>> state = statistic.partials([Piece(tf.constant([[0.0, 1.0], [0.0, 3.0]]), spec)], Context()).numpy()
    >>> {key: value.tolist() for key, value in statistic.unit_result(state, spec).items()}
    {'mean': [0.0, 2.0], 'std': [0.0, 1.0], 'activation_rate': [0.0, 1.0]}
    """

    name = "per_unit"
    series = ()
    unit_series = ("mean", "std", "activation_rate", "position_activation_rate")
    initial: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0, 0.0)

    def takes(self, piece: Piece) -> bool:
        return super().takes(piece) and bool(piece.spec.channels)

    def rows(self, spec: TensorSpec) -> int:
        return (spec.channels or 0) + (spec.positions or 0)

    def restated(self, state: np.ndarray, spec: TensorSpec, wider: TensorSpec) -> np.ndarray | None:
        if not wider.channels or wider.channels != spec.channels:
            return None
        return state if wider.positions == spec.positions else state[: wider.channels]

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        return tf.concat([self._state(piece) for piece in pieces], axis=0)

    def _state(self, piece: Piece) -> Any:
        channels = piece.spec.channels
        values = tf.cast(piece.values, tf.float64)
        rank = len(piece.spec.shape)
        axis = piece.spec.channel_axis
        if axis is not None and axis != rank - 1:
            values = tf.transpose(values, [i for i in range(rank) if i != axis] + [axis])
        values = tf.reshape(values, [-1, channels])
        finite = tf.math.is_finite(values)
        inside = tf.where(finite, values, tf.zeros_like(values))
        count = tf.reduce_sum(tf.cast(finite, tf.float64), axis=0)
        mean = tf.math.divide_no_nan(tf.reduce_sum(inside, axis=0), count)
        deviation = tf.where(finite, values - mean, tf.zeros_like(values))
        nonzero = tf.reduce_sum(tf.cast(tf.not_equal(inside, 0.0), tf.float64), axis=0)
        state = tf.stack([count, mean, tf.reduce_sum(deviation * deviation, axis=0), nonzero], axis=-1)
        if piece.spec.positions:
            by_place = [-1, piece.spec.positions, channels]
            places = [_sum_by_place(tf.reshape(x, by_place)) for x in (finite, tf.not_equal(inside, 0.0))]
            nothing = tf.zeros_like(places[0])
            state = tf.concat([state, tf.stack([places[0], nothing, nothing, places[1]], axis=-1)], axis=0)
        if piece.zeros is None:
            return state
        zeros = tf.fill([channels], tf.cast(piece.zeros, tf.float64) / channels)  # of a sparse gradient: whole rows
        nothing = tf.zeros_like(zeros)
        return self.merge(state, tf.stack([zeros, nothing, nothing, nothing], axis=-1), tf)

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        a, b = fields_of(a, xp), fields_of(b, xp)
        return xp.stack([*merge_moments(a, b, xp), a[3] + b[3]], axis=-1)

    @property
    def step_fields(self) -> int:
        return 0

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        return {}

    def kept(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        count, channels = state[:, 0], spec.channels or 0
        return {"count": count[:channels], "position_count": count[channels:]}

    def unit_result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        count, mean, m2, nonzero = state.T
        some = np.where(count > 0, count, math.nan)
        channels = spec.channels or 0
        numbers = {"mean": mean + 0 * some, "std": np.sqrt(m2 / some), "activation_rate": nonzero / some}
        units = {key: values[:channels] for key, values in numbers.items()}
        if spec.positions:
            units["position_activation_rate"] = numbers["activation_rate"][channels:]
        return units


def _sum_by_place(flags: Any) -> Any:
    return tf.reduce_sum(tf.cast(flags, tf.float64), axis=[0, 2])
