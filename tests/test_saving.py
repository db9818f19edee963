"""Every file format carries the recording, the started epoch and the waiting steps, and brings them back."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
from keras_introspect.statistics import Moments, Quantiles
from oldest import KERAS_3_10, shard_size, trains_a_loaded_functional_model
from saving_programs import run_program
from tiny import KINDS, assert_same, build, compiled, data, train


def _keras(model: Any, kind: str, path: Path) -> Any:
    model.save(path / "m.keras")
    return keras.saving.load_model(path / "m.keras")


def _weights(model: Any, kind: str, path: Path) -> Any:
    model.save_weights(path / "m.weights.h5")
    loaded = compiled(build(kind, seed=99))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(path / "m.weights.h5")
    return loaded


def _sharded(model: Any, kind: str, path: Path) -> Any:
    model.save_weights(path / "m.weights.json", max_shard_size=shard_size(model, 2048))
    assert len(list(path.glob("m_*.weights.h5"))) > 1
    loaded = compiled(build(kind, seed=99))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(path / "m.weights.json")
    return loaded


def _checkpoint(model: Any, kind: str, path: Path) -> Any:
    saved = tf.train.Checkpoint(model=model).save(path / "ckpt")
    loaded = compiled(build(kind, seed=99))
    loaded.optimizer.build(loaded.trainable_variables)
    tf.train.Checkpoint(model=loaded).restore(saved).assert_consumed()
    return loaded


def _checkpoint_before_compile(model: Any, kind: str, path: Path) -> Any:
    saved = tf.train.Checkpoint(model=model).save(path / "ckpt")
    loaded = build(kind, seed=99)
    status = tf.train.Checkpoint(model=loaded).restore(saved)
    compiled(loaded)
    loaded.optimizer.build(loaded.trainable_variables)
    status.assert_consumed()
    return loaded


def _manager(model: Any, kind: str, path: Path) -> Any:
    tf.train.CheckpointManager(tf.train.Checkpoint(net=model), str(path), max_to_keep=1).save()
    loaded = compiled(build(kind, seed=99))
    loaded.optimizer.build(loaded.trainable_variables)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(net=loaded), str(path), max_to_keep=1)
    assert manager.restore_or_initialize()
    return loaded


def _pickle(model: Any, kind: str, path: Path) -> Any:
    return pickle.loads(pickle.dumps(model))


def _deepcopy(model: Any, kind: str, path: Path) -> Any:
    return copy.deepcopy(model)


def _state_tree(model: Any, kind: str, path: Path) -> Any:
    """What `keras.callbacks.OrbaxCheckpoint` saves and `load_weights` of its folder sets."""
    tree = model.get_state_tree(value_format="numpy_array")
    loaded = compiled(build(kind, seed=99))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.set_state_tree(tree)
    return loaded


FORMATS: dict[str, Callable[[Any, str, Path], Any]] = {
    "keras": _keras,
    "weights.h5": _weights,
    "sharded": _sharded,
    "checkpoint": _checkpoint,
    "checkpoint before compile": _checkpoint_before_compile,
    "manager": _manager,
    "pickle": _pickle,
    "deepcopy": _deepcopy,
    "state tree": _state_tree,
}


@pytest.fixture(scope="module")
def unbroken() -> dict[str, ki.Recording]:
    """The recordings of two epochs and a step beyond, in one go."""
    recordings = {}
    for kind in KINDS:
        model = compiled(build(kind))
        train(model, 2)
        recordings[kind] = model.recording
    return recordings


@pytest.fixture(scope="module")
def after_an_epoch() -> dict[str, Any]:
    return {kind: _after_an_epoch(kind) for kind in KINDS}


def _after_an_epoch(kind: str) -> Any:
    model = compiled(build(kind))
    train(model, 1)
    return model


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_brings_all_back(
    kind: str, name: str, after_an_epoch: dict[str, Any], unbroken: dict[str, ki.Recording], tmp_path: Path
) -> None:
    model = after_an_epoch[kind]
    loaded = FORMATS[name](model, kind, tmp_path)
    assert type(loaded) is type(model)
    assert_same(model.recording, loaded.recording)
    assert repr(loaded.collectors) == repr(model.collectors)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    if kind in ("functional", "instrumented_subclass") or name == "keras":
        train(loaded, 2, 1)
        assert_same(unbroken[kind], loaded.recording)


@trains_a_loaded_functional_model
@pytest.mark.parametrize("name", FORMATS)
def test_in_the_middle_of_an_epoch(name: str, tmp_path: Path) -> None:
    """The steps that wait on the device come along, and the started epoch goes on where it was."""
    x, y = data()
    whole, broken = compiled(build("functional")), compiled(build("functional"))
    for model in (whole, broken):
        train(model, 1)
        model.train_on_batch(x[:8], y[:8])
    loaded = FORMATS[name](broken, "functional", tmp_path)
    assert loaded.recording["gradients"].steps.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(loaded.recording["gradients"].step("rms"), broken.recording["gradients"].step("rms"))
    for model in (whole, loaded):
        model.train_on_batch(x[8:], y[8:])
        model._introspection_observer.reading.end_epoch(model, 1)
    assert_same(whole.recording, loaded.recording, metadata=False)
    assert loaded.recording["gradients"].steps.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not KERAS_3_10, reason="from Keras 3.11 on an object may lie in several shards")
def test_a_recording_larger_than_a_shard_is_left_out_and_said(after_an_epoch: dict[str, Any], tmp_path: Path) -> None:
    model = after_an_epoch["functional"]
    with pytest.warns(UserWarning, match=r"more than the 2048 of a shard.*larger max_shard_size"):
        model.save_weights(tmp_path / "m.weights.json", max_shard_size=2048 / 1024**3)
    loaded = compiled(build("functional", seed=99))
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(tmp_path / "m.weights.json")
    assert len(loaded.recording) == 0
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def built_adam(model: Any) -> Any:
    optimizer = keras.optimizers.Adam(0.05, name="adam")
    optimizer.build(model.trainable_variables)
    return optimizer


def test_a_file_passed_on_without_training_keeps_a_started_epoch(tmp_path: Path) -> None:
    x, y = data()
    whole = compiled(build("functional"))
    whole.train_on_batch(x[:8], y[:8])
    once = _keras(whole, "functional", tmp_path)
    uncompiled = build("functional")
    once.save_weights(tmp_path / "once.weights.h5")
    uncompiled.compile(built_adam(uncompiled))  # no collectors: nobody asks for the states
    uncompiled.load_weights(tmp_path / "once.weights.h5")
    uncompiled.save_weights(tmp_path / "twice.weights.h5")
    last = build("functional")
    compiled(last, optimizer=built_adam(last))
    last.load_weights(tmp_path / "twice.weights.h5")
    for model in (whole, last):
        model.train_on_batch(x[8:], y[8:])
        model._introspection_observer.reading.end_epoch(model, 0)
    for view in whole.recording:
        np.testing.assert_array_equal(whole.recording[view].epoch("count"), last.recording[view].epoch("count"))


def test_an_epoch_that_is_recorded_is_not_saved_twice(after_an_epoch: dict[str, Any]) -> None:
    from keras_introspect.files import unpack

    assert unpack(after_an_epoch["functional"]._introspection.serialize()).states == {}


def test_mixed_precision(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        whole = compiled(build("functional"))
        assert isinstance(whole.optimizer, keras.optimizers.LossScaleOptimizer)
        train(whole, 2)
        broken = compiled(build("functional"))
        train(broken, 1)
        loaded = _keras(broken, "functional", tmp_path)
        train(loaded, 2, 1)
    finally:
        keras.config.set_dtype_policy("float32")
    assert_same(whole.recording, loaded.recording)


def test_arguments_of_statistics_and_collectors_come_back(tmp_path: Path) -> None:
    observe = [
        ki.Gradients([Quantiles(levels=[0, 50, 100], sample=64), "moments"], layers="hid*", every=2, logs="layers"),
        ki.Gradients("moments", name="all_gradients", per_step=True),
        ki.Weights("moments", trainable_only=False, progress_bar=True),
    ]
    model = compiled(build("functional"), observe)
    model.optimizer.build(model.trainable_variables)
    loaded = _keras(model, "functional", tmp_path)
    assert repr(loaded.collectors) == repr(model.collectors)
    assert loaded.collectors[0].statistics[0].levels.tolist() == [0, 50, 100]
    assert loaded.collectors[0].statistics[0].sample == 64


@keras.saving.register_keras_serializable("keras_introspect_tests")
class MyMoments(Moments):
    name = "my_moments"


def test_a_statistic_of_the_users_own_comes_back(tmp_path: Path) -> None:
    model = compiled(build("functional"), [ki.Gradients([MyMoments()])])
    model.optimizer.build(model.trainable_variables)
    loaded = _keras(model, "functional", tmp_path)
    assert type(loaded.collectors[0].statistics[0]) is MyMoments


def test_two_models_in_one_checkpoint(tmp_path: Path) -> None:
    models = {name: compiled(build(kind)) for name, kind in (("a", "functional"), ("b", "sequential"))}
    for epochs, model in enumerate(models.values(), start=1):
        train(model, epochs)
    saved = tf.train.Checkpoint(**models).save(tmp_path / "ckpt")
    loaded = {name: compiled(build(kind)) for name, kind in (("a", "functional"), ("b", "sequential"))}
    tf.train.Checkpoint(**loaded).restore(saved)
    assert [len(model.recording.epochs) for model in loaded.values()] == [1, 2]


def test_inside_another_model(tmp_path: Path) -> None:
    """A model of ours as a layer of a plain one, as a backbone is, keeps its recording in that one's files."""
    backbone = compiled(build("functional"))
    train(backbone, 1)
    outer = keras.Sequential([keras.Input((4,)), backbone, keras.layers.Dense(2)])
    outer.save(tmp_path / "outer.keras")
    loaded = keras.saving.load_model(tmp_path / "outer.keras")
    assert_same(backbone.recording, loaded.layers[0].recording)
    assert_same(backbone.recording, ki.Recording.load(tmp_path / "outer.keras"))


# --- replicas ---


def test_between_one_replica_and_two(tmp_path: Path) -> None:
    """In a process of its own: TensorFlow's devices are set up before it starts."""
    run_program("replicas", tmp_path, "12", "21")


@pytest.mark.slow
def test_between_any_number_of_replicas(tmp_path: Path) -> None:
    run_program("replicas", tmp_path, "12", "21", "22", "11")
