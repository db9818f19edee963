"""What is wrong with a run: rules, each a file, and `diagnose`, which asks them all. NumPy only."""

from keras_introspect.diagnosis.description import describe
from keras_introspect.diagnosis.diagnosis import chosen_rules, diagnose, judge
from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.result import Diagnosis
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules import RULES

__all__ = [
    "RULES",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Rule",
    "Severity",
    "chosen_rules",
    "describe",
    "diagnose",
    "judge",
]
