"""What a report says in words: the run, what was looked for, how it was configured."""

import importlib.metadata
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_introspect.plots._data import number
from keras_introspect.plots.update_board import with_ratio
from keras_introspect.recording import Recording

_MOST_FIGURES = 8


class Check(NamedTuple):
    """Something that was looked for, whether the recording has the data for it, and if not, how to have it."""

    what: str
    done: bool
    mend: str


class Fact(NamedTuple):
    """A name and what is said of it; `value` may run over several lines."""

    name: str
    value: str


def headline(recording: Recording) -> list[Fact]:
    """The run in a line."""
    about, epochs = recording.metadata, recording.epochs
    facts = []
    if about.get("parameters") is not None:
        facts.append(Fact("parameters", _count(about["parameters"])))
    if about.get("optimizer"):
        facts.append(Fact("optimizer", str(about["optimizer"])))
    facts.append(Fact("epochs", f"{len(epochs):,}" if len(epochs) else "none"))
    tensors = [len(series.names) for view, series in recording.items() if view != "metrics"]
    if tensors:
        views = f"{len(tensors)} view{'s' if len(tensors) > 1 else ''}"
        facts.append(Fact("observed", f"{sum(tensors):,} tensors in {views}"))
    if about.get("started"):
        facts.append(Fact("started", str(about["started"])))
    return facts


def last_logs(recording: Recording) -> list[Fact]:
    """Keras's logs of the last epoch."""
    found = []
    for key, values in recording.logs.items():
        value = float(values[-1])
        found.append(Fact(key, number(value) if np.isfinite(value) else str(value)))
    return found[:_MOST_FIGURES]


def checks(recording: Recording) -> list[Check]:
    """What `notable` looks for, and whether this recording lets it."""

    def has(view: str, *statistics: str) -> bool:
        return view in recording and len(recording[view].epochs) > 0 and {*statistics} <= {*recording[view].statistics}

    dead = any(has(view, "dead_rate") for view in ("layer_outputs", "val_layer_outputs"))
    ratio = "updates" in recording and "update_ratio" in with_ratio(recording).statistics
    finite = "loss" in recording.logs or any("nonfinite" in series.statistics for series in recording.values())
    return [
        Check("non-finite values", finite, 'collect "moments"'),
        Check("vanishing and exploding gradients", has("gradients", "rms"), "add Gradients()"),
        Check("dead channels", dead, "add LayerOutputs()"),
        Check("step size", ratio, "add Updates()"),
        Check("gradients that flip sign", has("gradients", "oscillation"), 'collect "signal_to_noise"'),
    ]


def configuration(recording: Recording) -> list[Fact]:
    """How the run was configured, collectors apart."""
    about = {key: value for key, value in recording.metadata.items() if key != "collectors"}
    facts = [Fact(key, _told(value)) for key, value in about.items()]
    return [*facts, Fact("report", f"keras_introspect {_version()}")]


def collectors(recording: Recording) -> Iterator[Fact]:
    """The collectors, each with the arguments that it had."""
    for config in recording.metadata.get("collectors") or ():
        if not isinstance(config, dict):
            yield Fact(str(config), "")
            continue
        arguments = {key: value for key, value in config.items() if key != "collector"}
        told = ", ".join(f"{key}={_told(value)}" for key, value in arguments.items() if value is not None)
        yield Fact(str(config.get("collector", "")), told)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _told(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{key} {_told(item)}" for key, item in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value, default=str, ensure_ascii=False)


def _version() -> str:
    try:
        return importlib.metadata.version("keras-introspect")
    except importlib.metadata.PackageNotFoundError:  # run from a folder, not installed
        return ""
