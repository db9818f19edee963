"""Kernels that start far too large."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import elements
from keras_introspect.diagnosis.rule import Rule


class LargeInitialization(Rule):
    """Kernels whose rms × √inputs is large: each such layer multiplies its inputs by that much.

    Glorot, LeCun and He initialisation (Glorot and Bengio, 2010; He et al., 2015) make it 1 to 1.5. Read at the end of
    the first epoch, and taken for the start where the updates of that epoch cannot have made it so.

    Args:
        gain: rms × √inputs, of the largest kernel. SageMaker Debugger warns of a ratio of 10 between the layers'
            variances, DeepDiagnosis (Wardat et al., 2022) of a variance over 10; both depend on the width.
        recurrent: the same of the recurrent kernel of a `SimpleRNN`, which multiplies its state by it at every step;
            orthogonal and Glorot's initialisation make it 1, He's 1.4.
        growth: how much of the rms the updates of the first epoch may explain.
    """

    kind = "large_initialization"
    needs = ("weights/rms",)
    order = 11
    picture = "scale_lines"

    def __init__(self, gain: float = 8.0, recurrent: float = 1.7, growth: float = 0.5) -> None:
        self.gain = gain
        self.recurrent = recurrent
        self.growth = growth

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding that names the kernels, the largest first."""
        if evidence.epochs("weights")[0] != 0:
            return
        rows = evidence.kernels("weights")
        rms = evidence.epoch("weights", "rms")[0, rows]
        shapes = [evidence.shapes("weights")[i] for i in rows]
        # A depthwise kernel, (height, width, channels, multiplier), takes each channel by itself.
        inputs = np.array(
            [
                elements(shape[:-2] if _is_depthwise(evidence, evidence.names("weights")[i]) else shape[:-1])
                for i, shape in zip(rows, shapes, strict=True)
            ]
        )
        gain = np.nan_to_num(rms * np.sqrt(inputs))
        names = [evidence.names("weights")[i] for i in rows]
        plain = np.array(
            [name.endswith("/recurrent_kernel") and self._is_simple(evidence, name) for name in names], bool
        )
        large = (gain > np.where(plain, self.recurrent, self.gain)) & ~self._grown(evidence, rows, rms)
        found = sorted(np.flatnonzero(large), key=lambda i: -gain[i])
        if not found:
            return
        severity: Severity = "info" if evidence.learned else "error" if evidence.failed else "warning"
        state = bool(plain[found[0]])
        initializer = {} if state else evidence.owner(names[found[0]]).get("kernel_initializer", {})
        about = ", ".join(f"{key}={value}" for key, value in initializer.items() if key != "class")
        told = f" ({initializer['class']}({about}))" if initializer else ""
        yield self.finding(
            severity,
            f"{names[found[0]]} starts with rms {rms[found[0]]:.2g}: the layer multiplies its "
            f"{'state at each step' if state else 'inputs'} by about {gain[found[0]]:.2g}",
            [names[i] for i in found],
            since=0,
            view="weights",
            evidence={f"weights/rms × √inputs {names[i]}": gain[i] for i in found},
            cause=f"the kernels start too large for their number of inputs{told}",
            suggestion="kernel_initializer='glorot_uniform', or 'he_normal' before ReLU",
        )

    @staticmethod
    def _is_simple(evidence: Evidence, name: str) -> bool:
        """Whether a variable belongs to the cell of a `SimpleRNN`, whose gates do not hold its state."""
        return "SimpleRNN" in str(evidence.owner(name).get("class", ""))

    def _grown(self, evidence: Evidence, rows: np.ndarray, rms: np.ndarray) -> np.ndarray:
        """Which kernels the updates of the first epoch may have made as large as they are."""
        step = evidence.aligned("updates", "rms", "weights", rows)
        steps = evidence.steps_per_epoch()
        if step is None or steps is None:
            configured = [evidence.owner(evidence.names("weights")[i]).get("kernel_initializer", {}) for i in rows]
            odd = [(about.get("stddev", 0) or about.get("value", 0) or 0) for about in configured]
            return np.array([value < 0.5 * size for value, size in zip(odd, rms, strict=True)], bool)
        return np.asarray(np.nan_to_num(step[0]) * steps > self.growth * rms)


def _is_depthwise(evidence: Evidence, name: str) -> bool:
    return name.endswith("/depthwise_kernel") or "Depthwise" in str(evidence.owner(name).get("class", ""))
