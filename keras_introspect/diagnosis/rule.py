"""What every rule is: a kind, what it needs of a recording, and a check."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import Finding, Severity


class Rule:
    """Base of the rules: one kind of finding, judged on a recording.

    A rule of your own sets `kind` and `needs` and writes `check`; its thresholds are arguments of its constructor.

    Attributes:
        kind: the kind of its findings. Of two rules of one kind the one given by the user is taken.
        needs: what must have been collected: `"view/statistic"`, `"logs/name"`, `"description/key"`, `"data/key"`; with
            `|` between alternatives. What is missing is said in the diagnosis.
        epochs: how many epochs it needs.
        at_end: whether it judges a training as a whole, and so only when that has ended.
        reads_loss: whether it takes the log `loss` for what is to fall. It is then not asked about a model with a step
            of its own and no loss compiled, such as a GAN.
        order: rank among findings of the same severity: causes first, then what they cause.
        picture: the function of `keras_introspect.plots` that shows it.

    Example:

    >>> class Wide(Rule):
    ...     kind = "wide_outputs"
    ...     needs = ("layer_outputs/rms",)
    ...     def __init__(self, limit=100.0):
    ...         self.limit = limit
    ...     def check(self, evidence):
    ...         rms = evidence.latest("layer_outputs", "rms")
    ...         for name, value in zip(evidence.names("layer_outputs"), rms):
    ...             if value > self.limit:
    ...                 yield self.finding("warning", f"rms {value:.0f}", [name], view="layer_outputs")
    >>> Wide().kind
    'wide_outputs'
    """

    kind: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    epochs: ClassVar[int] = 1
    at_end: ClassVar[bool] = False
    reads_loss: ClassVar[bool] = False
    order: ClassVar[int] = 50
    picture: ClassVar[str] = "dashboard"

    def check(self, evidence: Evidence) -> Iterable[Finding]:
        """Looks at the evidence, which holds all that `needs` asked for, and yields what it finds."""
        raise NotImplementedError

    def finding(
        self,
        severity: Severity,
        summary: str,
        where: Sequence[str] = (),
        *,
        since: int | None = None,
        evidence: Mapping[str, Any] | None = None,
        cause: str = "",
        suggestion: str = "",
        view: str = "",
        step: int | None = None,
        picture: str | None = None,
    ) -> Finding:
        """A finding of this rule's kind."""
        return Finding(
            self.kind,
            severity,
            summary,
            tuple(where),
            since,
            {key: float(value) for key, value in (evidence or {}).items()},
            cause,
            suggestion,
            self.picture if picture is None else picture,
            view,
            step,
        )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"
