"""What the programs train on: data that scikit-learn ships, and data drawn from a seeded generator."""

from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets

VALIDATION = 0.2


class Split(NamedTuple):
    """Inputs and labels or targets, for training and for validation."""

    x: np.ndarray
    y: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray

    def with_inputs(self, change: Any) -> "Split":
        return self._replace(x=change(self.x), x_validation=change(self.x_validation))

    def with_labels(self, change: Any) -> "Split":
        return self._replace(y=change(self.y), y_validation=change(self.y_validation))

    def standardized(self) -> "Split":
        """Inputs of mean 0 and standard deviation 1, feature by feature, measured on the training part."""
        mean, std = self.x.mean(axis=0), self.x.std(axis=0)
        return self.with_inputs(lambda x: (x - mean) / np.where(std == 0, 1, std))

    def standardized_targets(self) -> "Split":
        mean, std = self.y.mean(axis=0), self.y.std(axis=0)
        return self.with_labels(lambda y: (y - mean) / std)


def split(rng: np.random.Generator, x: Any, y: Any) -> Split:
    """Shuffles, and keeps a fifth for validation."""
    x, y = np.asarray(x, "float32"), np.asarray(y)
    y = y.astype("float32") if y.dtype.kind == "f" else y.astype("int64")
    order = rng.permutation(len(x))
    cut = int(len(x) * (1 - VALIDATION))
    return Split(x[order[:cut]], y[order[:cut]], x[order[cut:]], y[order[cut:]])


# --- what scikit-learn ships ---


def digits(rng: np.random.Generator, images: bool = False) -> Split:
    """1797 handwritten digits of 8×8 pixels from 0 to 1; labels 0 to 9."""
    x, y = datasets.load_digits(return_X_y=True)
    return split(rng, (x.reshape(-1, 8, 8, 1) if images else x) / 16, y)


def iris(rng: np.random.Generator) -> Split:
    """150 flowers, 4 lengths in centimetres, 3 classes."""
    return split(rng, *datasets.load_iris(return_X_y=True))


def wine(rng: np.random.Generator) -> Split:
    """178 wines, 13 measurements of very different scales, 3 classes."""
    return split(rng, *datasets.load_wine(return_X_y=True))


def cancer(rng: np.random.Generator) -> Split:
    """569 tumours, 30 measurements of very different scales, 2 classes."""
    return split(rng, *datasets.load_breast_cancer(return_X_y=True))


def diabetes(rng: np.random.Generator) -> Split:
    """442 patients, 10 standardized features; the target is a progression from 25 to 346."""
    x, y = datasets.load_diabetes(return_X_y=True)
    return split(rng, x / x.std(axis=0), y[:, None])


# --- drawn ---


def seed_of(rng: np.random.Generator) -> int:
    """For what takes a seed and not a generator."""
    return int(rng.integers(2**31))


def circles(rng: np.random.Generator, size: int = 800) -> Split:
    """Two concentric circles in the plane."""
    return split(rng, *datasets.make_circles(size, noise=0.05, factor=0.4, random_state=seed_of(rng)))


def moons(rng: np.random.Generator, size: int = 800) -> Split:
    """Two interleaved half circles in the plane."""
    return split(rng, *datasets.make_moons(size, noise=0.15, random_state=seed_of(rng)))


def blobs(rng: np.random.Generator, size: int = 300, spread: float = 1.0) -> Split:
    """Three clouds in the plane."""
    return split(rng, *datasets.make_blobs(size, centers=3, cluster_std=spread, random_state=seed_of(rng)))


def classes(rng: np.random.Generator, size: int = 1000, features: int = 20, kinds: int = 4) -> Split:
    """Clusters in some of the dimensions, standardized."""
    x, y = datasets.make_classification(
        size,
        features,
        n_informative=features // 2,
        n_classes=kinds,
        n_clusters_per_class=1,
        class_sep=1.5,
        random_state=seed_of(rng),
    )
    return split(rng, x, y).standardized()


def half_spaces(rng: np.random.Generator, size: int = 1000, features: int = 20) -> Split:
    """Standard normal inputs; the label says on which side of two planes they lie."""
    x = rng.normal(size=(size, features))
    return split(rng, x, ((x[:, :4].sum(axis=1) > 0) ^ (x[:, 4:6].sum(axis=1) > 1)).astype(int))


def friedman(rng: np.random.Generator, size: int = 1000) -> Split:
    """Friedman's first regression problem, inputs and targets standardized."""
    x, y = datasets.make_friedman1(size, noise=0.5, random_state=seed_of(rng))
    return split(rng, x, y[:, None]).standardized().standardized_targets()


def waves(rng: np.random.Generator, size: int = 600, steps: int = 20) -> Split:
    """Sequences (steps, 1) of three frequencies with noise; the label is the frequency."""
    y = rng.integers(3, size=size)
    phase = rng.uniform(0, 2 * np.pi, size=(size, 1))
    x = np.sin(phase + np.arange(steps) * np.array([0.25, 0.6, 1.2])[y][:, None]) + rng.normal(0, 0.1, (size, steps))
    return split(rng, x[..., None], y)


def tokens(rng: np.random.Generator, size: int = 800, length: int = 16, vocabulary: int = 200) -> Split:
    """Sequences of tokens; each of two classes prefers its own fifth of the vocabulary."""
    y = rng.integers(2, size=size)
    x = rng.integers(vocabulary, size=(size, length))
    part = vocabulary // 5
    mine = rng.integers(part, size=(size, length)) + part * y[:, None]
    found = split(rng, np.where(rng.random((size, length)) < 0.3, mine, x), y)
    return found.with_inputs(lambda tokens: tokens.astype("int64"))
