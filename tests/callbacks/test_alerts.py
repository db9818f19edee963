import warnings

import keras
import numpy as np
import pytest

import keras_introspect as ki
from keras_introspect.callbacks import Alerts
from keras_introspect.diagnosis import Rule
from tiny import build, compiled, train


class Counting(Rule):
    """Finds what it is told to find, epoch after epoch."""

    kind = "counting"
    needs = ("weights/rms",)

    def __init__(self, *found):
        self.found = found  # (severity, how many places) an epoch

    def check(self, evidence):
        severity, places = self.found[len(evidence.log_epochs) - 1]
        if severity is not None:
            yield self.finding(severity, "found", [f"layer{i}" for i in range(places)], view="weights")


def alerted(rule, action=None, epochs=None, **arguments):
    said = []
    alerts = Alerts(said.append if action is None else action, rules=[rule], kinds=[rule.kind], **arguments)
    model = compiled(build("functional"))
    train(model, len(rule.found) if epochs is None else epochs, callbacks=[alerts])
    return said, alerts, model


def count(seen):
    """Of ours: NumPy has its own to say."""
    return sum(issubclass(warning.category, UserWarning) for warning in seen)


def test_a_finding_is_said_once():
    said, alerts, _ = alerted(Counting(*[("warning", 2)] * 4))
    assert [finding.kind for finding in said] == ["counting"]
    assert alerts.findings == said
    assert len(alerts.diagnosis) == 1


def test_it_is_said_again_when_it_worsens():
    said, *_ = alerted(Counting(("warning", 1), ("warning", 1), ("error", 1), ("warning", 1), ("error", 1)))
    assert [finding.severity for finding in said] == ["warning", "error"]
    said, *_ = alerted(Counting(("warning", 2), ("warning", 3), ("warning", 4), ("warning", 2), ("warning", 4)))
    assert [len(finding.where) for finding in said] == [2, 4]


def test_remarks_are_kept_and_not_said():
    said, alerts, _ = alerted(Counting(("info", 1), ("info", 1)))
    assert said == []
    assert [finding.severity for finding in alerts.diagnosis] == ["info"]


def test_warnings():
    with pytest.warns(UserWarning, match="warning: counting: found") as seen:
        alerted(Counting(("warning", 1), ("warning", 1)), "warn")
    assert count(seen) == 1


def test_stop_ends_the_training_at_an_error():
    with pytest.warns(UserWarning, match="counting"):
        _, _, model = alerted(Counting(("warning", 1), ("error", 1), ("error", 1)), "stop")
    assert model.recording.epochs.tolist() == [0, 1]


def test_warn_does_not_end_it():
    with pytest.warns(UserWarning, match="counting"):
        _, _, model = alerted(Counting(("error", 1), ("error", 1)), "warn")
    assert model.recording.epochs.tolist() == [0, 1]


def test_every():
    said, alerts, _ = alerted(Counting(("warning", 1), ("error", 1), ("error", 1)), every=2)
    assert [finding.severity for finding in said] == ["error"]  # the first epoch was not judged
    assert alerts.diagnosis[0].severity == "error"


def test_the_last_epoch_is_judged_in_any_case():
    said, *_ = alerted(Counting((None, 0), (None, 0), ("error", 1)), every=2)
    assert [finding.severity for finding in said] == ["error"]


class Broken(Rule):
    kind = "broken"
    needs = ("weights/rms",)
    found = (1, 2, 3)

    def check(self, evidence):
        raise ZeroDivisionError("a rule of mine")


def test_a_rule_that_raises_does_not_end_the_training():
    with pytest.warns(
        UserWarning, match=r"Alerts cannot judge the epoch \(ZeroDivisionError: a rule of mine\)"
    ) as seen:
        _, _, model = alerted(Broken())
    assert count(seen) == 1
    assert len(model.recording.epochs) == 3


def test_a_non_finite_step_is_found_at_the_end_of_its_epoch():
    said = []
    model = ki.IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(1, name="head")])
    model.compile(keras.optimizers.SGD(1e30), "mse", collectors=[ki.Weights(), ki.Gradients()])
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    model.fit(x, x[:, :1], batch_size=8, epochs=1, verbose=0, callbacks=[Alerts(said.append, kinds=["nonfinite"])])
    assert [(finding.kind, finding.severity, finding.since) for finding in said] == [("nonfinite", "error", 0)]


def test_the_models_configuration_joins_in():
    said = []
    model = ki.IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(3, "relu", name="head")])
    model.compile("sgd", "categorical_crossentropy", collectors="economy")
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    model.fit(x, np.eye(3)[np.arange(16) % 3], epochs=2, verbose=0, callbacks=[Alerts(said.append)])
    assert "head_loss_mismatch" in [finding.kind for finding in said]


def test_a_healthy_training_is_left_in_peace():
    model = compiled(build("functional"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        train(model, 5, callbacks=[Alerts()])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "shout"}, "expected 'warn', 'stop', or a function"),
        ({"every": 0}, "expected a whole number of epochs"),
        ({"rules": [Counting]}, r"give DeadUnits\(\)"),
        ({"kinds": ["nothing"]}, "Unknown kind of finding"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Alerts(**arguments)


def test_a_plain_model_is_an_error():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="records nothing"):
        model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0, callbacks=[Alerts()])


class AtEnd(Counting):
    kind = "at_end"
    at_end = True


def test_what_judges_a_whole_training_waits_for_its_end():
    rule = AtEnd(*[("warning", 1)] * 3)
    epochs = []

    class Watches(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            epochs.append(len(said))

    said = []
    model = compiled(build("functional"))
    train(model, 3, callbacks=[Alerts(said.append, rules=[rule], kinds=[rule.kind]), Watches()])
    assert epochs == [0, 0, 0]
    assert [finding.kind for finding in said] == ["at_end"]
