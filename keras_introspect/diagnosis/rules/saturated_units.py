"""Sigmoid and tanh units that stand at their ends."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import held_since
from keras_introspect.diagnosis.rule import Rule

_SQUASHING = {"sigmoid": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
_GATED = ("LSTM", "LSTMCell", "GRU", "GRUCell", "ConvLSTM2D", "Bidirectional")  # their outputs are products of gates


class SaturatedUnits(Rule):
    """Hidden sigmoid and tanh layers most of whose outputs lie at the ends of the range, where the slope vanishes.

    A head is not judged: a sure classifier saturates.

    Args:
        share: of the elements of an epoch. TheDeepChecker (Ben Braiek and Khomh, 2023) and SageMaker Debugger flag a
            layer over 50 % saturated units; elements saturate sooner than units, so it is 80 % here.
        margin: what counts as the end, of the range's width: 0.025 is tanh beyond ±0.95 and a sigmoid beyond 0.025 and
            0.975, where the slope is a tenth of that in the middle.
    """

    kind = "saturated_units"
    needs = ("layer_outputs/quantiles", "description/layers")
    order = 29
    picture = "distribution_board"

    def __init__(self, share: float = 0.8, margin: float = 0.025) -> None:
        self.share = share
        self.margin = margin

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding that names the layers, the most saturated first."""
        quantiles = evidence.epoch("layer_outputs", "quantiles")
        levels = evidence.recording["layer_outputs"].quantile_levels
        if levels is None:
            return
        names, hidden = evidence.names("layer_outputs"), evidence.hidden
        found: list[tuple[float, int]] = []
        for i, name in enumerate(names):
            layer = evidence.layer(name)
            squash = _SQUASHING.get(str(layer.get("activation")))
            if squash is None or not hidden[i] or layer.get("class") in _GATED:
                continue
            share = self._share(quantiles[-1, i], levels, squash)
            if share >= self.share:
                found.append((share, i))
        if not found:
            return
        found.sort(key=lambda item: -item[0])
        share, worst = found[0]
        ends = _SQUASHING[evidence.layer(names[worst])["activation"]]
        holds = np.array([self._share(row, levels, ends) >= self.share for row in quantiles[:, worst]])
        severity: Severity = "info" if evidence.learned else "warning"
        yield self.finding(
            severity,
            f"{100 * share:.0f} % of the outputs of {names[worst]} lie at the ends of "
            f"{evidence.layer(names[worst])['activation']}, where its slope vanishes",
            [names[i] for _, i in found],
            since=held_since(holds, evidence.epochs("layer_outputs")),
            view="layer_outputs",
            evidence={f"saturated share of {names[i]}, from layer_outputs/quantiles": share for share, i in found},
            cause="weights or inputs too large: unscaled inputs, too large an initialisation, or steps too large",
            suggestion="scale the inputs; Glorot initialisation; lower the learning rate; normalisation before the "
            "activation; ReLU or tanh in place of sigmoid",
        )

    def _share(self, quantiles: np.ndarray, levels: np.ndarray, ends: tuple[float, float]) -> float:
        """The share of elements within the margin of either end, from the quantiles."""
        if not np.isfinite(quantiles).all():
            return 0.0
        low, high = ends
        width = (high - low) * self.margin
        below = _rank(low + width, quantiles, levels)
        above = 1 - _rank(high - width, quantiles, levels)
        return float(below + above)


def _rank(value: float, quantiles: np.ndarray, levels: np.ndarray) -> float:
    """The share of elements below a value."""
    if value <= quantiles[0]:
        return 0.0
    if value >= quantiles[-1]:
        return 1.0
    return float(np.interp(value, quantiles, levels / 100))
