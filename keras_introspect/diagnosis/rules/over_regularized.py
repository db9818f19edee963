"""A penalty that outweighs what is to be learned."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding
from keras_introspect.diagnosis.rule import Rule

_HALF_WAY = 0.7
_SMALL = 0.05  # rms of outputs that a penalty has crushed


class OverRegularized(Rule):
    """A penalty on kernels or activities, or a weight decay, that keeps the model from learning.

    Seen in kernels that shrank to a fraction of their first size, in a penalty that is most of the loss, in penalised
    outputs that are all but zero, and in a decay that takes away in a few steps what was learned. Of a model that has
    learned none of it is a fault.

    Args:
        shrunk: the last rms over the first, of half of the kernels. Glorot's and He's initialisation differ by a factor
            of 2, so a factor of 5 leaves no working layer.
        share: the penalty as a part of the loss, of a model that has not learned; of one that has, it may be all.
        most: the same, of a model that has learned for the most part.
        decay: learning rate × weight decay, the part of the weights that each step takes away. 1e-5 to 1e-4 is
            customary: at 1e-3 the weights are an average over the last thousand steps.
        explained: a penalty must be configured (`kernel_regularizer`, `weight_decay`), or it must have shrunk below
            this.
    """

    kind = "over_regularized"
    needs = ("weights/rms", "logs/loss")
    epochs = 2
    reads_loss = True
    order = 17
    picture = "scale_lines"

    def __init__(
        self, shrunk: float = 0.2, share: float = 0.25, explained: float = 0.01, most: float = 0.5, decay: float = 1e-3
    ) -> None:
        self.shrunk = shrunk
        self.share = share
        self.most = most
        self.decay = decay
        self.explained = explained

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        if evidence.learned:
            return
        found = self._kernels(evidence) or self._activities(evidence) or self._decay(evidence)
        if found is not None:
            yield found

    def _activities(self, evidence: Evidence) -> Finding | None:
        """Outputs with a penalty that are next to zero, or whose penalty is a large part of the loss."""
        if not evidence.has("layer_outputs/rms"):
            return None
        _, loss = evidence.log("loss")
        rms = evidence.latest("layer_outputs", "rms")
        found: list[str] = []
        told: dict[str, float] = {}
        said = ""
        for i, (name, shape) in enumerate(
            zip(evidence.names("layer_outputs"), evidence.shapes("layer_outputs"), strict=True)
        ):
            amounts = evidence.layer(name).get("regularizers", {}).get("activity_regularizer")
            if not amounts or not np.isfinite(rms[i]):
                continue
            units = float(np.prod([size or 1 for size in shape[1:]]))
            share = amounts.get("l2", 0.0) * units * rms[i] ** 2 / loss[-1] if len(loss) and loss[-1] > 0 else 0.0
            if rms[i] < _SMALL or share >= self.share:
                found.append(name)
                told |= {f"layer_outputs/rms {name}": rms[i], f"its penalty over logs/loss {name}": share}
                said = ", ".join(f"{key}={value:g}" for key, value in amounts.items())
        progress = 1.0 if evidence.progress is None else evidence.progress
        if not found or progress >= _HALF_WAY:
            return None
        return self._found(
            evidence,
            f"the penalty on the outputs of {found[0]} leaves an rms of "
            f"{rms[evidence.names('layer_outputs').index(found[0])]:.2g}, and the data are not learned",
            found,
            told,
            f"the activity penalty ({said})",
        )

    def _decay(self, evidence: Evidence) -> Finding | None:
        """A decay that makes the weights an average over few steps, fewer than there were."""
        rate, decay = (evidence.optimizer.get(key) or 0.0 for key in ("learning_rate", "weight_decay"))
        steps = evidence.steps_per_epoch()
        if steps is None or evidence.progress is None or rate * decay < self.decay:
            return None
        if steps * len(evidence.log_epochs) * rate * decay < 1:
            return None  # it has not had the time
        rows = evidence.kernels("weights")
        return self._found(
            evidence,
            f"weight decay takes {100 * rate * decay:.2g} % of the weights in each step, and the data are not learned",
            [evidence.names("weights")[i] for i in rows],
            {"learning rate × weight decay": rate * decay},
            f"the weight decay ({decay:g} at a learning rate of {rate:g})",
        )

    def _found(
        self, evidence: Evidence, summary: str, where: list[str], told: dict[str, float], culprit: str, since: int = 0
    ) -> Finding:
        return self.finding(
            "error" if evidence.failed else "warning",
            summary,
            where,
            since=since,
            view="layer_outputs" if "outputs" in summary else "weights",
            evidence=told,
            cause=f"{culprit} outweighs the loss and drives to zero what it is taken of",
            suggestion="a penalty ten to a hundred times smaller (1e-4 is customary); none at all until the "
            "training data are learned",
        )

    def _kernels(self, evidence: Evidence) -> Finding | None:
        """Kernels that shrank, or whose penalty is most of the loss."""
        rows = evidence.kernels("weights")
        rms = evidence.epoch("weights", "rms")[:, rows]
        if not len(rows) or len(rms) < 2:
            return None
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
        outweighs = share is not None and share >= (self.share if progress < _HALF_WAY else self.most)
        outweighs = outweighs and len(penalties) > len(names) / 2
        if not crushed and not outweighs:
            return None
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
        return self._found(
            evidence,
            summary,
            [names[i] for i in np.argsort(ratio) if small[i] or (not crushed and names[i] in penalties)],
            told,
            f"the penalty{f' ({penalty})' if penalty else ''}",
            int(evidence.epochs("weights")[np.argmax((rms / first < 2 * self.shrunk).mean(axis=1) > 0.5)]),
        )

    @staticmethod
    def _first(evidence: Evidence, rows: np.ndarray, rms: np.ndarray) -> np.ndarray:
        """The size that the kernels started with: Glorot's, or that after the first epoch if it is larger."""
        glorot = evidence.glorot("weights", rows)
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
