"""What a recording keeps of the states of an epoch, packed: numbers that its results do not tell. NumPy only.

Most of it is zero: the bins of a sketch that nothing fell into, the flags of channels that are not dead. So a vector is
a bit for each element, whether it is not zero, and the elements that are not, in the narrowest type that holds them;
and all vectors of an epoch are compressed together, once, when they are recorded.
"""

import zlib
from collections.abc import Mapping

import numpy as np

_TYPES = tuple(np.dtype(name) for name in ("u1", "<u2", "<u4", "<f4", "<f8"))
_COLUMNS = 4  # key, tensor, length and type of each vector: uint32

Vectors = dict[tuple[int, int], np.ndarray]  # (place of a key, place of a tensor) → vector


def pack(vectors: Mapping[tuple[int, int], np.ndarray]) -> bytes:
    """The vectors of one epoch as bytes.

    Example:

    >>> data = pack({(0, 0): np.array([0.0, 2.5, 0.0]), (1, 0): np.zeros(10_000)})
    >>> len(data) < 100
    True
    >>> {key: (vector.shape, float(vector.sum())) for key, vector in unpack(data).items()}
    {(0, 0): ((3,), 2.5), (1, 0): ((10000,), 0.0)}
    """
    head, bits, values = [], [], []
    for (key, tensor), vector in vectors.items():
        wide = np.asarray(vector, np.float64)
        present = wide != 0.0
        number, narrow = _narrow(wide[present])
        head.append((key, tensor, len(wide), number))
        bits.append(np.packbits(present).tobytes())
        values.append(narrow.tobytes())
    columns = np.array(head, "<u4").tobytes()
    return zlib.compress(b"".join([np.array(len(head), "<u4").tobytes(), columns, *bits, *values]))


def _narrow(values: np.ndarray) -> tuple[int, np.ndarray]:
    """The same float64 numbers in the narrowest type that holds them all, and the number of that type."""
    for number, dtype in enumerate(_TYPES):
        with np.errstate(invalid="ignore", over="ignore"):
            narrow = values.astype(dtype)
        same = narrow == values
        if dtype.kind == "f":
            same |= np.isnan(values)
        if same.all():
            return number, narrow
    raise AssertionError("float64 holds every float64")


def unpack(data: bytes) -> Vectors:
    """The inverse of `pack`.

    Raises:
        ValueError: the bytes are not what `pack` made.
    """
    try:
        return _unpack(np.frombuffer(zlib.decompress(data), np.uint8))
    except (zlib.error, ValueError, IndexError) as error:
        raise ValueError(f"what the recording keeps of states is damaged ({type(error).__name__}: {error}).") from error


def _unpack(data: np.ndarray) -> Vectors:
    place = 0

    def take(number: int, dtype: np.dtype) -> np.ndarray:
        nonlocal place
        part = data[place : place + number * dtype.itemsize]
        place += number * dtype.itemsize
        return np.frombuffer(part.tobytes(), dtype, count=number)  # raises where there is less

    (number,) = take(1, np.dtype("<u4")).tolist()
    head = take(_COLUMNS * number, np.dtype("<u4")).reshape(number, _COLUMNS).tolist()
    bits = [take((length + 7) // 8, np.dtype("u1")) for _, _, length, _ in head]
    vectors = {}
    for (key, tensor, length, kind), flags in zip(head, bits, strict=True):
        present = np.unpackbits(flags, count=length).astype(bool)
        vectors[key, tensor] = vector = np.zeros(length)
        vector[present] = take(int(present.sum()), _TYPES[kind])
    if place != len(data):
        raise ValueError(f"{len(data) - place} bytes too many")
    return vectors
