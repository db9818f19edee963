"""What every statistic is: a partial state, a merge, a read-out."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from keras_introspect.errors import NamesItsArguments
from keras_introspect.statistics.spec import TensorSpec


class Piece(NamedTuple):
    """One tensor of one step.

    Attributes:
        values: floating point, of any shape that fits `spec`; `None` where only states are left of it.
        spec: its static side.
        zeros: int64 scalar, how many elements more there are that are all zero (the untouched rows of a sparse
            gradient); `None` where there are none.
        states: name of a statistic → its state, where it was taken already: in a loop, whose tensors do not get out.
        beside: further tensors of the same variable, by name, for statistics that compare: see the collector.
    """

    values: Any
    spec: TensorSpec
    zeros: Any = None
    states: Mapping[str, Any] = {}
    beside: Mapping[str, Any] = {}


class Context(NamedTuple):
    """What a statistic may know of the step.

    Attributes:
        step: int64 scalar: how many steps the optimizer had done.
        xla: whether the step is compiled by XLA.
        cache: of what several statistics need of the same tensor; see `shared`.
    """

    step: Any = 0
    xla: bool = False
    cache: dict[tuple[str, int], tuple[Any, Any]] | None = None

    def shared(self, name: str, values: Any, compute: Callable[[Any], Any]) -> Any:
        """`compute(values)`, once for all statistics that ask for it by this name."""
        if self.cache is None:
            return compute(values)
        key = (name, id(values))
        if key not in self.cache:
            self.cache[key] = (values, compute(values))  # kept with its tensor, so that no id is used twice
        return self.cache[key][1]


class Statistic(NamesItsArguments):
    """A mergeable statistic of a tensor.

    The state of one tensor is a matrix of shape (rows, fields). States are merged row by row, so the states of many
    tensors lie below each other in one variable, and one merge serves them all.

    A statistic of your own overrides `rows`, `partials`, `merge` and `result`, and the class attributes.

    Attributes:
        name: what a user writes in `statistics=[...]`.
        series: the names of the numbers it yields, one a tensor.
        unit_series: the names of the numbers it yields for each channel.
        only_of: the keys of the collectors that it needs, where it does not take any tensor.
        logged: series name → how the epoch logs sum it up over the tensors: "mean", "median", "min", "max" or "sum".
            The package's own statistics have none: what is logged of them stands in the collectors.
        initial: the state of nothing, a number a field: merging it changes nothing.
        dtype: of the state.
        version: raise it when a new release changes what the state or the series mean: a saved state of another version
            is not merged with new ones.
    """

    name: ClassVar[str]
    series: ClassVar[tuple[str, ...]]
    unit_series: ClassVar[tuple[str, ...]] = ()
    only_of: ClassVar[tuple[str, ...]] = ()
    logged: ClassVar[Mapping[str, str]] = {}
    initial: ClassVar[tuple[float, ...]]
    dtype: ClassVar[str] = "float64"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> int:
        return len(self.initial)

    @property
    def step_fields(self) -> int:
        """The length of the vectors that `step_state` yields; 0 where single steps are not kept."""
        return self.fields

    @property
    def quantile_levels(self) -> np.ndarray | None:
        """The percentages along the last axis of series that have one more axis."""
        return None

    def rows(self, spec: TensorSpec) -> int:
        """How many rows the state of such a tensor has."""
        return 1

    def takes(self, piece: Piece) -> bool:
        """Whether the statistic can be had of this piece."""
        return piece.values is not None or self.name in piece.states

    def partials(self, pieces: Sequence[Piece], context: Context) -> Any:
        """The states of some tensors, below each other.

        Args:
            pieces: P tensors.
            context: about the step.

        Returns:
            A tensor of shape (sum of their rows, fields) and of `dtype`.
        """
        raise NotImplementedError

    def merge(self, a: Any, b: Any, xp: Any) -> Any:
        """The state of the union of two disjoint sets of elements.

        Args:
            a: state of shape (..., fields).
            b: state of the same shape.
            xp: `numpy` or `tensorflow`: use `where`, `minimum`, `maximum`, `stack` and operators only.
        """
        raise NotImplementedError

    def update(self, state: Any, new: Any, specs: Sequence[TensorSpec]) -> Any:
        """The state after one step more, on the device; default: their merge.

        Args:
            state: of the steps so far, of shape (sum of the rows, fields).
            new: of one step, of the same shape.
            specs: the tensors.
        """
        return self.merge(state, new, tf)

    def restated(self, state: np.ndarray, spec: TensorSpec, wider: TensorSpec) -> np.ndarray | None:
        """A state of a tensor of one shape as that of `wider`, which fits other shapes too; `None`: it cannot be."""
        return state if self.rows(spec) == self.rows(wider) else None

    def result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, Any]:
        """The numbers of one tensor from its state of shape (rows, fields): series name → scalar, or array (Q,)."""
        raise NotImplementedError

    def unit_result(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        """The numbers of each channel of one tensor: unit series name → array (channels,)."""
        return {}

    def kept(self, state: np.ndarray, spec: TensorSpec) -> dict[str, np.ndarray]:
        """What a recording keeps of a state so that recordings can be merged, where the results do not tell it.

        Args:
            state: of shape (rows, fields).
            spec: the tensor.

        Returns:
            Key → vector; best mostly zero. `keras_introspect.merging` knows the keys.
        """
        return {}

    def step_state(self, state: Any, specs: Sequence[TensorSpec]) -> Any:
        """What the series of single steps need, on the device: a vector a tensor.

        Args:
            state: of shape (sum of the rows, fields): the states of one step.
            specs: the L tensors.

        Returns:
            A tensor of shape (L, K). Default: the state, where it is one row a tensor.
        """
        return state

    def step_result(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers of S steps from what `step_state` gave, of shape (S, L, K): series name → array (S, L)."""
        raise NotImplementedError

    def empty(self, rows: int) -> np.ndarray:
        """The state of nothing."""
        return np.tile(np.asarray(self.initial, self.dtype), (rows, 1))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as a saved model keeps them."""
        return {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Statistic":
        return cls(**config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.get_config().items())})"


def flat(values: Any, context: Context | None = None) -> Any:
    """As one vector, in float32 or wider: sums in float16 overflow, in bfloat16 they stall."""
    if context is not None:
        return context.shared("flat", values, flat)
    return wide(values if values.shape.rank == 1 else tf.raw_ops.Reshape(tensor=values, shape=[-1]))


def wide(values: Any) -> Any:
    """In float32 or wider."""
    return values if values.dtype in (tf.float32, tf.float64) else tf.cast(values, tf.float32)


def sizes(vectors: Sequence[Any]) -> Any:
    """The numbers of elements of some vectors, float64."""
    if all(vector.shape[0] is not None for vector in vectors):
        return tf.constant([float(vector.shape[0]) for vector in vectors], tf.float64)
    return tf.cast(tf.stack([tf.size(vector, tf.int64) for vector in vectors]), tf.float64)


def zeros_of(pieces: Sequence[Piece]) -> Any:
    """The numbers of further elements that are zero, float64; `None` where there are none at all."""
    if all(piece.zeros is None for piece in pieces):
        return None
    sparse = [i for i, piece in enumerate(pieces) if piece.zeros is not None]
    counts = tf.cast(tf.stack([tf.cast(pieces[i].zeros, tf.int64) for i in sparse]), tf.float64)
    return tf.scatter_nd(np.array(sparse)[:, None], counts, [len(pieces)])


_TRACED: list[Any] = []


def forget_traces() -> None:
    """Has each function made by `once` traced anew: TensorFlow's context was reset, and the old ones are lost."""
    for concrete in _TRACED:
        concrete.cache_clear()


def fields_of(state: Any, xp: Any) -> list[Any]:
    """The fields of a state (..., fields), each of shape (...): in one operation, where slices would be one each."""
    return tf.unstack(state, axis=-1) if xp is tf else list(np.moveaxis(state, -1, 0))


def once(*signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function of tensors that is traced once and then called, tensor by tensor, as one operation.

    A step that observes a hundred tensors would otherwise spend seconds on tracing the same dozen operations again. The
    call is inlined when the graph is optimized or compiled.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def concrete() -> Any:
            with tf.init_scope():
                return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return concrete()(*args)

        _TRACED.append(concrete)
        call.concrete = concrete  # type: ignore[attr-defined]
        return call

    return decorate


def branch(condition: Any, first: Callable[..., Any], second: Callable[..., Any], *args: Any) -> Any:
    """`first(*args)` where the condition holds, else `second(*args)`: functions made by `once`, not traced anew.

    Both give one float64 tensor of the same shape.
    """
    if tf.executing_eagerly():
        return first(*args) if condition else second(*args)
    then_branch, else_branch = first.concrete(), second.concrete()  # type: ignore[attr-defined]
    (result,) = tf.raw_ops.StatelessIf(
        cond=condition, input=list(args), Tout=[tf.float64], then_branch=then_branch, else_branch=else_branch
    )
    return tf.ensure_shape(result, then_branch.output_shapes)


def unless(exact: Any, state: Any, carefully: Callable[..., Any], *args: Any) -> Any:
    """`state` where the condition holds, else `carefully(*args)`, a tensor of the same shape and dtype.

    For what is needed rarely: unlike `tf.cond`, whose branches become part of the step's graph and are optimized with
    it at great length, the slow way lies in a function of its own.
    """
    if tf.executing_eagerly():
        return state if exact else carefully(*args)
    inputs = [state, *(tf.convert_to_tensor(arg) for arg in tf.nest.flatten(args))]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    with tf.init_scope():
        usual = tf.function(lambda state, *given: tf.identity(state), specs, autograph=False).get_concrete_function()
        slow = tf.function(
            lambda state, *given: carefully(*tf.nest.pack_sequence_as(args, given)), specs, autograph=False
        ).get_concrete_function()
    (result,) = tf.raw_ops.StatelessIf(
        cond=exact, input=inputs, Tout=[state.dtype], then_branch=usual, else_branch=slow
    )
    return tf.ensure_shape(result, state.shape)


VECTOR = tf.TensorSpec([None], tf.float32)
WIDE_VECTOR = tf.TensorSpec([None], tf.float64)
