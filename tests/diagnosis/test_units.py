import numpy as np
import pytest

from diagnosis.made_up import LEVELS, described, found, logged, outputs, recorded
from keras_introspect.diagnosis.rules import DeadUnits, SaturatedUnits


def dead(*rates, recording=None):
    """A layer `relu` with these dead rates, one an epoch, before a head."""
    return outputs(["relu", "head"], dead_rate=[[rate, 0.0] for rate in rates], recording=recording)


@pytest.mark.parametrize(("rate", "severity"), [(0.69, None), (0.7, "warning"), (0.9, "error")])
def test_dead_units(rate, severity):
    finding = found(dead(rate, rate), "dead_units")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.where == ("relu",)
        assert finding.evidence == {"layer_outputs/dead_rate relu": rate}


def test_the_streak_counts():
    assert found(dead(0.0, 0.0, 0.9), "dead_units") is None
    finding = found(dead(0.0, 0.9, 1.0, 0.9), "dead_units")
    assert finding.since == 1
    assert "the last 3 epochs" in finding.summary


def test_a_threshold_is_an_argument():
    assert found(dead(0.3, 0.3), "dead_units") is None
    assert found(dead(0.3, 0.3), "dead_units", rules=[DeadUnits(warn=0.3)]).severity == "warning"


def test_a_fifth_of_quiet_units_is_healthy():
    assert found(dead(0.2, 0.2), "dead_units") is None


def test_heads_and_inputs_are_not_dead():
    recording = recorded("layer_outputs", ["flatten", "relu", "head"], [(None, 8)] * 3, dead_rate=[[0.9, 0.0, 0.9]] * 2)
    recorded("weights", ["relu/kernel", "head/kernel"], [(8, 8)] * 2, recording, rms=[[1.0, 1.0]] * 2)
    assert found(recording, "dead_units") is None


def test_sparse_on_purpose_is_not_judged():
    recording = dead(0.95, 0.95)
    layer = {"name": "relu", "class": "Dense", "regularizers": {"activity_regularizer": {"l1": 1e-3}}}
    described(recording, layers=[layer])
    assert found(recording, "dead_units") is None


@pytest.mark.parametrize(("about", "named"), [({}, False), ({"activation": "relu"}, True)])
def test_a_layer_that_keeps_the_largest_alone_is_not_dead(about, named):
    """It has neither an activation nor variables."""
    recording = outputs(["dense", "winners", "head"], dead_rate=[[0.0, 0.8, 0.0]] * 2)
    recorded("weights", ["dense/kernel", "head/kernel"], [(8, 8)] * 2, recording, rms=[[1.0, 1.0]] * 2)
    layers = [{"name": "dense", "class": "Dense"}, {"name": "winners", "class": "Winners", **about}]
    assert bool(found(described(recording, layers=layers), "dead_units")) == named


def test_dead_units_that_are_handed_on_are_named_once():
    recording = outputs(["relu", "dropout", "head"], dead_rate=[[0.9, 0.9, 0.0]] * 2)
    assert found(recording, "dead_units").where == ("relu",)


def test_dead_from_the_start_and_learned_all_the_same_is_a_remark():
    recording = logged(dead(0.75, 0.75), loss=[2.0, 0.1])
    assert found(recording, "dead_units").severity == "info"
    assert found(logged(dead(0.75, 0.75), loss=[2.0, 1.5]), "dead_units").severity == "warning"


def test_dying_units():
    finding = found(dead(0.0, 0.3, 0.5, 0.6, 0.6), "dying_units")
    assert (finding.severity, finding.since) == ("warning", 2)
    assert "0 % to 60 %" in finding.summary
    assert found(dead(0.4, 0.5, 0.5, 0.6, 0.6), "dying_units") is None  # a rise of 0.2
    assert found(dead(0.0, 0.1, 0.2, 0.3, 0.3), "dying_units") is None  # not yet at 0.4


def test_units_that_die_while_the_loss_falls_as_it_should_are_a_remark():
    recording = dead(0.0, 0.3, 0.5, 0.6, 0.6)
    assert found(logged(recording, loss=[1.0, 0.8, 0.7, 0.6, 0.55]), "dying_units").severity == "info"
    recording = dead(0.0, 0.3, 0.5, 0.6, 0.6)
    assert found(logged(recording, loss=[1.0, 0.8, 0.5, 0.6, 0.55]), "dying_units").severity == "warning"


def test_dead_is_not_said_twice():
    recording = dead(0.0, 0.8, 0.8, 0.8, 0.8)
    assert found(recording, "dead_units") is not None
    assert found(recording, "dying_units") is None


def squashed(activation, quantiles, name="hidden", kind="Dense"):
    q = np.asarray(quantiles, float)
    recording = outputs(["hidden", "head"], quantiles=[[AT_WORK if name == "head" else q, q]] * 2)
    return described(recording, layers=[{"name": name, "class": kind, "activation": activation}])


SATURATED = [-1, -1, -1, -0.99, 0.0, 0.99, 1, 1, 1]
AT_WORK = [-1, -0.9, -0.7, -0.3, 0.0, 0.3, 0.7, 0.9, 1]


def test_saturated_units():
    finding = found(squashed("tanh", SATURATED), "saturated_units", rules=[SaturatedUnits(share=0.7)])
    assert (finding.severity, finding.where, finding.since) == ("warning", ("hidden",), 0)
    # Between −0.99 at 37.5 % and 0 at 50 %, the margin −0.95 lies at 38 %; so do both sides.
    expected = 2 * np.interp(-0.95, [-0.99, 0.0], [0.375, 0.5])
    assert finding.evidence["saturated share of hidden, from layer_outputs/quantiles"] == pytest.approx(expected)
    assert found(squashed("tanh", AT_WORK), "saturated_units") is None


@pytest.mark.parametrize("quantiles", [np.full(9, 1.0), np.where(LEVELS < 50, 0.0, 1.0), np.linspace(0.98, 1, 9)])
def test_sigmoids_at_their_ends(quantiles):
    assert found(squashed("sigmoid", quantiles), "saturated_units").severity == "warning"


@pytest.mark.parametrize(
    ("activation", "name", "kind"), [("relu", "hidden", "Dense"), ("tanh", "head", "Dense"), ("tanh", "hidden", "LSTM")]
)
def test_what_does_not_saturate(activation, name, kind):
    """ReLU has no ends, a head may be sure, and the outputs of gates are products."""
    assert found(squashed(activation, np.full(9, 1.0), name, kind), "saturated_units") is None
