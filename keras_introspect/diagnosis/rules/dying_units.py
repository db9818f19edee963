"""Units that die while the model trains."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import held_since
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules.dead_units import judged_rates

_WELL = 0.6  # of the first epoch's loss


class DyingUnits(Rule):
    """Layers whose share of dead units has risen since the first epoch, and stays.

    A remark where the loss falls as it should: a ReLU layer then does without them.

    Args:
        rise: how much it has risen, as a share of the layer. Ordinary trainings lose a tenth; SageMaker Debugger's line
            is at half of the layer, which a rise of a quarter reaches from the half that may be dead at the start.
        reached: the share that is dead by now.
        below: from this share on it is `dead_units`, and not said twice.
    """

    kind = "dying_units"
    needs = ("layer_outputs/dead_rate",)
    epochs = 2
    order = 35
    picture = "activity_board"

    def __init__(self, rise: float = 0.25, reached: float = 0.4, below: float = 0.7) -> None:
        self.rise = rise
        self.reached = reached
        self.below = below

    @staticmethod
    def _falls(evidence: Evidence) -> bool:
        """Whether the last loss is the lowest, and well below the first."""
        _, loss = evidence.log("loss")
        return len(loss) > 2 and loss[-1] == loss.min() and loss[-1] < _WELL * loss[0]

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields one finding that names the layers, the steepest first."""
        rates, rows = judged_rates(evidence)
        epochs = evidence.epochs("layer_outputs")
        found: list[tuple[float, int]] = []
        for i in rows:
            seen = np.flatnonzero(np.isfinite(rates[:, i]))
            if len(seen) < 2:
                continue
            first, last = rates[seen[0], i], rates[seen[-3:], i].min()
            if self.reached <= last < self.below and last - first >= self.rise:
                found.append((last - first, i))
        if not found:
            return
        found.sort(reverse=True)
        names = [evidence.names("layer_outputs")[i] for _, i in found]
        worst = found[0][1]
        column = np.nan_to_num(rates[:, worst])
        severity: Severity = "info" if evidence.learned or self._falls(evidence) else "warning"
        yield self.finding(
            severity,
            f"the dead units of {names[0]} rose from {100 * column[0]:.0f} % to {100 * column[-1]:.0f} % of the layer",
            names,
            since=held_since(column >= self.reached, epochs),
            view="layer_outputs",
            evidence={f"layer_outputs/dead_rate {evidence.names('layer_outputs')[i]}": rates[-1, i] for _, i in found},
            cause="steps too large push ReLUs below zero for every input, one after the other",
            suggestion="lower the learning rate or warm it up; clip gradients; LeakyReLU; batch normalisation "
            "before it",
        )
