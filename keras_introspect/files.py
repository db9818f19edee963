"""What the files of a model keep of us, and where it lies in them; NumPy, and h5py or TensorFlow where a format asks.

It is one blob of bytes, the same in every format: an `.npz` with the recording, what a started epoch has accumulated,
and a description.
"""

import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_introspect.npz import read_member, read_npz, write_npz

STATE_VERSION = 1
_FORMAT = "keras_introspect state"
_META = "state.json"

ATTRIBUTE = "_introspection"  # of the model: Keras's files and TensorFlow's checkpoints name the blob after it
_PIECE = "blob_"
_WEIGHTS = "model.weights.h5"  # the weights inside a .keras file
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"

States = dict[str, dict[str, np.ndarray]]  # "collector|statistic" → tensor → its state, (rows, fields)


class SavedState(NamedTuple):
    """The content of the blob.

    Attributes:
        recording: the bytes of the recording.
        versions: "collector|statistic" → the version of the statistic that was collected.
        states: what a started epoch had accumulated; empty between epochs.
    """

    recording: bytes
    versions: dict[str, int]
    states: States


def pack(saved: SavedState) -> bytes:
    """The blob."""
    arrays = {"recording": np.frombuffer(saved.recording, np.uint8)}
    states = []
    for key, by_name in saved.states.items():
        states.append({"key": key, "names": list(by_name), "rows": [len(state) for state in by_name.values()]})
        arrays[f"state/{len(states) - 1}"] = np.concatenate(list(by_name.values()))
    meta = {"format": _FORMAT, "version": STATE_VERSION, "statistics": saved.versions, "states": states}
    arrays[_META] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    return write_npz(arrays, compressed=False)  # the recording inside is compressed, states hardly can be


def unpack(blob: bytes) -> SavedState:
    """The inverse of `pack`.

    Raises:
        ValueError: the bytes are damaged, something else, or of a newer version.
    """
    try:
        arrays = read_npz(blob)
        meta = json.loads(arrays[_META].tobytes())
        if meta["format"] != _FORMAT:
            raise ValueError(f"its format is {meta['format']!r}")
        version = int(meta["version"])
    except Exception as error:  # damage shows as many types: zlib.error, RuntimeError, struct.error, …
        raise ValueError(f"what it keeps of introspection is damaged ({type(error).__name__}: {error}).") from error
    if version > STATE_VERSION:
        raise ValueError(
            f"what it keeps of introspection has format version {version}, this keras_introspect reads up to "
            f"{STATE_VERSION}. Update keras_introspect to read it."
        )
    try:
        return SavedState(arrays["recording"].tobytes(), _versions(meta["statistics"]), _states(meta["states"], arrays))
    except Exception as error:
        raise ValueError(f"what it keeps of introspection is damaged ({type(error).__name__}: {error}).") from error


def _versions(given: Mapping[str, Any]) -> dict[str, int]:
    return {str(key): int(version) for key, version in given.items()}


def _states(given: Any, arrays: Mapping[str, np.ndarray]) -> States:
    states: States = {}
    for i, about in enumerate(given):
        rows, names, array = about["rows"], about["names"], arrays[f"state/{i}"]
        if array.ndim != 2 or min(rows, default=0) < 0 or sum(rows) != len(array) or len(set(names)) != len(rows):
            raise ValueError(f"the states of {about['key']!r} do not fit their description")
        parts = np.split(array, np.cumsum(rows)[:-1])
        states[str(about["key"])] = dict(zip(map(str, names), parts, strict=True))
    return states


# --- in Keras's files, whose stores map names to arrays ---


def pieces(blob: bytes, limit: float = float("inf")) -> dict[str, np.ndarray]:
    """The blob as named arrays, none of them larger than `limit` bytes: a shard of weights has a size limit."""
    size = max(1, int(min(limit, len(blob))))
    starts = range(0, len(blob), size)
    return {f"{_PIECE}{i}": np.frombuffer(blob[start : start + size], np.uint8) for i, start in enumerate(starts)}


def joined(store: Any) -> bytes:
    """The inverse of `pieces`; empty where the store holds none of ours."""
    keys = {key for key in store.keys() if key.startswith(_PIECE)}  # noqa: SIM118 - a store of Keras is no mapping
    return b"".join(np.asarray(store[f"{_PIECE}{i}"]).tobytes() for i in range(len(keys)))


# --- reading a recording out of a file, without the model ---


def recording_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of the recording in any file that may hold one: see `Recording.load`."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return _of_folder(path)
    prefix = path.removesuffix(".index")
    if os.path.exists(f"{prefix}.index") and (prefix != path or not os.path.exists(path)):
        return _of_blob(_of_checkpoint(prefix))
    with open(path, "rb") as file:
        magic = file.read(len(_HDF5_MAGIC))
    if magic == _HDF5_MAGIC:
        return _of_blob(_of_h5(path))
    if path.endswith(".json"):
        return _of_blob(_of_shards(path))
    weights = _weights_inside(path)
    if weights is not None:
        return _of_blob(_of_h5(weights))
    with open(path, "rb") as file:
        return file.read()  # a recording, or nothing of ours: `Recording.from_bytes` tells


def _of_blob(blob: bytes) -> bytes:
    if not blob:
        raise ValueError(
            "it holds no recording: it was saved from a plain Keras model, or before anything was observed."
        )
    return unpack(blob).recording


def _of_folder(path: str) -> bytes:
    weights = os.path.join(path, _WEIGHTS)
    if os.path.exists(weights):
        return _of_blob(_of_h5(weights))  # what Keras saves with zipped=False
    if os.path.exists(os.path.join(path, "checkpoint")):
        latest = _tensorflow().train.latest_checkpoint(path)
        if latest is not None:
            return _of_blob(_of_checkpoint(latest))
    raise ValueError(
        "this folder is neither a TensorFlow checkpoint nor a Keras model. Expected a file that Recording.save(), "
        "model.save() or model.save_weights() wrote, or the prefix or folder of a tf.train.Checkpoint."
    )


def _weights_inside(path: str) -> io.BytesIO | None:
    """The weights in a `.keras` file; `None` where this is another file."""
    if not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            member = next((member for member in archive.infolist() if member.filename == _WEIGHTS), None)
            return None if member is None else io.BytesIO(read_member(archive, member))
    except Exception as error:
        raise ValueError(f"the file is damaged ({type(error).__name__}: {error}).") from error


def _of_h5(file: str | io.BytesIO) -> bytes:
    return joined(_datasets(file))


def _datasets(file: str | io.BytesIO) -> dict[str, np.ndarray]:
    """Our arrays in a file of weights: those of the outermost model that has some."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("Reading a recording from a Keras file needs h5py: pip install h5py") from error
    try:
        with h5py.File(file, "r") as h5:
            found: list[str] = []
            h5.visit(lambda name: found.append(name) if f"/{name}".endswith(f"/{ATTRIBUTE}/vars") else None)
            if not found:
                return {}
            group = h5[min(found, key=lambda name: name.count("/"))]
            return {key: _dataset(h5py, group, key) for key in group if key.startswith(_PIECE)}
    except Exception as error:
        raise ValueError(f"the HDF5 file is damaged ({type(error).__name__}: {error}).") from error


def _dataset(h5py: Any, group: Any, key: str) -> np.ndarray:
    """One of our arrays, if it lies in this very file, and its size can be true."""
    dataset = group[key] if isinstance(group.get(key, getlink=True), h5py.HardLink) else None
    if (
        not isinstance(dataset, h5py.Dataset)
        or dataset.is_virtual
        or dataset.external
        or dataset.dtype != np.uint8
        or dataset.ndim != 1
        or dataset.size > dataset.id.get_storage_size()
    ):
        raise ValueError(f"{key!r} is not what was written, or promises more bytes than there are")
    return np.asarray(dataset[()])


def _of_shards(path: str) -> bytes:
    try:
        with open(path, encoding="utf-8") as file:
            shards = json.load(file)["weight_map"].get(f"/{ATTRIBUTE}/vars", [])
        names = [shards] if isinstance(shards, str) else list(shards)
        if any(os.path.basename(name) != name for name in names):
            raise ValueError(f"it names shards outside its folder: {names}")
    except Exception as error:
        raise ValueError(f"this is no map of sharded weights, or damaged ({type(error).__name__}: {error}).") from error
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        arrays |= _datasets(os.path.join(os.path.dirname(path), name))
    return joined(arrays)


def _tensorflow() -> Any:
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError("Reading a recording from a TensorFlow checkpoint needs TensorFlow.") from error
    return tf


def _of_checkpoint(prefix: str) -> bytes:
    tf = _tensorflow()
    try:
        reader = tf.train.load_checkpoint(prefix)
        keys = [key for key in reader.get_variable_to_shape_map() if f"/{key}".endswith(f"/{ATTRIBUTE}/{_PY_STATE}")]
        return bytes(reader.get_tensor(min(keys, key=lambda key: key.count("/")))) if keys else b""
    except Exception as error:
        raise ValueError(f"the TensorFlow checkpoint is damaged ({type(error).__name__}: {error}).") from error


_PY_STATE = ".ATTRIBUTES/py_state"  # what TensorFlow calls the state of a `PythonState` (≥ 2.0)
