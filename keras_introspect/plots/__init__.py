"""The pictures of a recording. NumPy and matplotlib only; nothing here imports TensorFlow or touches pyplot."""

from keras_introspect.plots.activity_board import activity_board
from keras_introspect.plots.dashboard import dashboard
from keras_introspect.plots.norm import norm
from keras_introspect.plots.scale_lines import scale_lines
from keras_introspect.plots.scale_stack import scale_stack
from keras_introspect.plots.training_curves import training_curves

__all__ = ["activity_board", "dashboard", "norm", "scale_lines", "scale_stack", "training_curves"]
