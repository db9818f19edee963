"""Several workers: the processes of one `tf.distribute.MultiWorkerMirroredStrategy`."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture.internals import spans_workers

__all__ = [
    "gathered",
    "is_chief",
    "is_first_worker",
    "local_batch",
    "returning_rank_1",
    "shares_of_workers",
    "spans_workers",
]


def is_chief(strategy: Any) -> bool:
    """Whether this process is the one that writes files: the chief of the cluster, or its first worker.

    True where there is one process only.
    """
    if not spans_workers(strategy):
        return True
    resolver = strategy.cluster_resolver
    if "chief" in resolver.cluster_spec().jobs:
        return str(resolver.task_type) == "chief"
    return (resolver.task_type, resolver.task_id) == ("worker", 0)


def gathered(strategy: Any, value: np.ndarray) -> list[np.ndarray]:
    """What each worker gives here, in the order of the workers: every worker must call this, and at the same point.

    Args:
        strategy: spans workers.
        value: of the same shape and dtype on all workers.
    """
    replicas = len(strategy.extended.worker_devices)
    mine = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(value[None]))
    return list(_gathering(strategy)(mine).numpy()[::replicas])


@functools.cache
def _gathering(strategy: Any) -> Any:
    """`strategy.gather`, as a function that is traced once for each shape: called eagerly it is traced each time."""
    return tf.function(lambda values: strategy.gather(values, axis=0), autograph=False)


def shares_of_workers(variable: Any, mine: np.ndarray) -> list[np.ndarray]:
    """What each worker has of a distributed variable's value; `[mine]` where there is one process only."""
    strategy = getattr(variable, "distribute_strategy", None)
    return gathered(strategy, mine) if spans_workers(strategy) else [mine]


def is_first_worker(variable: Any) -> bool:
    """Whether this process is the chief of those that a distributed variable spans, or the only one."""
    return is_chief(getattr(variable, "distribute_strategy", None))


def local_batch(strategy: Any, iterator: Any) -> Any:
    """The first batch of an epoch iterator of Keras's, the share of this worker's first replica."""
    for *_, batches in iterator:  # Keras 3.15 gives the first and the last step, 3.10 the first
        return keras.tree.map_structure(lambda value: strategy.experimental_local_results(value)[0], next(batches))
    return None


def returning_rank_1(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same step, its logs with one more axis in front: Keras takes their mean over workers along an axis."""

    def wrapped(data: Any) -> Any:
        return keras.tree.map_structure(lambda value: tf.expand_dims(value, 0), step(data))

    return wrapped
