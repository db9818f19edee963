"""Tensors taken together give what each gives alone, whose numbers `test_statistics` checks."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_introspect.statistics import Activity, Context, Moments, Piece, Quantiles, Statistic, TensorSpec
from keras_introspect.statistics.bundles import bundles

STATISTICS = [Moments(), Activity(), Quantiles(), Quantiles(sample=16), Quantiles(sample=None)]


def tensors(seed: int = 0) -> list[tuple[np.ndarray, tuple[int | None, ...]]]:
    """Arrays, with the shapes that the graph knows of them: some kinds twice or more, not in order."""
    rng = np.random.default_rng(seed)

    def relu(*shape: int, dtype: str = "float32") -> np.ndarray:
        return np.maximum(rng.normal(size=shape), -0.5 if seed % 2 else 0.0).astype(dtype)

    return [
        (relu(3, 4), (3, 4)),
        (relu(5, 6), (None, 6)),
        (relu(4), (4,)),
        (relu(3, 4), (3, 4)),
        (relu(0, 6), (None, 6)),
        (relu(300, 4), (300, 4)),
        (relu(2, 5, 3, 2), (None, 5, 3, 2)),
        (relu(4), (4,)),
        (relu(9, 6), (None, 6)),
        (relu(1, 5, 3, 2), (None, 5, 3, 2)),
        (relu(3, 4, dtype="float16"), (3, 4)),
        (relu(3, 4, dtype="float64"), (3, 4)),
        (relu(2, 3, 4), (None, None, 4)),
        (relu(300, 4), (300, 4)),
        (relu(3, 4, dtype="float16"), (3, 4)),
        (relu(3, 4, dtype="float64"), (3, 4)),
        (relu(), ()),
        (relu(2, 400), (None, 400)),
        (relu(0, 6), (None, 6)),
    ]


def spec(i: int, shape: tuple[int | None, ...]) -> TensorSpec:
    return TensorSpec(
        f"t{i}", shape, batched=bool(shape) and shape[0] is None, channel_axis=len(shape) - 1 if shape else None
    )


def states(statistic: Statistic, chosen: list[tuple[np.ndarray, tuple[int | None, ...]]], eager: bool) -> np.ndarray:
    signature = [tf.TensorSpec(shape, array.dtype) for array, shape in chosen]

    def run(*values: Any) -> Any:
        pieces = [Piece(x, spec(i, shape)) for i, (x, (_, shape)) in enumerate(zip(values, chosen, strict=True))]
        return statistic.partials(pieces, Context(tf.constant(3, tf.int64), False, {}))

    function = run if eager else tf.function(run, input_signature=signature, autograph=False)
    return function(*(tf.constant(array) for array, _ in chosen)).numpy()


@pytest.mark.parametrize("statistic", STATISTICS, ids=repr)
@pytest.mark.parametrize(("spoilt", "eager"), [(None, False), (None, True), (1, False), (3, False), (8, False)])
def test_together_as_alone(statistic: Statistic, spoilt: int | None, eager: bool) -> None:
    chosen = tensors(0 if spoilt is None else spoilt)
    if spoilt is not None:  # one tensor of a bundle is not finite: the others stay what they were
        chosen[spoilt][0].flat[[0, 3]] = np.nan, np.inf
    together = states(statistic, chosen, eager)
    alone = np.concatenate([states(statistic, [one], eager) for one in chosen])
    assert together.shape == alone.shape
    np.testing.assert_allclose(together, alone, rtol=2e-6)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("statistic", [Moments(), Activity()], ids=repr)
@pytest.mark.parametrize("shape", [(160, 130), (40, 1024)])
def test_the_kernel_of_a_1x1_convolution_is_read_as_a_dense_one(
    shape: tuple[int, int], statistic: Statistic, eager: bool
) -> None:
    """By rows: as one row its columns, in float64, would be twice the bytes of the kernel, several times."""
    kernel = np.random.default_rng(0).normal(size=shape).astype("float32")
    kernel[:, 5] = 0
    dense = states(statistic, [(kernel, shape)], eager)
    pointwise = states(statistic, [(kernel[None, None], (1, 1, *shape))], eager)
    np.testing.assert_array_equal(pointwise, dense)
    if isinstance(statistic, Activity):
        np.testing.assert_array_equal(pointwise[1:, 0], np.count_nonzero(kernel, axis=0))


def test_what_fits_together_is_taken_together() -> None:
    chosen = tensors()

    @tf.function(input_signature=[tf.TensorSpec(shape, array.dtype) for array, shape in chosen], autograph=False)
    def run(*values: Any) -> Any:
        pieces = [Piece(x, spec(i, shape)) for i, (x, (_, shape)) in enumerate(zip(values, chosen, strict=True))]
        found = [bundle.members for bundle in bundles(pieces, Context())]
        assert sorted(found) == [
            (0, 3),
            (1, 4, 8, 18),
            (2, 7),
            (5, 13),
            (6, 9),
            (10, 14),
            (11, 15),
            (12,),
            (16,),
            (17,),
        ]
        # Where XLA compiles, sizes that vary are no reason to put tensors behind each other.
        found = [bundle.members for bundle in bundles(pieces, Context(xla=True))]
        assert (1,) in found
        assert (0, 3) in found
        return values[0]

    run(*(tf.constant(array) for array, _ in chosen))


def test_nothing_but_empty_tensors() -> None:
    empty = [(np.zeros((0, 6), "float32"), (None, 6))] * 3
    for statistic in STATISTICS:
        np.testing.assert_array_equal(states(statistic, empty, False)[0], states(statistic, empty[:1], False)[0])
