"""Steps so small that the loss creeps."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.rule import Rule


class StepTooSmall(Rule):
    """The loss falls in a straight line by little, or not to be seen, while the steps are small against the weights.

    Small steps alone are no fault: fine-tuning and a decayed learning rate make them too. So the loss must not have
    been learned, must still fall as fast at the end as at the start or not have moved, and the weights must hardly have
    travelled: ratio × steps over the run.

    Args:
        ratio: rms(update) / rms(weight) a step, of most kernels, in every epoch. TheDeepChecker (Ben Braiek and Khomh,
            2023) draws the line at 1e-4 and DeepDiagnosis (Wardat et al., 2022) at 1e-5; as the other conditions are
            asked too, the first is widened to 3e-4.
        travel: the sum of the ratios over all steps that a run must stay below.
        fall: the part of the loss that a run must not have lost.
    """

    kind = "step_too_small"
    needs = ("updates/rms|updates/update_ratio|gradients/rms", "logs/loss")
    epochs = 3
    reads_loss = True
    order = 34
    picture = "update_board"

    def __init__(self, ratio: float = 3e-4, travel: float = 1.0, fall: float = 0.5) -> None:
        self.ratio = ratio
        self.travel = travel
        self.fall = fall

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding."""
        ratio = evidence.update_ratio
        _, loss = evidence.log("loss")
        if ratio is None or len(loss) < 3 or evidence.learned or loss[0] <= 0:
            return
        moving = np.where(ratio.values > 0, ratio.values, np.nan)
        moving = moving[np.isfinite(moving).any(axis=1)]
        if not len(moving):
            return
        typical = np.nanmedian(moving, axis=1)
        if np.max(typical) > self.ratio:
            return
        steps = evidence.steps_per_epoch() or 1.0
        travel = float(np.sum(typical) * steps)
        fall = float(1 - loss[-1] / loss[0])
        third = max(1, len(loss) // 3)
        early, late = (loss[0] - loss[third]) / third, (loss[-1 - third] - loss[-1]) / third
        straight = late >= 0.5 * early > 0
        still = abs(fall) < 0.02
        if fall >= self.fall or not (straight or still) or travel > self.travel:
            return
        tiny = np.max(typical) < self.ratio / 100
        severity: Severity = "warning" if straight or tiny or evidence.failed else "info"
        rate = evidence.optimizer.get("learning_rate")
        fell = f"the loss fell by {100 * fall:.1f} % in {len(loss)} epochs"
        fell += ", and as fast at the end as at the start" if straight else ""
        yield self.finding(
            severity,
            f"each step changes the kernels by {np.nanmedian(typical):.0e} of their size; {fell}",
            list(ratio.names),
            since=int(ratio.epochs[0]),
            view="updates" if "updates" in evidence.recording else "gradients",
            evidence={
                f"{ratio.source}, median of the kernels": np.nanmedian(typical),
                "the same, summed over the steps": travel,
                "first logs/loss": loss[0],
                "last logs/loss": loss[-1],
            },
            cause=(f"the learning rate, {rate:g}, is too small" if rate else "the learning rate is too small")
            + _clipping(evidence),
            suggestion="raise the learning rate tenfold, as long as the loss falls; 1e-3 of the weights' size a "
            "step is customary",
        )


def _clipping(evidence: Evidence) -> str:
    """That the optimizer clips, where it does: then the learning rate may be innocent."""
    clips = [f"{key}={evidence.optimizer[key]:g}" for key in _CLIPS if evidence.optimizer.get(key)]
    return f"; or the gradients are clipped too far, {', '.join(clips)}: see implicit_learning_rate" if clips else ""


_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")
