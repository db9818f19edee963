"""Gradients that shrink from the head to the input."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import elements, held_since, layer_of
from keras_introspect.diagnosis.rule import Rule

_TOTAL, _DEEP = 1e-2, 4
_EACH = 0.7  # of the outputs, a layer: what ReLU makes of Glorot's initialisation, with which nets of some depth train
_OF_ATTENTION = (["query"], ["key"], ["query_dense"], ["key_dense"])
_SLOPES = {"sigmoid": 0.25, "hard_sigmoid": 0.2, "tanh": 1.0, "relu": 1.0, "linear": 1.0}  # the largest of each


class VanishingGradients(Rule):
    """Gradients of kernels that are smaller the nearer to the input: what stands there hardly learns.

    Judged by ratios first over last kernel: of the rms, of the l2 norm, and of the rms relative to the weights; all
    three must be small, in most of the last third of the epochs. So gradients that are small everywhere, as of a
    converged model or of a small loss, are not named. Embeddings and biases are left out.

    Of a model that has not learned well, two other signs: outputs that shrink from layer to layer after the first
    epoch, as small kernels make them, with which gradients shrink on the way back; and a `SimpleRNN` that multiplies
    its gradient at each step by less than 1: about the slope of its activation times the gain of its recurrent kernel
    (Pascanu, Mikolov and Bengio, *On the difficulty of training recurrent neural networks*, 2013).

    Args:
        ratio: first over last. AUTOTRAINER (Zhang et al., 2021) draws the line at 1e-3.
        layer: the same a layer, of a deep chain that has not learned, if the whole is below 1e-2: TheDeepChecker (Ben
            Braiek and Khomh, 2023) warns of a decay of 0.5 over the depth.
        error: from which it is called an error rather than a warning.
        shrink: outputs of the last hidden layer over those of the first, over at least four layers.
        steps: what is left of a gradient over all time steps.
    """

    kind = "vanishing_gradients"
    needs = ("gradients/rms",)
    order = 26
    picture = "scale_lines"

    def __init__(
        self, ratio: float = 1e-3, layer: float = 0.5, error: float = 1e-6, shrink: float = 0.05, steps: float = 1e-6
    ) -> None:
        self.ratio = ratio
        self.layer = layer
        self.error = error
        self.shrink = shrink
        self.steps = steps

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding: of the chain of kernels, of the outputs, or of the time steps."""
        found = self._kernels(evidence)
        if found is None and not evidence.learned:
            found = self._outputs(evidence) or self._through_time(evidence)
        if found is not None:
            yield found

    def _outputs(self, evidence: Evidence) -> Finding | None:
        """Hidden outputs that shrink from layer to layer, in the first epoch."""
        if not evidence.has("layer_outputs/rms") or evidence.epochs("layer_outputs")[0] != 0:
            return None
        names = evidence.names("layer_outputs")
        rms = evidence.epoch("layer_outputs", "rms")[0]
        rows = [i for i in np.flatnonzero(evidence.hidden) if "kernel_initializer" in evidence.layer(names[i])]
        sizes = rms[rows]
        if len(rows) < _DEEP or not (sizes > 0).all() or (np.diff(sizes) > 0).sum() > len(rows) // 4:
            return None
        ratio = float(sizes[-1] / sizes[0])
        if ratio >= self.shrink or ratio ** (1 / (len(rows) - 1)) >= _EACH:
            return None
        return self.finding(
            "error" if evidence.failed else "warning",
            f"outputs shrank from layer to layer at first: {names[rows[-1]]} gave them {1 / ratio:.0f} times smaller "
            f"than {names[rows[0]]}",
            [names[i] for i in rows],
            since=0,
            view="layer_outputs",
            evidence={f"layer_outputs/rms {names[i]}, first epoch": rms[i] for i in rows},
            cause="kernels that start too small multiply outputs on the way up, and gradients on the way back, by less "
            "than 1 a layer",
            suggestion="kernel_initializer='glorot_uniform' with tanh, 'he_normal' with ReLU; normalisation layers",
        )

    def _through_time(self, evidence: Evidence) -> Finding | None:
        """A simple recurrent layer whose gradient at the first step is a tiny part of that at the last."""
        if not evidence.has("weights/rms"):
            return None
        size = evidence.latest("weights", "rms")
        for i, name in enumerate(evidence.names("weights")):
            layer = evidence.owner(name)
            slope = _SLOPES.get(str(layer.get("activation")))
            if not name.endswith("/recurrent_kernel") or "SimpleRNN" not in str(layer.get("class")) or slope is None:
                continue
            steps = time_steps(evidence, name)
            factor = slope * float(size[i]) * float(np.sqrt(evidence.shapes("weights")[i][0] or 1))
            if steps is None or not 0 < factor < 1 or factor**steps >= self.steps:
                continue
            return self.finding(
                "warning",
                f"{layer['name']} passes about {factor:.2g} of its gradient from a step to the one before: nothing "
                f"comes through {steps} steps",
                [name],
                view="gradients",
                evidence={"slope × gain of the recurrent kernel": factor, "time steps": steps},
                cause=f"the slope of {layer['activation']} is at most {slope:g}",
                suggestion="GRU or LSTM; tanh with recurrent_initializer='orthogonal'; shorter sequences",
            )
        return None

    def _kernels(self, evidence: Evidence) -> Finding | None:
        """Gradients of kernels that shrink towards the input."""
        chain = depth_ratios(evidence)
        if chain is None:
            return None
        first, last, ratios = chain
        worst = ratios.max(axis=0)  # NaN, where one of them is, is no finding
        rows = evidence.kernels("gradients")
        between = int(((rows > first) & (rows <= last)).sum())
        steady = (worst < _TOTAL) & (worst ** (1 / between) < self.layer) & (between >= _DEEP)
        holds = (worst < self.ratio) | (steady & (not evidence.learned))
        recent = holds[-max(1, len(holds) // 3) :]
        if recent.mean() <= 0.5:
            return None
        names = evidence.names("gradients")
        rows = np.flatnonzero(holds)
        value = float(np.exp(np.median(np.log(np.maximum(ratios[0, rows], 1e-300)))))
        severity: Severity = "error" if value < self.error or evidence.failed else "warning"
        if evidence.learned:
            severity = "info"
        rms = evidence.epoch("gradients", "rms")
        return self.finding(
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


def time_steps(evidence: Evidence, recurrent: str) -> int | None:
    """How many time steps come to the cell of a recurrent kernel, where they are known.

    By what its layer is given: the output before it, or else the only input, if it has the features that it takes.
    """
    names, shapes = evidence.names("weights"), evidence.shapes("weights")
    kernel = recurrent.removesuffix("recurrent_kernel") + "kernel"
    features = shapes[names.index(kernel)][0] if kernel in names else None
    given: list[Any] = []
    if "layer_outputs" in evidence.recording:
        layer = recurrent.split("/simple_rnn_cell")[0]
        paths = [layer_of(name) for name in evidence.names("layer_outputs")]
        rows = [i for i, path in enumerate(paths) if layer.startswith(path) or path.startswith(layer)]
        if rows and rows[0] > 0:
            given = list(evidence.shapes("layer_outputs")[rows[0] - 1][1:])
    inputs = evidence.data.get("inputs") or []
    if not given and len(inputs) == 1:
        given = list(inputs[0].get("shape") or [])
    return int(given[0]) if len(given) == 2 and given[0] and given[1] == features else None


def depth_ratios(evidence: Evidence) -> tuple[int, int, np.ndarray] | None:
    """First and last kernel, and their gradients' ratio in each epoch: (3, T): rms, l2 norm, relative to the weights.

    The third is the first, where no weights were collected. Of kernels whose gradient is exactly zero in an epoch the
    ratio is NaN: that is another fault.
    """
    rows = evidence.kernels("gradients")
    names = evidence.names("gradients")
    # Of queries and keys gradients are small as long as attention is even, whatever the depth.
    rows = np.array([i for i in rows if names[i].split("/")[-2:-1] not in _OF_ATTENTION], int)
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
