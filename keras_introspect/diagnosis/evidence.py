"""What the rules read: a recording, and what is known of the model's configuration. NumPy only."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_introspect.diagnosis.places import (
    elements,
    first_of_depth,
    held_since,
    is_kernel,
    judged_for_death,
    latest,
    layer_of,
    values_of,
)
from keras_introspect.recording import Recording

_FIRST_STEPS = 3
_ACCURACY = re.compile(r"^(?!val_|top_k)(?:.+_)?acc(?:uracy)?$")
CROSS_ENTROPIES = (
    "categorical_crossentropy",
    "sparse_categorical_crossentropy",
    "categorical_focal_crossentropy",
    "binary_crossentropy",
    "binary_focal_crossentropy",
)
SQUARED = ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh", "mean_squared_logarithmic_error")
BOUNDED = {"sigmoid": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0)}
_PERFECT, _GOOD, _POOR = 0.98, 0.9, 0.2  # of the way from chance to perfect
_ADAPTIVE = ("Adam", "AdamW", "Nadam", "Adamax", "RMSprop", "Lion")  # whose first steps are as long as their rate

_MEND = {
    "weights": "the collector Weights()",
    "gradients": "the collector Gradients()",
    "updates": "the collector Updates()",
    "layer_outputs": "the collector LayerOutputs()",
    "val_layer_outputs": 'LayerOutputs(phase="both") and validation data',
    "output_gradients": "the collector OutputGradients()",
    "logs": "the log",
    "description": "the model: diagnose(recording, model)",
    "data": "a description of inputs and targets, which are recorded where fit() is given arrays",
}
# Of a model whose description is there: what it would have to have.
_OF_MODEL = {"losses": "a loss that Keras knows, given to compile()", "layers": "layers", "outputs": "outputs"}


class Ratio(NamedTuple):
    """Update-to-weight ratios: of the kernels, in columns, over epochs, in rows."""

    names: tuple[str, ...]
    epochs: np.ndarray
    values: np.ndarray
    source: str


class Evidence:
    """A recording with its model's configuration, and what several rules ask of them.

    Args:
        recording: what was observed.
        description: of `describe(model)`, or part of it; it stands over what the recording itself holds.

    Attributes:
        recording: as given.
        description: the configuration: `layers`, `outputs`, `losses`, `optimizer`, `custom_step`; empty where unknown.
        data: `inputs` and `targets`, as far as the recording describes them.
        logs: Keras's epoch logs.
        log_epochs: shape (T,), the epochs of `logs`.

    Example:

    >>> recording = Recording()
    >>> recording.add_epoch("weights", 0, ["a/kernel"], [(2, 3)], {"rms": [0.5]})
    >>> evidence = Evidence(recording)
    >>> evidence.missing(("weights/rms", "gradients/rms|updates/rms"))
    ['the collector Gradients() or the collector Updates()']
    >>> evidence.latest("weights", "rms")
    array([0.5])
    """

    def __init__(self, recording: Recording, description: Mapping[str, Any] | None = None) -> None:
        self.recording = recording
        known = recording.metadata.get("description")
        data = recording.metadata.get("data")
        self.description: dict[str, Any] = {**(known if isinstance(known, dict) else {}), **(description or {})}
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}
        self.logs = recording.logs
        self.log_epochs = recording.epochs
        self._epoch: dict[tuple[str, str], np.ndarray] = {}
        self._kernels: dict[str, np.ndarray] = {}

    # --- what there is ---

    def has(self, need: str) -> bool:
        """Whether there is something under `"view/statistic"`, `"logs/name"`, `"description/key"` or `"data/key"`."""
        place, _, key = need.partition("/")
        if place == "logs":
            return key in self.logs
        if place == "description":
            return bool(self.description.get(key)) if key else bool(self.description)
        if place == "data":
            return bool(self.data.get(key))
        if place not in self.recording or not len(self.recording[place].epochs):
            return False
        return key in self.recording[place].statistics

    def missing(self, needs: Sequence[str]) -> list[str]:
        """In words, what would have to be collected for all of `needs` to be there."""
        lacking = []
        for need in needs:
            alternatives = need.split("|")
            if not any(self.has(alternative) for alternative in alternatives):
                lacking.append(" or ".join(dict.fromkeys(self._mend(alternative) for alternative in alternatives)))
        return list(dict.fromkeys(lacking))

    def _mend(self, need: str) -> str:
        place, _, key = need.partition("/")
        mend = _MEND.get(place, f"a view {place!r}")
        if place == "logs":
            return f"{mend} {key!r}"
        if place == "description" and self.description:
            return f"a model with {_OF_MODEL.get(key, key)}"
        if place in self.recording and len(self.recording[place].epochs):
            return f"{key!r} of {mend}"
        return mend

    def names(self, view: str) -> tuple[str, ...]:
        return self.recording[view].names

    def shapes(self, view: str) -> tuple[tuple[int | None, ...], ...]:
        return self.recording[view].shapes

    def epochs(self, view: str) -> np.ndarray:
        return self.recording[view].epochs

    def epoch(self, view: str, statistic: str) -> np.ndarray:
        """One statistic of a view: (T, L, …); infinities, and all after the epoch `broken`, as NaN."""
        key = (view, statistic)
        if key not in self._epoch:
            value = values_of(self.recording[view], statistic)
            value = value if np.isfinite(value).all() else np.where(np.isfinite(value), value, np.nan)
            if self.broken is not None and (self.epochs(view) > self.broken).any():
                value = value.copy()
                value[self.epochs(view) > self.broken] = np.nan
            self._epoch[key] = value
        return self._epoch[key]

    @functools.cached_property
    def broken(self) -> int | None:
        """The epoch in which weights or outputs became non-finite, for good; what comes after it means nothing."""
        first = []
        for view in ("weights", "layer_outputs"):
            if self.has(f"{view}/nonfinite"):
                hit = np.nan_to_num(values_of(self.recording[view], "nonfinite")).any(axis=1)
                since = held_since(hit, self.epochs(view))
                first += [] if since is None else [since]
        return min(first, default=None)

    def latest(self, view: str, statistic: str) -> np.ndarray:
        """The last finite value of each tensor: (L,)."""
        return latest(self.epoch(view, statistic))

    def kernels(self, view: str) -> np.ndarray:
        """The rows of a view of variables that are kernels, from the input to the output."""
        if view not in self._kernels:
            pairs = zip(self.names(view), self.shapes(view), strict=True)
            self._kernels[view] = np.array([i for i, (name, shape) in enumerate(pairs) if is_kernel(name, shape)], int)
        return self._kernels[view]

    @functools.cached_property
    def judged_for_death(self) -> np.ndarray:
        """For which layer outputs a dead rate is a fault: bool, (L,)."""
        return judged_for_death(self.recording) & self.hidden

    # --- the configuration ---

    @functools.cached_property
    def _layers(self) -> dict[str, dict[str, Any]]:
        """Layers by name, and by the ends of their names, where one layer alone has them."""
        found: dict[str, dict[str, Any]] = {}
        ends: dict[str, list[dict[str, Any]]] = {}
        for layer in self.description.get("layers", ()):
            found[layer["name"]] = layer
            parts = layer["name"].split("/")
            for i in range(1, len(parts)):
                ends.setdefault("/".join(parts[i:]), []).append(layer)
        for end, layers in ends.items():
            if end not in found and len(layers) == 1:
                found[end] = layers[0]
        return found

    def layer(self, name: str) -> dict[str, Any]:
        """The description of the layer that a row of outputs, or a variable, belongs to; empty where unknown."""
        path = layer_of(name).split("~")[0]
        while path:
            if path in self._layers:
                return self._layers[path]
            _, _, path = path.partition("/")
        return {}

    def owner(self, variable: str) -> dict[str, Any]:
        """The description of the layer that a variable belongs to; empty where unknown."""
        return self.layer(variable.rpartition("/")[0])

    @functools.cached_property
    def heads(self) -> list[dict[str, Any]]:
        """Name, activation and units of each output; of a model whose heads are unknown its last layer output."""
        heads = self.description.get("outputs")
        if heads:
            return [dict(head) for head in heads]
        if "layer_outputs" not in self.recording or not len(self.names("layer_outputs")):
            return []
        name, shape = self.names("layer_outputs")[-1], self.shapes("layer_outputs")[-1]
        about: dict[str, Any] = {"name": name}
        if shape and shape[-1] is not None and len(shape) > 1:
            about["units"] = int(shape[-1])
        activation = self.layer(name).get("activation")
        return [{**about, "activation": activation} if activation else about]

    def head_row(self, head: Mapping[str, Any]) -> int | None:
        """The row of `layer_outputs` that holds a head's output."""
        if "layer_outputs" not in self.recording:
            return None
        name = str(head["name"])
        rows = [
            i
            for i, other in enumerate(self.names("layer_outputs"))
            if layer_of(other) == name or layer_of(other).endswith("/" + name) or name.endswith("/" + layer_of(other))
        ]
        return rows[-1] if rows else None

    @property
    def losses(self) -> list[dict[str, Any]]:
        losses = self.description.get("losses")
        return losses if isinstance(losses, list) else []

    @functools.cached_property
    def head_losses(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Each head with the loss that is taken of it, where the two can be matched."""
        heads, losses = self.heads, self.losses
        if not heads or not losses:
            return []
        if len(losses) == 1 and not losses[0]["output"]:
            return [(head, losses[0]) for head in heads]
        by_name = {loss["output"]: loss for loss in losses}
        if len(heads) == len(losses) == 1:
            return [(heads[0], losses[0])]
        pairs = []
        for i, head in enumerate(heads):
            loss = by_name.get(str(head["name"]).rsplit("/", 1)[-1]) or by_name.get(str(i))
            if loss is not None:
                pairs.append((head, loss))
        return pairs

    @property
    def optimizer(self) -> dict[str, Any]:
        about = self.description.get("optimizer")
        if isinstance(about, dict):
            return about
        name = self.recording.metadata.get("optimizer")
        return {"name": name} if isinstance(name, str) else {}

    @property
    def loss_is_unknown(self) -> bool:
        """Whether the model has a step of its own and no loss compiled: then the log `loss` may mean anything."""
        return bool(self.description.get("custom_step")) and not self.losses

    @functools.cached_property
    def classifies(self) -> bool:
        """Whether labels are classes: by the loss, the head, or the metric."""
        if any(loss["loss"] in CROSS_ENTROPIES or "hinge" in loss["loss"] for loss in self.losses):
            return True
        if any(head.get("activation") == "softmax" for head in self.heads):
            return True
        bounded = any(head.get("activation") in BOUNDED for head in self.heads)
        return bool(self.accuracy_names) and (bounded or not self.losses)

    @property
    def classes(self) -> int | None:
        """How many classes there are; `None` where the head does not say, or where there are several heads."""
        if len(self.heads) != 1 or not self.classifies:
            return None
        units = self.heads[0].get("units")
        return None if units is None else max(2, int(units))

    # --- how the training went ---

    @functools.cached_property
    def accuracy_names(self) -> list[str]:
        return [name for name in self.logs if _ACCURACY.match(name)]

    def log(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """A log and its epochs, where it has finite values."""
        if name not in self.logs:
            return np.zeros(0, np.int64), np.zeros(0)
        values = self.logs[name]
        finite = np.isfinite(values)
        return self.log_epochs[finite], values[finite]

    @functools.cached_property
    def progress(self) -> float | None:
        """How far training has come from chance (0) to perfect (1), on the training data; `None` where unknown.

        By accuracy if there is one; else by cross-entropy against that of guessing; else by squared error against the
        variance of the targets; else, where that has at least halved, by the fall of the loss.
        """
        logged = self.recording._logs.get(int(self.log_epochs[-1]), {}) if len(self.log_epochs) else {}
        if self.broken is not None or not np.isfinite(logged.get("loss", 0.0)):
            return 0.0
        if self.classifies and self.accuracy_names:
            chance = 1 / (self.classes or 2)
            seen = [values[-3:].max() for name in self.accuracy_names if len(values := self.log(name)[1])]
            if seen and (self.classes is not None or max(seen) >= _GOOD):  # of how many classes is not always known
                return float(np.clip((max(seen) - chance) / (1 - chance), 0, 1))
        return self._progress_by_loss

    @functools.cached_property
    def _progress_by_loss(self) -> float | None:
        _, loss = self.log("loss")
        if not len(loss) or self.loss_is_unknown:
            return None
        kinds = {about["loss"] for about in self.losses}
        classes = self.classes
        targets = self.data.get("targets") or []
        soft = any(target.get("integers") is False for target in targets)  # then the least loss is not zero
        if soft and kinds & {*CROSS_ENTROPIES, "kl_divergence"}:
            return None
        if classes and kinds and kinds <= set(CROSS_ENTROPIES[:2]) | {"binary_crossentropy"}:
            guess = np.log(2) if "binary_crossentropy" in kinds else np.log(classes)
            return float(np.clip(1 - loss[-1] / guess, 0, 1))
        if kinds == {"mean_squared_error"} and len(targets) == 1 and targets[0].get("std"):
            return float(np.clip(1 - loss[-1] / targets[0]["std"] ** 2, 0, 1))
        first = self.first_loss
        if first is not None and first > 0:
            fall = 1 - loss[-1] / first
            return float(fall) if fall >= 0.5 else None
        return None

    @functools.cached_property
    def first_loss(self) -> float | None:
        """The loss at the start: that of the first step, or else of the first epoch."""
        if self.recording.get("metrics") is not None and "loss" in self.recording["metrics"].step_statistics:
            steps = self.recording["metrics"].step("loss").ravel()
            if len(steps) and np.isfinite(steps[0]):
                return float(steps[0])
        _, loss = self.log("loss")
        return float(loss[0]) if len(loss) else None

    @property
    def learned(self) -> bool:
        """Whether the training data are known to have been learned well: what is odd did no harm, so far."""
        return self.progress is not None and self.progress >= _GOOD

    @property
    def mastered(self) -> bool:
        """Whether they are learned all but perfectly."""
        return self.progress is not None and self.progress >= _PERFECT

    @property
    def failed(self) -> bool:
        """Whether the training data are known not to have been learned."""
        return self.progress is not None and self.progress < _POOR

    def steps_per_epoch(self) -> float | None:
        """How many optimizer steps an epoch has had, from the count of gradients; `None` where not collected."""
        for view in ("gradients", "updates"):
            if self.has(f"{view}/count"):
                sizes = np.array([elements(shape) for shape in self.shapes(view)])
                steps = self.latest(view, "count") / sizes
                if np.isfinite(steps).any():
                    return float(np.nanmedian(steps))
        return None

    # --- sizes ---

    @functools.cached_property
    def update_ratio(self) -> Ratio | None:
        """rms(update) / rms(weight) of each kernel, a step, as collected or, of plain SGD, as it follows.

        Of SGD without `Updates` it is learning rate × rms(gradient) / rms(weight), times 1 / √(1 − momentum²): what
        momentum makes of gradients without a direction.
        """
        if self.has("updates/update_ratio"):
            rows = self.kernels("updates")
            values = self.epoch("updates", "update_ratio")[:, rows]
            return self._ratio("updates", rows, self.epochs("updates"), values, "updates/update_ratio")
        if self.has("updates/rms") and self.has("weights/rms"):
            return self._over_weights("updates", 1.0, "updates/rms over weights/rms")
        rate = self.optimizer.get("learning_rate")
        if self.optimizer.get("name") == "SGD" and rate and self.has("gradients/rms") and self.has("weights/rms"):
            factor = float(rate) / np.sqrt(1 - min(0.99, float(self.optimizer.get("momentum", 0.0))) ** 2)
            return self._over_weights("gradients", factor, "learning rate × gradients/rms over weights/rms")
        return None

    @functools.cached_property
    def first_ratio(self) -> Ratio | None:
        """rms(update) / rms(weight) of each kernel in the first steps, before the weights have grown: one row.

        Of the largest of the first three steps where step series were collected; else, as adaptive optimizers make
        first steps as long as their learning rate, that rate over the size that Glorot's initialisation gives.
        """
        for view in ("updates", "weights"):
            if view not in self.recording or "rms" not in self.recording[view].step_statistics:
                break
        else:
            return self._first_steps()
        _, logged = self.log("learning_rate")  # of a schedule among the callbacks
        rate = float(logged[0]) if len(logged) else self.optimizer.get("learning_rate")
        place = next((view for view in ("weights", "gradients", "updates") if self.has(f"{view}/rms")), None)
        if rate is None or place is None or self.optimizer.get("name") not in _ADAPTIVE:
            return None
        rows = self.kernels(place)
        if not len(rows) or self.epochs(place)[0] != 0:
            return None
        values = float(rate) / self.glorot(place, rows)[None]
        return self._ratio(place, rows, self.epochs(place)[:1], values, "learning rate over the initial weights' rms:")

    def _first_steps(self) -> Ratio | None:
        updates, weights = self.recording["updates"], self.recording["weights"]
        rows = self.kernels("updates")
        column = {name: i for i, name in enumerate(weights.names)}
        known = np.array([i for i in rows if updates.names[i] in column], int)
        steps = np.intersect1d(updates.steps, weights.steps)[:_FIRST_STEPS]
        if not len(known) or not len(steps) or updates.steps[0] > _FIRST_STEPS:
            return None
        there = [column[updates.names[i]] for i in known]
        moved = updates.step("rms")[np.searchsorted(updates.steps, steps)][:, known]
        size = weights.step("rms")[np.searchsorted(weights.steps, steps)][:, there]
        size = np.where((size > 0) & np.isfinite(size), size, self.glorot("updates", known))
        values = np.where(np.isfinite(moved), moved / size, np.nan)
        values = np.nanmax(values[np.isfinite(values).any(axis=1)], axis=0, keepdims=True)
        return self._ratio(
            "updates", known, self.epochs("updates")[:1], values, "updates/rms over weights/rms, first steps:"
        )

    def _over_weights(self, view: str, factor: float, source: str) -> Ratio | None:
        rows = self.kernels(view)
        aligned = self.aligned("weights", "rms", view, rows)
        if aligned is None:
            return None
        # Of weights that overflowed within the epoch the size is not known: then it is that of Glorot's initialisation.
        size = np.where(aligned > 0, aligned, np.where(aligned == 0, np.nan, self.glorot(view, rows)))
        values = factor * self.epoch(view, "rms")[:, rows] / size
        return self._ratio(view, rows, self.epochs(view), values, source)

    def glorot(self, view: str, rows: np.ndarray) -> np.ndarray:
        """The rms that Glorot's initialisation gives kernels of these rows."""
        shapes = [self.shapes(view)[i] for i in rows]
        return np.array([np.sqrt(2 / (elements(s[:-1]) + elements((*s[:-2], s[-1])))) for s in shapes])

    def _ratio(self, view: str, rows: np.ndarray, epochs: np.ndarray, values: np.ndarray, source: str) -> Ratio | None:
        names = tuple(self.names(view)[i] for i in rows)
        return Ratio(names, epochs, values, source) if values.size and np.isfinite(values).any() else None

    def aligned(self, view: str, statistic: str, other: str, rows: np.ndarray) -> np.ndarray | None:
        """A statistic of `view`, in the epochs of `other` and for its tensors `rows`: (T, rows), NaN where missing."""
        if not self.has(f"{view}/{statistic}"):
            return None
        values = self.epoch(view, statistic)
        column = {name: i for i, name in enumerate(self.names(view))}
        names = self.names(other)
        columns = np.array([column.get(names[i], -1) for i in rows], int)
        at = np.searchsorted(self.epochs(view), self.epochs(other))
        at = np.minimum(at, len(self.epochs(view)) - 1)
        found = values[at][:, columns]
        found = np.where(columns >= 0, found, np.nan)
        return np.where((self.epochs(view)[at] == self.epochs(other))[:, None], found, np.nan)

    @functools.cached_property
    def hidden(self) -> np.ndarray:
        """The rows of `layer_outputs` between input and heads: bool, shape (L,)."""
        names = self.names("layer_outputs")
        inside = np.ones(len(names), bool)
        inside[: first_of_depth(self.recording)] = False
        ends = [row for head in self.heads if (row := self.head_row(head)) is not None]
        inside[ends] = False
        if len(names):
            inside[-1] = False
        return inside
