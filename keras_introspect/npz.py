"""`.npz` without trust: what is read runs no pickle, and fills no memory that the bytes present cannot fill."""

import io
import math
import zipfile
from collections.abc import Mapping

import numpy as np

_DEFLATE_LIMIT = 1032  # deflate expands no byte to more (zlib.net/zlib_tech.html); all-zero series come near it


def write_npz(arrays: Mapping[str, np.ndarray], compressed: bool = True) -> bytes:
    """The content of an `.npz` file, without pickled objects."""
    buffer = io.BytesIO()
    write = np.savez_compressed if compressed else np.savez
    write(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


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
