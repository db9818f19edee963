"""Several workers: the chief alone writes files, and all begin their training at the same step."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.workers import gathered, is_chief

_WRITERS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
    *([keras.callbacks.OrbaxCheckpoint] if hasattr(keras.callbacks, "OrbaxCheckpoint") else []),  # Keras ≥ 3.13
)
# Errors that TensorFlow raises when another process of the cluster is gone.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError)


class RestoreOnly(keras.callbacks.Callback):
    """A `BackupAndRestore` off the chief: it reads the chief's backup, and writes and deletes nothing."""

    def __init__(self, backup: Any) -> None:
        super().__init__()
        self._backup = backup

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._backup.set_model(model)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._backup.on_train_begin(logs)


class SameStart(keras.callbacks.Callback):
    """Last in the list: raises on all workers if they would begin at different steps, and wait for each other."""

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self._strategy = strategy

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = getattr(self.model, "optimizer", None)
        step = 0 if optimizer is None else int(keras.ops.convert_to_numpy(optimizer.iterations))
        steps = [int(other) for other in gathered(self._strategy, np.array(step, np.int64))]
        if len(set(steps)) > 1:
            listed = ", ".join(f"worker {i} after step {n}" for i, n in enumerate(steps))
            raise ValueError(
                f"The workers do not begin at the same point: {listed}. All must load the same weights. The folder of "
                "BackupAndRestore must lie where all workers see it: the chief writes it, and the others read it."
            )


def on_this_worker(callbacks: Any, strategy: Any) -> Any:
    """The callbacks of a `fit` that this worker is to run.

    Args:
        callbacks: what the user gave: `None`, a callback, a list, or a `CallbackList`.
        strategy: spans workers.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks[:] = _chosen(callbacks.callbacks, strategy)
        callbacks.set_model(callbacks.model)
        return callbacks
    return _chosen([] if callbacks is None else keras.tree.flatten(callbacks), strategy)


def _chosen(callbacks: list[Any], strategy: Any) -> list[Any]:
    callbacks = [callback for callback in callbacks if not isinstance(callback, SameStart)]
    if not is_chief(strategy):
        callbacks = [
            RestoreOnly(callback) if isinstance(callback, keras.callbacks.BackupAndRestore) else callback
            for callback in callbacks
            if isinstance(callback, keras.callbacks.BackupAndRestore)
            or not (isinstance(callback, _WRITERS) or getattr(callback, "writes_files", False))
        ]
    return [*callbacks, SameStart(strategy)]


@contextlib.contextmanager
def saying_who_is_lost() -> Iterator[None]:
    """Adds to TensorFlow's error that another worker is gone what that means, and how to go on."""
    try:
        yield
    except _LOST as error:
        if hasattr(error, "add_note"):  # Python ≥ 3.11
            error.add_note(
                "Another worker of this MultiWorkerMirroredStrategy has died or cannot be reached: see above "
                "which one, and its own log for why. This one cannot go on without it. Start all workers again; with "
                "keras.callbacks.BackupAndRestore they resume after the last epoch that was backed up."
            )
        raise
