"""`Recording.load` reads every format without building a model, without TensorFlow where that can be, without trust."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
from keras_introspect.files import ATTRIBUTE, SavedState, joined, pack, pieces, recording_bytes, unpack
from keras_introspect.npz import write_npz
from keras_introspect.recording import Recording
from oldest import shard_size
from saving_programs import run_program
from tiny import assert_same, build, build_plain, compiled, data, train


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A recording, and the files that hold it: one format a folder."""
    folder = tmp_path_factory.mktemp("saved")
    model = compiled(build("functional"))
    train(model, 2)
    paths = {
        name: folder / name.split(".")[0] / name
        for name in ("run.npz", "model.keras", "weights.weights.h5", "shards.weights.json", "checkpoint-1")
    }
    for path in paths.values():
        path.parent.mkdir()
    model.recording.save(paths["run.npz"])
    model.save(paths["model.keras"])
    model.save_weights(paths["weights.weights.h5"])
    model.save_weights(paths["shards.weights.json"], max_shard_size=shard_size(model, 4096))
    tf.train.Checkpoint(model=model).save(folder / "checkpoint-1" / "checkpoint")
    return {"recording": model.recording, "folder": folder, **paths}


FORMATS = ("run.npz", "model.keras", "weights.weights.h5", "shards.weights.json", "checkpoint-1")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(name: str, saved: dict[str, Any]) -> None:
    assert_same(saved["recording"], Recording.load(saved[name]))
    assert_same(saved["recording"], ki.Recording.load(str(saved[name])))


def test_a_checkpoint_by_its_folder_and_its_index(saved: dict[str, Any]) -> None:
    assert_same(saved["recording"], Recording.load(saved["checkpoint-1"].parent))
    assert_same(saved["recording"], Recording.load(f"{saved['checkpoint-1']}.index"))


def test_a_model_saved_as_a_folder(saved: dict[str, Any], tmp_path: Path) -> None:
    with zipfile.ZipFile(saved["model.keras"]) as archive:
        archive.extractall(tmp_path)
    assert_same(saved["recording"], Recording.load(tmp_path))


@pytest.mark.parametrize("name", [name for name in FORMATS if not name.startswith("checkpoint")])
def test_without_tensorflow(name: str, saved: dict[str, Any]) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        "from keras_introspect.recording import Recording\n"
        f"print(Recording.load({str(saved[name])!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, repr(saved["recording"])), done.stderr


def test_a_checkpoint_without_tensorflow_says_what_is_missing(
    saved: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="TensorFlow checkpoint needs TensorFlow"):
        Recording.load(saved["checkpoint-1"])


def test_a_keras_file_without_h5py_says_what_is_missing(saved: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match="pip install h5py"):
        Recording.load(saved["model.keras"])


def test_files_without_a_recording(tmp_path: Path) -> None:
    plain = build_plain()
    plain.save(tmp_path / "m.keras")
    plain.save_weights(tmp_path / "m.weights.h5")
    plain.save_weights(tmp_path / "m.weights.json", max_shard_size=1)
    for name in ("m.keras", "m.weights.h5", "m.weights.json"):
        with pytest.raises(ValueError, match="holds no recording: it was saved from a plain Keras model"):
            Recording.load(tmp_path / name)
    with pytest.raises(ValueError, match="neither a TensorFlow checkpoint nor a Keras model"):
        Recording.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        Recording.load(tmp_path / "nothing")
    (tmp_path / "map.json").write_text("[1]")
    with pytest.raises(ValueError, match="no map of sharded weights"):
        Recording.load(tmp_path / "map.json")


# --- the blob ---


def test_pack_and_unpack() -> None:
    states = {
        "a|moments": {"x": np.ones((1, 3)), "y/z": np.zeros((2, 3))},
        "b|activity": {"x": np.arange(4.0)[:, None]},
    }
    saved = unpack(pack(SavedState(b"recording", {"a|moments": 3}, states)))
    assert saved.recording == b"recording"
    assert saved.versions == {"a|moments": 3}
    assert {key: list(by_name) for key, by_name in saved.states.items()} == {
        "a|moments": ["x", "y/z"],
        "b|activity": ["x"],
    }
    np.testing.assert_array_equal(saved.states["a|moments"]["y/z"], np.zeros((2, 3)))


@pytest.mark.parametrize("limit", [1, 7, 100, float("inf"), 33.3])
def test_pieces_of_any_size(limit: float) -> None:
    blob = bytes(range(100))
    cut = pieces(blob, limit)
    assert max(len(piece) for piece in cut.values()) <= max(limit, 1)
    assert joined(cut) == blob
    assert joined({**cut, "kernel": np.zeros(3)}) == blob
    assert joined({}) == b""


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"version": "x"},
        {"states": [{"key": "a|b", "names": ["x"], "rows": [3]}]},
        {"states": [{"key": "a|b", "names": ["x", "x"], "rows": [1, 1]}]},
        {"states": [{"key": "a|b", "names": ["x", "y"], "rows": [-1, 3]}]},
        {"states": [{"key": "a|b", "names": ["x"], "rows": [2**60]}]},
        {"states": 3},
        {"statistics": [1]},
        {"statistics": {"a": "new"}},
    ],
)
def test_a_description_that_does_not_fit(change: dict[str, Any]) -> None:
    blob = pack(SavedState(b"", {"a|b": 1}, {"a|b": {"x": np.ones((1, 3)), "y": np.ones((1, 3))}}))
    with np.load(io.BytesIO(blob)) as file:
        arrays = dict(file)
    meta = {**json.loads(arrays["state.json"].tobytes()), **change}
    del arrays["digest"]
    with pytest.raises(ValueError, match="damaged") as told:
        unpack(write_npz({**arrays, "state.json": np.frombuffer(json.dumps(meta).encode(), np.uint8)}))
    assert "digest" not in str(told.value)


# --- malice ---


def h5_with(path: Path, **datasets: Any) -> Path:
    with h5py.File(path, "w") as file:
        group = file.create_group(f"{ATTRIBUTE}/vars")
        for name, make in datasets.items():
            make(group, name)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda group, name: group.create_dataset(name, (2**40,), "u1", chunks=(2**20,)),
        lambda group, name: group.create_dataset(name, data=np.zeros(10**7, "u1"), compression="gzip"),
        lambda group, name: group.create_dataset(name, (10,), "u1", external=[("secret", 0, 10)]),
        lambda group, name: group.create_dataset(name, data=np.zeros((2, 2), "u1")),
        lambda group, name: group.create_dataset(name, data="text"),
        lambda group, name: group.create_dataset(name, data=np.zeros(3)),
        lambda group, name: group.create_group(name),
        lambda group, name: group.__setitem__(name, h5py.SoftLink("/elsewhere")),
        lambda group, name: group.__setitem__(name, h5py.ExternalLink("secret.h5", "/x")),
        lambda group, name: group.create_virtual_dataset(name, virtual_layout()),
    ],
    ids=["promises", "bomb", "external", "matrix", "text", "floats", "group", "soft", "link", "virtual"],
)
def test_hdf5_that_leads_astray(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("secret.h5", "w") as file:
        file["x"] = np.frombuffer(pack(SavedState(Recording().to_bytes(), {}, {})), np.uint8)
    Path("secret").write_bytes(b"0123456789")
    path = h5_with(tmp_path / "m.weights.h5", blob_0=make)
    with pytest.raises(ValueError, match=r"damaged|holds no recording"):
        Recording.load(path)


def virtual_layout() -> Any:
    layout = h5py.VirtualLayout((10,), "u1")
    layout[:] = h5py.VirtualSource("secret.h5", "x", (10,))
    return layout


def test_a_group_that_is_a_link(tmp_path: Path) -> None:
    inside = pack(SavedState(Recording().to_bytes(), {}, {}))
    h5_with(tmp_path / "secret.h5", blob_0=lambda group, name: group.__setitem__(name, np.frombuffer(inside, np.uint8)))
    recording_bytes(tmp_path / "secret.h5")
    with h5py.File(tmp_path / "m.weights.h5", "w") as file:
        file[ATTRIBUTE] = h5py.ExternalLink(str(tmp_path / "secret.h5"), f"/{ATTRIBUTE}")
    with pytest.raises(ValueError, match="holds no recording"):
        Recording.load(tmp_path / "m.weights.h5")


def test_shards_outside_their_folder(tmp_path: Path) -> None:
    (tmp_path / "m.weights.json").write_text(json.dumps({"weight_map": {f"/{ATTRIBUTE}/vars": "../secret.h5"}}))
    with pytest.raises(ValueError, match="outside its folder"):
        Recording.load(tmp_path / "m.weights.json")


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_files(name: str, saved: dict[str, Any]) -> None:
    print(run_program("hostile", saved[name].parent, name, 8 if name.startswith("checkpoint") else 24, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_two_hundred_hostile_files(name: str, saved: dict[str, Any]) -> None:
    print(run_program("hostile", saved[name].parent, name, 200, 2))


def test_load_weights_of_hostile_files_never_touches_the_recording(saved: dict[str, Any], tmp_path: Path) -> None:
    """The blob inside a whole file of weights, mutated: a warning at most."""
    import random
    import warnings

    from mutations import changed

    rng = random.Random(3)
    path = tmp_path / "m.weights.h5"
    path.write_bytes(saved["weights.weights.h5"].read_bytes())
    with h5py.File(path, "r") as file:
        blob = joined(file[f"{ATTRIBUTE}/vars"])
    model = compiled(build("functional"))
    train(model, 1)
    before, expected = model.recording, saved["recording"].to_bytes()
    for number in range(40):
        with h5py.File(path, "r+") as file:
            group = file[f"{ATTRIBUTE}/vars"]
            for key in list(group):
                del group[key]
            for key, piece in pieces(changed(blob, number, rng)).items():
                group[key] = piece
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.load_weights(path)
        warned = [str(w.message) for w in caught if "recording in this file" in str(w.message)]
        if warned:
            assert model.recording is before
        elif model.recording is not before:
            assert model.recording.to_bytes() == expected
            model._introspection.recording = before
    model.fit(*data(), verbose=0)
