"""Files that a release wrote are read by every later one: see `old_files.py`, which made them."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
from old_files import FIT, FOLDER, X, Y, made

RELEASES = sorted(path for path in FOLDER.iterdir() if path.is_dir())
FORMATS = ("run.npz", "m.keras", "m.weights.h5")


@pytest.fixture(scope="module")
def now() -> Any:
    """The same training with the code of today, in the same three epochs."""
    model = made()
    model.fit(X, Y, epochs=2, validation_data=(X[:8], Y[:8]), **FIT)
    return model


def assert_close(old: ki.Recording, new: ki.Recording) -> int:
    """The series that an old recording has say what they say today."""
    compared = 0
    for view, series in old.items():
        today = new[view]
        assert series.names == today.names
        np.testing.assert_array_equal(series.epochs, today.epochs)
        for how, keys in (("epoch", series.statistics), ("step", series.step_statistics)):
            for key in keys:
                a, b = (getattr(s, how)(key) for s in (series, today))
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=f"{view} {how} {key}")
                compared += 1
        for key in series.unit_statistics:
            for name, rows in series.unit(key).items():
                np.testing.assert_allclose(rows, today.unit(key)[name], rtol=1e-3, atol=1e-5)
                compared += 1
    return compared


@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
@pytest.mark.parametrize("name", FORMATS)
def test_a_recording_says_what_it_said(folder: Path, name: str, now: Any) -> None:
    assert assert_close(ki.Recording.load(folder / name), now.recording) > 60


@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
def test_a_model_goes_on(folder: Path, now: Any) -> None:
    model = keras.saving.load_model(folder / "m.keras")
    assert [c.name for c in model.collectors] == [c.name for c in now.collectors]
    model.fit(X, Y, initial_epoch=2, epochs=3, **FIT)
    assert model.recording["gradients"].epochs.tolist() == [0, 1, 2]
    assert model.recording["metrics"].steps.tolist() == list(range(9))


@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
def test_an_epoch_begun_then_is_begun_again_now(folder: Path, now: Any) -> None:
    """Two steps of the third epoch were taken then, one now: the steps go on, the epoch is that of this run."""
    assert ki.Recording.load(folder / "midst")["gradients"].steps.tolist() == list(range(8))
    model = made()
    model.fit(X[:8], Y[:8], **FIT)  # so that there is something to restore into
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(str(folder / "midst")).expect_partial()
    model.fit(X[16:], Y[16:], initial_epoch=2, epochs=3, **FIT)
    counts = model.recording["layer_outputs"].sel("hidden").epoch("count")
    assert counts.tolist() == [20 * 3, 20 * 3, 4 * 3]
    assert model.recording["gradients"].steps.tolist() == list(range(9))
