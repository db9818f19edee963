"""What the workers of one cluster run, each in a process of its own: `python worker_programs.py PROGRAM FOLDER …`.

Without TF_CONFIG a program trains in one process, on one device, what the workers train together. What came of it lies
afterwards in FOLDER: `worker-0.npz`, the recording, `worker-0.json`, all else.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

WORKERS = "TF_CONFIG" in os.environ
# Before anything else: TensorFlow forms the cluster only while nothing has been computed yet.
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy() if WORKERS else None
ME = STRATEGY.cluster_resolver.task_id if STRATEGY else 0
FOLDER = Path(sys.argv[2])

import keras_introspect as ki  # noqa: E402


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(48, 6, 6, 1)).astype("float32"), rng.integers(0, 3, 48)


def collectors() -> list[ki.Collector]:
    from keras_introspect.statistics import Quantiles

    statistics = ["moments", "activity", Quantiles(sample=None)]
    steps = [kind(statistics, per_step=True) for kind in (ki.LayerOutputs, ki.Gradients)]
    return [*steps, *(kind(statistics) for kind in (ki.Weights, ki.Updates, ki.OutputGradients))]


def build(observe: Any = None) -> Any:
    with STRATEGY.scope() if STRATEGY else contextlib.nullcontext():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((6, 6, 1))
        hidden = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(inputs)
        hidden = keras.layers.Flatten(name="flat")(hidden)
        model = ki.IntrospectiveModel(inputs, keras.layers.Dense(3, name="head")(hidden), name="net")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        model.compile(optimizer, loss, metrics=["accuracy"], collectors=collectors() if observe is None else observe)
    return model


def fit(model: Any, epochs: int = 2, **arguments: Any) -> Any:
    return model.fit(*data(), batch_size=16, epochs=epochs, shuffle=False, verbose=0, **arguments)


def report(model: Any, **about: Any) -> None:
    model.recording.save(FOLDER / f"worker-{ME}.npz")
    weights = [value.tolist() for value in model.get_weights()]
    (FOLDER / f"worker-{ME}.json").write_text(json.dumps({"weights": weights, **about}))


class Telling(keras.callbacks.Callback):
    """A callback of the user's own, that writes."""

    writes_files = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        (self.folder / "told.txt").write_text(str(epoch))


def train() -> None:
    """All collectors, validation, every callback that writes files."""
    mine = FOLDER / f"files-{ME}"
    mine.mkdir()
    model = build()
    history = fit(
        model,
        validation_data=data(),
        callbacks=[
            keras.callbacks.BackupAndRestore(mine / "backup", delete_checkpoint=False),
            keras.callbacks.CSVLogger(mine / "log.csv"),
            keras.callbacks.ModelCheckpoint(mine / "best.weights.h5", save_weights_only=True),
            keras.callbacks.TensorBoard(mine / "board"),
            keras.callbacks.EarlyStopping("layer_outputs/rms", mode="min", patience=9),
            ki.callbacks.LiveDashboard(mine / "live.png"),
            ki.callbacks.IntrospectionTensorBoard(mine / "board"),
            Telling(mine),
        ],
    )
    evaluated = model.evaluate(*data(), batch_size=16, verbose=0, return_dict=True)
    predicted = model.predict(data()[0], batch_size=16, verbose=0)
    if ME == 0:
        model.save(FOLDER / "net.keras")
    files = sorted(path.relative_to(mine).parts[0] for path in mine.rglob("*") if path.is_file())
    report(model, history=history.history, evaluated=evaluated, predicted=predicted.tolist(), files=sorted(set(files)))


def plain_keras() -> None:
    """Fails, or this package need not heal it any more."""
    with STRATEGY.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)


class Dies(keras.callbacks.Callback):
    """The process ends in the midst of an epoch, once."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (2, 1):
            (FOLDER / "died").touch()
            os._exit(9)


def resume() -> None:
    """Four epochs, backed up where all workers see it; the worker that is named dies in the third, the first time."""
    model = build()
    callbacks: list[Any] = [keras.callbacks.BackupAndRestore(FOLDER / "backup")]
    victim = None if sys.argv[3] == "nobody" else int(sys.argv[3])
    if not (FOLDER / "died").exists() and victim == ME:
        callbacks.append(Dies())
    try:
        history = fit(model, epochs=4, callbacks=callbacks)
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        about = {"error": type(error).__name__, "message": str(error), "notes": notes}
        since = time.time() - (FOLDER / "died").stat().st_mtime
        (FOLDER / f"worker-{ME}.json").write_text(json.dumps({**about, "seconds": since}))
        os._exit(3)  # without the exit handlers, in which TensorFlow waits for the others
    report(model, epochs=history.epoch)


def unshared() -> None:
    """Each worker has a backup folder of its own, and only the chief writes one."""

    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(FOLDER / f"backup-{ME}", delete_checkpoint=False)

    fit(build("economy"), epochs=1, callbacks=[backup()])
    try:
        fit(build("economy"), epochs=2, callbacks=[backup()])
    except ValueError as error:
        (FOLDER / f"worker-{ME}.json").write_text(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    {"train": train, "plain_keras": plain_keras, "resume": resume, "unshared": unshared}[sys.argv[1]]()
