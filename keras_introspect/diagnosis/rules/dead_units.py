"""Units that are zero for whole epochs."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import held_since
from keras_introspect.diagnosis.rule import Rule

SPARSE = ("activity_regularizer",)
_ROUNDING = 1e-9


class DeadUnits(Rule):
    """Layers whose units were zero in every element of every step of whole epochs: no gradient passes through them.

    A unit is judged on all data of the epoch. Half-zero outputs of a ReLU, dropout, heads, inputs, and units without
    variables before them are normal and not judged, nor is what an activity penalty makes sparse.

    Args:
        warn: share of a layer's units. SageMaker Debugger flags a layer with over 50 % dead units; as a layer on few
            inputs starts with half of its units dead, or more, and learns well, it is 70 % here.
        error: share from which the layer hands on next to nothing. Lu et al., *Dying ReLU and Initialization* (2020).
        epochs_dead: the streak: for how many of the last epochs.
    """

    kind = "dead_units"
    needs = ("layer_outputs/dead_rate",)
    order = 24
    picture = "activity_board"

    def __init__(self, warn: float = 0.7, error: float = 0.9, epochs_dead: int = 2) -> None:
        self.warn = warn
        self.error = error
        self.epochs_dead = epochs_dead

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding that names the layers, the deadest first."""
        rates, rows = judged_rates(evidence)
        recent = rates[-min(self.epochs_dead, len(rates)) :]
        lowest = np.nan_to_num(recent).min(axis=0) if len(recent) else np.zeros(rates.shape[1])
        found = [i for i in rows if lowest[i] >= self.warn]
        if not found:
            return
        worst = sorted(found, key=lambda i: -lowest[i])
        rate = float(lowest[worst[0]])
        names = [evidence.names("layer_outputs")[i] for i in worst]
        epochs = evidence.epochs("layer_outputs")
        since = held_since(np.nan_to_num(rates[:, worst[0]]) >= self.warn, epochs)
        born = since is not None and since == epochs[0]
        severity: Severity = "error" if rate >= self.error and not evidence.learned else "warning"
        if evidence.mastered or (born and evidence.learned):
            severity = "info"
        streak = _streak(rates[:, worst[0]], self.warn)
        yield self.finding(
            severity,
            f"{100 * rate:.0f} % of the units of {names[0]} were zero all through {streak}",
            names,
            since=since,
            view="layer_outputs",
            evidence={f"layer_outputs/dead_rate {evidence.names('layer_outputs')[i]}": lowest[i] for i in worst},
            cause="the biases or weights start so that no input switches the units on, or the first steps were too "
            "large"
            if born
            else "a step too large pushed the units below zero for every input; they get no gradient to come back",
            suggestion="lower the learning rate; He initialisation with zero bias; centre the inputs; LeakyReLU or "
            "ELU; batch normalisation before the ReLU",
        )


def judged_rates(evidence: Evidence) -> tuple[np.ndarray, list[int]]:
    """Dead rates (T, L), and the rows to judge: each layer once, not again behind a layer that only hands it on."""
    rates = evidence.epoch("layer_outputs", "dead_rate")
    judged = evidence.judged_for_death
    names, shapes = evidence.names("layer_outputs"), evidence.shapes("layer_outputs")
    with np.errstate(invalid="ignore"):
        # Dropout and pooling hand on the dead channels of the layer before.
        copies = np.max(np.abs(np.diff(np.nan_to_num(rates[-3:], nan=-1.0), axis=1)), axis=0, initial=0.0) < _ROUNDING
    selecting = _selecting(evidence)
    rows: list[int] = []
    before: int | None = None
    for i, name in enumerate(names):
        if not judged[i] or any(key in evidence.layer(name).get("regularizers", {}) for key in SPARSE):
            before = None
            continue
        if evidence.layer(name).get("name") in selecting:
            continue
        if before is None or not copies[i - 1] or shapes[before][-1:] != shapes[i][-1:]:
            rows.append(i)
        before = i
    return rates, rows


def _selecting(evidence: Evidence) -> set[str]:
    """The layers that have neither an activation nor variables.

    What is zero behind them is so of their inputs, or on purpose, as where the largest alone are kept.
    """
    if not evidence.has("weights/rms"):
        return set()
    owners = {evidence.owner(variable).get("name") for variable in evidence.names("weights")}
    layers = evidence.description.get("layers", ())
    return {layer["name"] for layer in layers if "activation" not in layer and layer["name"] not in owners}


def _streak(column: np.ndarray, limit: float) -> str:
    holds = np.nan_to_num(column) >= limit
    breaks = np.flatnonzero(~holds)
    length = len(holds) - (breaks[-1] + 1 if len(breaks) else 0)
    return "the last epoch" if length == 1 else f"the last {length} epochs"
