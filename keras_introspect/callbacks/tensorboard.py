"""`IntrospectionTensorBoard`: the recording, written for TensorBoard."""

import fnmatch
import os
from collections.abc import Iterable
from typing import Any, Literal

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

    Single steps that were recorded are written at the end of their epoch, in the run `train`, with the optimizer's step
    for their step: what `StepMetrics` has of each batch as `metrics_by_step/loss`, …, and, where asked for,
    the series of `per_step=True` as `collector_by_step/statistic/tensor`.

    Args:
        log_dir: folder of the logs.
        statistics: which statistics to write, names or globs; by default the most telling: `rms`, `mean`, `std`,
            `nonfinite`, the rates of `activity`, `update_ratio`, the implicit learning rate, `gsnr`, `oscillation`.
            `"all"` writes all.
        layers: which tensors, names or globs; by default all.
        histograms: write them where quantiles were collected.
        steps: which single steps to write: `"metrics"`, those of `StepMetrics`, a few numbers a step; `"all"`, those of
            the tensors too, as `statistics` and `layers` choose, some hundred bytes a step, tensor and statistic;
            `None`, none.

    Raises:
        ValueError: `steps` is none of the three; or nothing will be recorded, at the start of the training.

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
        steps: Literal["metrics", "all"] | None = "metrics",
    ) -> None:
        super().__init__()
        if steps not in ("metrics", "all", None):
            raise ValueError(f"IntrospectionTensorBoard got steps={steps!r}; expected 'metrics', 'all' or None.")
        self.log_dir = os.fspath(log_dir)
        self.histograms = histograms
        self.steps = steps
        self._statistics = ("*",) if statistics == "all" else _patterns(statistics, _TELLING)
        self._layers = _patterns(layers, ("*",))
        self._writers: dict[str, Any] = {}
        self._written: dict[str, int] = {}  # view → the last of its single steps that is written

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        # What a loaded model brings along was written by the run that it comes from.
        self._written = {view: int(series.steps[-1]) for view, series in self.recording.items() if len(series.steps)}

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
                    self._write(run, [(now, summary)])
            summaries = self._single_steps()
            if summaries:
                self._write("train", sorted(summaries.items()))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        with self._training_goes_on(f"write to {self.log_dir!r}"):
            for writer in self._writers.values():
                writer.close()
        self._writers.clear()

    def _write(self, run: str, summaries: Iterable[tuple[int, Any]]) -> None:
        if run not in self._writers:
            folder = os.path.join(self.log_dir, "introspection", run)
            self._writers[run] = tf.summary.create_file_writer(folder)
        # All of an epoch or a step at once: one operation, not one for each of some thousand values.
        with self._writers[run].as_default():
            for step, summary in summaries:
                tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)
        self._writers[run].flush()

    def _single_steps(self) -> dict[int, Any]:
        """What was recorded of single steps since it was last asked for: step → summary."""
        summaries: dict[int, Any] = {}
        for view, series in self.recording.items():
            if self.steps is None or not len(series.steps) or (self.steps == "metrics" and view != "metrics"):
                continue
            new = np.flatnonzero(series.steps > self._written.get(view, -1))
            self._written[view] = int(series.steps[-1])
            for statistic in series.step_statistics:
                values = series.step(statistic)
                if view == "metrics":
                    columns = [("", values.reshape(len(series.steps)))]
                elif values.ndim == 2 and _fits(statistic, self._statistics):
                    names = zip(series.names, values.T, strict=True)
                    columns = [(f"/{name}", column) for name, column in names if _fits(name, self._layers)]
                else:
                    continue
                for suffix, column in columns:
                    tag = f"{view}_by_step/{statistic}{suffix}"
                    for row in new[~np.isnan(column[new])]:
                        summary = summaries.setdefault(int(series.steps[row]), tf.compat.v1.Summary())
                        _put(summary, tag, np.float32(column[row]), "scalars", _SCALAR)
        return summaries

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
