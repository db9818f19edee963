"""The report: one HTML file that holds all of a run. NumPy, matplotlib and Jinja2; no TensorFlow."""

from keras_introspect.reporting.report import report

__all__ = ["report"]
