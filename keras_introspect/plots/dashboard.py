"""Is anything wrong, and where do I look?"""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_introspect.diagnosis import Diagnosis, Finding, diagnose
from keras_introspect.diagnosis.places import depth_ratio, judged_for_death
from keras_introspect.errors import UnknownNameError, as_names, unknown_name
from keras_introspect.plots._data import (
    METRICS,
    VIEWS,
    Chosen,
    Iterations,
    Layers,
    check_recording,
    counted,
    epochs_inside,
    latest,
    number,
    over_layers,
    percent,
    rows_of,
    shorten,
)
from keras_introspect.plots._draw import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    RED,
    SMALL,
    bands,
    epoch_axis,
    fit_title,
    fitting,
    log_axis,
    name_levels,
    nothing,
    points,
    title,
)
from keras_introspect.plots.activity_board import model_activity
from keras_introspect.plots.scale_lines import scale_lines
from keras_introspect.plots.scale_stack import scale_stack
from keras_introspect.plots.training_curves import metric_names, training_curves
from keras_introspect.plots.update_board import with_ratio
from keras_introspect.recording import Recording, Series

_MOST_SIGNALS = 6
_LINE, _SENTENCE, _GAP, _BELOW = 12.0, 10.5, 3.0, 24.0  # points: of a finding's name, of its text, between, under them
_CHARACTERS = 80  # of a line of a finding's text
_MARKS = {"error": ("■", RED), "warning": ("▲", ORANGE), "info": ("○", GREY)}
_TOP, _ROW = 3.1, 1.65  # inches
_COLUMNS = ((0.75, 4.0), (6.0, 3.3), (11.75, 3.4))  # left edge and width; names stand to the right of each


def dashboard(
    recording: Recording,
    layers: Layers = None,
    iterations: Iterations = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draws the whole run on one screen.

    Top: the training curves, and what is wrong, by name (see `keras_introspect.diagnose`), with the layer to open next.
    Then a row for each view that was observed: the rms of its layers (median, quartiles, extremes; red where there is
    an error in it, or a value that is not finite in its last epoch), the scale stack, and the activity with the worst
    dead rate, the update-to-weight ratio, or the scale along the depth, whichever the view has.

    Args:
        recording: what was observed.
        layers: names or globs of the tensors to draw; views without such a tensor are left out.
        iterations: epochs to draw: a slice of positions, or a range or list of epoch numbers.
        figsize: width and height in inches.

    Returns:
        The figure: `dashboard(recording).savefig("dashboard.png")`.

    Raises:
        ValueError: no Recording, an empty one, or no tensor or epoch fits `layers` or `iterations`.

    Example:

    >>> recording = Recording()
    >>> for epoch in range(2):
    ...     recording.add_logs(epoch, {"loss": 1 / (epoch + 1)})
    ...     recording.add_epoch("gradients", epoch, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.1, 0.2]})
    >>> len(dashboard(recording).axes)
    5
    """
    check_recording(recording, "dashboard")
    rows = _rows(recording, layers, iterations)
    found = diagnose(recording)
    page = _Page(figsize or (16.0, _TOP + _ROW * len(rows) + 0.25), len(rows))
    _curves(page, recording, iterations)
    _signals(page.axes(0, 2, left=-0.5, right=0.75), recording, found)
    labelled = False
    for i, chosen in enumerate(rows, start=1):
        kernels = chosen.kernels()  # what is compared along the depth: biases and scales have other sizes
        depth = (kernels or chosen).series
        bad = any(finding.view == chosen.view and finding.severity == "error" for finding in found)
        labelled = _rms(page.axes(i, 0), chosen, kernels, bad, name_bands=not labelled) or labelled
        _stack(page.axes(i, 1), depth, chosen.iterations)
        _third(page.axes(i, 2), recording, chosen, kernels)
        for ax in page.figure.axes[-3:] if i < len(rows) else []:
            if ax.get_xlabel() == "epoch":
                ax.set_xlabel("")
    page.fit_titles()
    return page.figure


class _Page:
    """Places the axes in inches of a page 16 wide, so that every label keeps its room and drawing stays fast."""

    def __init__(self, figsize: tuple[float, float], rows: int) -> None:
        self.figure = Figure(figsize=figsize)
        self.height = _TOP + _ROW * rows + 0.25

    def axes(self, row: int, column: int, left: float = 0.0, right: float = 0.0, columns: int = 1) -> Axes:
        start = _COLUMNS[column][0]
        end = sum(_COLUMNS[column + columns - 1])
        top = 0.35 if row == 0 else _TOP + _ROW * (row - 1) + 0.32
        height = _TOP - 0.85 if row == 0 else _ROW - 0.7
        return self.figure.add_axes(
            (
                (start + left) / 16,
                1 - (top + height) / self.height,
                (end + right - start - left) / 16,
                height / self.height,
            )
        )

    def fit_titles(self) -> None:
        """Shrinks the titles that would run into the next column."""
        starts = [start / 16 for start, _ in _COLUMNS] + [1.0]
        for ax in self.figure.axes:
            left = ax.get_position().x0
            space = min(start for start in starts if start > left + 0.05) - left
            fit_title(ax, space * self.figure.get_size_inches()[0] * 72)


def _rows(recording: Recording, layers: Layers, iterations: Iterations) -> list[Chosen]:
    """One choice a view, known views first; a view without the layers wanted has no row."""
    epochs = None if iterations is None else recording.epochs[rows_of(recording.epochs, iterations)]
    others = [view for view in recording if view not in VIEWS and view != METRICS]
    views = [view for view in (*VIEWS, *others) if view in recording and len(recording[view].epochs)]
    rows = []
    for view in views:
        wanted = layers
        if layers is not None:
            wanted = [p for p in as_names(layers, "layers") if _fits(recording, view, p)]
            if not wanted:
                continue
        series = with_ratio(recording) if view == "updates" else recording[view]
        inside = epochs_inside(series, epochs)
        if inside is None or inside:
            rows.append(Chosen(series, "dashboard", (), wanted, inside))
    if layers is not None and not rows:
        names = dict.fromkeys(name for view in views for name in recording[view].names)
        raise unknown_name("tensor in this recording", layers, names)
    return rows


def _fits(recording: Recording, view: str, pattern: str) -> bool:
    try:
        recording[view].sel([pattern])
    except UnknownNameError:
        return False
    return True


def _curves(page: _Page, recording: Recording, iterations: Iterations) -> None:
    names = metric_names(recording)[:2]
    if not names:
        nothing(_bare(page.axes(0, 0, columns=2)), "no logs: neither loss nor metrics were recorded")
    for i, name in enumerate(names):
        training_curves(recording, name, iterations, page.axes(0, i, columns=1 if len(names) > 1 else 2))


def _bare(ax: Axes) -> Axes:
    ax.set_axis_off()
    return ax


def _signals(ax: Axes, recording: Recording, found: Diagnosis) -> None:
    """What is wrong, by name, and the layer to open next; of a healthy run what was looked at."""
    _bare(ax)
    bad = found.count("error")
    title(ax, found.headline, RED if bad else INK)
    shown = (found.alarms or tuple(found))[:_MOST_SIGNALS]
    # Shortened among all names, so that what is shown stands for one tensor of the whole model.
    names = list(dict.fromkeys(n for s in recording.values() for n in s.names))
    names = list(dict.fromkeys([*(n for finding in found for n in finding.where), *names]))
    short = dict(zip(names, shorten(names, 30), strict=True))
    if found.alarms:
        first = next((f for f in found.alarms if f.where and f.view not in ("", "logs")), None)
        tail = [f"and {len(found) - len(shown)} more: see diagnose(recording)"] if len(found) > len(shown) else []
        tail += [f"Open next: {short[first.where[0]]} in {first.view}"] if first else []
    else:
        looked = f"{len(found.judged)} kinds of faults looked for"
        if found.not_judged:
            looked += f", {len(found.not_judged)} could not be judged"
        tail = [looked, *_vitals(recording)]
        tail = tail[: max(1, 7 - 2 * len(shown))] if shown else tail
    width, height = points(ax)
    room = (height + _BELOW - _LINE * len(tail)) / _SENTENCE - len(shown) * (_LINE + _GAP) / _SENTENCE
    lines = _sentences(shown, short, int(room))
    size = min((fitting(line, 0.96 * width, SMALL + 0.5) for own in lines for line in own), default=SMALL)
    y = 0.99
    for finding, sentences in zip(shown, lines, strict=True):
        mark, color = _MARKS[finding.severity]
        ax.text(0, y, mark, fontsize=SMALL + 2, color=color, va="top")
        weight = "bold" if finding.severity == "error" else "normal"
        ax.text(0.04, y, finding.kind.replace("_", " "), fontsize=SMALL + 1, va="top", color=INK, fontweight=weight)
        where = "".join(short[name] for name in finding.where[:1])
        more = f" +{len(finding.where) - 1}" if len(finding.where) > 1 else ""
        ax.text(1, y, where + more, fontsize=SMALL, va="top", ha="right", color=INK)
        y -= _LINE / height
        for sentence in sentences:
            ax.text(0.04, y, sentence, fontsize=size, va="top", color=INK)
            y -= _SENTENCE / height
        y -= _GAP / height
    if found.alarms:
        ax.text(0, y, "\n".join(tail), fontsize=SMALL + 1, va="top", color=BLUE, fontweight="bold")
    else:
        ax.text(0, y - 0.06, "\n".join(tail), fontsize=SMALL + 1, va="top", linespacing=1.6)


def _sentences(findings: Sequence[Finding], short: Mapping[str, str], room: int) -> list[list[str]]:
    """The summaries in lines, and what to try where it fits as well: all together no more lines than there is room for.

    Each has one line at least; what is cut ends in "…".
    """
    texts = []
    for finding in findings:
        summary = finding.summary
        for name in finding.where[:3]:
            summary = summary.replace(name, short[name])
        texts.append(summary)
    needed = [len(textwrap.wrap(text, _CHARACTERS)) for text in texts]
    given = [1] * len(texts)
    for _ in range(max(needed, default=0)):  # in turn, so that no long one takes all
        for i in range(len(texts)):
            given[i] += given[i] < needed[i] and sum(given) < room
    lines = [
        textwrap.wrap(text, _CHARACTERS, max_lines=count, placeholder=" …")
        for text, count in zip(texts, given, strict=True)
    ]
    for own, finding in zip(lines, findings, strict=True):
        remedy = textwrap.wrap(f"Try: {finding.suggestion}", _CHARACTERS) if finding.suggestion else []
        if sum(map(len, lines)) + len(remedy) <= room and sum(given) >= sum(needed):
            own += remedy
    return lines


def _vitals(recording: Recording) -> list[str]:
    """What was looked at and found in order."""
    lines = []
    views = [view for view in VIEWS if view in recording]
    checked = [view for view in views if "nonfinite" in recording[view].statistics]
    if checked:
        lines.append(f"no non-finite value in {len(checked)} view{'s' if len(checked) > 1 else ''}")
    ratio = depth_ratio(recording)
    if ratio is not None:
        lines.append(f"gradient rms, first over last kernel: {number(ratio[3])}")
    if "layer_outputs" in recording and "dead_rate" in recording["layer_outputs"].statistics:
        chosen = Chosen(recording["layer_outputs"], "dashboard")
        dead = latest(chosen.epoch("dead_rate"))[judged_for_death(recording)]
        if np.isfinite(dead).any():
            lines.append(f"worst dead rate of a layer: {percent(float(np.nanmax(dead)))}")
    if "updates" in recording and "update_ratio" in with_ratio(recording).statistics:
        updates = Chosen(with_ratio(recording), "dashboard")
        ratios = latest((updates.kernels() or updates).epoch("update_ratio"))
        if np.isfinite(ratios).any():
            lines.append(f"update-to-weight ratio, median: {number(float(np.nanmedian(ratios)))}")
    if not any(view != METRICS for view in recording):
        held = "Keras's logs and the batches' losses" if METRICS in recording else "Keras's logs"
        return [
            *lines,
            f"only {held} were recorded: no tensors.",
            'Observe them with compile(…, collectors="default").',
        ]
    return lines or ["neither rms nor activity was collected"]


def _rms(ax: Axes, every: Chosen, kernels: Chosen | None, bad: bool, name_bands: bool) -> bool:
    """The rms of the layers of a view; returns whether the bands were named."""
    chosen, tensors = kernels or every, counted(every, kernels)
    if not chosen.has("rms"):
        nothing(_bare(ax), "rms was not collected")
        title(ax, f"{chosen.view}: {tensors}", RED if bad else INK)
        return False
    rms = chosen.epoch("rms")
    floor = log_axis(ax, rms)
    levels = over_layers(rms)
    drawn = np.where(levels == 0, floor, levels)
    bands(ax, chosen.epochs, drawn)
    epoch_axis(ax, chosen.epochs)
    ax.set_ylabel("rms")
    middle = float(latest(levels[2][:, None])[0])
    text = f"{chosen.view}: {tensors}, "
    lost = int((every.epoch("nonfinite")[-1] > 0).sum()) if every.has("nonfinite") else 0
    if lost:
        whole = not np.isfinite(every.epoch("rms")[-1]).any()
        text += f"{'none finite' if whole else f'{lost} with non-finite values'} in epoch {every.epochs[-1]}"
    else:
        text += f"median rms {number(middle)}" if np.isfinite(middle) else "no finite rms"
    bad = bad or bool(lost) or not np.isfinite(middle)
    title(ax, text, RED if bad else INK)
    return name_bands and name_levels(ax, latest(drawn.T))


def _stack(ax: Axes, series: Series, iterations: Iterations) -> None:
    if "rms" in series.statistics:
        scale_stack(series, iterations=iterations, ax=ax)
    else:
        nothing(_bare(ax), "rms was not collected")


def _third(ax: Axes, recording: Recording, chosen: Chosen, kernels: Chosen | None) -> None:
    """Activity, update-to-weight ratio or scale along the depth: the most telling that the view has."""
    if chosen.has("activation_rate") and "layer_outputs" in chosen.view:
        judged = judged_for_death(recording, chosen.view)
        index = {name: i for i, name in enumerate(recording[chosen.view].names)}
        model_activity(chosen, ax, judged=judged[[index[name] for name in chosen.names]])
    elif chosen.has("update_ratio"):
        ratio = (kernels or chosen).epoch("update_ratio")
        floor = log_axis(ax, np.append(ratio.ravel(), 1e-3))
        levels = over_layers(ratio)
        bands(ax, chosen.epochs, np.where(levels == 0, floor, levels))
        ax.axhline(1e-3, color=INK, linewidth=0.9, linestyle=":")
        epoch_axis(ax, chosen.epochs)
        ax.set_ylabel("update / weight")
        title(ax, f"update-to-weight ratio, median {number(float(latest(levels[2][:, None])[0]))} (1e-3 dotted)")
    elif chosen.view != "weights" and chosen.has("dead_rate") and np.nanmax(chosen.epoch("dead_rate"), initial=0) > 0:
        model_activity(chosen, ax)
    elif chosen.has("rms"):
        scale_lines((kernels or chosen).series, iterations=chosen.iterations, ax=ax)
    else:
        nothing(_bare(ax), "neither activity nor rms was collected")
