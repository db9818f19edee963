"""The states of one step's tensors: those of several pieces, or replicas, put together."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic


def states_of(statistic: Statistic, groups: Sequence[Sequence[Piece]], context: Context) -> Any:
    """The states of the groups, below each other, the pieces of a group merged."""
    groups = [[piece for piece in group if statistic.takes(piece)] for group in groups]
    rows = [statistic.rows(group[0].spec) for group in groups]
    ends = np.cumsum(rows)
    rounds = max(len(group) for group in groups)
    parts = _partials(statistic, [group[k] for k in range(rounds) for group in groups if k < len(group)], context)
    state, start = parts[: ends[-1]], int(ends[-1])
    for k in range(1, rounds):
        which = [i for i, group in enumerate(groups) if k < len(group)]
        index = np.concatenate([np.arange(ends[i] - rows[i], ends[i]) for i in which])
        merged = statistic.merge(tf.gather(state, index), parts[start : start + len(index)], tf)
        state = tf.tensor_scatter_nd_update(state, index[:, None], merged)
        start += len(index)
    return state


def over_replicas(statistic: Statistic, state: Any) -> Any:
    """The state over all replicas' shares of the step, in each of them."""
    stacked = tf.distribute.get_replica_context().all_gather(state[None], axis=0)
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return functools.reduce(lambda a, b: statistic.merge(a, b, tf), [stacked[i] for i in range(replicas)])


def _partials(statistic: Statistic, pieces: Sequence[Piece], context: Context) -> Any:
    open_pieces = [piece for piece in pieces if piece.values is not None]
    if len(open_pieces) == len(pieces):
        return statistic.partials(pieces, context)
    rows = [statistic.rows(piece.spec) for piece in open_pieces]
    parts = iter(tf.split(statistic.partials(open_pieces, context), rows) if open_pieces else [])
    return tf.concat([next(parts) if p.values is not None else p.states[statistic.name] for p in pieces], axis=0)
