"""What a report says in words: the run, and how it was configured."""

import importlib.metadata
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_introspect.plots._data import number
from keras_introspect.recording import Recording

_MOST_FIGURES = 8


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
