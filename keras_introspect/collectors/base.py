"""What every collector is: a choice of tensors, and the statistics taken of them."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from keras_introspect.capture import Capture, Seen, Wanted
from keras_introspect.collectors.selection import LayerSelection, Selection
from keras_introspect.errors import NamesItsArguments, unknown_name
from keras_introspect.statistics import NAMED, Piece, Statistic, TensorSpec, Values, resolve

Group = list[Piece]
LOGS = ("summary", "layers", None)


class Collector(NamesItsArguments):
    """Base of the five collectors.

    Args:
        statistics: names or instances of statistics.
        layers: which layers or variables: names, paths, globs (`"conv*"`), layer types, functions of a layer, or a
            list of these. Default: all.
        every: observe each n-th step, counted by `optimizer.iterations`.
        per_step: keep a value a step too, for `series.step(...)`.
        logs: `"summary"` puts a few numbers into the epoch logs, `"layers"` every layer's too, `None` none.
        progress_bar: whether the progress bar shows this collector's logs.
        name: key in the recording, for using one collector twice.
        values: raw values too: a `ki.Values`, or how many elements of each tensor.

    Raises:
        ValueError: an unknown statistic, or an argument out of its range.
    """

    key: ClassVar[str]
    default_statistics: ClassVar[tuple[str, ...]] = ("moments", "activity", "quantiles")
    replicated: ClassVar[bool] = False
    at_epoch_end: ClassVar[bool] = False
    inference: bool = False
    logged: ClassVar[tuple[str, ...]] = ("rms", "nonfinite", "activation_rate", "dead_rate")

    def __init__(
        self,
        statistics: str | Statistic | Iterable[str | Statistic] | None = None,
        layers: LayerSelection = None,
        every: int = 1,
        per_step: bool = False,
        logs: str | None = "summary",
        progress_bar: bool = False,
        name: str | None = None,
        values: "Values | int | None" = None,
    ) -> None:
        if not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1:
            raise ValueError(f"every={every!r}; expected a whole number from 1: observe each n-th step.")
        if logs not in LOGS:
            raise unknown_name(f"value of logs= of {type(self).__name__}", logs, ["summary", "layers", "None"])
        if name is not None and (not isinstance(name, str) or not name or "/" in name or "|" in name):
            raise ValueError(f"name={name!r}; expected a non-empty string without '/' and '|': a key in the recording.")
        chosen = resolve(self.default_statistics if statistics is None else statistics)
        further = [s for s in self.further_statistics(chosen) if all(s.name != other.name for other in chosen)]
        if values is not None:
            further.append(values if isinstance(values, Values) else Values(values))
        self.statistics = (*chosen, *further)
        for statistic in chosen:
            if statistic.only_of and self.key not in statistic.only_of:
                raise ValueError(
                    f"{type(self).__name__}(statistics=...) asks for {statistic.name!r}, which can be had of "
                    f"{' and '.join(statistic.only_of)} only. Give it to the collector of these, or leave it out."
                )
        self.selection = Selection(layers)
        self.every = int(every)
        self.per_step = bool(per_step)
        self.logs = logs
        self.progress_bar = bool(progress_bar)
        self.name = name or self.key

    def further_statistics(self, chosen: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
        """Statistics that are always taken, besides those that were chosen."""
        return ()

    @property
    def wanted(self) -> Wanted:
        """What a capture must look at."""
        return Wanted()

    @property
    def accumulated(self) -> tuple[Statistic, ...]:
        """The statistics whose states are added up over the steps of the epoch."""
        return () if self.at_epoch_end else self.statistics

    def parts(self) -> "list[Collector]":
        """The collectors that do the work: this one, and any that an argument of it adds."""
        return [self]

    # --- which tensors ---

    def groups(self, capture: Capture) -> list[Group]:
        """The observed tensors of a step: a group a row of the recording, its calls the pieces."""
        raise NotImplementedError

    def candidates(self, model: Any) -> list[tuple[Any, tuple[str, ...]]]:
        """What `layers=` may choose from: (layer, further names)."""
        raise NotImplementedError

    def check_selection(self, model: Any) -> None:
        """Raises if `layers=` names something that the built model does not have."""
        self.selection.check(self.candidates(model), type(self).__name__)

    def size(self, model: Any) -> int:
        """How many tensors the collector chooses of a built model."""
        return sum(self.selection.chooses(layer, *names) for layer, names in self.candidates(model))

    def check_budget(self, model: Any, epochs: int, steps: int) -> None:
        """Raises if the raw values of a run of so many epochs, and steps in all, are over their budget."""
        for statistic in self.statistics:
            if not isinstance(statistic, Values):
                continue
            records = epochs + (-(-steps // self.every) if self.per_step else 0)
            needed = 8 * statistic.elements * self.size(model) * records
            if needed > statistic.budget:
                raise ValueError(
                    f"{type(self).__name__}(values={statistic!r}) would keep {needed:,} bytes: {statistic.elements} "
                    f"elements of {self.size(model)} tensors, {records} times at 8 bytes. The budget is "
                    f"{statistic.budget:,}. Choose fewer tensors by layers=, fewer elements, every= a larger number, "
                    f"or raise it: ki.Values(budget={needed})."
                )

    # --- logs ---

    def log_keys(self) -> list[str]:
        """The keys of the summary, without the collector's name."""
        keys = []
        names = {statistic.name for statistic in self.statistics}
        if "moments" in names:
            keys += ["rms", "nonfinite"]
        if "activity" in names:
            keys += ["activation_rate", "dead_rate"]
        if "update_ratio" in names:
            keys.append("update_ratio")
        own = [key for statistic in self.statistics for key in statistic.logged]
        return [*(key for key in keys if key in self.logged), *own]

    def summary(self, values: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The epoch logs of this collector, from its epoch values (L,): key → number, NaN of what was not observed."""
        logs: dict[str, float] = {}
        if "rms" in values:
            count, squares = np.nansum(values["count"]), np.nansum(values["l2_norm"] ** 2)
            logs["rms"] = float(np.sqrt(squares / count)) if count else float("nan")
            logs["nonfinite"] = float(np.nansum(values["nonfinite"]))
        if "activation_rate" in values:
            seen = values["activation_rate"][~np.isnan(values["activation_rate"])]
            dead = values["dead_rate"][~np.isnan(values["dead_rate"])]
            logs["activation_rate"] = float(np.mean(seen)) if len(seen) else float("nan")
            logs["dead_rate"] = float(np.max(dead)) if len(dead) else float("nan")
        if "update_ratio" in values:
            known = values["update_ratio"][np.isfinite(values["update_ratio"])]
            logs["update_ratio"] = float(np.median(known)) if len(known) else float("nan")
        logs = {key: value for key, value in logs.items() if key in self.logged}
        for statistic in self.statistics:
            for key, how in statistic.logged.items():
                known = values[key][np.isfinite(values[key])] if key in values else np.zeros(0)
                logs[key] = float(_OVER_TENSORS[how](known)) if len(known) else float("nan")
        return logs

    # --- saving ---

    def get_config(self) -> dict[str, Any]:
        """What a saved model keeps of the collector."""
        return {
            "statistics": [_argument(statistic) for statistic in self.statistics],
            "layers": self.selection.get_config(),
            "every": self.every,
            "per_step": self.per_step,
            "logs": self.logs,
            "progress_bar": self.progress_bar,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Collector":
        return cls(**keras.saving.deserialize_keras_object(dict(config)))

    def __repr__(self) -> str:
        usual = type(self)().get_config()
        changed = {key: value for key, value in self.get_config().items() if value != usual[key]}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"


_OVER_TENSORS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
}


def _argument(statistic: Statistic) -> str | Statistic:
    """A statistic as a user gives it: by its name, or, where that does not say it all, itself."""
    named = NAMED.get(statistic.name)
    plain = named is type(statistic) and statistic.get_config() == named().get_config()
    return statistic.name if plain else statistic


def spec_of_variable(variable: Any, name: str | None = None) -> TensorSpec:
    """The spec of a variable, by its path or another name: its last axis holds the units."""
    shape = tuple(variable.shape)
    return TensorSpec(name or variable.path, shape, batched=False, channel_axis=len(shape) - 1 if shape else None)


def spec_of_output(name: str, layer: Any, shape: Any) -> TensorSpec:
    """The spec of a layer output of a static shape (a `tf.TensorShape`): its first axis is the batch."""
    if shape.rank is None:
        return TensorSpec(name, (None,), batched=True, channel_axis=None)
    sizes = (None, *shape[1:]) if shape.rank else ()
    return TensorSpec(name, sizes, batched=bool(sizes), channel_axis=_channel_axis(layer, len(sizes)))


def group_of_calls(name: str, calls: Sequence[Seen]) -> Group:
    """The calls of one layer in a step as pieces of one spec, so that they pool into one row."""
    specs = [spec_of_output(name, seen.layer, seen.values.shape) for seen in calls]
    spec = functools.reduce(TensorSpec.joined, specs)
    flat = spec.channel_axis is None and spec.batched
    return [Piece(keras.ops.reshape(c.values, [-1]) if flat else c.values, spec, c.zeros) for c in calls]


def _channel_axis(layer: Any, rank: int) -> int | None:
    if rank < 2:
        return None
    data_format = getattr(layer, "data_format", None)
    if data_format is None and rank > 3 and isinstance(layer, _FOLLOWS_IMAGE_FORMAT):
        data_format = keras.config.image_data_format()
    return 1 if data_format == "channels_first" and rank > 2 else rank - 1


# Layers that keep the axes of an image as they are and do not say which one holds the channels.
_FOLLOWS_IMAGE_FORMAT = (
    keras.layers.Activation,
    keras.layers.ReLU,
    keras.layers.LeakyReLU,
    keras.layers.ELU,
    keras.layers.PReLU,
    keras.layers.BatchNormalization,
    keras.layers.Dropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.Add,
    keras.layers.Multiply,
    keras.layers.Average,
    keras.layers.Maximum,
    keras.layers.Concatenate,
)
