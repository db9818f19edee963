"""`Alerts`: the diagnosis while the model trains."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keras_introspect.callbacks._watching import Watching
from keras_introspect.diagnosis import Diagnosis, Evidence, Finding, Rule, chosen_rules, describe, judge
from keras_introspect.diagnosis.finding import SEVERITIES

_ACTIONS = ("warn", "stop")
_SPREAD = 2  # times as many places: the finding has worsened


class Alerts(Watching):
    """Judges the training after each epoch by the rules of `keras_introspect.diagnose`, and says what it finds.

    A finding is said once, and again when it has worsened: when its severity has risen, or it is about twice as many
    layers. Remarks (`"info"`) are kept in `findings` and not said. Non-finite values are found at the end of the epoch
    in which they came; with step series of a collector (`per_step=True`) the finding names the step.

    A rule that raises is a warning, once: the training goes on.

    Args:
        action: `"warn"` gives a Python warning; `"stop"` does too, and ends the training after the epoch of the first
            error; a function is called with each `Finding` and does what it likes, such as writing to a tracker.
        rules: see `diagnose`.
        kinds: see `diagnose`.
        every: judge after each n-th epoch, and after the last.

    Attributes:
        diagnosis: all findings of the last epoch judged.
        findings: every finding that was said, in the order of time.

    Raises:
        ValueError: another action, no rules, or `every` out of range.

    Example:

    >>> import keras, numpy as np
    >>> from keras_introspect import IntrospectiveSequential
    >>> model = IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(3, activation="sigmoid", name="head")])
    >>> model.compile("sgd", "categorical_crossentropy", collectors="economy")
    >>> said = []
    >>> alerts = Alerts(said.append, kinds=["head_loss_mismatch"])
    >>> history = model.fit(np.ones((8, 4)), np.eye(8, 3), epochs=3, verbose=0, callbacks=[alerts])
    >>> [finding.kind for finding in said]
    ['head_loss_mismatch']
    """

    def __init__(
        self,
        action: str | Callable[[Finding], Any] = "warn",
        rules: Iterable[Rule] | None = None,
        kinds: Iterable[str] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__()
        if not callable(action) and action not in _ACTIONS:
            raise ValueError(f"Alerts(action={action!r}): expected 'warn', 'stop', or a function of a Finding.")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"Alerts(every={every!r}): expected a whole number of epochs, 1 or more.")
        self.action = action
        self.every = every
        self.diagnosis = Diagnosis([])
        self.findings: list[Finding] = []
        self._rules = chosen_rules(rules, kinds)
        self._said: dict[tuple[str, str], tuple[int, int]] = {}
        self._description: dict[str, Any] | None = None
        self._pending = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._description = None
        self._pending = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._pending = (epoch + 1) % self.every != 0
        if not self._pending:
            self._judge([rule for rule in self._rules if not rule.at_end])

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._pending or any(rule.at_end for rule in self._rules):
            self._judge(self._rules)

    def _judge(self, rules: Sequence[Rule]) -> None:
        new: list[Finding] = []
        with self._training_goes_on("judge the epoch"):
            if self._description is None:
                self._description = describe(self.model)
            self.diagnosis = judge(Evidence(self.recording, self._description), rules)
            new = [finding for finding in self.diagnosis.alarms if self._is_news(finding)]
        for finding in new:
            self.findings.append(finding)
            self._say(finding)

    def _is_news(self, finding: Finding) -> bool:
        """Whether it has not been said, or has worsened since; remembers it as said."""
        key = (finding.kind, finding.view)
        now = (SEVERITIES.index(finding.severity), len(finding.where))
        before = self._said.get(key)
        if before is not None and now[0] <= before[0] and now[1] < _SPREAD * before[1]:
            return False
        self._said[key] = now if before is None else (max(now[0], before[0]), max(now[1], before[1]))
        return True

    def _say(self, finding: Finding) -> None:
        if callable(self.action):
            self.action(finding)
            return
        labelled = (("Cause", finding.cause), ("Try", finding.suggestion))
        told = [str(finding), *(f"{label}: {text}" for label, text in labelled if text)]
        warnings.warn(". ".join(told), stacklevel=2)
        if self.action == "stop" and finding.severity == "error":
            self.model.stop_training = True
