"""`diagnose`: all rules on one recording, ranked."""

from collections.abc import Iterable, Sequence
from typing import Any

from keras_introspect.diagnosis.description import describe
from keras_introspect.diagnosis.evidence import Evidence
from keras_introspect.diagnosis.finding import SEVERITIES, Finding
from keras_introspect.diagnosis.result import Diagnosis
from keras_introspect.diagnosis.rule import Rule
from keras_introspect.diagnosis.rules import RULES
from keras_introspect.errors import a_type, unknown_name
from keras_introspect.recording import Recording


def diagnose(
    recording: Recording,
    model: Any = None,
    rules: Iterable[Rule] | None = None,
    kinds: Iterable[str] | None = None,
) -> Diagnosis:
    """Says what is wrong with a run, worst first: cause, place, evidence, and what to try.

    Errors come before warnings and remarks (`"info"`); among equals what causes before what is caused. What the
    recording does not hold cannot be judged, and is said in `not_judged`. A run that was learned well gives remarks at
    most about what did it no harm. The rules and their thresholds stand in docs/diagnosis.md.

    Args:
        recording: what was observed: `model.recording`, or one that was loaded.
        model: the model, if it is at hand: its heads, losses, activations and initialisers join in. A recording that
            describes its model is judged by that description otherwise.
        rules: rules of your own, or the standard ones with other thresholds: each is added, in the place of the
            standard rule of its kind if there is one.
        kinds: judge these only.

    Returns:
        The findings, a sequence of `Finding` that prints as a report.

    Raises:
        ValueError: `recording` is no Recording, or an unknown kind or no rule was given.

    Example:

    >>> recording = Recording()
    >>> for epoch in range(3):
    ...     recording.add_epoch(
    ...         "layer_outputs", epoch, ["relu", "head"], [(None, 8), (None, 2)], {"dead_rate": [1.0, 0.0]})
    >>> findings = diagnose(recording)
    >>> [(finding.kind, finding.severity, finding.where) for finding in findings]
    [('dead_units', 'error', ('relu',))]
    """
    if not isinstance(recording, Recording):
        raise ValueError(f"diagnose() got {a_type(recording)}; expected a Recording, such as model.recording.")
    return judge(Evidence(recording, None if model is None else describe(model)), chosen_rules(rules, kinds))


def chosen_rules(rules: Iterable[Rule] | None = None, kinds: Iterable[str] | None = None) -> list[Rule]:
    """The standard rules, with those given in the place of the ones of their kind, or after them.

    Args:
        rules: see `diagnose`.
        kinds: see `diagnose`.

    Example:

    >>> from keras_introspect.diagnosis.rules import DeadUnits
    >>> [rule] = chosen_rules([DeadUnits(warn=0.3)], kinds=["dead_units"])
    >>> rule.warn
    0.3
    """
    given: Sequence[Any] = [rules] if isinstance(rules, Rule) else list(rules or ())
    for rule in given:
        if not isinstance(rule, Rule):
            hint = " Make one of the class: give DeadUnits(), not DeadUnits." if isinstance(rule, type) else ""
            raise ValueError(f"rules= holds {rule!r}; expected rules, such as DeadUnits(warn=0.3).{hint}")
    by_kind: dict[str, Rule] = {cls.kind: cls() for cls in RULES}
    by_kind.update({rule.kind: rule for rule in given})
    if kinds is None:
        return list(by_kind.values())
    wanted = [kinds] if isinstance(kinds, str) else list(kinds)
    for kind in wanted:
        if kind not in by_kind:
            raise unknown_name("kind of finding", kind, by_kind)
    return [rule for kind, rule in by_kind.items() if kind in wanted]


def judge(evidence: Evidence, rules: Sequence[Rule]) -> Diagnosis:
    """Asks each rule, as far as the evidence goes, and ranks what they find."""
    findings: list[tuple[int, int, Finding]] = []
    judged, not_judged = [], {}
    for rule in rules:
        lacking = evidence.missing(rule.needs)
        if lacking:
            several = len(lacking) > 1 and any(" or " in part for part in lacking)
            not_judged[rule.kind] = f"needs {('; and ' if several else ' and ').join(lacking)}"
        elif len(evidence.log_epochs) < rule.epochs:
            number = f"{rule.epochs} epoch{'s' if rule.epochs > 1 else ''}"
            not_judged[rule.kind] = f"needs {number}, the recording has {len(evidence.log_epochs)}"
        elif rule.reads_loss and evidence.loss_is_unknown:
            not_judged[rule.kind] = "the model has a training step of its own: what its losses mean is not known"
        else:
            judged.append(rule.kind)
            for finding in rule.check(evidence):
                findings.append((-SEVERITIES.index(finding.severity), rule.order, finding))
    findings.sort(key=lambda item: item[:2])
    return Diagnosis([finding for *_, finding in findings], judged, not_judged)
