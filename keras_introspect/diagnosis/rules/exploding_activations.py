"""Layer outputs that grow along the depth, or from epoch to epoch."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import held_since
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.inputs import input_scale


class ExplodingActivations(Rule):
    """Hidden outputs that are far larger than those of the first layer, or than in the first epoch.

    Heads are not judged, nor the scale that the inputs bring along: that is `unscaled_inputs`.

    Args:
        growth: rms of a layer over that of the first and of the inputs, or over its own in the first epoch.
            AUTOTRAINER (Zhang et al., 2021) warns from a mean magnitude of 10 and TheDeepChecker from a deviation of 2,
            which residual streams pass in good health; it is a ratio of 100 here.
        size: the least rms, so that a layer that starts near zero may grow.
    """

    kind = "exploding_activations"
    needs = ("layer_outputs/rms",)
    order = 28
    picture = "scale_stack"

    def __init__(self, growth: float = 100.0, size: float = 1e3) -> None:
        self.growth = growth
        self.size = size

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding that names the layers, the largest first."""
        rows = np.flatnonzero(evidence.hidden)
        rms = evidence.epoch("layer_outputs", "rms")[:, rows]
        if not rms.size:
            return
        scale = input_scale(evidence)
        with np.errstate(divide="ignore", invalid="ignore"):
            along = rms / np.maximum(rms[:, :1], scale.rms if scale else 0.0)
            over = rms / rms[:1]
        large = (rms > self.size) & ((along > self.growth) | (over > self.growth))
        at = np.flatnonzero(large.any(axis=1))
        if not len(at):
            return
        row = at[-1]
        found = sorted(np.flatnonzero(large[row]), key=lambda i: -rms[row, i])
        names = [evidence.names("layer_outputs")[rows[i]] for i in found]
        worst = found[0]
        deep = along[row, worst] > self.growth and evidence.broken is None and not over[row, worst] > self.growth
        severity: Severity = "info" if evidence.learned else "error" if rms[row, worst] > self.size**2 else "warning"
        depth = along[row, worst] > over[row, worst]
        than = "the first layer or the inputs" if depth else f"epoch {evidence.epochs('layer_outputs')[0]}"
        value = along[row, worst] if depth else over[row, worst]
        yield self.finding(
            severity,
            f"the outputs of {names[0]} have rms {rms[row, worst]:.1e}, {value:.0e} times that of {than}".replace(
                "e+", "e"
            ),
            names,
            since=held_since(large[: row + 1].any(axis=1), evidence.epochs("layer_outputs")[: row + 1]),
            view="layer_outputs",
            evidence={f"layer_outputs/rms {name}": rms[row, i] for name, i in zip(names, found, strict=True)},
            cause="each layer multiplies its inputs by more than 1: the weights start too large for their number of "
            "inputs"
            if deep
            else "the weights grew without bound: the steps are too large",
            suggestion="He or Glorot initialisation; batch or layer normalisation; a lower learning rate",
        )
