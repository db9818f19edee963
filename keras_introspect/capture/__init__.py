"""How the tensors of a training step are had, without changing the step."""

from keras_introspect.capture.capture import Capture, LayerNames, Seen, Wanted, activate, active
from keras_introspect.capture.layers import LayerTaps
from keras_introspect.capture.metrics import MetricTaps
from keras_introspect.capture.optimizers import OptimizerTaps, optimizers_of

__all__ = [
    "Capture",
    "LayerNames",
    "LayerTaps",
    "MetricTaps",
    "OptimizerTaps",
    "Seen",
    "Wanted",
    "activate",
    "active",
    "optimizers_of",
]
