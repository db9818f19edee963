"""What `diagnose` returns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from keras_introspect.diagnosis.finding import Finding, Severity

_MOST_EVIDENCE = 4
_MOST_KINDS = 8  # that are named beside findings; where nothing is wrong, all are


class Diagnosis(Sequence[Finding]):
    """The findings, worst first, and what they rest on: a sequence that prints as a report.

    Attributes:
        judged: the kinds that were looked for and could be judged.
        not_judged: kind → what is missing, of those that could not.

    Example:

    >>> print(Diagnosis([], judged=("dead_units",), not_judged={"step_too_large": "needs the collector Updates()"}))
    Nothing wrong was found.
    Looked for: dead_units.
    Not judged:
      step_too_large: needs the collector Updates()
    """

    def __init__(
        self, findings: Sequence[Finding], judged: Sequence[str] = (), not_judged: Mapping[str, str] | None = None
    ) -> None:
        self._findings = tuple(findings)
        self.judged = tuple(judged)
        self.not_judged = dict(not_judged or {})

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings)

    def count(self, severity: Severity) -> int:
        """How many findings have this severity."""
        return sum(finding.severity == severity for finding in self._findings)

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that are more than a remark."""
        return tuple(finding for finding in self._findings if finding.severity != "info")

    @property
    def headline(self) -> str:
        """How many of what, in a line."""
        remarks = self.count("info")
        parts = [
            f"{n} {word}{'s' if n > 1 else ''}"
            for n, word in ((self.count("error"), "error"), (self.count("warning"), "warning"), (remarks, "remark"))
            if n
        ]
        if not self._findings and not self.judged:
            return "Nothing could be judged"
        if not self.alarms:
            return "Nothing wrong was found" + (f"; {parts[0]}" if parts else "")
        return "Found: " + ", ".join(parts)

    @property
    def not_judged_because(self) -> dict[str, tuple[str, ...]]:
        """What could not be judged, by what is missing: reason → kinds."""
        found: dict[str, tuple[str, ...]] = {}
        for kind, reason in self.not_judged.items():
            found[reason] = (*found.get(reason, ()), kind)
        return found

    def __str__(self) -> str:
        lines = [f"{self.headline}{'' if self._findings else '.'}{':' if self._findings else ''}"]
        for number, finding in enumerate(self._findings, 1):
            lines.append(f"{number}. {finding}")
            shown = list(finding.evidence.items())
            if shown:
                more = f", and {len(shown) - _MOST_EVIDENCE} more" if len(shown) > _MOST_EVIDENCE else ""
                told = ", ".join(f"{key} {value:.3g}" for key, value in shown[:_MOST_EVIDENCE])
                lines.append(f"   evidence: {told}{more}")
            for label, text in (("cause", finding.cause), ("try", finding.suggestion)):
                if text:
                    lines.append(f"   {label}: {text}")
            if finding.picture:
                lines.append(f"   see: plots.{finding.picture}")
        if self.alarms and len(self.judged) > _MOST_KINDS:
            lines.append(f"Looked for {len(self.judged)} kinds of faults; `judged` names them.")
        elif self.judged:
            lines.append(f"Looked for: {', '.join(self.judged)}.")
        if self.not_judged:
            lines.append("Not judged:")
            lines += [f"  {', '.join(kinds)}: {reason}" for reason, kinds in self.not_judged_because.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Diagnosis: {self.headline}; {', '.join(f.kind for f in self._findings) or 'no findings'}>"
