"""Units that start equal, and stay equal."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule

_CONSTANT = ("Constant", "Zeros", "Ones")
_MANY = 8  # units, whose biases are not all equal by chance


class ConstantInitialization(Rule):
    """Layers all of whose units are the same: started equal, they get equal gradients, and stay one unit.

    Seen in a bias whose elements have moved and are all equal, and in kernels whose elements are all equal; the
    configured initialisers join in. One layer that starts at zero, as heads and residual branches do on purpose, is not
    named, nor a bias that has not moved. An embedding is named where its whole table is still constant at the end.

    Args:
        spread: std over the size of the mean, below which elements count as equal: float32 resolves 1e-7.
    """

    kind = "constant_initialization"
    needs = ("weights/std", "weights/mean")
    order = 10
    picture = "distribution_board"

    def __init__(self, spread: float = 1e-5) -> None:
        self.spread = spread

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding of all such layers."""
        names, shapes = evidence.names("weights"), evidence.shapes("weights")
        std, mean = evidence.epoch("weights", "std"), evidence.epoch("weights", "mean")
        size = np.maximum(np.abs(mean), 1e-30)
        equal = np.nan_to_num(std / size, nan=1.0) < self.spread
        found: list[str] = []
        hidden_kernels = 0
        for i, (name, shape) in enumerate(zip(names, shapes, strict=True)):
            last = name.rsplit("/", 1)[-1]
            if not shape or (shape[-1] or 0) < 3:
                continue
            if "embedding" in name.lower():
                if not evidence.learned and last == "embeddings" and (equal[-1, i] or std[-1, i] == 0):
                    found.append(name)
                    hidden_kernels += 1
                continue
            if last == "bias" and len(shape) == 1 and equal[-1, i] and self._moved(evidence, i, mean[:, i]):
                found.append(name)
            elif last == "kernel" and len(shape) >= 2 and (equal[:, i].any() or self._all_zero(std, mean, i)):
                found.append(name)
                hidden_kernels += 1
        layers = {name.rpartition("/")[0] for name in found}
        configured = [
            layer["name"]
            for layer in evidence.description.get("layers", ())
            if layer.get("kernel_initializer", {}).get("class") in _CONSTANT and layer.get("units", 2) > 1
        ]
        biases = [name for name in found if name.endswith("bias")]
        if not found or (len(layers) == 1 and not biases and len(configured) < 2):
            return
        wide = any((shapes[names.index(name)][-1] or 0) >= _MANY for name in biases)
        if (
            evidence.description.get("layers")
            and not configured
            and not hidden_kernels
            and not wide
            and len(biases) < 2
        ):
            return  # the initialiser is random, and a few units may be equal by chance
        severity: Severity = "info" if evidence.learned else "error"
        row = names.index(found[0])
        yield self.finding(
            severity,
            f"all elements of {found[0]} are equal, and of {len(found) - 1} more"
            if len(found) > 1
            else f"all elements of {found[0]} are equal",
            found,
            since=int(evidence.epochs("weights")[0]),
            view="weights",
            evidence={f"weights/std {found[0]}": std[-1, row], f"weights/mean {found[0]}": mean[-1, row]},
            cause="the weights start constant"
            + (f" ({', '.join(configured[:3])})" if configured else "")
            + ": all units of a layer compute the same and get the same gradient",
            suggestion="a random kernel_initializer: glorot_uniform, or he_normal before ReLU",
        )

    @staticmethod
    def _moved(evidence: Evidence, i: int, mean: np.ndarray) -> bool:
        """Whether a bias has moved: its mean over the epochs, or from the zero it starts at."""
        if len(mean) > 1 and mean[-1] != mean[0]:
            return True
        name = evidence.names("weights")[i]
        for view in ("updates", "gradients"):
            if evidence.has(f"{view}/rms") and name in evidence.names(view):
                return bool(evidence.latest(view, "rms")[evidence.names(view).index(name)] > 0)
        return False

    @staticmethod
    def _all_zero(std: np.ndarray, mean: np.ndarray, i: int) -> bool:
        return bool(((std[:, i] == 0) & (mean[:, i] == 0)).any())
