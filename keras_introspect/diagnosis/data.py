"""What the inputs and targets of a `fit` look like, as far as they are arrays. NumPy only."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

SAMPLES = 4096  # taken of longer arrays, at equal distances


def describe_data(x: Any, y: Any) -> dict[str, list[dict[str, Any]]]:
    """The inputs and targets that were given to `fit`, by numbers.

    Args:
        x: an array, or a list or dict of them. What is no array, such as a dataset that must not be read twice, is left
            out.
        y: the same, or `None`.

    Returns:
        `inputs` and `targets`: lists of `name`, `shape` of a sample, `dtype`, `count` (values looked at: up to 4096
        samples), `min`, `max`, `mean`, `std`, `nonfinite`, `feature_std_min` and `feature_std_max` (the smallest and
        largest deviation of a feature, the last axis), `integers` (whether all are whole numbers).

    Example:

    >>> found = describe_data(np.array([[0.0, 200.0], [0.0, 100.0]]), np.array([0, 1]))
    >>> found["inputs"][0]["feature_std_max"], found["targets"][0]["integers"]
    (50.0, True)
    """
    return {
        "inputs": [about for name, array in _leaves(x) if (about := _describe(name, array))],
        "targets": [about for name, array in _leaves(y) if (about := _describe(name, array))],
    }


def _leaves(data: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{name}{key}")
    elif isinstance(data, (list, tuple)):
        for i, value in enumerate(data):
            yield from _leaves(value, f"{name}{i}")
    elif hasattr(data, "shape") and hasattr(data, "__len__"):
        yield name, data


def _describe(name: str, array: Any) -> dict[str, Any] | None:
    try:
        length = len(array)
        rows = np.unique(np.linspace(0, length - 1, min(length, SAMPLES)).astype(int))
        taken = array.iloc[rows] if hasattr(array, "iloc") else np.asarray(array)[rows]
        values = np.asarray(taken, np.float64)
    except (TypeError, ValueError, IndexError, AttributeError):  # texts, ragged or sparse: no numbers to describe
        return None
    finite = np.isfinite(values)
    if not finite.any():
        return None
    known = values[finite]
    features = np.where(finite, values, np.nan).reshape(-1, values.shape[-1] if values.ndim > 1 else 1)
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = np.nanstd(features[:, np.isfinite(features).any(axis=0)], axis=0)
    return {
        "name": name,
        "shape": [int(size) for size in values.shape[1:]],
        "dtype": str(getattr(array, "dtype", values.dtype)),
        "count": int(known.size),
        "min": float(known.min()),
        "max": float(known.max()),
        "mean": float(known.mean()),
        "std": float(known.std()),
        "nonfinite": int(values.size - known.size),
        "feature_std_min": float(deviations.min()),
        "feature_std_max": float(deviations.max()),
        "integers": bool(np.all(known == np.floor(known))),
    }
