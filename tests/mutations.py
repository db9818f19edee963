"""What may have happened to a file: cut, flipped, promised too much, or made by someone who means harm."""

import io
import os
import random
import struct
import zipfile

import numpy as np


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def pickled() -> bytes:
    """An `.npy` array that holds a pickled object."""
    file = io.BytesIO()
    np.save(file, np.array([Bomb()], object), allow_pickle=True)
    return file.getvalue()


def huge() -> bytes:
    """An `.npy` array that promises a terabyte."""
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,)}".ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        changed[rng.randrange(len(changed))] ^= rng.randrange(1, 256)
    return bytes(changed)


def flipped_head(data: bytes, rng: random.Random) -> bytes:
    """Where HDF5 and npy keep their descriptions."""
    head = min(len(data), 4096)
    return flipped(data[:head], rng) + data[head:]


def number_changed(data: bytes, rng: random.Random) -> bytes:
    """A size, a shape or an offset that says something huge."""
    value = rng.choice([2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])
    packed = struct.pack("<Q", value)[: rng.choice([4, 8])]
    start = rng.randrange(max(1, len(data) - 8))
    return data[:start] + packed + data[start + len(packed) :]


def member_changed(data: bytes, rng: random.Random) -> bytes:
    """A zip that is whole, with one member that is not what it was; of another file, some bytes overwritten."""
    if not data.startswith(b"PK"):
        start = rng.randrange(len(data))
        return data[:start] + rng.choice([pickled(), huge()]) + data[start:]
    source, target = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    victim = rng.choice(source.namelist())
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name == victim:
                kinds = [b"", pickled(), huge(), content[: len(content) // 2], flipped(content, rng), content + b"more"]
                content = rng.choice(kinds)
            archive.writestr(name, content)
    return target.getvalue()


def replaced(data: bytes, rng: random.Random) -> bytes:
    """Another file altogether."""
    return rng.choice(
        [b"", b"\x80\x04N.", pickled(), huge(), rng.randbytes(len(data)), b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"]
    )


KINDS = [cut, flipped, flipped_head, number_changed, member_changed, flipped, number_changed, replaced]


def changed(data: bytes, number: int, rng: random.Random) -> bytes:
    """The mutation of a number."""
    return KINDS[number % len(KINDS)](data, rng) if data else b"x"
