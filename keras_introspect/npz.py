"""`.npz` without trust.

What is read runs no pickle, fills no memory that the bytes present cannot fill, and is what was written: a digest of it
all lies beside it.
"""

import hashlib
import io
import math
import zipfile
from collections.abc import Mapping

import numpy as np

_DIGEST = "digest"
_DEFLATE_LIMIT = 1032  # deflate expands no byte to more (zlib.net/zlib_tech.html); all-zero series come near it


def write_npz(arrays: Mapping[str, np.ndarray], compressed: bool = True) -> bytes:
    """The content of an `.npz` file, without pickled objects, with a digest of all arrays among them."""
    buffer = io.BytesIO()
    write = np.savez_compressed if compressed else np.savez
    members = {**arrays, _DIGEST: _digest(arrays)}  # before the call: autograph, which may convert this, knows one `**`
    write(buffer, **members)  # type: ignore[arg-type]
    return buffer.getvalue()


def _digest(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """BLAKE2b of names, dtypes, shapes and values, by name."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def read_npz(data: bytes) -> dict[str, np.ndarray]:
    """Reads what `write_npz` wrote: numbers only.

    Raises:
        Exception: of many types (`ValueError`, `zipfile.BadZipFile`, `zlib.error`, …) where the bytes are damaged.
    """
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sum(member.compress_size for member in members) > len(data):
            raise ValueError("its members overlap")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"{name!r} is there twice")
            arrays[name] = _read_npy(name, read_member(archive, member))
    digest = arrays.pop(_DIGEST, None)  # early files have none
    if digest is not None and not np.array_equal(digest, _digest(arrays)):
        raise ValueError("its content is not what was written: the digest of it differs")
    return arrays


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """One member of a zip archive, if its size can be true."""
    name, size = member.filename.removesuffix(".npy"), member.file_size
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is compressed in an unexpected way")
    if size > _DEFLATE_LIMIT * member.compress_size:
        raise ValueError(f"{name!r} promises {size} bytes from {member.compress_size}")
    with archive.open(member) as file:
        content = file.read(size)
    if len(content) != size:
        raise ValueError(f"{name!r} promises {size} bytes and holds {len(content)}")
    return content


def _read_npy(name: str, content: bytes) -> np.ndarray:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"{name!r} has npy version {version}, expected (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "fiu" or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"{name!r} promises {dtype} of shape {shape}, and holds {len(content) - file.tell()} bytes")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
