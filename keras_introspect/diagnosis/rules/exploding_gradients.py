"""Gradients that grow from the head to the input, or from epoch to epoch."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import held_since
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.vanishing_gradients import depth_ratios


class ExplodingGradients(Rule):
    """Gradients of kernels that are larger the nearer to the input, or that grow over the epochs without end.

    Along the depth all three ratios of `VanishingGradients` must be large. Over time the rms of most kernels must have
    grown, and be large relative to the weights.

    Args:
        ratio: first over last kernel. AUTOTRAINER (Zhang et al., 2021) warns from 70, TheDeepChecker (Ben Braiek and
            Khomh, 2023) from a doubling a layer; convolutions, which add up over positions, reach 70 in good health, so
            it is 1000 here.
        growth: the last epoch's rms over that of the first.
        relative: rms(gradient) / rms(weight) that goes with such growth.
    """

    kind = "exploding_gradients"
    needs = ("gradients/rms",)
    order = 27
    picture = "scale_lines"

    def __init__(self, ratio: float = 1e3, growth: float = 1e3, relative: float = 10.0) -> None:
        self.ratio = ratio
        self.growth = growth
        self.relative = relative

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding: along the depth, else over time."""
        found = self._along_the_depth(evidence) or self._over_time(evidence)
        if found is not None:
            yield found

    def _along_the_depth(self, evidence: Evidence) -> Finding | None:
        chain = depth_ratios(evidence)
        if chain is None:
            return None
        first, last, ratios = chain
        holds = np.asarray((ratios > self.ratio).all(axis=0))
        recent = holds[-max(1, len(holds) // 3) :]
        if recent.mean() <= 0.5:
            return None
        names = evidence.names("gradients")
        rows = np.flatnonzero(holds)
        value = float(np.median(ratios[0, rows]))
        return self.finding(
            self._severity(evidence),
            f"the gradient at {names[first]} is {value:.0e} times larger than at {names[last]}".replace("e+", "e"),
            [names[first]],
            since=held_since(holds, evidence.epochs("gradients")),
            view="gradients",
            evidence={
                "ratio first over last, of rms": ratios[0, rows[-1]],
                "the same, of l2 norms": ratios[1, rows[-1]],
                "the same, relative to the weights": ratios[2, rows[-1]],
            },
            cause="each layer multiplies the gradient by more than 1 on the way back: weights too large for their "
            "number of inputs",
            suggestion="He or Glorot initialisation; normalisation; clip gradients (global_clipnorm=1); a lower "
            "learning rate",
        )

    def _over_time(self, evidence: Evidence) -> Finding | None:
        rows = evidence.kernels("gradients")
        rms = evidence.epoch("gradients", "rms")[:, rows]
        seen = np.flatnonzero(np.isfinite(rms).any(axis=1) & (np.nan_to_num(rms) > 0).any(axis=1))
        if not len(rows) or len(seen) < 2:
            return None
        first, last = rms[seen[0]], rms[seen[-1]]
        growth = np.divide(last, first, out=np.full_like(last, np.nan), where=first > 0)
        weights = evidence.aligned("weights", "rms", "gradients", rows)
        if weights is not None:
            size = weights[seen[-1]]
            relative = np.divide(last, size, out=np.full_like(last, np.nan), where=size > 0)
            growth = np.where(np.isfinite(relative) & (relative < self.relative), 1.0, growth)
        grown = np.nan_to_num(growth) > self.growth
        if grown.mean() <= 0.5:
            return None
        names = [evidence.names("gradients")[i] for i in rows]
        order = np.argsort(-np.nan_to_num(growth))
        epochs = evidence.epochs("gradients")
        return self.finding(
            self._severity(evidence),
            f"gradients grew {np.nanmedian(growth):.0e} times from epoch {epochs[seen[0]]} to "
            f"{epochs[seen[-1]]}".replace("e+", "e"),
            [names[i] for i in order if grown[i]],
            since=int(epochs[seen[-1]]),
            view="gradients",
            evidence={f"gradients/rms {names[i]}, last over first": growth[i] for i in order[:4]},
            cause="the steps climb instead of descending: the learning rate is too large for these gradients",
            suggestion="lower the learning rate tenfold; clip gradients (global_clipnorm=1); scale inputs and targets",
        )

    def _severity(self, evidence: Evidence) -> Severity:
        return "info" if evidence.learned else "error"
