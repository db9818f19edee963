"""Gradients that shrink from the head to the input."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import elements, held_since
from keras_introspect.diagnosis.rule import Rule

_TOTAL, _DEEP = 1e-2, 4


class VanishingGradients(Rule):
    """Gradients of kernels that are smaller the nearer to the input: what stands there hardly learns.

    Judged by ratios first over last kernel: of the rms, of the l2 norm, and of the rms relative to the weights; all
    three must be small, in most of the last third of the epochs. So gradients that are small everywhere, as of a
    converged model or of a small loss, are not named. Embeddings and biases are left out.

    Args:
        ratio: first over last. AUTOTRAINER (Zhang et al., 2021) draws the line at 1e-3.
        layer: the same a layer, of a deep chain that has not learned, if the whole is below 1e-2: TheDeepChecker (Ben
            Braiek and Khomh, 2023) warns of a decay of 0.5 over the depth.
        error: from which it is called an error rather than a warning.
    """

    kind = "vanishing_gradients"
    needs = ("gradients/rms",)
    order = 26
    picture = "scale_lines"

    def __init__(self, ratio: float = 1e-3, layer: float = 0.5, error: float = 1e-6) -> None:
        self.ratio = ratio
        self.layer = layer
        self.error = error

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding, of the chain of kernels."""
        chain = depth_ratios(evidence)
        if chain is None:
            return
        first, last, ratios = chain
        worst = ratios.max(axis=0)  # NaN, where one of them is, is no finding
        rows = evidence.kernels("gradients")
        between = int(((rows > first) & (rows <= last)).sum())
        steady = (worst < _TOTAL) & (worst ** (1 / between) < self.layer) & (between >= _DEEP)
        holds = (worst < self.ratio) | (steady & (not evidence.learned))
        recent = holds[-max(1, len(holds) // 3) :]
        if recent.mean() <= 0.5:
            return
        names = evidence.names("gradients")
        rows = np.flatnonzero(holds)
        value = float(np.exp(np.median(np.log(np.maximum(ratios[0, rows], 1e-300)))))
        severity: Severity = "error" if value < self.error or evidence.failed else "warning"
        if evidence.learned:
            severity = "info"
        rms = evidence.epoch("gradients", "rms")
        yield self.finding(
            severity,
            f"the gradient at {names[first]} is {1 / value:.0e} times smaller than at {names[last]}".replace("e+", "e"),
            [names[first]],
            since=held_since(holds, evidence.epochs("gradients")),
            view="gradients",
            evidence={
                f"gradients/rms {names[first]}": rms[rows[-1], first],
                f"gradients/rms {names[last]}": rms[rows[-1], last],
                "ratio first over last, of rms": ratios[0, rows[-1]],
                "the same, of l2 norms": ratios[1, rows[-1]],
                "the same, relative to the weights": ratios[2, rows[-1]],
            },
            cause="each layer multiplies the gradient by less than 1 on the way back: sigmoid or tanh units, "
            "weights too small, or layers that are saturated or dead",
            suggestion="ReLU with He initialisation, or tanh with Glorot; batch or layer normalisation; shortcuts "
            "around the layers; fewer layers",
        )


def depth_ratios(evidence: Evidence) -> tuple[int, int, np.ndarray] | None:
    """First and last kernel, and their gradients' ratio in each epoch: (3, T): rms, l2 norm, relative to the weights.

    The third is the first, where no weights were collected. Of kernels whose gradient is exactly zero in an epoch the
    ratio is NaN: that is another fault.
    """
    rows = evidence.kernels("gradients")
    rms = evidence.epoch("gradients", "rms")
    rows = rows[np.nan_to_num(rms[:, rows]).any(axis=0)] if len(rows) else rows
    if len(rows) < 2:
        return None
    first, last = int(rows[0]), int(rows[-1])
    pair = rms[:, [first, last]]
    pair = np.where(pair > 0, pair, np.nan)
    plain = pair[:, 0] / pair[:, 1]
    sizes = [elements(evidence.shapes("gradients")[i]) for i in (first, last)]
    ratios = np.stack([plain, plain * np.sqrt(sizes[0] / sizes[1]), plain])
    weights = evidence.aligned("weights", "rms", "gradients", np.array([first, last]))
    if weights is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = plain * weights[:, 1] / weights[:, 0]
        ratios[2] = np.where(np.isfinite(relative), relative, plain)
    return first, last, ratios
