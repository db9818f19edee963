"""NaN and infinity."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity
from keras_introspect.diagnosis.places import values_of
from keras_introspect.diagnosis.rule import Rule

# The order in which a step makes them.
_FORWARD = ("layer_outputs",)
_BACKWARD = ("output_gradients", "gradients")
_AFTER = ("updates", "weights", "val_layer_outputs")
_NO_TENSORS = ("metrics", "gradients_epoch_sum")
_AT_THE_END = ("weights", "val_layer_outputs")  # seen at the end of the epoch, whenever it came


class Birth(NamedTuple):
    """Where non-finite values were first seen in one view."""

    epoch: int | None
    step: int | None
    share: float
    order: int
    view: str
    name: str
    values: float
    tensors: int


class NonFinite(Rule):
    """NaN or infinite values: the first epoch, and where in the step they were born.

    No threshold: one such value is enough. With the series `first_nonfinite_step`, or step series (`per_step=True`),
    step and tensor are exact. Without, all views of an epoch are hit together, and the one that was hit in most of the
    epoch's steps came first: forward before backward, layers from the input on, gradients from the output back.

    Under loss scaling a few steps overflow by design, are skipped, and leave the weights finite: no finding. Values
    that never reach the loss, the gradients and the weights, such as the −∞ of an attention mask, are a remark.
    """

    kind = "nonfinite"
    needs = (
        "layer_outputs/nonfinite|gradients/nonfinite|weights/nonfinite|updates/nonfinite|output_gradients/nonfinite|logs/loss",
    )
    order = 0
    picture = "dashboard"

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Yields at most one finding: the birth."""
        known = (*_FORWARD, *_BACKWARD, *_AFTER)
        others = [view for view in evidence.recording if view not in known and view not in _NO_TENSORS]
        births = [
            birth
            for order, view in enumerate((*known, *others))
            if view in evidence.recording and (birth := _birth(evidence, view, order)) is not None
        ]
        since = _bad_loss(evidence)
        hit = {birth.view for birth in births}
        if evidence.optimizer.get("loss_scaled") and since is None and not hit & {"weights", "layer_outputs"}:
            return
        if not births and since is None:
            return
        if not births:
            yield self.finding(
                "error",
                f"the loss is not finite from epoch {since}",
                ["loss"],
                since=since,
                view="logs",
                cause="a step diverged, or the loss takes the logarithm or the quotient of something that can be zero",
                suggestion="collect LayerOutputs() and Gradients() to see where; lower the learning rate",
            )
            return
        births.sort(key=lambda b: _rank(b))
        first = births[0]
        harmless = since is None and not hit & {"gradients", "weights", "updates", "output_gradients"}
        severity: Severity = "info" if harmless else "error"
        way = _way(first.view)
        at = f"step {first.step}" if first.step is not None else f"epoch {first.epoch}"
        more = (
            f"; {first.tensors - 1} more tensors of {first.view} in that {at.split()[0]}" if first.tensors > 1 else ""
        )
        yield self.finding(
            severity,
            f"{first.values:,.0f} non-finite values in {first.view} of {first.name} at {at}, {way}{more}",
            [first.name],
            since=first.epoch,
            step=first.step,
            view=first.view,
            evidence={f"{b.view}/nonfinite {b.name}": b.values for b in births},
            cause=_CAUSES[way],
            suggestion="open that tensor in the epoch before; lower the learning rate, clip gradients, or guard the "
            "logarithm, root or quotient there; check the data for NaN",
        )


_CAUSES = {
    "born in the forward pass": "the layer's inputs or weights grew too large, or it divides by or takes the log of "
    "zero",
    "born in the backward pass": "the loss or an operation has an infinite derivative there, or gradients overflowed",
    "born in the update": "the step was so large that the weights overflowed",
    "born in the weights": "a step overflowed; nothing before it was collected",
    "born in validation": "the validation data hold NaN, or the moving statistics do not fit",
}


def _way(view: str) -> str:
    if view in _FORWARD:
        return "born in the forward pass"
    if view in _BACKWARD:
        return "born in the backward pass"
    return {"updates": "born in the update", "weights": "born in the weights"}.get(view, "born in validation")


def _rank(birth: Birth) -> tuple[float, ...]:
    """First the exact steps, then the epoch, the share of the epoch that was hit, the order within a step."""
    step = birth.step if birth.step is not None else np.inf
    return (step, birth.epoch if birth.epoch is not None else np.inf, -round(birth.share, 3), birth.order)


def _birth(evidence: Evidence, view: str, order: int) -> Birth | None:
    series = evidence.recording[view]
    if "nonfinite" in series.step_statistics and len(series.steps):
        steps = series.step("nonfinite").reshape(len(series.steps), -1)
        bad = np.nan_to_num(steps) > 0
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            where = _entry(bad[row], view)
            count = float(np.nan_to_num(steps[row])[where])
            step = int(series.steps[row])
            return Birth(_epoch_of(evidence, view), step, 1.0, order, view, series.names[where], count, bad[row].sum())
    if "nonfinite" not in series.statistics or not len(series.epochs):
        return None
    counts = np.nan_to_num(values_of(series, "nonfinite"))
    if not counts.any():
        return None
    row = int(np.argmax((counts > 0).any(axis=1)))
    hit = counts[row] > 0
    share = np.where(hit, 1.0, 0.0)
    if "count" in series.statistics:
        finite = np.nan_to_num(values_of(series, "count")[row])
        share = np.divide(counts[row], counts[row] + finite, out=np.zeros_like(finite), where=hit)
    if "first_nonfinite_step" in series.statistics:
        steps = values_of(series, "first_nonfinite_step")[row]
        if np.isfinite(steps[hit]).any() and view not in _AT_THE_END:
            step = int(np.nanmin(steps[hit]))
            where = _entry(hit & (steps == step), view)
            name, values = series.names[where], float(counts[row, where])
            return Birth(int(series.epochs[row]), step, 1.0, order, view, name, values, int((steps == step).sum()))
    # Weights gone bad make all that follows bad, in every step; else what is bad spreads from where it came.
    first = share >= share.max() - 1e-3 if hit.all() else hit
    where = _entry(hit & first, view)
    if view in _AT_THE_END:
        share[:] = 0.0
    name, count = series.names[where], float(counts[row, where])
    return Birth(int(series.epochs[row]), None, float(share[where]), order, view, name, count, int(hit.sum()))


def _epoch_of(evidence: Evidence, view: str) -> int | None:
    if not evidence.has(f"{view}/nonfinite"):
        return None
    counts = np.nan_to_num(values_of(evidence.recording[view], "nonfinite")) > 0
    return int(evidence.epochs(view)[np.argmax(counts.any(axis=1))]) if counts.any() else None


def _entry(hit: np.ndarray, view: str) -> int:
    """Where a fault enters: the first of the forward pass; the last of the backward pass, which starts at the end."""
    rows = np.flatnonzero(hit)
    return int(rows[-1] if view in (*_BACKWARD, "updates") else rows[0])


def _bad_loss(evidence: Evidence) -> int | None:
    """The first epoch whose loss is not finite; where it alone is NaN it was logged, and not just left out."""
    logs, kept = evidence.logs, evidence.recording._logs
    if "loss" not in logs:
        return None
    logged = np.array(["loss" in kept.get(int(epoch), {}) for epoch in evidence.log_epochs], bool)
    others = [np.isfinite(values) for key, values in logs.items() if key != "loss"]
    if others:  # of a file that was loaded, a loss that was left out is NaN like the rest
        logged &= np.any(others, axis=0) | (np.cumsum(np.isfinite(logs["loss"])[::-1])[::-1] == 0)
    bad = np.isinf(logs["loss"]) | (np.isnan(logs["loss"]) & logged)
    return int(evidence.log_epochs[np.argmax(bad)]) if bad.any() else None
