"""What a rule finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found.

    Attributes:
        kind: what it is, such as `"vanishing_gradients"`: the rule's name.
        severity: `"error"`: the training is broken there; `"warning"`: likely wrong; `"info"`: true and worth knowing,
            but no reason to stop.
        summary: what was seen, with its figure, in one sentence.
        where: the layers, variables, or logs it is about, worst first.
        since: the epoch from which it has held; `None` where it is of the configuration.
        evidence: the numbers it rests on, by the name of their series and tensor.
        cause: why, most likely, in plain words.
        suggestion: what to try.
        picture: the function of `keras_introspect.plots` that shows it.
        view: the view that the names in `where` belong to, `"logs"`, or `""`.
        step: the optimizer step from which it has held, where step series say so.

    Example:

    >>> finding = Finding("dead_units", "error", "all 8 units are dead", ("relu",), since=2)
    >>> print(finding)
    error: dead_units: all 8 units are dead (relu; since epoch 2)
    """

    kind: str
    severity: Severity
    summary: str
    where: tuple[str, ...] = ()
    since: int | None = None
    evidence: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""
    suggestion: str = ""
    picture: str = "dashboard"
    view: str = ""
    step: int | None = None

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"Finding(severity={self.severity!r}): expected one of {', '.join(SEVERITIES)}.")
        if isinstance(self.where, str):
            raise ValueError(f"Finding(where={self.where!r}): expected a tuple of names.")

    @property
    def place(self) -> str:
        """Where and since when, in a few words."""
        names = ", ".join(self.where[:3]) + (f" and {len(self.where) - 3} more" if len(self.where) > 3 else "")
        when = f"since step {self.step}" if self.step is not None else ""
        when = when or (f"since epoch {self.since}" if self.since else "")
        return "; ".join(part for part in (names, when) if part)

    def __str__(self) -> str:
        return f"{self.severity}: {self.kind}: {self.summary}" + (f" ({self.place})" if self.place else "")
