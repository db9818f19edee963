"""A penalty that has crushed the weights."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.rule import Rule

_HALF_WAY = 0.7


class OverRegularized(Rule):
    """Kernels that shrank to a fraction of their first size while nothing was learned.

    A weight penalty, or weight decay, that outweighs the loss drives the kernels to zero. Small kernels of a model that
    has learned are no fault.

    Args:
        shrunk: the last rms over the first, of half of the kernels. Glorot's and He's initialisation differ by a factor
            of 2, so a factor of 5 leaves no working layer.
        share: the penalty as a part of the loss, of a model that has not learned; of one that has, it may be all.
        explained: a penalty must be configured (`kernel_regularizer`, `weight_decay`), or it must have shrunk below
            this.
    """

    kind = "over_regularized"
    needs = ("weights/rms", "logs/loss")
    epochs = 2
    reads_loss = True
    order = 17
    picture = "scale_lines"

    def __init__(self, shrunk: float = 0.2, share: float = 0.25, explained: float = 0.01) -> None:
        self.shrunk = shrunk
        self.share = share
        self.explained = explained

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        rows = evidence.kernels("weights")
        rms = evidence.epoch("weights", "rms")[:, rows]
        if evidence.learned or not len(rows) or len(rms) < 2:
            return
        first = self._first(evidence, rows, rms)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(rms[-1] / first, nan=1.0)
        names = [evidence.names("weights")[i] for i in rows]
        penalties = {
            name: amounts
            for name in names
            if (amounts := evidence.owner(name).get("regularizers", {}).get("kernel_regularizer"))
        }
        decay = float(evidence.optimizer.get("weight_decay", 0.0))
        small = ratio < (self.shrunk if penalties or decay else self.explained)
        share = self._share(evidence, penalties, rows, names)
        progress = 1.0 if evidence.progress is None else evidence.progress
        crushed = small.mean() >= 0.5 and (progress < _HALF_WAY or evidence.progress is None)
        outweighs = (
            share is not None and share >= self.share and progress < _HALF_WAY and len(penalties) > len(names) / 2
        )
        if not crushed and not outweighs:
            return
        told = {f"weights/rms {names[i]}, last over first": ratio[i] for i in np.argsort(ratio)[:8]}
        if share is not None:
            told["penalty over logs/loss"] = share
        penalty = ", ".join(
            f"{key}={value:g}" for amounts in list(penalties.values())[:1] for key, value in amounts.items()
        )
        penalty = penalty or (f"weight_decay={decay:g}" if decay else "")
        summary = (
            f"the penalty on the kernels is {100 * (share or 0.0):.0f} % of the loss, and the data are not learned"
        )
        if crushed:
            size = 100 * max(ratio[small])
            summary = f"{int(small.sum())} of {len(rows)} kernels shrank to less than {size:.0f} % of their first size"
        yield self.finding(
            "error" if evidence.failed else "warning",
            summary,
            [names[i] for i in np.argsort(ratio) if small[i] or (not crushed and names[i] in penalties)],
            since=int(evidence.epochs("weights")[np.argmax((rms / first < 2 * self.shrunk).mean(axis=1) > 0.5)]),
            view="weights",
            evidence=told,
            cause=f"the penalty{f' ({penalty})' if penalty else ''} outweighs the loss and drives the weights to zero",
            suggestion="a penalty ten to a hundred times smaller (1e-4 is customary); none at all until the "
            "training data are learned",
        )

    @staticmethod
    def _first(evidence: Evidence, rows: np.ndarray, rms: np.ndarray) -> np.ndarray:
        """The size that the kernels started with: Glorot's, or that after the first epoch if it is larger."""
        shapes = [evidence.shapes("weights")[i] for i in rows]
        sides = [(np.prod([d or 1 for d in s[:-1]]), np.prod([d or 1 for d in (*s[:-2], s[-1])])) for s in shapes]
        glorot = np.array([np.sqrt(2 / (a + b)) for a, b in sides])
        return np.asarray(np.maximum(rms[0], glorot if evidence.epochs("weights")[0] == 0 else 0.0))

    @staticmethod
    def _share(
        evidence: Evidence, penalties: dict[str, dict[str, float]], rows: np.ndarray, names: list[str]
    ) -> float | None:
        """The penalty as a part of the loss, from the configured factors and the last weights."""
        _, loss = evidence.log("loss")
        if not penalties or not len(loss) or loss[-1] <= 0 or not evidence.has("weights/l2_norm"):
            return None
        norm = evidence.latest("weights", "l2_norm")[rows]
        absolute = evidence.latest("weights", "mean_abs")[rows] if evidence.has("weights/mean_abs") else norm * 0
        sizes = np.array([np.prod([d or 1 for d in evidence.shapes("weights")[i]]) for i in rows])
        total = 0.0
        for i, name in enumerate(names):
            amounts = penalties.get(name, {})
            total += amounts.get("l2", 0.0) * norm[i] ** 2 + amounts.get("l1", 0.0) * absolute[i] * sizes[i]
        return float(total / loss[-1])
