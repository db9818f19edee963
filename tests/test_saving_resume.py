"""A training that is interrupted and resumed: nothing is counted twice, no epoch is missing; see docs/saving.md."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
from saving_programs import run_program
from tiny import assert_same, build, build_plain, compiled, data, train


class Crash(Exception):
    pass


class CrashAt(keras.callbacks.Callback):
    """Ends the training before the batch of the epoch is over, or, without a batch, when the epoch begins."""

    def __init__(self, epoch: int, batch: int | None = None) -> None:
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        if self.at == (epoch, None):
            raise Crash

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.at == (self.epoch, batch):
            raise Crash


def restarted(path: Path, epochs: int, *crashes: CrashAt, save_freq: Any = "epoch") -> Any:
    """A new model for every crash, as in a new process, under BackupAndRestore; then one that gets through."""
    for crash in [*crashes, None]:
        model = compiled(build("functional", seed=3))
        backup = keras.callbacks.BackupAndRestore(path / "backup", save_freq=save_freq)
        if crash is None:
            train(model, epochs, callbacks=[backup])
        else:
            with pytest.raises(Crash):
                train(model, epochs, callbacks=[backup, crash])
    return model


@pytest.fixture(scope="module")
def unbroken() -> ki.Recording:
    model = compiled(build("functional", seed=3))
    train(model, 4)
    return model.recording


@pytest.mark.parametrize(
    "crashes",
    [[CrashAt(2)], [CrashAt(2, 1)], [CrashAt(0, 1)], [CrashAt(1), CrashAt(1, 0), CrashAt(3, 2)]],
    ids=["boundary", "middle", "first epoch", "three crashes"],
)
def test_a_backup_an_epoch_resumes_bit_for_bit(crashes: list[CrashAt], unbroken: ki.Recording, tmp_path: Path) -> None:
    assert_same(unbroken, restarted(tmp_path, 4, *crashes).recording)


def test_a_backup_in_the_middle_runs_the_epoch_again(tmp_path: Path) -> None:
    """Keras goes on with the weights of the middle of epoch 1, from its first batch: three steps an epoch."""
    recording = restarted(tmp_path, 3, CrashAt(1, 1), save_freq=2).recording  # saved after steps 2 and 4
    assert recording.epochs.tolist() == [0, 1, 2]
    assert recording["gradients"].epoch("count")[:, 0].tolist() == [72, 72, 72]  # each epoch whole, none of it twice
    assert recording["gradients"].steps.tolist() == list(range(4 + 3 + 3))  # every step that the weights have seen
    assert sorted(recording.logs) == ["loss"]
    assert len(recording.logs["loss"]) == 3


def test_a_second_crash_where_keras_forgets_the_epoch(tmp_path: Path) -> None:
    """With save_freq=n, the second backup says epoch 0: Keras trains more epochs than planned, all of them recorded."""
    recording = restarted(tmp_path, 3, CrashAt(1, 1), CrashAt(1, 1), save_freq=2).recording
    epochs, steps = recording.epochs.tolist(), recording["gradients"].steps.tolist()
    assert epochs == list(range(len(epochs)))
    assert steps == list(range(len(steps)))
    assert recording["gradients"].epoch("count")[:, 0].tolist() == [72] * len(epochs)
    assert len(epochs) >= 3


def test_initial_epoch_and_another_number_of_epochs() -> None:
    model = compiled(build("functional"))
    train(model, 5, 3)  # as if three epochs had been trained elsewhere
    assert model.recording.epochs.tolist() == [3, 4]
    train(model, 7, 5)  # more than planned
    assert model.recording.epochs.tolist() == [3, 4, 5, 6]
    train(model, 1)  # Keras counts from 0 again; the recording goes on
    assert model.recording.epochs.tolist() == [3, 4, 5, 6, 7]
    train(model, 12, 10)  # a gap that the user makes stays one
    assert model.recording.epochs.tolist() == [3, 4, 5, 6, 7, 10, 11]


def test_fewer_epochs_than_planned_then_more(unbroken: ki.Recording, tmp_path: Path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = epoch == 1

    model = compiled(build("functional"))
    train(model, 4, callbacks=[Stop()])
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    train(loaded, 4, 2)
    assert_same(unbroken, loaded.recording)


def test_interrupted_in_memory_and_trained_on(unbroken: ki.Recording) -> None:
    model = compiled(build("functional"))
    with pytest.raises(Crash):
        train(model, 4, callbacks=[CrashAt(1, 1)])
    train(model, 4, 1)
    assert model.recording.epochs.tolist() == [0, 1, 2, 3]
    assert model.recording["gradients"].epoch("count")[:, 0].tolist() == [72] * 4
    assert model.recording["gradients"].steps.tolist() == list(range(3 + 2 + 9))
    np.testing.assert_array_equal(model.recording["gradients"].step("rms")[:5], unbroken["gradients"].step("rms")[:5])


def test_another_order_of_the_data(unbroken: ki.Recording, tmp_path: Path) -> None:
    """What is recorded is what was trained: the loaded epochs as they were, the others of the other order."""
    model = compiled(build("functional"))
    train(model, 2)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    x, y = data()
    loaded.fit(x[::-1], y[::-1], batch_size=8, shuffle=False, verbose=0, epochs=4, initial_epoch=2)
    a, b = (r["gradients"].epoch("rms") for r in (unbroken, loaded.recording))
    np.testing.assert_array_equal(a[:2], b[:2])
    assert (a[2:] != b[2:]).all()


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_model_checkpoint(save_freq: Any, weights_only: bool, unbroken: ki.Recording, tmp_path: Path) -> None:
    name = "c{epoch}" + (".weights.h5" if weights_only else ".keras")
    model = compiled(build("functional"))
    callback = keras.callbacks.ModelCheckpoint(
        tmp_path / name, save_freq=save_freq, save_weights_only=weights_only, monitor="gradients/rms", mode="min"
    )
    train(model, 4, callbacks=[callback])
    assert_same(unbroken, model.recording)
    path = tmp_path / name.format(epoch=2)  # after step 6 of epoch 2, or the last before: step 6 = its end
    if weights_only:
        loaded = compiled(build("functional", seed=9))
        loaded.optimizer.build(loaded.trainable_variables)
        loaded.load_weights(path)
    else:
        loaded = keras.saving.load_model(path)
    saved = ki.Recording.load(path)
    assert_same(saved, loaded.recording)
    if save_freq == "epoch":
        train(loaded, 4, 2)
        assert_same(unbroken, loaded.recording)
    else:  # saved at the last step of epoch 2, before it was recorded: its steps are there, the epoch is not
        assert saved.epochs.tolist() == [0]
        assert saved["gradients"].steps.tolist() == [0, 1, 2, 3, 4, 5]
        np.testing.assert_array_equal(saved["gradients"].step("rms"), unbroken["gradients"].step("rms")[:6])


@pytest.mark.parametrize("where", ["no_folder", "full_disk"])
def test_model_checkpoint_fails_as_in_plain_keras(where: str, tmp_path: Path) -> None:
    """Nothing of ours writes while a model trains: what cannot be written is Keras's to say."""
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "c.weights.h5" if where == "no_folder" else tmp_path / "full.weights.h5"
    if where == "full_disk":
        if not Path("/dev/full").exists():
            pytest.skip("this system has no /dev/full")
        path.symlink_to("/dev/full")
    errors = []
    for model in (compiled(build("functional")), build_plain()):
        if not isinstance(model, ki.IntrospectiveModel):
            model.compile("adam", "mse", run_eagerly=True)
        with pytest.raises(OSError) as caught:  # noqa: PT011 - compared below
            train(model, 2, callbacks=[keras.callbacks.ModelCheckpoint(path, save_weights_only=True)])
        errors.append(type(caught.value))
        if isinstance(model, ki.IntrospectiveModel):
            assert model.recording.epochs.tolist() == [0]
            train(model, 2, 1)
            assert model.recording.epochs.tolist() == [0, 1]
    assert errors[0] is errors[1]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    print(run_program("killed", tmp_path, 2, 1))


@pytest.mark.slow
def test_killed_at_random_moments_thirty_times(tmp_path: Path) -> None:
    print(run_program("killed", tmp_path, 30, 2))
