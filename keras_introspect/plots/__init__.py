"""The pictures of a recording. NumPy and matplotlib only; nothing here imports TensorFlow or touches pyplot."""

from keras_introspect.plots.activity_board import activity_board
from keras_introspect.plots.comparison import comparison
from keras_introspect.plots.dashboard import dashboard
from keras_introspect.plots.distribution_board import distribution_board
from keras_introspect.plots.histogram_ridges import histogram_ridges
from keras_introspect.plots.magnitude_distribution import magnitude_distribution
from keras_introspect.plots.norm import norm
from keras_introspect.plots.phase_gap import phase_gap
from keras_introspect.plots.scale_lines import scale_lines
from keras_introspect.plots.scale_stack import scale_stack
from keras_introspect.plots.training_curves import training_curves
from keras_introspect.plots.unit_activity import unit_activity
from keras_introspect.plots.update_board import update_board
from keras_introspect.plots.value_distribution import value_distribution

__all__ = [
    "activity_board",
    "comparison",
    "dashboard",
    "distribution_board",
    "histogram_ridges",
    "magnitude_distribution",
    "norm",
    "phase_gap",
    "scale_lines",
    "scale_stack",
    "training_curves",
    "unit_activity",
    "update_board",
    "value_distribution",
]
