"""Packed vectors: what goes in comes out, and what does not fit is refused."""

import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_introspect.kept import pack, unpack

numbers = st.sampled_from([0.0, 0.0, 0.0, 1.0, 3.0, 300.0, 70_000.0, 0.5, 1 / 3, -2.0, 1e300, np.inf, -np.inf])
vectors = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 5)), st.lists(numbers, max_size=40).map(np.array), max_size=6
)


@given(vectors)
def test_vectors_come_back(expected):
    found = unpack(pack(expected))
    assert list(found) == list(expected)
    for key, vector in expected.items():
        np.testing.assert_array_equal(found[key], vector)


@pytest.mark.parametrize(
    ("value", "size"), [(200, 1), (60_000, 2), (4e9, 4), (0.5, 4), (-1.0, 4), (np.nan, 4), (1 / 3, 8)]
)
def test_the_narrowest_type_that_is_exact(value, size):
    data = zlib.decompress(pack({(0, 0): np.array([1.0, value])}))
    assert len(data) == 4 + 4 * 4 + 1 + 2 * size
    np.testing.assert_array_equal(unpack(pack({(0, 0): np.array([1.0, value])}))[0, 0], [1.0, value])


def test_what_is_zero_takes_no_room():
    assert len(pack({(0, 0): np.zeros(100_000), (0, 1): np.arange(100_000) == 7})) < 120


def test_damage_is_found():
    whole = zlib.decompress(pack({(0, 0): np.array([1.0, 0, 0, 2.0]), (0, 1): np.arange(20.0)}))
    rng = random.Random(0)
    damaged = [b"", whole, pack({})[:-1], zlib.compress(whole[:-1]), zlib.compress(whole + b"x"), zlib.compress(b"")]
    damaged += [zlib.compress(whole[: rng.randrange(len(whole))]) for _ in range(50)]
    for data in damaged:
        with pytest.raises(ValueError, match="keeps of states is damaged"):
            unpack(data)
    for _ in range(500):  # other numbers, or an error, and never more memory than a bit of it can ask for
        flipped = bytearray(whole)
        flipped[rng.randrange(len(flipped))] ^= rng.randrange(1, 256)
        try:
            found = unpack(zlib.compress(bytes(flipped)))
        except ValueError:
            continue
        assert sum(len(vector) for vector in found.values()) <= 8 * len(whole)
