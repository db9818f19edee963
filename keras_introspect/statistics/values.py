"""Raw values: some elements of a tensor, as they are."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import Context, Piece, Statistic, flat
from keras_introspect.statistics.spec import TensorSpec

BUDGET = 64 * 2**20


class Values(Statistic):
    """Some elements of a tensor as they are: `LayerOutputs(layers="conv1", values=ki.Values(64))`.

    `series.epoch("values")`, shape (T, L, elements), holds those of the last observed step of the epoch;
    `series.step("values")`, with `per_step=True`, those of each step. Of layer outputs, the first sample of the batch
    is taken. Of what `slices` leave of it, flattened, up to `elements` are taken at equal distances; the rest is NaN.
    Kept in float32. Sparse gradients have none.

    Args:
        elements: how many of each tensor.
        slices: of a sample, or of a variable: a slice for each of the first axes, such as `(slice(0, 1), slice(None))`.
        budget: bytes that the values of one run may take in the recording, 8 an element. A `fit` that would need more
            is refused before it begins.

    Raises:
        ValueError: `elements` or `budget` is not a positive number.

    Example:

    >>> import tensorflow as tf
    >>> from keras_introspect.statistics import Context, Piece, TensorSpec
    >>> spec = TensorSpec("x", (None, 4), batched=True, channel_axis=1)
    >>> values = Values(2)
    >>> state = values.partials([Piece(tf.constant([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]]), spec)], Context())
    >>> values.result(state.numpy(), spec)["values"]
    array([1., 3.], dtype=float32)
    """

    name = "values"
    series = ("values",)
    initial: ClassVar[tuple[float, ...]] = (math.nan, 0.0)
    dtype = "float32"

    def __init__(self, elements: int = 256, slices: Sequence[slice] = (), budget: int = BUDGET) -> None:
        for argument, value in (("elements", elements), ("budget", budget)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{argument}={value!r}; expected a positive whole number.")
        self.elements = elements
        self.slices = tuple(slice(*s) if isinstance(s, (list, tuple)) else s for s in slices)
        self.budget = budget

    def takes(self, piece: Piece) -> bool:
        return super().takes(piece) and piece.zeros is None

    def rows(self, spec: TensorSpec) -> int:
        return self.elements

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        return tf.concat([self._state(piece) for piece in pieces], axis=0)

    def _state(self, piece: Piece) -> Any:
        values = piece.beside.get("newest", piece.values)  # of what ran in a loop, the last turn
        of_sample = [slice(1)] if piece.spec.batched else []
        slices = self.slices[: len(values.shape) - len(of_sample)]
        values = values[tuple([*of_sample, *slices])] if of_sample or slices else values
        values = tf.cast(flat(values), tf.float32)
        size = tf.size(values, tf.int64)  # a product of two sizes leaves int32
        number = tf.minimum(size, self.elements)
        taken = tf.gather(values, tf.range(number) * size // tf.maximum(number, 1))
        padded = tf.pad(taken, [[0, self.elements - number]], constant_values=math.nan)
        return tf.stack([padded, tf.fill([self.elements], tf.cast(size > 0, tf.float32))], axis=-1)

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        return xp.where(b[..., 1:] > 0, b, a)

    @property
    def step_fields(self) -> int:
        return self.elements

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        return tf.reshape(state[:, 0], [len(specs), self.elements])

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        return {"values": vectors}

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        return {"values": state[:, 0]}

    def get_config(self) -> dict[str, Any]:
        slices = [[s.start, s.stop, s.step] for s in self.slices]
        return {"elements": self.elements, "slices": slices, "budget": self.budget}
