"""`IntrospectionTensorBoard`: the recording, written for TensorBoard."""

import fnmatch
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_introspect.callbacks._watching import Watching
from keras_introspect.recording import Series

# What tells most. All that a collector has, statistics="all", is some ten scalars a tensor and epoch.
_TELLING = (
    "rms",
    "mean",
    "std",
    "nonfinite",
    "activation_rate",
    "dead_rate",
    "spatial_dead_rate",
    "update_ratio",
    "implicit_learning_rate",
    "gsnr",
    "oscillation",
)
_VALIDATION = "val_"  # what Keras puts before names of the validation
_SCALAR, _TENSOR = 1, 2  # tensorflow.DataClass, which TensorFlow does not export
_NARROW = 1e-4  # of the range: the width of a bucket that holds a single value, such as the zeros behind a ReLU


class IntrospectionTensorBoard(Watching):
    """Writes scalars and histograms of every tensor after each epoch, to be looked at with TensorBoard.

    A scalar's tag is `collector/statistic/tensor`, such as `gradients/rms/conv1/kernel`; its step is the epoch. As
    Keras's own `TensorBoard` callback does it, training and validation are two runs (`train`, `validation`) with the
    same tags, so that TensorBoard draws them into one chart: `val_layer_outputs` is `layer_outputs` of the validation.
    The runs stand in a folder of their own, `introspection`, and the same `log_dir` can be given to both callbacks.

    Histograms (tag `collector/tensor`) are made of the quantiles that the recording holds; no tensor is read again.
    They are as fine as the levels collected: eight buckets by default, exact at their edges.

    Args:
        log_dir: folder of the logs.
        statistics: which statistics to write, names or globs; by default the most telling: `rms`, `mean`, `std`,
            `nonfinite`, the rates of `activity`, `update_ratio`, the implicit learning rate, `gsnr`, `oscillation`.
            `"all"` writes all.
        layers: which tensors, names or globs; by default all.
        histograms: write them where quantiles were collected.

    Raises:
        ValueError: nothing will be recorded, at the start of the training.

    Example:

    >>> import keras, numpy as np, tempfile
    >>> from keras_introspect import IntrospectiveSequential
    >>> model = IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(1, name="head")])
    >>> model.compile("sgd", "mse", collectors="economy")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = IntrospectionTensorBoard(folder)
    ...     history = model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=[board])
    ...     os.listdir(os.path.join(folder, "introspection"))
    ['train']
    """

    writes_files = True

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        statistics: str | Iterable[str] | None = None,
        layers: str | Iterable[str] | None = None,
        histograms: bool = True,
    ) -> None:
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self.histograms = histograms
        self._statistics = ("*",) if statistics == "all" else _patterns(statistics, _TELLING)
        self._layers = _patterns(layers, ("*",))
        self._writers: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        with self._training_goes_on(f"write to {self.log_dir!r}"):
            recording = self.recording
            now = int(recording.epochs[-1])
            for run in ("train", "validation"):
                summary = tf.compat.v1.Summary()
                for view, series in recording.items():
                    if view.startswith(_VALIDATION) is (run == "validation") and view != "metrics":
                        self._add(summary, view.removeprefix(_VALIDATION), series, now)
                if summary.value:
                    self._write(run, summary, now)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        with self._training_goes_on(f"write to {self.log_dir!r}"):
            for writer in self._writers.values():
                writer.close()
        self._writers.clear()

    def _write(self, run: str, summary: Any, epoch: int) -> None:
        if run not in self._writers:
            folder = os.path.join(self.log_dir, "introspection", run)
            self._writers[run] = tf.summary.create_file_writer(folder)
        # All of an epoch at once: one operation, not one for each of some thousand values.
        with self._writers[run].as_default():
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=epoch)
        self._writers[run].flush()

    def _add(self, summary: Any, view: str, series: Series, epoch: int) -> None:
        """The values of one view in one epoch; nothing if it was not observed then."""
        row = np.flatnonzero(series.epochs == epoch)
        if not len(row):
            return
        wanted = [i for i, name in enumerate(series.names) if _fits(name, self._layers)]
        for statistic in series.statistics:
            values = series.epoch(statistic)
            if values.ndim != 2 or not _fits(statistic, self._statistics):
                continue
            for i in wanted:
                if not np.isnan(values[row[-1], i]):
                    tag = f"{view}/{statistic}/{series.names[i]}"
                    _put(summary, tag, np.float32(values[row[-1], i]), "scalars", _SCALAR)
        if self.histograms and "quantiles" in series.statistics and series.quantile_levels is not None:
            counts = series.epoch("count")[row[-1]] if "count" in series.statistics else _sizes(series)
            for i in wanted:
                quantiles = series.epoch("quantiles")[row[-1], i]
                if np.isfinite(quantiles).all():
                    edges = buckets(quantiles, series.quantile_levels, float(counts[i]))
                    _put(summary, f"{view}/{series.names[i]}", edges, "histograms", _TENSOR)


def buckets(quantiles: np.ndarray, levels: np.ndarray, count: float) -> np.ndarray:
    """A histogram as TensorBoard stores it, from quantiles.

    Args:
        quantiles: shape (Q,), ascending.
        levels: shape (Q,), percent.
        count: how many values there were.

    Returns:
        float64, shape (Q − 1, 3): left edge, right edge, how many values lie between.

    Example:

    >>> buckets(np.array([-1.0, 0.0, 3.0]), np.array([0.0, 50.0, 100.0]), 8).tolist()
    [[-1.0, 0.0, 4.0], [0.0, 3.0, 4.0]]
    """
    edges = np.maximum.accumulate(quantiles.astype(np.float64))
    width = (edges[-1] - edges[0]) * _NARROW
    if width:  # a bucket of no width divides by zero when it is drawn, unless all have none
        steps = np.arange(len(edges))
        edges = np.maximum.accumulate(edges - width * steps) + width * steps
    return np.stack([edges[:-1], edges[1:], np.diff(levels) / 100 * count], axis=1)


def _put(summary: Any, tag: str, value: Any, plugin: str, data_class: int) -> None:
    metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    summary.value.add(tag=tag, tensor=tf.make_tensor_proto(value), metadata=metadata)


def _sizes(series: Series) -> list[float]:
    """How many elements each tensor has, the batch apart."""
    return [float(np.prod([size or 1 for size in shape])) for shape in series.shapes]


def _patterns(given: str | Iterable[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    if given is None:
        return default
    return (given,) if isinstance(given, str) else tuple(given)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
