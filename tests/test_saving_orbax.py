"""`keras.callbacks.OrbaxCheckpoint`, of Keras 3.13: it needs orbax-checkpoint, and that needs jax."""

import importlib.util
from pathlib import Path
from typing import Any

import keras
import pytest

import keras_introspect as ki
from tiny import assert_same, build, build_plain, compiled, train

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("orbax") is None or not hasattr(keras.callbacks, "OrbaxCheckpoint"),
        reason="needs orbax-checkpoint and Keras 3.13",
    ),
    pytest.mark.filterwarnings("default"),  # of jax and orbax
]


@pytest.fixture
def unbroken() -> ki.Recording:
    model = compiled(build("functional"))
    train(model, 3)
    return model.recording


def saved(folder: Path, **options: Any) -> Any:
    model = compiled(build("functional"))
    callback = keras.callbacks.OrbaxCheckpoint(str(folder), **options)
    train(model, 2, callbacks=[callback])
    callback.wait_until_finished()
    return model


@pytest.mark.parametrize("background", [False, True])
def test_load_model_resumes(background: bool, unbroken: ki.Recording, tmp_path: Path) -> None:
    model = saved(tmp_path / "c", save_on_background=background)
    loaded = keras.saving.load_model(tmp_path / "c")
    assert type(loaded) is type(model)
    assert_same(model.recording, loaded.recording)
    train(loaded, 3, 2)
    assert_same(unbroken, loaded.recording)


@pytest.mark.parametrize("weights_only", [False, True])
def test_load_weights(weights_only: bool, tmp_path: Path) -> None:
    model = saved(tmp_path / "c", save_weights_only=weights_only)
    loaded = compiled(build("functional", seed=9))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(tmp_path / "c")
    assert_same(model.recording, loaded.recording)


def test_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    saved(tmp_path / "c", save_freq=2)  # the last time after step 6, before the end of its epoch
    loaded = compiled(build("functional", seed=9))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(tmp_path / "c")
    assert loaded.recording.epochs.tolist() == [0]
    assert loaded.recording["gradients"].steps.tolist() == [0, 1, 2, 3, 4, 5]


def test_plain_models_both_ways(tmp_path: Path) -> None:
    saved(tmp_path / "ours")
    plain = build_plain(seed=8)
    plain.compile(keras.optimizers.Adam(0.05, name="adam"), "mse")
    plain.load_weights(tmp_path / "ours")
    callback = keras.callbacks.OrbaxCheckpoint(str(tmp_path / "plain"))
    train(plain, 1, callbacks=[callback])
    ours = compiled(build("functional"))
    train(ours, 1)
    before = ours.recording
    ours.load_weights(tmp_path / "plain")
    assert ours.recording is before
