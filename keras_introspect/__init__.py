"""keras_introspect: see inside a Keras model while `fit` trains it.

Names load on first use, so that recordings and plots work on a machine without TensorFlow.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from keras_introspect.errors import UnknownNameError
from keras_introspect.recording import Recording, Series

if TYPE_CHECKING:
    from keras_introspect import callbacks, plots
    from keras_introspect.collectors import (
        Collector,
        Gradients,
        LayerOutputs,
        OutputGradients,
        StepMetrics,
        Updates,
        Weights,
    )
    from keras_introspect.diagnosis import diagnose
    from keras_introspect.measure import measure_activity, phase_gap
    from keras_introspect.model import IntrospectiveModel, IntrospectiveSequential, instrument
    from keras_introspect.reporting import report
    from keras_introspect.statistics import Quantiles, Statistic, Values

__version__ = "0.1.0"

_NEEDS_KERAS = {
    "IntrospectiveModel": "model",
    "IntrospectiveSequential": "model",
    "instrument": "model",
    "measure_activity": "measure",
    "phase_gap": "measure",
    "Collector": "collectors",
    "Gradients": "collectors",
    "LayerOutputs": "collectors",
    "OutputGradients": "collectors",
    "StepMetrics": "collectors",
    "Updates": "collectors",
    "Weights": "collectors",
    "Quantiles": "statistics",
    "Statistic": "statistics",
    "Values": "statistics",
}
_MODULES = ("plots", "recording")
_MODULES_THAT_NEED_KERAS = ("callbacks",)
# Not of modules of their own names, which would take the functions' places.
_FUNCTIONS = {"diagnose": "diagnosis", "report": "reporting"}

__all__ = [
    "Collector",
    "Gradients",
    "IntrospectiveModel",
    "IntrospectiveSequential",
    "LayerOutputs",
    "OutputGradients",
    "Quantiles",
    "Recording",
    "Series",
    "Statistic",
    "StepMetrics",
    "UnknownNameError",
    "Updates",
    "Values",
    "Weights",
    "callbacks",
    "diagnose",
    "instrument",
    "measure_activity",
    "phase_gap",
    "plots",
    "report",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
    if name in _NEEDS_KERAS or name in _MODULES_THAT_NEED_KERAS:
        from keras_introspect import requirements

        requirements.check()
        importlib.import_module(f"{__name__}.model")
        if name in _MODULES_THAT_NEED_KERAS:
            return importlib.import_module(f"{__name__}.{name}")
        return getattr(importlib.import_module(f"{__name__}.{_NEEDS_KERAS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _RegisterWithKeras(importlib.abc.MetaPathFinder):
    """Registers our classes as soon as Keras is imported, so that `keras.saving.load_model` finds them.

    Our names load lazily, and Keras looks up classes of saved models among those registered only.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _register() -> None:
    if any(
        f"{__name__}.{module}" in sys.modules for module in ("model", "collectors", "statistics", "state", "capture")
    ):
        return  # one of ours is importing Keras at this moment
    from keras_introspect import requirements

    if requirements.problem() is None:
        importlib.import_module(f"{__name__}.model")


if "keras" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _RegisterWithKeras())
