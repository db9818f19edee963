"""The rules, one a file."""

from keras_introspect.diagnosis.rules.constant_initialization import ConstantInitialization
from keras_introspect.diagnosis.rules.constant_inputs import ConstantInputs
from keras_introspect.diagnosis.rules.dead_units import DeadUnits
from keras_introspect.diagnosis.rules.dying_units import DyingUnits
from keras_introspect.diagnosis.rules.exploding_activations import ExplodingActivations
from keras_introspect.diagnosis.rules.exploding_gradients import ExplodingGradients
from keras_introspect.diagnosis.rules.head_loss_mismatch import HeadLossMismatch
from keras_introspect.diagnosis.rules.labels_out_of_range import LabelsOutOfRange
from keras_introspect.diagnosis.rules.large_initialization import LargeInitialization
from keras_introspect.diagnosis.rules.logits_as_probabilities import LogitsAsProbabilities
from keras_introspect.diagnosis.rules.no_gradient import NoGradient
from keras_introspect.diagnosis.rules.nonfinite import NonFinite
from keras_introspect.diagnosis.rules.normalization_phase_gap import NormalizationPhaseGap
from keras_introspect.diagnosis.rules.oscillation import Oscillation
from keras_introspect.diagnosis.rules.over_regularized import OverRegularized
from keras_introspect.diagnosis.rules.overfitting import Overfitting
from keras_introspect.diagnosis.rules.probabilities_as_logits import ProbabilitiesAsLogits
from keras_introspect.diagnosis.rules.saturated_units import SaturatedUnits
from keras_introspect.diagnosis.rules.softmax_over_one_unit import SoftmaxOverOneUnit
from keras_introspect.diagnosis.rules.squared_error_on_classes import SquaredErrorOnClasses
from keras_introspect.diagnosis.rules.step_too_large import StepTooLarge
from keras_introspect.diagnosis.rules.step_too_small import StepTooSmall
from keras_introspect.diagnosis.rules.stopped_early import StoppedEarly
from keras_introspect.diagnosis.rules.unchanged_weights import UnchangedWeights
from keras_introspect.diagnosis.rules.underfitting import Underfitting
from keras_introspect.diagnosis.rules.unscaled_inputs import UnscaledInputs
from keras_introspect.diagnosis.rules.unscaled_targets import UnscaledTargets
from keras_introspect.diagnosis.rules.validation_mismatch import ValidationMismatch
from keras_introspect.diagnosis.rules.vanishing_gradients import VanishingGradients
from keras_introspect.diagnosis.rules.wrong_phase import WrongPhase

# Causes first, then what they cause; so ties in rank are broken.
RULES = (
    NonFinite,
    SoftmaxOverOneUnit,
    HeadLossMismatch,
    LogitsAsProbabilities,
    ProbabilitiesAsLogits,
    LabelsOutOfRange,
    ConstantInitialization,
    LargeInitialization,
    ConstantInputs,
    UnscaledInputs,
    UnscaledTargets,
    WrongPhase,
    NormalizationPhaseGap,
    StepTooLarge,
    OverRegularized,
    SquaredErrorOnClasses,
    DeadUnits,
    NoGradient,
    VanishingGradients,
    ExplodingGradients,
    ExplodingActivations,
    SaturatedUnits,
    UnchangedWeights,
    Oscillation,
    StepTooSmall,
    DyingUnits,
    Underfitting,
    ValidationMismatch,
    Overfitting,
    StoppedEarly,
)

__all__ = ["RULES", *(rule.__name__ for rule in RULES)]
