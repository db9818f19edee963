"""Batch normalisation that is another function in inference than in training."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule


class NormalizationPhaseGap(Rule):
    """Moving statistics that do not fit the data: the model that is validated is not the one that was trained.

    Seen, first, in the outputs of the normalisations in validation against those in training; second, in frozen
    normalisations whose outputs are not normalised, rms² ≠ rms(γ)² + rms(β)²; third, in a validation loss far above the
    training loss after too few steps for the moving averages to arrive.

    Args:
        factor: between the rms in both phases, or from that of a normalised output; of most normalisations. Of frozen
            ones in a model that has learned, its square.
        early: the factor between the phases where the moving averages have not had the steps to arrive.
        alone: the factor by which a single frozen normalisation tells, though most others fit: what follows it
            saturates, which hides the fault from them.
        loss: validation loss over training loss that must go with it.
        arrivals: steps × (1 − momentum) after which a moving average has arrived: e⁻³ = 5 % of the start is left.
    """

    kind = "normalization_phase_gap"
    needs = ("description/layers", "logs/val_loss|layer_outputs/rms")
    order = 15
    picture = "phase_gap"

    def __init__(
        self, factor: float = 2.0, alone: float = 16.0, loss: float = 1.5, arrivals: float = 3.0, early: float = 1.4
    ) -> None:
        self.factor = factor
        self.early = early
        self.alone = alone
        self.loss = loss
        self.arrivals = arrivals

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        norms = [layer for layer in evidence.description["layers"] if layer["class"] == "BatchNormalization"]
        if not norms:
            return
        found = self._between_phases(evidence, norms) or self._frozen(evidence) or self._not_arrived(evidence, norms)
        if found is not None:
            yield found

    def _loss_gap(self, evidence: Evidence) -> float:
        _, loss = evidence.log("loss")
        _, val = evidence.log("val_loss")
        return float(val[-1] / loss[-1]) if len(loss) and len(val) and loss[-1] > 0 else float("nan")

    def _between_phases(self, evidence: Evidence, norms: list[dict[str, float]]) -> Finding | None:
        if not evidence.has("layer_outputs/rms") or not evidence.has("val_layer_outputs/rms"):
            return None
        train = dict(zip(evidence.names("layer_outputs"), evidence.latest("layer_outputs", "rms"), strict=True))
        val = dict(zip(evidence.names("val_layer_outputs"), evidence.latest("val_layer_outputs", "rms"), strict=True))
        gaps = {
            name: float(val[name] / train[name])
            for name in train
            if name in val and train[name] > 0 and evidence.layer(name).get("class") == "BatchNormalization"
        }
        factor = self.early if self._arrived(evidence, norms) < self.arrivals else self.factor
        wide = {name: gap for name, gap in gaps.items() if gap and abs(np.log(gap)) > np.log(factor)}
        gap = self._loss_gap(evidence)
        if not wide or len(wide) <= len(gaps) / 2 or gap < self.loss:
            return None
        return self._found(
            evidence,
            wide,
            f"{len(wide)} of {len(gaps)} batch normalisations give outputs of another size in validation than in "
            "training",
            "val_layer_outputs",
            gap,
        )

    def _frozen(self, evidence: Evidence) -> Finding | None:
        if not evidence.has("layer_outputs/rms"):
            return None
        rms = evidence.latest("layer_outputs", "rms")
        limit = self.factor**2 if evidence.learned else self.factor
        off: dict[str, float] = {}
        judged = 0
        for i, name in enumerate(evidence.names("layer_outputs")):
            layer = evidence.layer(name)
            size = np.hypot(layer.get("scale_rms", 1.0), layer.get("offset_rms", 0.0))
            if layer.get("class") != "BatchNormalization" or not layer.get("frozen_statistics") or not size:
                continue
            judged += 1
            ratio = float(rms[i] / size)
            if ratio > 0 and abs(np.log(ratio)) > np.log(limit):
                off[name] = ratio
        alone = any(abs(np.log(ratio)) > np.log(self.alone) for ratio in off.values())
        if not off or (len(off) <= judged / 2 and not alone):
            return None
        return self._found(
            evidence,
            off,
            f"{len(off)} of {judged} frozen batch normalisations do not normalise these data",
            "layer_outputs",
            float("nan"),
        )

    def _not_arrived(self, evidence: Evidence, norms: list[dict[str, float]]) -> Finding | None:
        gap, arrived = self._loss_gap(evidence), self._arrived(evidence, norms)
        if not evidence.learned or not gap > self.loss:
            return None
        _, val = evidence.log("val_loss")
        if arrived >= self.arrivals or val[-1] < 0.9 * val[0]:
            return None
        momentum = self._momentum(norms)
        total = arrived / (1 - momentum)
        found = {"steps × (1 − momentum)": arrived}
        return self._found(
            evidence,
            found,
            f"after {total:.0f} steps the moving averages of momentum {momentum:g} have not arrived, and the "
            f"validation loss is {gap:.1f} times the training loss",
            "logs",
            gap,
        )

    @staticmethod
    def _momentum(norms: list[dict[str, float]]) -> float:
        return max(float(layer.get("momentum", 0.99)) for layer in norms)

    def _arrived(self, evidence: Evidence, norms: list[dict[str, float]]) -> float:
        """Steps × (1 − momentum); infinite where the steps are not known."""
        steps = evidence.steps_per_epoch()
        return np.inf if steps is None else steps * len(evidence.log_epochs) * (1 - self._momentum(norms))

    def _found(self, evidence: Evidence, wide: dict[str, float], summary: str, view: str, gap: float) -> Finding:
        severity: Severity = "error" if gap > 2 * self.loss or evidence.failed else "warning"
        told = {f"{view}/rms {name}, factor" if view != "logs" else name: value for name, value in wide.items()}
        if np.isfinite(gap):
            told["val_loss over loss"] = gap
        return self.finding(
            severity,
            summary,
            list(wide) if view != "logs" else ["val_loss"],
            view=view,
            evidence=told,
            cause="the moving mean and variance do not fit the data that come in: too few steps for their momentum, "
            "batches unlike the data, or statistics of other data",
            suggestion="momentum=0.9; train longer; larger, mixed batches; inputs scaled as in pre-training; or let "
            "the normalisations of a frozen backbone train",
        )
