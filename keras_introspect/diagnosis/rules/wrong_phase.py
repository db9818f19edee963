"""Layers that run in the wrong phase."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule

_DROPOUT = ("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
_RATE = 0.05  # of dropout, below which it is not told from none
_ACTIVE = 0.05  # share of elements that are not zero, below which a share of them is not told


class WrongPhase(Rule):
    """Batch normalisation or dropout that runs in the inference phase while training, or dropout in validation.

    Batch normalisation of a batch gives mean β and std γ in each channel, so rms² = rms(γ)² + rms(β)² of its output; by
    moving statistics it does not, unless these fit. Dropout keeps a share 1 − rate of the elements. Where the recording
    says with which `training` the layers were called, that decides.

    Args:
        factor: how far the rms of a normalised output is off, as a factor.
        kept: how far, as a part of its rate, the share that a dropout layer drops may be from what is expected.
    """

    kind = "wrong_phase"
    needs = ("layer_outputs/rms", "description/layers")
    order = 15
    picture = "phase_gap"

    def __init__(self, factor: float = 1.6, kept: float = 0.2) -> None:
        self.factor = factor
        self.kept = kept

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding of normalisation and one of dropout."""
        found = next(self._fixed(evidence), None) or next(self._normalization(evidence), None)
        if found is not None:
            yield found
        yield from self._dropout(evidence)

    def _fixed(self, evidence: Evidence) -> Iterator[Finding]:
        """Normalisations in the training phase always, as configured or seen; or never, while nothing is learned."""
        norms = [layer for layer in evidence.description["layers"] if layer["class"] == "BatchNormalization"]
        phases = evidence.recording.metadata.get("phases") or {}
        seen = {evidence.layer(name).get("name"): called for name, called in phases.items() if isinstance(called, dict)}
        for phase in (True, False):
            found = [
                layer["name"]
                for layer in norms
                if layer.get("trainable", True) and self._called(layer, seen.get(layer["name"], {})) is phase
            ]
            if not found or (phase is False and not evidence.failed):
                continue
            yield self.finding(
                "warning" if phase else "error",
                f"{len(found)} batch normalisation(s) are called with training={phase}, whatever the phase",
                found,
                view="layer_outputs",
                cause="the model passes training=True where it calls the layer: a prediction depends on the other "
                "samples of its batch"
                if phase
                else "the model fixes training=False where it calls the layer: the moving statistics stay as they were "
                "made, and nothing is normalised",
                suggestion="leave training= to Keras, which knows the phase",
            )

    @staticmethod
    def _called(layer: Mapping[str, Any], seen: Mapping[str, bool]) -> bool | None:
        """With which `training` a layer is called in both phases: as it was seen, or else as it is configured.

        What was seen counts for more: newer releases of Keras pass over what a functional model was built with.
        """
        if "inference" in seen:
            return True if seen["inference"] else None  # never normalised while training: that is told elsewhere
        if "train" in seen and seen["train"] is not layer.get("called_with_training"):
            return None
        return layer.get("called_with_training")

    def _normalization(self, evidence: Evidence) -> Iterator[Finding]:
        names = evidence.names("layer_outputs")
        weights = (
            dict(zip(evidence.names("weights"), range(len(evidence.names("weights"))), strict=True))
            if evidence.has("weights/rms")
            else {}
        )
        phases = evidence.recording.metadata.get("phases") or {}
        found: dict[str, float] = {}
        judged = 0
        for i, name in enumerate(names):
            layer = evidence.layer(name)
            if layer.get("class") != "BatchNormalization" or not layer.get("trainable", True):
                continue
            called = phases.get(name, {}).get("train") if isinstance(phases.get(name), dict) else None
            if called is not None:
                judged += 1
                if called is False:
                    found[name] = 0.0
                continue
            gamma, beta = (_row(weights, layer["name"], key) for key in ("gamma", "beta"))
            if gamma is None or beta is None:
                continue
            judged += 1
            size = evidence.epoch("weights", "rms")
            expected = np.hypot(size[:, gamma], size[:, beta])[-len(evidence.epochs("layer_outputs")) :]
            actual = evidence.epoch("layer_outputs", "rms")[-len(expected) :, i]
            with np.errstate(divide="ignore", invalid="ignore"):
                off = np.abs(np.log(actual / expected))
            if np.isfinite(off).any() and np.nanmin(off) > np.log(self.factor):
                found[name] = float(np.exp(np.log(actual / expected)[np.isfinite(off)][-1]))
        if not found or len(found) <= judged / 2:
            return
        severity: Severity = (
            "info" if evidence.learned and not self._gap(evidence) else "error" if evidence.failed else "warning"
        )
        yield self.finding(
            severity,
            f"{len(found)} of {judged} batch normalisations did not normalise their batches while training",
            list(found),
            view="layer_outputs",
            evidence={f"layer_outputs/rms {name}, over that of a normalised batch": off for name, off in found.items()},
            cause="they were called with training=False: the moving statistics are used, and never updated",
            suggestion="do not pass training= to the layer or model in the training step, nor a fixed learning phase",
        )

    @staticmethod
    def _gap(evidence: Evidence) -> bool:
        _, loss = evidence.log("loss")
        _, val = evidence.log("val_loss")
        return bool(len(loss) and len(val) and val[-1] > 2 * loss[-1])

    def _dropout(self, evidence: Evidence) -> Iterator[Finding]:
        if not evidence.has("layer_outputs/activation_rate"):
            return
        names = evidence.names("layer_outputs")
        rates = evidence.latest("layer_outputs", "activation_rate")
        off: list[str] = []
        for i in range(1, len(names)):
            layer = evidence.layer(names[i])
            rate = _rate(layer)
            if (
                rate < _RATE
                or not rates[i - 1] > 0
                or evidence.shapes("layer_outputs")[i] != evidence.shapes("layer_outputs")[i - 1]
            ):
                continue
            if not layer.get("trainable", True):
                continue
            same = evidence.has("layer_outputs/mean") and np.isclose(
                evidence.latest("layer_outputs", "rms")[i], evidence.latest("layer_outputs", "rms")[i - 1], rtol=1e-6
            )
            if same and rates[i] > rates[i - 1] * (1 - self.kept * rate):
                off.append(names[i])
        if off:
            yield self.finding(
                "info" if evidence.learned else "warning",
                f"{len(off)} dropout layer{'s' if len(off) > 1 else ''} dropped nothing while training",
                off,
                view="layer_outputs",
                evidence={f"layer_outputs/activation_rate {name}": rates[names.index(name)] for name in off},
                cause="called with training=False in the training step",
                suggestion="do not pass training= to the layer or model in the training step",
            )
        on = self._dropping(evidence)
        if on:
            yield self.finding(
                "info" if evidence.mastered else "warning",
                f"{len(on)} dropout layer{'s' if len(on) > 1 else ''} drop in validation too",
                list(on),
                view="val_layer_outputs",
                evidence={f"val_layer_outputs/activation_rate {name}, kept": share for name, share in on.items()},
                cause="called with training=True, whatever the phase",
                suggestion="leave training= to Keras, unless you want Monte Carlo dropout",
            )

    def _dropping(self, evidence: Evidence) -> dict[str, float]:
        """Dropout layers that keep, of what the layer before them puts out in validation, the share 1 − rate.

        Not those of which it was seen that they were called with `training=False`.
        """
        phases = evidence.recording.metadata.get("phases") or {}
        if not evidence.has("val_layer_outputs/activation_rate"):
            return {}
        names, shapes = evidence.names("val_layer_outputs"), evidence.shapes("val_layer_outputs")
        values = evidence.latest("val_layer_outputs", "activation_rate")
        found = {}
        for i in range(1, len(names)):
            rate = _rate(evidence.layer(names[i]))
            if rate < _RATE or shapes[i] != shapes[i - 1] or not values[i - 1] > _ACTIVE:
                continue
            if (phases.get(names[i]) or {}).get("inference") is False:
                continue
            kept = float(values[i] / values[i - 1])
            if abs(kept - (1 - rate)) < self.kept * rate:
                found[names[i]] = kept
        return found


def _rate(layer: Mapping[str, Any]) -> float:
    """The share that a layer drops; 0 of one that does not drop elements to zero."""
    return float(layer.get("rate", 0.0)) if layer.get("class") in _DROPOUT else 0.0


def _row(rows: dict[str, int], layer: str, key: str) -> int | None:
    for name in (f"{layer}/{key}",):
        if name in rows:
            return rows[name]
    ends = [
        row for name, row in rows.items() if name.endswith(f"/{layer}/{key}") or f"{layer}/{key}".endswith(f"/{name}")
    ]
    return ends[0] if len(ends) == 1 else None
