"""The gradients of the variables."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture import Capture, Seen, Wanted
from keras_introspect.capture.optimizers import accumulation_steps
from keras_introspect.collectors.base import Collector, Group, spec_of_variable
from keras_introspect.collectors.variables import VariableCollector
from keras_introspect.statistics import Piece, SignalToNoise, Statistic, TensorSpec
from keras_introspect.statistics.element_sum import ElementSum


def _parts_of(capture: Capture, variable: Any, gradients: Sequence[Seen]) -> dict[str, Any]:
    """What a gradient is put together from, by replicas or accumulation steps; nothing where it is one."""
    if len(gradients) != 1 or gradients[0].zeros is not None:
        return {}
    (seen,) = gradients
    if seen.part is not None:
        parts = tf.distribute.get_strategy().num_replicas_in_sync
        squares = parts * tf.cast(seen.part, tf.float32)
        return {"parts": parts, "squares": squares, "number": parts, "whole": seen.values, "complete": True}
    applied = capture.applied.get(id(variable))
    steps = accumulation_steps(capture.optimizers[id(variable)][0])
    if applied is None or steps == 1:
        return {}
    squares, moved = 2.0 * tf.nn.l2_loss(tf.cast(seen.values, tf.float32)), capture.moved(variable)
    return {"parts": steps, "squares": squares, "number": 1, "whole": applied.values, "complete": moved}


@keras.saving.register_keras_serializable("keras_introspect")
class Gradients(VariableCollector):
    """d loss / d variable, as it reaches the optimizer.

    Of the unscaled loss (a loss scale is divided out), before clipping, averaging over accumulation steps and weight
    decay; summed over replicas, as it is applied. Embeddings' sparse gradients count as what they stand for: the sum of
    repeated rows, and zeros elsewhere.

    Args:
        epoch_sum: add a view `gradients_epoch_sum`: the same statistics of the gradient summed over the observed steps
            of the epoch, as one big step an epoch would have it. It takes 16 bytes an element. Sparse gradients have
            none.
        statistics: see `Collector`, as all further arguments.

    Example:

    >>> Gradients(every=10).every
    10
    """

    key = "gradients"

    def __init__(self, statistics: Any = None, epoch_sum: bool = False, **kwargs: Any) -> None:
        super().__init__(statistics, **kwargs)
        self.epoch_sum = bool(epoch_sum)

    @property
    def wanted(self) -> Wanted:
        """The parts of a gradient too, where a statistic compares them with the whole."""
        compared = any(isinstance(s, SignalToNoise) for s in self.statistics)
        return Wanted(gradients=True, applied=compared, parts=compared)

    def parts(self) -> list[Collector]:
        return [self, EpochSums(self)] if self.epoch_sum else [self]

    def groups(self, capture: Capture) -> list[Group]:
        groups = []
        for name, variable in self.chosen(capture.model).items():
            if id(variable) in capture.gradients:
                spec = spec_of_variable(variable, name)
                _, gradients = capture.gradients[id(variable)]
                beside = _parts_of(capture, variable, gradients) if self.wanted.parts else {}
                groups.append([Piece(seen.values, spec, seen.zeros, beside=beside) for seen in gradients])
            else:
                capture.missed[(self.name, name)] = "no gradient reached an optimizer of the model in the step"
        return groups

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epoch_sum": self.epoch_sum}


class EpochSums(Gradients):
    """What `Gradients(epoch_sum=True)` adds: its statistics, of the gradients summed over the epoch.

    Args:
        gradients: the collector that asks for it.
    """

    at_epoch_end = True

    def __init__(self, gradients: Gradients) -> None:
        statistics = [s for s in gradients.statistics if s.name != "signal_to_noise"]  # of one step there is none
        super().__init__(
            statistics, layers=gradients.selection, every=gradients.every, logs=None, name=f"{gradients.name}_epoch_sum"
        )
        self.sum = ElementSum()

    @property
    def accumulated(self) -> tuple[Statistic, ...]:
        return (self.sum,)

    def groups_of_sums(self, sums: Mapping[str, tuple[TensorSpec, np.ndarray]]) -> list[Group]:
        """The summed gradients as tensors; not of variables of which nothing was observed."""
        return [
            [Piece(tf.constant(state[:, 1].reshape(spec.shape)), spec)]
            for spec, state in sums.values()
            if state[:, 0].any()
        ]
