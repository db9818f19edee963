"""Inputs of a scale far from 1."""

from collections.abc import Iterator

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.inputs import frozen_start, input_scale, scaled_inside


class UnscaledInputs(Rule):
    """Inputs, or one of their features, far larger or smaller than 1, into a layer that does not scale them.

    A model that scales its inputs itself (`Rescaling`, `Normalization`, a normalisation first), embeds them, or starts
    with frozen layers is not judged. Where the recording does not describe its inputs, their size follows from the
    gradients of the first layer: kernel over bias.

    Args:
        rms: of the inputs. UMLAUT (Schoop et al., 2021) and DeepDiagnosis (Wardat et al., 2022) call all beyond ±1
            unscaled, standardised data too; 0 to 255 has about 100.
        spread: std of the widest feature over that of the narrowest.
        tiny: an rms below which they are too small, if no input is ten times as large: pixels divided by 255 twice.
    """

    kind = "unscaled_inputs"
    needs = ("data/inputs|layer_outputs/rms|gradients/rms",)
    order = 13
    picture = "distribution_board"

    def __init__(self, rms: float = 20.0, spread: float = 300.0, tiny: float = 0.01) -> None:
        self.rms = rms
        self.tiny = tiny
        self.spread = spread

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        scale = input_scale(evidence)
        if scale is None or scaled_inside(evidence) or frozen_start(evidence):
            return
        uneven = scale.spread > self.spread
        tiny = scale.rms < self.tiny and scale.largest < 10 * self.tiny
        if scale.rms < self.rms and not uneven and not tiny:
            return
        severity: Severity = "info" if evidence.learned else "warning"
        summary = f"{scale.name or 'the inputs'} {'has' if scale.name else 'have'} rms {scale.rms:.3g}"
        if uneven:
            summary += f", and the widest feature is {scale.spread:.0f} times as wide as the narrowest"
        yield self.finding(
            severity,
            summary,
            ["inputs"],
            evidence=scale.evidence,
            cause="the data were scaled twice, or by the wrong number; the first layer hands on next to nothing"
            if tiny
            else "the data are fed as they came; the first layer's gradients grow with them, and no learning rate "
            "fits all weights",
            suggestion="standardise each feature: keras.layers.Normalization, adapted to the training data; or "
            "divide images by 255",
        )
