"""Variables that never move."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import is_kernel
from keras_introspect.diagnosis.rule import Rule


class UnchangedWeights(Rule):
    """Trainable kernels that a gradient reaches and that stay exactly as they are, or a model of which nothing trains.

    No threshold: exactly unchanged, as DeepLocalize (Wardat et al., 2021) asks for over 5 epochs. Judged by updates
    that are all zero; without the collector `Updates` by weights all of whose statistics stay the same.

    Args:
        epochs_still: for how many of the last epochs.
    """

    kind = "unchanged_weights"
    needs = ("updates/rms|weights/rms|description/layers", "gradients/rms|description/layers")
    epochs = 2
    order = 30
    picture = "update_board"

    def __init__(self, epochs_still: int = 2) -> None:
        self.epochs_still = epochs_still

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding of all such kernels."""
        if self._all_frozen(evidence):
            yield self._frozen(evidence)
        if not (evidence.has("gradients/rms") and (evidence.has("updates/rms") or evidence.has("weights/rms"))):
            return
        view = "updates" if evidence.has("updates/rms") else "weights"
        names = evidence.names(view)
        pairs = zip(names, evidence.shapes(view), strict=True)
        rows = np.array([i for i, (name, shape) in enumerate(pairs) if is_kernel(name, shape)], int)
        gradients = evidence.aligned("gradients", "rms", view, rows)
        if gradients is None or not len(rows):
            return
        still = self._still(evidence, view, rows)
        reached = np.nan_to_num(gradients[-self.epochs_still :]).min(axis=0) > 0
        found = [names[i] for i, s in zip(rows, still & reached, strict=True) if s]
        if not found:
            return
        severity: Severity = "error" if len(found) > len(rows) / 2 else "warning"
        if evidence.learned:
            severity = "info"
        yield self.finding(
            severity,
            f"{len(found)} of {len(rows)} kernels have not moved, although a gradient reaches them",
            found,
            view=view,
            evidence={f"{view}/rms {name}": evidence.latest(view, "rms")[names.index(name)] for name in found[:8]},
            cause="the learning rate is zero, or the steps are smaller than the weights' precision resolves",
            suggestion="check the learning rate and its schedule; is the variable among those the optimizer was given?",
        )

    @staticmethod
    def _all_frozen(evidence: Evidence) -> bool:
        """Whether all layers that have kernels are frozen, and collectors of what trains found nothing."""
        layers = [layer for layer in evidence.description.get("layers", ()) if "kernel_initializer" in layer]
        frozen = bool(layers) and not any(layer["trainable"] for layer in layers)
        collectors = {about.get("collector") for about in evidence.recording.metadata.get("collectors", ())}
        wanted = collectors & {"Weights", "Gradients", "Updates"}
        nothing = bool(wanted) and not any(view in evidence.recording for view in ("weights", "gradients", "updates"))
        return frozen and nothing and not evidence.loss_is_unknown

    def _frozen(self, evidence: Evidence) -> Finding:
        layers = [layer["name"] for layer in evidence.description["layers"] if "kernel_initializer" in layer]
        return self.finding(
            "info" if evidence.learned else "error",
            "all layers are frozen: nothing is trained",
            layers,
            view="weights",
            cause="trainable=False was set on the model, or on each of its layers, before compile()",
            suggestion="set trainable=True on what is to learn, at least on the head, and compile again",
        )

    def _still(self, evidence: Evidence, view: str, rows: np.ndarray) -> np.ndarray:
        if view == "updates":
            rms = evidence.epoch("updates", "rms")[-self.epochs_still :, rows]
            return np.asarray((rms == 0).all(axis=0))
        still = np.ones(len(rows), bool)
        for statistic in ("rms", "mean", "min", "max"):
            if evidence.has(f"weights/{statistic}"):
                values = evidence.epoch("weights", statistic)[-self.epochs_still - 1 :, rows]
                still &= (len(values) > 1) & (values == values[:1]).all(axis=0)
        return still
