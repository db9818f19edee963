"""Which layers of a recording deserve a look first, ranked. NumPy only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from keras_introspect.recording import Recording, Series

DEAD_NAMED = 0.05  # of the channels: worth naming
DEAD_BAD = 0.50  # SageMaker Debugger flags a layer over 50 % dead units
VANISHING = 1e-3  # first over last kernel gradient; AUTOTRAINER (Zhang et al., 2021)
EXPLODING = 70.0  # the same source
UPDATE_RATIO = (1e-7, 1e-1)  # DeepDiagnosis (Wardat et al., 2022), its lower bound widened for decayed learning rates
_VIEWS = ("layer_outputs", "val_layer_outputs", "weights", "gradients", "output_gradients", "updates")
_BACKWARD = ("gradients", "output_gradients", "updates")
_INPUT_LAYERS = ("input", "rescaling", "normalization", "random_", "resizing", "flatten", "reshape")


@dataclass(frozen=True)
class Notable:
    """One signal that stands out.

    Attributes:
        view: where it was seen, such as `"layer_outputs"`; `"logs"` for Keras's own epoch logs.
        name: the layer or variable to open next.
        statistic: what it was read from: `"nonfinite"`, `"dead_rate"`, `"rms"`, `"update_ratio"`, `"oscillation"`.
        value: its value: a count for `nonfinite`, a ratio first/last layer for `rms` along the depth (0 for a tensor
            that is exactly zero), else the statistic itself in the last epoch.
        severity: `"error"` (bad) or `"warning"` (worth a look).
        sentence: what it means, in a few words that follow the name.
    """

    view: str
    name: str
    statistic: str
    value: float
    severity: Literal["warning", "error"]
    sentence: str


def notable(recording: Recording, limit: int = 10) -> list[Notable]:
    """Ranks what stands out in a recording, worst first; a healthy network gives an empty list.

    Non-finite values come first, always. Then what is bad (`"error"`), then what is worth a look (`"warning"`):
    channels dead for a whole epoch (named from 5 %, bad from 50 %), gradients that vanish or explode from the last
    kernel to the first, tensors that are exactly zero, update-to-weight ratios far out, and gradients whose sign flips
    more than chance explains. Half-zero ReLU and dropout outputs are normal and not named, nor is the model's last
    output, nor what comes before the first layer with variables. Each is judged in the last epoch observed.

    Args:
        recording: what was observed.
        limit: the longest list wanted.

    Returns:
        At most `limit` entries.

    Raises:
        ValueError: `recording` is no Recording, or `limit` is negative.

    Example:

    >>> recording = Recording()
    >>> recording.add_epoch(
    ...     "layer_outputs", 0, ["relu", "head"], [(None, 8), (None, 2)], {"dead_rate": [0.75, 0.5]})
    >>> for entry in notable(recording):
    ...     print(entry.severity, entry.name, entry.sentence)
    error relu 75 % of the channels dead
    """
    if not isinstance(recording, Recording):
        raise ValueError(f"notable() got a {type(recording).__name__}; expected a Recording, such as model.recording.")
    if limit < 0:
        raise ValueError(f"notable() got limit={limit}; expected 0 or more.")
    rules = (_nonfinite, _depth, _zero, _dead, _update_ratio, _oscillation)
    found = [(rank, entry) for rank, rule in enumerate(rules) for entry in rule(recording)]
    found.sort(key=lambda item: (item[0] > 0, item[1].severity != "error"))  # stable: else in the order of the rules
    return [entry for _, entry in found[:limit]]


def _nonfinite(recording: Recording) -> Iterator[Notable]:
    logs, epochs = recording.logs, recording.epochs
    if "loss" in logs:
        bad = ~np.isfinite(logs["loss"]) & np.any([np.isfinite(v) for v in logs.values()], axis=0)
        if np.isinf(logs["loss"]).any() or bad.any():
            bad |= np.isinf(logs["loss"])
            first = int(epochs[np.argmax(bad)])
            yield Notable("logs", "loss", "nonfinite", float(bad.sum()), "error", f"not finite from epoch {first}")
    found = []
    others = [view for view in recording if view not in _VIEWS]
    for order, view in enumerate([*_VIEWS, *others]):
        if view not in recording or "nonfinite" not in recording[view].statistics:
            continue
        series = recording[view]
        counts = np.nan_to_num(_values(series, "nonfinite"), posinf=0, neginf=0)
        if not (counts > 0).any():
            continue
        row = int(np.argmax((counts > 0).any(axis=1)))
        hit = np.flatnonzero(counts[row] > 0)
        where = hit[-1] if view in _BACKWARD else hit[0]  # where the fault enters: the backward pass starts at the end
        total = int((counts > 0).any(axis=0).sum())
        text = f"{int(counts[:, where].sum()):,} non-finite values, first in epoch {series.epochs[row]}"
        if total > 1:
            text += f"; {total - 1} more tensor{'s' if total > 2 else ''}"
        entry = Notable(view, series.names[where], "nonfinite", float(counts[:, where].sum()), "error", text)
        found.append((int(series.epochs[row]), order, entry))
    found.sort(key=lambda item: item[:2])
    yield from (entry for *_, entry in found)


def _depth(recording: Recording) -> Iterator[Notable]:
    ratio = depth_ratio(recording)
    if ratio is None:
        return
    view, first, last, value, norm_ratio = ratio
    if value < VANISHING and norm_ratio < VANISHING:
        severity: Literal["warning", "error"] = "error" if value < VANISHING**2 else "warning"
        times = f"{1 / value:.1g}".replace("e+0", "e").replace("e+", "e")
        yield Notable(view, first, "rms", value, severity, f"gradients vanish: {times} times smaller than at {last}")
    elif value > EXPLODING and norm_ratio > EXPLODING:
        severity = "error" if value > EXPLODING**2 else "warning"
        times = f"{value:.2g}".replace("e+0", "e").replace("e+", "e")
        yield Notable(view, first, "rms", value, severity, f"gradients explode: {times} times larger than at {last}")


def depth_ratio(recording: Recording) -> tuple[str, str, str, float, float] | None:
    """The gradient at the first layer over that at the last, in the last epoch where both are finite and not zero.

    Returns:
        View, name of the first and of the last tensor, ratio of their rms, ratio of their l2 norms; or `None` where
        no such pair was observed. Kernels only: biases, scales and embeddings (mostly zero rows) have other sizes.
    """
    if "gradients" not in recording or "rms" not in recording["gradients"].statistics:
        return None
    series = recording["gradients"]
    kernels = [
        i
        for i, (name, shape) in enumerate(zip(series.names, series.shapes, strict=True))
        if len(shape) >= 2 and "embedding" not in name.lower()
    ]
    if len(kernels) < 2:
        return None
    first, last = kernels[0], kernels[-1]
    rms = _values(series, "rms")[:, [first, last]]
    rows = np.flatnonzero((np.isfinite(rms) & (rms > 0)).all(axis=1))
    if not len(rows):
        return None
    value = float(rms[rows[-1], 0] / rms[rows[-1], 1])
    sizes = [float(np.prod([d or 1 for d in series.shapes[i]])) for i in (first, last)]
    return "gradients", series.names[first], series.names[last], value, value * float(np.sqrt(sizes[0] / sizes[1]))


def _zero(recording: Recording) -> Iterator[Notable]:
    if "gradients" not in recording or "rms" not in recording["gradients"].statistics:
        return
    series = recording["gradients"]
    latest = _latest(_values(series, "rms"))
    zero = np.flatnonzero(latest == 0)
    if len(zero):
        more = f", and of {len(zero) - 1} more" if len(zero) > 1 else ""
        severity: Literal["warning", "error"] = "error" if len(zero) > len(series.names) // 2 else "warning"
        yield Notable(
            "gradients",
            series.names[zero[0]],
            "rms",
            0.0,
            severity,
            f"its gradient is exactly zero{more}: learns nothing",
        )


def _dead(recording: Recording) -> Iterator[Notable]:
    """Channels that were zero all through the last epoch; one entry a layer, that in which they died."""
    for view in ("layer_outputs", "val_layer_outputs"):
        if view in recording and "dead_rate" in recording[view].statistics:
            break
    else:
        return
    series = recording[view]
    rates = _values(series, "dead_rate")
    latest = _latest(rates)
    judged = judged_for_death(recording, view)
    found: list[Notable] = []
    heir_of: int | None = None  # dropout and pooling hand on the dead channels of the layer before
    followers: dict[int, int] = {}
    for i, name in enumerate(series.names):
        rate = latest[i]
        if not judged[i] or not rate >= DEAD_NAMED:
            heir_of = None
            continue
        if (
            heir_of is not None
            and abs(rate - latest[heir_of]) < 1e-9
            and _channels(series, i) == _channels(series, heir_of)
        ):
            followers[heir_of] = followers.get(heir_of, 0) + 1
            continue
        heir_of = i
        since = _since(rates[:, i] >= (DEAD_BAD if rate >= DEAD_BAD else DEAD_NAMED), series.epochs)
        text = f"{100 * rate:.0f} % of the channels dead{since}"
        found.append(Notable(view, name, "dead_rate", float(rate), "error" if rate >= DEAD_BAD else "warning", text))
    yield from sorted(found, key=lambda entry: -entry.value)


def judged_for_death(recording: Recording, view: str = "layer_outputs") -> np.ndarray:
    """For which tensors a dead rate is a fault: bool, shape (L,).

    Not for the model's last output and its copies, nor for what comes before the first layer with variables (border
    pixels of images are always zero), nor for a flattened map, whose "channels" are places.
    """
    series = recording[view]
    owners = [
        name.rsplit("/", 1)[0]
        for key in ("weights", "gradients", "updates")
        if key in recording
        for name in recording[key].names
        if "/" in name
    ]
    paths = [name.split(":")[0].split("#")[0] for name in series.names]
    size = len(paths)
    judged = np.ones(size, bool)
    lead = next((i for i, path in enumerate(paths) if owners and _same_layer(path, owners[0])), None)
    if lead is None:  # that layer was not observed: go by the name
        is_input = [path.rsplit("/", 1)[-1].lower().startswith(_INPUT_LAYERS) for path in paths]
        lead = is_input.index(False) if False in is_input else size
    judged[:lead] = False
    for i in range(1, size):
        before, here = series.shapes[i - 1][1:], series.shapes[i][1:]
        if len(before) > len(here) == 1 and None not in before and here[0] == int(np.prod([d or 1 for d in before])):
            judged[i] = before[:-1] == (1,) * (len(before) - 1) and judged[i - 1]
    if size:
        judged[-1] = False
        if "rms" in series.statistics:
            rms = _values(series, "rms")
            for i in range(size - 1):
                if series.shapes[i] == series.shapes[-1] and np.array_equal(rms[:, i], rms[:, -1], equal_nan=True):
                    judged[i] = judged[i] and not np.isfinite(rms[:, i]).any()
    return judged


def _update_ratio(recording: Recording) -> Iterator[Notable]:
    if "updates" not in recording or "update_ratio" not in recording["updates"].statistics:
        return
    series = recording["updates"]
    ratio = _latest(_values(series, "update_ratio"))
    found = []
    for i, name in enumerate(series.names):
        if len(series.shapes[i]) < 2 or not ratio[i] > 0:  # biases start at zero: their ratio says nothing
            continue
        if ratio[i] > UPDATE_RATIO[1]:
            text = f"each step changes it by {100 * ratio[i]:.0f} % of its size: step too large"
        elif ratio[i] < UPDATE_RATIO[0]:
            text = f"each step changes it by only {ratio[i]:.0e} of its size: hardly learns"
        else:
            continue
        severity: Literal["warning", "error"] = "error" if ratio[i] > 1 else "warning"
        found.append(
            (abs(np.log10(ratio[i]) + 3), Notable("updates", name, "update_ratio", float(ratio[i]), severity, text))
        )
    yield from (entry for _, entry in sorted(found, key=lambda item: -item[0]))


def _oscillation(recording: Recording) -> Iterator[Notable]:
    """Pure noise over n steps leaves |Σg|/Σ|g| ≈ 1/√n; far less than that is a gradient that flips its sign."""
    if "gradients" not in recording or not {"oscillation", "count"} <= set(recording["gradients"].statistics):
        return
    series = recording["gradients"]
    swing, count = _latest(_values(series, "oscillation")), _latest(_values(series, "count"))
    found = []
    for i, name in enumerate(series.names):
        steps = count[i] / max(1.0, float(np.prod([d or 1 for d in series.shapes[i]])))
        if len(series.shapes[i]) >= 2 and steps >= 4 and 1 - swing[i] < 0.5 / np.sqrt(steps):
            text = f"the gradient flips its sign from step to step (oscillation {swing[i]:.3f})"
            found.append(Notable("gradients", name, "oscillation", float(swing[i]), "warning", text))
    yield from sorted(found, key=lambda entry: -entry.value)


def _same_layer(path: str, owner: str) -> bool:
    return path == owner or owner.endswith("/" + path) or path.endswith("/" + owner)


def _values(series: Series, statistic: str) -> np.ndarray:
    return series.epoch(statistic).reshape(len(series.epochs), len(series.names))


def _latest(values: np.ndarray) -> np.ndarray:
    """The last finite value of each column; NaN where there is none."""
    latest = np.full(values.shape[1], np.nan)
    for row in values:
        latest = np.where(np.isfinite(row), row, latest)
    return latest


def _since(holds: np.ndarray, epochs: Sequence[int] | np.ndarray) -> str:
    """The epoch from which it has held without a break, in words; empty if it has always held."""
    breaks = np.flatnonzero(~holds)
    if not len(breaks) or breaks[-1] + 1 >= len(holds):
        return ""
    return f" since epoch {int(epochs[breaks[-1] + 1])}"


def _channels(series: Series, i: int) -> int | None:
    shape = series.shapes[i]
    return shape[-1] if shape else None
