"""What the findings on a run are worth, and the table of all runs."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.diagnosis.programs import Program
from benchmarks.diagnosis.training import Trained

ALARMS = ("warning", "error")
FIRST = 3  # findings among which the cause is to be
WORSE = 0.05  # of accuracy or R²: by how much a faulty run is to be below its twin, else its fault did not show

Finding = dict[str, Any]  # what is kept of one: kind, severity, summary, where, since, evidence, cause


class Verdict(NamedTuple):
    """One run as it was judged.

    Attributes:
        program: its name.
        seed: of the run.
        kinds: that name the cause, the first of them the row of the table; none for a healthy run.
        development: whether thresholds may be chosen by it.
        quality: of the trained model; NaN where the training itself failed.
        twin_quality: of the healthy twin from the same seed.
        findings: in the order of the diagnosis.
        seconds: that the diagnosis took.
        error: with which the training ended, if it failed.
    """

    program: str
    seed: int
    kinds: tuple[str, ...]
    development: bool
    quality: float
    twin_quality: float
    findings: tuple[Finding, ...]
    seconds: float = float("nan")
    error: str = ""

    @property
    def faulty(self) -> bool:
        return bool(self.kinds)

    @property
    def reproduced(self) -> bool:
        """Whether the faulty run is really worse than its twin: only then does it count."""
        twin_learned = math.isfinite(self.twin_quality)
        return self.faulty and twin_learned and not self.quality > self.twin_quality - WORSE

    @property
    def alarms(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding["severity"] in ALARMS)

    @property
    def named(self) -> bool:
        """Whether one of the first findings names the cause."""
        return any(finding["kind"] in self.kinds for finding in self.findings[:FIRST])


class Row(NamedTuple):
    """One kind of finding over some runs.

    Attributes:
        kind: or `"all"`.
        runs: faulty ones of this kind, in which the fault showed.
        tried: faulty ones of this kind.
        detected: of `runs`, those with a warning or an error.
        named: of `runs`, those whose cause is among the first findings.
        false_alarms: healthy runs with a warning or an error of this kind.
        healthy: all healthy runs.
    """

    kind: str
    runs: int
    tried: int
    detected: int
    named: int
    false_alarms: int
    healthy: int


def judged(
    program: Program, seed: int, trained: Trained, twin_quality: float, findings: Iterable[Any], seconds: float
) -> Verdict:
    """What the diagnosis said of one run, as it is kept."""
    kept = tuple(
        {
            "kind": finding.kind,
            "severity": finding.severity,
            "summary": finding.summary,
            "where": list(finding.where),
            "since": finding.since,
            "evidence": {name: float(value) for name, value in finding.evidence.items()},
            "cause": finding.cause,
        }
        for finding in findings
    )
    return Verdict(
        program.name,
        seed,
        program.kinds,
        program.development,
        trained.quality,
        twin_quality,
        kept,
        seconds,
        trained.error,
    )


def table(verdicts: Iterable[Verdict]) -> list[Row]:
    """A row a kind, by its name, and one over all."""
    verdicts = list(verdicts)
    healthy = [v for v in verdicts if not v.faulty]
    kinds = {v.kinds[0] for v in verdicts if v.faulty} | {alarm["kind"] for v in healthy for alarm in v.alarms}
    rows = []
    for kind in [*sorted(kinds), None]:
        tried = [v for v in verdicts if v.faulty and kind in (v.kinds[0], None)]
        runs = [v for v in tried if v.reproduced]
        alarmed = [v for v in healthy if any(kind in (alarm["kind"], None) for alarm in v.alarms)]
        rows.append(
            Row(
                kind or "all",
                len(runs),
                len(tried),
                sum(bool(v.alarms) for v in runs),
                sum(v.named for v in runs),
                len(alarmed),
                len(healthy),
            )
        )
    return rows


def lines(rows: Sequence[Row]) -> list[str]:
    """The table as Markdown."""
    head = ("kind", "faulty runs", "fault showed", "detected", f"cause in first {FIRST}", "false alarms")
    found = [f"| {' | '.join(head)} |", "| --- | --: | --: | --: | --: | --: |"]
    for row in rows:
        cells = (
            row.kind,
            str(row.tried),
            str(row.runs),
            _share(row.detected, row.runs),
            _share(row.named, row.runs),
            _share(row.false_alarms, row.healthy),
        )
        found.append(f"| {' | '.join(cells)} |")
    return found


def plain(value: Any) -> Any:
    """The same for JSON, which has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({100 * part / whole:.0f} %)" if whole else "–"
