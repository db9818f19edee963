"""What a statistic must know of a tensor besides its values."""

import math
from typing import NamedTuple


class TensorSpec(NamedTuple):
    """The static side of one observed tensor.

    Attributes:
        name: its row in the recording.
        shape: `None` marks an axis that varies.
        batched: whether the first axis is the batch (layer outputs) or not (variables).
        channel_axis: the axis of the units; `None` for a scalar, or a tensor that has only a batch axis.

    Example:

    >>> spec = TensorSpec("conv", (None, 8, 6, 16), batched=True, channel_axis=3)
    >>> spec.channels, spec.positions
    (16, 48)
    """

    name: str
    shape: tuple[int | None, ...]
    batched: bool
    channel_axis: int | None

    def joined(self, other: "TensorSpec") -> "TensorSpec":
        """The spec that fits both: `None` for axes in which they differ; of another rank, a vector without units."""
        if len(self.shape) != len(other.shape):
            return TensorSpec(self.name, (None,), batched=True, channel_axis=None)
        shape = tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True))
        return self._replace(shape=shape)

    @property
    def channels(self) -> int | None:
        """Number of units; `None` where it varies from step to step."""
        return 1 if self.channel_axis is None else self.shape[self.channel_axis]

    @property
    def position_axes(self) -> tuple[int, ...]:
        """The axes between batch and channels; a variable has none."""
        if not self.batched:
            return ()
        return tuple(axis for axis in range(1, len(self.shape)) if axis != self.channel_axis)

    @property
    def positions(self) -> int | None:
        """Number of places over the position axes, 0 without such axes; `None` where it varies."""
        sizes = [self.shape[axis] for axis in self.position_axes]
        if any(size is None for size in sizes):
            return None
        return math.prod(size or 0 for size in sizes) if sizes else 0
