"""Collectors: what is observed, one a file."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras

from keras_introspect.collectors.base import Collector
from keras_introspect.collectors.gradients import EpochSums, Gradients
from keras_introspect.collectors.layer_outputs import LayerOutputs
from keras_introspect.collectors.output_gradients import OutputGradients
from keras_introspect.collectors.step_metrics import StepMetrics
from keras_introspect.collectors.updates import Updates
from keras_introspect.collectors.weights import Weights
from keras_introspect.errors import WrongTypeError, a_type, unknown_name
from keras_introspect.statistics import NAMED

__all__ = [
    "Collector",
    "EpochSums",
    "Gradients",
    "LayerOutputs",
    "OutputGradients",
    "StepMetrics",
    "Updates",
    "Weights",
    "resolve_collectors",
]

_BY_KEY: dict[str, type[Collector]] = {
    cls.key: cls for cls in (Weights, Gradients, Updates, LayerOutputs, OutputGradients, StepMetrics)
}

for _statistic in NAMED.values():  # so that a saved model brings back a statistic with arguments of its own
    keras.saving.register_keras_serializable("keras_introspect")(_statistic)


def _economy() -> list[Collector]:
    cheap = ("moments", "activity")
    return [Weights(cheap), Gradients(cheap, every=10), LayerOutputs(cheap, every=10)]


def _default() -> list[Collector]:
    return [Weights(), Gradients(), LayerOutputs()]


def _all() -> list[Collector]:
    return [Weights(), Gradients(), Updates(), LayerOutputs(), OutputGradients()]


PRESETS = {"economy": _economy, "default": _default, "all": _all}


def _is_preset(item: Any) -> bool:
    return isinstance(item, str) and item in PRESETS


def resolve_collectors(collectors: Any) -> tuple[Collector, ...]:
    """Turns what was given to `compile(collectors=...)` into collectors.

    Args:
        collectors: `None`, a preset (`"economy"`, `"default"`, `"all"`), a collector, or a list of collectors, of their
            classes, of their keys, or of presets: `["all", ki.StepMetrics()]`.

    Raises:
        ValueError: an unknown preset or collector, two collectors under one name, or (a `WrongTypeError`) something
            else than these.
    """
    if collectors is None:
        return ()
    if isinstance(collectors, str):
        if collectors not in PRESETS:
            raise unknown_name("preset in collectors=", collectors, PRESETS, "Or give a list such as [ki.Gradients()].")
        collectors = PRESETS[collectors]()
    if isinstance(collectors, Mapping | bytes):
        raise WrongTypeError(
            f"collectors= was given {collectors!r}, {a_type(collectors)}; expected one of the presets "
            f"{', '.join(map(repr, PRESETS))}, a collector such as ki.Gradients(), or a list of collectors or of their "
            f"keys ({', '.join(map(repr, _BY_KEY))}). List those that are to observe, and leave out the others."
        )
    if isinstance(collectors, (Collector, type)) or not isinstance(collectors, Iterable):
        collectors = [collectors]
    resolved: list[Collector] = []
    given = [(part, item) for item in collectors for part in (PRESETS[item]() if _is_preset(item) else [item])]
    presets: dict[str, str] = {}  # name of a collector → the preset that it came with
    for item, origin in given:
        if isinstance(item, str):
            if item not in _BY_KEY:
                raise unknown_name("collector", item, [*_BY_KEY, *PRESETS])
            item = _BY_KEY[item]
        if isinstance(item, type) and issubclass(item, Collector):
            item = item()
        if not isinstance(item, Collector):
            raise WrongTypeError(
                f"collectors= holds {item!r} of type {type(item).__name__}; expected collectors such as ki.Gradients()"
                f", their keys ({', '.join(_BY_KEY)}), or one of the presets {', '.join(PRESETS)}."
            )
        taken = {part.name for other in resolved for part in other.parts()}
        twice = [part.name for part in item.parts() if part.name in taken]
        if twice:
            mend = f"Give one of them a name of its own: {type(item).__name__}(name='...')."
            preset = origin if _is_preset(origin) else presets.get(twice[0])
            if preset:
                parts = ", ".join(f"ki.{part!r}" for part in PRESETS[preset]())
                mend += (
                    f" One came with {preset!r}: to change a collector of a preset, list the collectors instead of the "
                    f"preset; {preset!r} is [{parts}]."
                )
            raise ValueError(f"Two collectors are named {twice[0]!r}. {mend}")
        if _is_preset(origin):
            presets.update((part.name, origin) for part in item.parts())
        resolved.append(item)
    return tuple(resolved)
