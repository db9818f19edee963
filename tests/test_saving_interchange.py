"""Files and weights go both ways between our models and plain ones, and what is served carries nothing of ours."""

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
from oldest import shard_size
from tiny import KINDS, TinyNet, assert_same, build, build_plain, compiled, data, train

# Keras's own word where a file was saved without the optimizer that the model has.
pytestmark = pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")


def assert_same_weights(a: Any, b: Any) -> None:
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)


def trained(kind: str = "functional") -> Any:
    model = compiled(build(kind))
    train(model, 1)
    return model


@pytest.mark.parametrize("name", ["m.weights.h5", "m.weights.json"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_files_both_ways(kind: str, name: str, tmp_path: Path) -> None:
    ours, plain = trained(kind), build_plain(kind, seed=8)
    shards = {"max_shard_size": shard_size(ours, 2048)} if name.endswith("json") else {}
    ours.save_weights(tmp_path / name, **shards)
    plain.load_weights(tmp_path / name)
    assert_same_weights(ours, plain)

    before = ours.recording
    bytes_before = before.to_bytes()
    other = build_plain(kind, seed=9)
    (tmp_path / "plain").mkdir()
    other.save_weights(tmp_path / "plain" / name, **shards)
    ours.load_weights(tmp_path / "plain" / name)
    assert_same_weights(ours, other)
    assert ours.recording is before
    assert before.to_bytes() == bytes_before


def test_a_plain_keras_file_gives_its_weights(tmp_path: Path) -> None:
    plain, ours = build_plain(seed=8), trained()
    plain.save(tmp_path / "plain.keras")
    before = ours.recording
    ours.load_weights(tmp_path / "plain.keras")
    assert_same_weights(ours, plain)
    assert ours.recording is before
    ours.save(tmp_path / "ours.keras")
    plain.load_weights(tmp_path / "ours.keras")


def test_legacy_h5(tmp_path: Path) -> None:
    ours, plain = trained(), build_plain(seed=8)
    ours.save(tmp_path / "ours.h5")
    plain.load_weights(tmp_path / "ours.h5")
    assert_same_weights(ours, plain)
    with pytest.raises(ValueError, match="holds no recording"):
        ki.Recording.load(tmp_path / "ours.h5")


def test_set_weights_and_a_backbone(tmp_path: Path) -> None:
    ours, plain = trained(), build_plain(seed=8)
    before = ours.recording
    ours.set_weights(plain.get_weights())
    plain.set_weights(ours.get_weights())
    assert ours.recording is before
    ours.get_layer("hidden").set_weights(plain.get_layer("hidden").get_weights())
    # Layers of ours in a plain model, and the reverse.
    features = keras.Model(ours.inputs, ours.get_layer("hidden").output)
    transfer = keras.Sequential([keras.Input((4,)), features, keras.layers.Dense(1)])
    transfer.compile("sgd", "mse")
    x, y = data()
    transfer.fit(x, y, verbose=0)
    assert ours.recording is before
    assert before.epochs.tolist() == [0]
    introspected = ki.IntrospectiveModel(
        plain.inputs, keras.layers.Dense(1, name="top")(plain.get_layer("hidden").output)
    )
    train(compiled(introspected))
    assert introspected.recording["gradients"].names == ("hidden/kernel", "hidden/bias", "top/kernel", "top/bias")


@pytest.mark.parametrize("kind", KINDS)
def test_clone_model_of_a_compiled_model(kind: str) -> None:
    model = trained(kind)
    clone = keras.models.clone_model(model)
    if not clone.built:
        clone.build((None, 4))
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(data()[0]), model(data()[0]))
    assert model.recording.epochs.tolist() == [0]
    if isinstance(clone, ki.IntrospectiveModel):
        assert len(clone.recording) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_from_config_makes_a_model_without_recording(kind: str) -> None:
    model = trained(kind)
    again = type(model).from_config(model.get_config())
    assert type(again) is type(model)
    assert len(again.recording) == 0
    if kind != "subclassed" and kind != "instrumented_subclass":
        assert_same_shapes(again, model)
        again = keras.models.model_from_json(model.to_json())
        assert_same_shapes(again, model)


def assert_same_shapes(a: Any, b: Any) -> None:
    assert [v.shape for v in a.weights] == [v.shape for v in b.weights]


def test_a_config_of_ours_makes_a_plain_model() -> None:
    model = trained()
    assert_same_shapes(keras.Model.from_config(model.get_config()), model)


def stored(folder: Path) -> str:
    """All that a folder holds, as text."""
    return "".join(p.read_bytes().decode("latin-1") for p in sorted(folder.rglob("*")) if p.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_served_carries_nothing_of_ours(kind: str, tmp_path: Path) -> None:
    model = trained(kind)
    x = data()[0]
    model.export(tmp_path / "exported", verbose=False)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    for name in ("exported", "saved"):
        assert "introspect" not in stored(tmp_path / name).replace("keras_introspect_tests", "").lower().replace(
            "introspectivefunctional", ""
        ).replace("introspectivesequential", ""), name
        values = tf.train.list_variables(str(tmp_path / name / "variables" / "variables"))
        assert not [key for key, _ in values if "py_state" in key]
    served = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(served.serve(x), model(x), rtol=1e-6)


def test_checkpoints_both_ways(tmp_path: Path) -> None:
    ours, plain = trained(), build_plain(seed=8)
    theirs = tf.train.Checkpoint(model=plain).save(tmp_path / "plain")
    saved = tf.train.Checkpoint(model=ours).save(tmp_path / "ours")
    before = ours.recording
    tf.train.Checkpoint(model=ours).restore(theirs).expect_partial()
    assert_same_weights(ours, plain)
    assert ours.recording is before
    # A model of ours that has recorded nothing matches a plain checkpoint in full.
    tf.train.Checkpoint(model=build("functional", seed=5)).restore(theirs).assert_consumed()
    other = build_plain(seed=9)
    tf.train.Checkpoint(model=other).restore(saved).expect_partial()
    with pytest.raises(AssertionError):
        assert_same_weights(other, plain)


def test_a_checkpoint_without_a_model_of_ours_is_read_as_such(tmp_path: Path) -> None:
    saved = tf.train.Checkpoint(model=build_plain()).save(tmp_path / "plain")
    with pytest.raises(ValueError, match="holds no recording"):
        ki.Recording.load(saved)


def test_files_of_a_model_that_recorded_nothing_are_those_of_keras(tmp_path: Path) -> None:
    """Nothing is added to a checkpoint or a state tree by a model that is compiled without collectors."""
    ours = build("functional")
    ours.compile("sgd", "mse")
    plain = build_plain()
    plain.compile("sgd", "mse")
    keys = [
        [key for key, _ in tf.train.list_variables(tf.train.Checkpoint(m=model).save(tmp_path / name / "c"))]
        for name, model in (("ours", ours), ("plain", plain))
    ]
    assert keys[0] == keys[1]
    trees = [model.get_state_tree(value_format="numpy_array") for model in (ours, plain)]
    assert len(keras.tree.flatten(trees[0])) == len(keras.tree.flatten(trees[1]))


def test_state_tree_both_ways() -> None:
    """As `keras.callbacks.OrbaxCheckpoint` saves it; tensors, its other form, are the model's alone."""
    ours, plain = trained(), build_plain(seed=8)
    plain.compile(keras.optimizers.Adam(0.05, name="adam"), "mse")
    plain.optimizer.build(plain.trainable_variables)
    tree = ours.get_state_tree(value_format="numpy_array")
    plain.set_state_tree(tree)
    assert_same_weights(ours, plain)
    before = ours.recording
    ours.set_state_tree(plain.get_state_tree(value_format="numpy_array"))
    ours.set_state_tree(ours.get_state_tree())
    assert ours.recording is before
    assert "keras_introspect" not in ours.get_state_tree()["non_trainable_variables"]
    # What orbax keeps of save_weights_only=True.
    fresh = compiled(build("functional", seed=9))
    fresh.set_state_tree({key: tree[key] for key in ("trainable_variables", "non_trainable_variables")})
    assert_same(ours.recording, fresh.recording)


def test_the_class_of_the_user_needs_no_more_than_keras_asks(tmp_path: Path) -> None:
    model = trained("subclassed")
    model.save(tmp_path / "m.keras")
    assert isinstance(keras.saving.load_model(tmp_path / "m.keras"), TinyNet)
    assert os.listdir(tmp_path) == ["m.keras"]
