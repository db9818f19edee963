"""Steps that are too large for the weights, or for the loss."""

from collections.abc import Iterator

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import SEVERITIES, Finding, Severity
from keras_introspect.diagnosis.places import held_since
from keras_introspect.diagnosis.rule import Rule


class StepTooLarge(Rule):
    """Each step changes the kernels by a large part of their size, or the loss climbs above where it began.

    Args:
        ratio: rms(update) / rms(weight) a step, of most kernels, over an epoch. TheDeepChecker (Ben Braiek and Khomh,
            2023) and DeepDiagnosis (Wardat et al., 2022) both draw the line at 0.1; 1e-3 is customary (Karpathy).
        first: the ratio of the first steps, of the middle kernel: the weights of an epoch's end may have grown to fit.
        climb: the last losses over the best before. Lightning calls a loss a spike at 2 times its running mean.
        grown: the size of most kernels after the first epoch over that of Glorot's initialisation, where the updates of
            that epoch explain it: then steps are small against the weights only because they have made them so large.
    """

    kind = "step_too_large"
    needs = ("updates/rms|updates/update_ratio|gradients/rms|logs/loss",)
    reads_loss = True
    order = 16
    picture = "update_board"

    def __init__(self, ratio: float = 0.1, first: float = 0.4, climb: float = 2.0, grown: float = 10.0) -> None:
        self.ratio = ratio
        self.first = first
        self.climb = climb
        self.grown = grown

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding, the gravest: of the ratio, the loss, the first steps, or the first epoch."""
        signs = (self._ratio(evidence), self._climb(evidence), self._first_steps(evidence), self._grown(evidence))
        found = [sign for sign in signs if sign is not None]
        if found:
            yield max(found, key=lambda sign: SEVERITIES.index(sign.severity))

    def _ratio(self, evidence: Evidence) -> Finding | None:
        ratio = evidence.update_ratio
        if ratio is None:
            return None
        values = np.nan_to_num(ratio.values)
        large = values > self.ratio
        most = large.mean(axis=1) > 0.5
        if not most.any():
            return None
        severity: Severity = "info" if evidence.learned else "error" if evidence.failed else "warning"
        if not evidence.failed and not most[-1] and not self._climbs(evidence):
            severity = "info"  # it was so at the start, and has passed
        rows = np.flatnonzero(most)
        row = rows[np.argmax(np.median(values[rows], axis=1))]
        order = [i for i in np.argsort(-values[row]) if large[row, i]]
        epoch = int(ratio.epochs[row])
        return self.finding(
            severity,
            f"each step of epoch {epoch} changed the kernels by {_times(float(np.median(values[row])))} their size",
            [ratio.names[i] for i in order],
            since=held_since(most, ratio.epochs) if most[-1] else int(ratio.epochs[rows[0]]),
            view="updates" if "updates" in evidence.recording else "gradients",
            evidence={f"{ratio.source} {ratio.names[i]}": values[row, i] for i in order[:8]},
            cause=_cause(evidence),
            suggestion="lower the learning rate tenfold; 1e-3 of the weights' size a step is customary; warm it up",
        )

    def _first_steps(self, evidence: Evidence) -> Finding | None:
        """Adaptive optimizers jump at once; then the weights grow until the ratio looks well, and units have died."""
        ratio = evidence.first_ratio
        if ratio is None or len(ratio.names) < 2:
            return None
        middle = float(np.nanmedian(ratio.values[0]))
        if middle < self.first:
            return None
        severity: Severity = "info" if evidence.mastered or evidence.progress is None else "warning"
        order = np.argsort(-np.nan_to_num(ratio.values[0]))
        return self.finding(
            severity,
            f"the first steps changed the kernels by {_times(middle)} their size each",
            [ratio.names[i] for i in order if ratio.values[0, i] >= self.first],
            since=int(ratio.epochs[0]),
            view="updates" if "updates" in evidence.recording else "weights",
            evidence={f"{ratio.source} {ratio.names[i]}": ratio.values[0, i] for i in order[:8]},
            cause=_cause(evidence),
            suggestion="lower the learning rate tenfold, or warm it up: 1e-3 is customary for Adam and its kin",
        )

    def _grown(self, evidence: Evidence) -> Finding | None:
        steps = evidence.steps_per_epoch()
        if steps is None or not evidence.has("weights/rms") or not evidence.has("updates/rms"):
            return None
        rows = evidence.kernels("weights")
        moved = evidence.aligned("updates", "rms", "weights", rows)
        if len(rows) < 2 or moved is None or evidence.epochs("weights")[0] != 0:
            return None
        size = evidence.epoch("weights", "rms")[0, rows]
        times = np.nan_to_num(size / evidence.glorot("weights", rows))
        large = (times > self.grown) & (np.nan_to_num(moved[0]) * steps > size / 2)
        if large.mean() <= 0.5:
            return None
        names = [evidence.names("weights")[i] for i in rows]
        order = [i for i in np.argsort(-times) if large[i]]
        return self.finding(
            "info" if evidence.learned else "error" if evidence.failed else "warning",
            f"the first epoch made the kernels {np.median(times[order]):.0f} times as large as they start",
            [names[i] for i in order],
            since=0,
            view="updates",
            evidence={f"weights/rms after the first epoch over Glorot's {names[i]}": times[i] for i in order[:8]},
            cause=_cause(evidence),
            suggestion="lower the learning rate tenfold; clip gradients; warm the rate up",
        )

    def _climbs(self, evidence: Evidence) -> bool:
        _, loss = evidence.log("loss")
        return len(loss) > 1 and loss[-1] > self.climb * loss[:-1].min() and loss[-1] > loss[0]

    def _climb(self, evidence: Evidence) -> Finding | None:
        epochs, loss = evidence.log("loss")
        if len(loss) < 3:
            return None
        best = int(np.argmin(loss))
        last = float(loss[-2:].min()) if best < len(loss) - 2 else float(loss[-1])
        if best == len(loss) - 1 or loss[best] <= 0 or last < self.climb * loss[best] or last <= loss[0]:
            return None
        severity: Severity = "info" if evidence.learned else "error"
        return self.finding(
            severity,
            f"the loss climbed to {last / loss[best]:.1f} times its best, above where it began",
            ["loss"],
            since=int(epochs[best + 1]),
            view="logs",
            picture="training_curves",
            evidence={"lowest logs/loss": loss[best], "last logs/loss": last, "first logs/loss": loss[0]},
            cause=_cause(evidence),
            suggestion="lower the learning rate tenfold; clip gradients; let the learning rate decay",
        )


def _times(ratio: float) -> str:
    return f"{100 * ratio:.0f} % of" if ratio < 2 else f"{ratio:.2g} times".replace("e+", "e")


def _cause(evidence: Evidence) -> str:
    rate = evidence.optimizer.get("learning_rate")
    name = evidence.optimizer.get("name", "the optimizer")
    return f"the learning rate, {rate:g} of {name}, is too large" if rate else "the learning rate is too large"
