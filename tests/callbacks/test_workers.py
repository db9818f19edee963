"""Which callbacks a worker runs, without workers: `tests/test_multi_worker.py` has real ones."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
from keras_introspect import workers
from keras_introspect.callbacks import _workers


class Own(keras.callbacks.Callback):
    pass


class OwnThatWrites(keras.callbacks.Callback):
    writes_files = True


def callbacks(folder: Path) -> list[Any]:
    return [
        keras.callbacks.BackupAndRestore(folder / "backup"),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.ModelCheckpoint(folder / "best.weights.h5", save_weights_only=True),
        keras.callbacks.TensorBoard(folder / "board"),
        ki.callbacks.LiveDashboard(folder / "live.png"),
        ki.callbacks.IntrospectionTensorBoard(folder / "board"),
        OwnThatWrites(),
        keras.callbacks.EarlyStopping("loss"),
        Own(),
    ]


def kinds(chosen: list[Any]) -> list[str]:
    return [type(callback).__name__ for callback in chosen]


@pytest.mark.parametrize("chief", [True, False])
def test_off_the_chief_nothing_that_writes_is_called(chief: bool, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(_workers, "is_chief", lambda strategy: chief)
    given = callbacks(tmp_path)
    everywhere = ["EarlyStopping", "Own", "SameStart"]
    expected = [*kinds(given[:-2]), *everywhere] if chief else ["RestoreOnly", *everywhere]
    chosen = _workers.on_this_worker(given, None)
    assert kinds(chosen) == expected
    assert kinds(_workers.on_this_worker(chosen, None)) == expected  # as a second fit with the same ones
    assert len(given) == 9, "the user's list is the user's"
    assert kinds(_workers.on_this_worker(None, None)) == ["SameStart"]


def test_a_backup_is_read_and_not_written(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((4, 2))
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    model.fit(x, x[:, :1], epochs=2, verbose=0, callbacks=[backup])
    saved = {path: path.read_bytes() for path in (tmp_path / "backup").iterdir()}
    other = keras.models.clone_model(model)
    other.compile("sgd", "mse")
    only = _workers.RestoreOnly(keras.callbacks.BackupAndRestore(tmp_path / "backup"))
    history = other.fit(x, x[:, :1], epochs=3, verbose=0, callbacks=[only])
    assert history.epoch == [2]
    assert {path: path.read_bytes() for path in (tmp_path / "backup").iterdir()} == saved


@pytest.mark.parametrize(("steps", "fits"), [([3, 3], True), ([3, 0], False)])
def test_workers_begin_at_the_same_step(steps: list[int], fits: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(_workers, "gathered", lambda strategy, value: [np.array(step) for step in steps])
    callback = _workers.SameStart(None)
    callback.set_model(keras.Sequential())
    if fits:
        callback.on_train_begin()
    else:
        with pytest.raises(ValueError, match=r"worker 0 after step 3, worker 1 after step 0.*all workers see it"):
            callback.on_train_begin()


@pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="notes on errors are of Python 3.11")
def test_a_lost_worker_is_explained() -> None:
    with pytest.raises(tf.errors.UnavailableError) as caught, _workers.saying_who_is_lost():
        raise tf.errors.UnavailableError(None, None, "/job:worker/task:1 is unhealthy")
    assert "Start all workers again" in caught.value.__notes__[0]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught, _workers.saying_who_is_lost():
        raise tf.errors.InvalidArgumentError(None, None, "shapes")
    assert not hasattr(caught.value, "__notes__")


class Resolver:
    def __init__(self, jobs: list[str], task_type: str, task_id: int) -> None:
        self.jobs, self.task_type, self.task_id = jobs, task_type, task_id

    def cluster_spec(self) -> "Resolver":
        return self


@pytest.mark.parametrize(
    ("jobs", "task", "chief"),
    [
        (["worker"], ("worker", 0), True),
        (["worker"], ("worker", 1), False),
        (["chief", "worker"], ("chief", 0), True),
        (["chief", "worker"], ("worker", 0), False),
    ],
)
def test_who_is_the_chief(jobs: list[str], task: tuple[str, int], chief: bool, monkeypatch: Any) -> None:
    strategy = type("Strategy", (), {"cluster_resolver": Resolver(jobs, *task)})()
    assert workers.is_chief(strategy)  # of one process
    monkeypatch.setattr(workers, "spans_workers", lambda strategy: True)
    assert workers.is_chief(strategy) == chief


def test_logs_get_the_axis_that_keras_averages_along() -> None:
    logs = workers.returning_rank_1(lambda data: {"loss": tf.constant(2.0), "by_class": tf.constant([1.0, 3.0])})(None)
    assert {key: value.shape.as_list() for key, value in logs.items()} == {"loss": [1], "by_class": [1, 2]}
