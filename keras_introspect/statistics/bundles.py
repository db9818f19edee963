"""Tensors that are read together: many small ones cost more in operations than in arithmetic."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_introspect.statistics.base import VECTOR, WIDE_VECTOR, Context, Piece, branch, flat, once, unless, wide
from keras_introspect.statistics.spec import TensorSpec

MANY_COLUMNS = 1024  # from so many on, a branch that saves a pass is worth what it costs in tracing
_COLUMNS = 64  # from so many on, reducing the first axis first is the faster way: it needs no horizontal sums
_SMALL = 16384  # elements: copying larger tensors costs more than the operations that it saves
_NARROW = 256  # columns, for tensors of which the rows vary in number

MATRIX = tf.TensorSpec([None, None], tf.float32)


class Bundle(NamedTuple):
    """Some tensors of one kind.

    Attributes:
        members: which of the pieces they are.
        values: float32 or float64. Tensors of one shape: (members, first axis, all others). Of one shape but for the
            first axis: their rows below each other, then a row of zeros, so that it is never empty. One tensor: itself,
            of any shape and floating type.
        owners: of such rows, int32: to which member each belongs; else `None`.
        lengths: of such rows, int32: how many each member has; else `None`.
        shape: of one member, static; its first axis may be `None`.
        spec: of one of the members: all fit it but for its name.
        negative: `False` where the graph says that no element is: see `never_negative`.
    """

    members: tuple[int, ...]
    values: Any
    owners: Any
    lengths: Any
    shape: Any
    spec: TensorSpec
    negative: bool

    @property
    def elements(self) -> Any:
        """The values; of rows below each other, without the last one."""
        return self.values if self.owners is None else self.values[:-1]

    @property
    def is_stack(self) -> bool:
        """Whether there are several tensors of one shape."""
        return self.owners is None and len(self.members) > 1

    def sums(self, x: Any, over: str = "sum") -> Any:
        """Reduces what belongs to each member, from elements x in the layout of the values: (members, columns)."""
        if self.owners is None:
            return getattr(tf, f"reduce_{over}")(x, axis=1)
        found = getattr(tf.math, f"segment_{over}")(x, self.owners)
        missing = len(self.members) - tf.shape(found)[0]  # the last members, where they have no rows
        found = tf.pad(found, [[0, missing], [0, 0]])
        return tf.ensure_shape(found, [len(self.members), x.shape[1]])


def bundles(pieces: Sequence[Piece], context: Context) -> list[Bundle]:
    """Pieces that have values, those that fit together in one bundle; every piece is in one of them."""
    name = f"bundles of {[id(piece.values) for piece in pieces]}"
    # With the pieces, which are kept: no id is used twice.
    return context.shared(name, pieces[0].values, lambda _: (pieces, _bundled(pieces, context)))[1]


def _bundled(pieces: Sequence[Piece], context: Context) -> list[Bundle]:
    kinds: dict[Any, list[int]] = {}
    for i, piece in enumerate(pieces):
        kinds.setdefault(_kind(piece, context) or i, []).append(i)
    return [_bundle(members, [pieces[i] for i in members], context) for members in kinds.values()]


def _kind(piece: Piece, context: Context) -> Any:
    """What tensors have in common that fit together; `None`: this one stays alone."""
    shape, spec = piece.values.shape, piece.spec._replace(name="")
    if not shape.rank:
        return None
    if shape.is_fully_defined():
        return (tuple(shape), piece.values.dtype, spec) if 0 < shape.num_elements() <= _SMALL else None
    columns = columns_of(piece.values)
    if context.xla or columns is None or not 0 < columns <= _NARROW:
        return None
    return (None, *shape[1:]), piece.values.dtype, spec


def _bundle(members: Sequence[int], pieces: Sequence[Piece], context: Context) -> Bundle:
    tensors, spec = [piece.values for piece in pieces], pieces[0].spec
    negative = not all(never_negative(x) for x in tensors)
    if len(pieces) == 1:
        return Bundle(tuple(members), tensors[0], None, None, tensors[0].shape, spec, negative)
    shape = tensors[0].shape
    if shape.is_fully_defined():
        layout = [len(tensors), 1, shape[0]] if shape.rank == 1 else [len(tensors), shape[0], columns_of(tensors[0])]
        stacked = tf.reshape(tf.stack(tensors), layout)
        return Bundle(tuple(members), wide(stacked), None, None, tensors[0].shape, spec, negative)
    columns = columns_of(tensors[0])
    matrices = [x if shape.rank == 2 else tf.raw_ops.Reshape(tensor=x, shape=[-1, columns]) for x in tensors]
    rows = wide(tf.concat([*matrices, tf.zeros([1, columns], matrices[0].dtype)], axis=0))
    lengths = tf.stack([matrix_shape[0] for matrix_shape in tf.shape_n(matrices)])
    places = tf.range(tf.shape(rows)[0] - 1)
    owners = tf.searchsorted(tf.cumsum(lengths), places, side="right")
    return Bundle(tuple(members), rows, owners, lengths, shape, spec, negative)


def in_order(parts: Sequence[Any], found: Sequence[Bundle], rows: Sequence[int] | None = None) -> Any:
    """What was taken by bundles, a tensor each of the members' rows below each other, in the order of the pieces.

    Args:
        parts: by bundle.
        found: the bundles.
        rows: how many rows each piece has; default: one.
    """
    order = [i for bundle in found for i in bundle.members]
    if order == sorted(order):
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)
    numbers = np.ones(len(order), np.int32) if rows is None else np.asarray(rows, np.int32)
    ends = np.cumsum(numbers)
    places = np.concatenate([np.arange(ends[i] - numbers[i], ends[i], dtype=np.int32) for i in order])
    lengths = [part.shape[0] for part in parts]
    return tf.dynamic_stitch(np.split(places, np.cumsum(lengths)[:-1]), parts)


def unless_exact(exact: Any, state: Any, carefully: Callable[..., Any], found: Sequence[Bundle], *args: Any) -> Any:
    """`state` where the condition holds, else `carefully(vectors, *args)` of the pieces as single vectors."""
    values, lengths = [b.values for b in found], [b.lengths for b in found if b.lengths is not None]

    def redo(values: Sequence[Any], lengths: Sequence[Any], *args: Any) -> Any:
        return carefully(_vectors_of(found, values, lengths), *args)

    return unless(exact, state, redo, values, lengths, *args)


def _vectors_of(found: Sequence[Bundle], values: Sequence[Any], lengths: Sequence[Any]) -> list[Any]:
    """The pieces as single vectors again, from the values and, where there are some, the lengths of their bundles."""
    vectors: dict[int, Any] = {}
    remaining = iter(lengths)
    for bundle, x in zip(found, values, strict=True):
        if bundle.owners is not None:
            parts = tf.split(x[:-1], next(remaining), num=len(bundle.members))
        else:
            parts = tf.unstack(x) if bundle.is_stack else [x]
        vectors.update(zip(bundle.members, map(flat, parts), strict=True))
    return [vectors[i] for i in sorted(vectors)]


def sizes(pieces: Sequence[Piece]) -> Any:
    """The numbers of elements, float64."""
    if all(piece.values.shape.is_fully_defined() for piece in pieces):
        return tf.constant([float(piece.values.shape.num_elements()) for piece in pieces], tf.float64)
    return tf.cast(tf.stack([tf.size(piece.values, tf.int64) for piece in pieces]), tf.float64)


def sums_of(pieces: Sequence[Piece], context: Context) -> Any:
    """Σx, Σx², minimum and maximum of each tensor: float64, shape (P, 4); NaN, infinity or overflow shows in Σx²."""
    found = bundles(pieces, context)
    return in_order([_sums_of_bundle(bundle, context) for bundle in found], found)


def squares_of(pieces: Sequence[Piece], context: Context) -> Any:
    """Σx² of each tensor, float64, shape (P,)."""
    found = bundles(pieces, context)
    return in_order([_squares_of_bundle(bundle, context) for bundle in found], found)


def magnitudes_of(pieces: Sequence[Piece], context: Context) -> Any:
    """Σ|x| of each tensor, float64, shape (P,): a pass of its own only where some element may be negative."""
    found = bundles(pieces, context)
    return in_order([_magnitudes_of_bundle(b, context) for b in found], found)


def _sums_of_bundle(bundle: Bundle, context: Context) -> Any:
    return context.shared("sums", bundle.values, lambda _: _computed_sums(bundle, context))


def _computed_sums(bundle: Bundle, context: Context) -> Any:
    if len(bundle.members) == 1:
        return _sums(bundle.values, bundle.negative, context)[None]
    x = bundle.elements
    total = tf.cast(bundle.sums(x), tf.float64)
    squares = _squares_by_column(bundle, context)
    low = tf.reduce_min(bundle.sums(x, "min"), axis=1)
    high = tf.reduce_max(bundle.sums(x, "max"), axis=1)
    ends = tf.cast(tf.stack([low, high]), tf.float64)
    return tf.transpose(tf.concat([tf.reduce_sum(tf.stack([total, squares]), axis=2), ends], axis=0))


def _squares_by_column(bundle: Bundle, context: Context) -> Any:
    if bundle.owners is None and not context.xla:  # which does not know the operation
        return tf.square(tf.cast(tf.raw_ops.EuclideanNorm(input=bundle.values, axis=[1]), tf.float64))
    return tf.cast(bundle.sums(tf.square(bundle.elements)), tf.float64)


def _squares_of_bundle(bundle: Bundle, context: Context) -> Any:
    if len(bundle.members) > 1:
        return tf.reduce_sum(_squares_by_column(bundle, context), axis=1)
    return (2.0 * tf.cast(tf.nn.l2_loss(flat(bundle.values, context)), tf.float64))[None]


def _magnitudes_of_bundle(bundle: Bundle, context: Context) -> Any:
    if not bundle.negative:
        return _sums_of_bundle(bundle, context)[:, 0]
    if len(bundle.members) == 1:
        vector = flat(bundle.values, context)
        return (_wide_magnitudes(vector) if vector.dtype == tf.float64 else _magnitudes(vector))[None]
    sums = bundle.sums(tf.abs(bundle.elements))
    return tf.reduce_sum(tf.cast(sums, tf.float64), axis=1)


_wide_magnitudes, _magnitudes = (
    once(spec)(lambda x: tf.cast(tf.reduce_sum(tf.abs(x)), tf.float64)) for spec in (WIDE_VECTOR, VECTOR)
)


def _sums(values: Any, negative: bool, context: Context) -> Any:
    """The same of one tensor, in one pass each: (4,)."""
    vector = flat(values, context)
    if vector.dtype == tf.float64:
        return _wide_vector_sums(vector)
    columns = columns_of(without_ones(values, leading_ones(values.shape)))
    if context.xla or columns is None or columns < _COLUMNS:
        return _vector_sums(vector)
    matrix = tf.raw_ops.Reshape(tensor=vector, shape=[-1, columns])
    if columns >= MANY_COLUMNS and not negative:
        return _nonnegative_sums(matrix)
    return _matrix_sums(matrix)


def columns_of(values: Any) -> int | None:
    """How many elements lie behind each other along the first axis; `None` where there is none, or it varies."""
    if values.shape.rank in (None, 0, 1) or not values.shape[1:].is_fully_defined():
        return None
    return int(values.shape[1:].num_elements())


def leading_ones(shape: Any) -> int:
    """How many of the first axes have one element, the last two axes apart: two in the kernel of a 1×1 convolution.

    By the first of them, everything were one row, and what is summed up of its columns as large as the tensor.
    """
    axes = [] if shape.rank is None else list(shape)[:-2]
    return next((i for i, length in enumerate(axes) if length != 1), len(axes))


def without_ones(values: Any, number: int) -> Any:
    """The same elements without the first axes, so many, which have one element each."""
    return tf.squeeze(values, axis=list(range(number))) if number else values


def never_negative(values: Any) -> bool:
    """Whether the graph says that a tensor is nowhere negative: a ReLU has made it. NaN it may hold."""
    if not isinstance(values, tf.Tensor) or tf.executing_eagerly():
        return False
    while values.op.type in ("Identity", "Reshape"):
        values = values.op.inputs[0]
    return values.op.type in ("Relu", "Relu6")


def _four_sums(x: Any) -> Any:
    numbers = [tf.reduce_sum(x), 2.0 * tf.nn.l2_loss(x), tf.reduce_min(x), tf.reduce_max(x)]
    return tf.cast(tf.stack(numbers), tf.float64)


_vector_sums = once(VECTOR)(_four_sums)
_wide_vector_sums = once(WIDE_VECTOR)(_four_sums)


@once(MATRIX)
def _lowest(x: Any) -> Any:
    return tf.cast(tf.reduce_min(tf.reduce_min(x, axis=0)), tf.float64)


@once(MATRIX)
def _zero(x: Any) -> Any:
    return tf.zeros([], tf.float64)


def _sums_of_matrix(x: Any, low: Any) -> Any:
    norms = tf.cast(tf.raw_ops.EuclideanNorm(input=x, axis=[0]), tf.float64)
    total = tf.reduce_sum(tf.cast(tf.reduce_sum(x, axis=0), tf.float64))
    high = tf.cast(tf.reduce_max(tf.reduce_max(x, axis=0)), tf.float64)
    return tf.stack([total, tf.reduce_sum(norms * norms), low, high])


_matrix_sums = once(MATRIX)(lambda x: _sums_of_matrix(x, _lowest(x)))


@once(MATRIX)
def _nonnegative_sums(x: Any) -> Any:
    """The same where nothing is negative: a zero in the first row, which there nearly always is, is the minimum."""
    return _sums_of_matrix(x, branch(tf.reduce_any(x[:1] == 0.0), _zero, _lowest, x))
