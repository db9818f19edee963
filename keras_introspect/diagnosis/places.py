"""Which tensors of a recording are compared with which: depth, heads, what may be called dead. NumPy only."""

import math

import numpy as np

from keras_introspect.recording import Recording, Series

_SCALES = ("gamma", "beta", "scale", "alpha")  # of normalisations, and of PReLU
_INPUT_LAYERS = ("input", "rescaling", "normalization", "random_", "resizing", "flatten", "reshape")


def is_kernel(name: str, shape: tuple[int | None, ...]) -> bool:
    """Whether a variable is a kernel: biases, scales and embeddings (mostly zero rows) have other sizes.

    The number of axes does not tell: the biases of attention heads have two, and so have scales over two axes.

    Example:

    >>> is_kernel("dense/kernel", (4, 8)), is_kernel("dense/bias", (8,)), is_kernel("embedding/embeddings", (99, 8))
    (True, False, False)
    >>> is_kernel("attention/query/kernel", (16, 2, 8)), is_kernel("attention/query/bias", (2, 8))
    (True, False)
    """
    last = name.rsplit("/", 1)[-1].lower()
    return len(shape) >= 2 and "embedding" not in name.lower() and "bias" not in last and last not in _SCALES


def layer_of(name: str) -> str:
    """The layer of a row of outputs (`"conv:1"`, `"conv#2"`) or of a variable is what stands before its mark."""
    return name.split(":")[0].split("#")[0]


def same_layer(path: str, owner: str) -> bool:
    """Whether two paths are of one layer: Keras shortens them when it loads a model."""
    return path == owner or owner.endswith("/" + path) or path.endswith("/" + owner)


def values_of(series: Series, statistic: str) -> np.ndarray:
    """One statistic, always with the axes (T, L, …), whether or not a single tensor was chosen."""
    value = series.epoch(statistic)
    return value if value.ndim > 1 else value[:, None]


def latest(values: np.ndarray) -> np.ndarray:
    """The last finite value of each column; NaN where there is none."""
    finite = np.isfinite(values)
    if not len(values):
        return np.full(values.shape[1], np.nan)
    row = len(values) - 1 - np.argmax(finite[::-1], axis=0)
    found = values[row, np.arange(values.shape[1])]
    return np.where(finite.any(axis=0), found, np.nan)


def held_since(holds: np.ndarray, epochs: np.ndarray) -> int | None:
    """The epoch from which it has held without a break until the last; `None` if it does not hold at the last.

    Example:

    >>> held_since(np.array([True, False, True, True]), np.array([0, 1, 2, 3]))
    2
    """
    if not len(holds) or not holds[-1]:
        return None
    breaks = np.flatnonzero(~holds)
    return int(epochs[breaks[-1] + 1 if len(breaks) else 0])


def depth_ratio(recording: Recording) -> tuple[str, str, str, float, float] | None:
    """The gradient at the first kernel over that at the last, in the last epoch where both are finite and not zero.

    Returns:
        View, name of the first and of the last tensor, ratio of their rms, ratio of their l2 norms; or `None` where
        no such pair was observed.
    """
    if "gradients" not in recording or "rms" not in recording["gradients"].statistics:
        return None
    series = recording["gradients"]
    kernels = [i for i, (n, shape) in enumerate(zip(series.names, series.shapes, strict=True)) if is_kernel(n, shape)]
    if len(kernels) < 2:
        return None
    first, last = kernels[0], kernels[-1]
    rms = values_of(series, "rms")[:, [first, last]]
    rows = np.flatnonzero((np.isfinite(rms) & (rms > 0)).all(axis=1))
    if not len(rows):
        return None
    value = float(rms[rows[-1], 0] / rms[rows[-1], 1])
    sizes = [elements(series.shapes[i]) for i in (first, last)]
    return "gradients", series.names[first], series.names[last], value, value * float(np.sqrt(sizes[0] / sizes[1]))


def elements(shape: tuple[int | None, ...]) -> float:
    """How many elements a tensor of this shape has, axes that vary apart."""
    return float(math.prod(size or 1 for size in shape))


def judged_for_death(recording: Recording, view: str = "layer_outputs") -> np.ndarray:
    """For which tensors a dead rate is a fault: bool, shape (L,).

    Not for the model's last output and its copies, nor for what comes before the first layer with variables (border
    pixels of images are always zero), nor for a flattened map, whose "channels" are places.
    """
    series = recording[view]
    paths = [layer_of(name) for name in series.names]
    size = len(paths)
    judged = np.ones(size, bool)
    judged[: first_of_depth(recording, view)] = False
    for i in range(1, size):
        before, here = series.shapes[i - 1][1:], series.shapes[i][1:]
        if len(before) > len(here) == 1 and None not in before and here[0] == int(np.prod([d or 1 for d in before])):
            judged[i] = before[:-1] == (1,) * (len(before) - 1) and judged[i - 1]
    if size:
        judged[-1] = False
        if "rms" in series.statistics:
            rms = values_of(series, "rms")
            for i in range(size - 1):
                if series.shapes[i] == series.shapes[-1] and np.array_equal(rms[:, i], rms[:, -1], equal_nan=True):
                    judged[i] = judged[i] and not np.isfinite(rms[:, i]).any()
    return judged


def first_of_depth(recording: Recording, view: str = "layer_outputs") -> int:
    """The first row of a view that comes from a layer with variables: what stands before it is input."""
    owners = [
        name.rsplit("/", 1)[0]
        for key in ("weights", "gradients", "updates")
        if key in recording
        for name in recording[key].names
        if "/" in name
    ]
    paths = [layer_of(name) for name in recording[view].names]
    found = next((i for i, path in enumerate(paths) if owners and same_layer(path, owners[0])), None)
    if found is not None:
        return found
    # that layer was not observed: go by the name
    is_input = [path.rsplit("/", 1)[-1].lower().startswith(_INPUT_LAYERS) for path in paths]
    return is_input.index(False) if False in is_input else len(paths)
