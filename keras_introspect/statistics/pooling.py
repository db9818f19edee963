"""The states of one step's tensors: those of several pieces, or replicas, put together."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic
from keras_introspect.statistics.spec import TensorSpec


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


class StatesOutsideSteps:
    """The states of tensors that no step holds, such as the weights at the end of an epoch.

    Operation by operation from Python they would take a hundred times as long for small tensors; so they are computed
    by a graph, which is traced when tensors of other names or shapes come.

    Args:
        statistics: of which states are wanted.
    """

    def __init__(self, statistics: Sequence[Statistic]) -> None:
        self._statistics = tuple(statistics)
        self._specs: list[TensorSpec] = []
        self._taken: dict[Statistic, list[int]] = {}
        self._graph: Any = None

    def __call__(self, pieces: Sequence[Piece], step: int) -> dict[Statistic, dict[str, tuple[TensorSpec, np.ndarray]]]:
        """Statistic → name of the tensor → what is known of it, and its state.

        Args:
            pieces: one a tensor.
            step: how many steps the optimizer has done.
        """
        specs = [piece.spec for piece in pieces]
        if specs != self._specs:
            taken = {s: [i for i, p in enumerate(pieces) if s.takes(p)] for s in self._statistics}
            self._taken = {statistic: rows for statistic, rows in taken.items() if rows}
            self._specs, self._graph = specs, tf.function(self._states, autograph=False)
        found = self._graph([piece.values for piece in pieces], tf.constant(step, tf.int64)) if self._taken else []
        states: dict[Statistic, dict[str, tuple[TensorSpec, np.ndarray]]] = {s: {} for s in self._statistics}
        for (statistic, rows), state in zip(self._taken.items(), found, strict=True):
            of_these = [specs[i] for i in rows]
            parts = np.split(state.numpy(), np.cumsum([statistic.rows(spec) for spec in of_these])[:-1])
            states[statistic] = {spec.name: (spec, part) for spec, part in zip(of_these, parts, strict=True)}
        return states

    def _states(self, values: Sequence[Any], step: Any) -> list[Any]:
        pieces = [[Piece(value, spec)] for value, spec in zip(values, self._specs, strict=True)]
        context = Context(step, cache={})
        return [states_of(statistic, [pieces[i] for i in rows], context) for statistic, rows in self._taken.items()]


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
