import inspect
import subprocess
import sys

import numpy as np
import pytest

import keras_introspect as ki
from diagnosis.made_up import described, kernels, logged, outputs
from keras_introspect.diagnosis import RULES, Diagnosis, Evidence, Finding, Rule, chosen_rules, diagnose
from keras_introspect.diagnosis.rules import DeadUnits, StepTooLarge
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def sick():
    recording = synthetic(6, 20, sick=True)
    return recording


@pytest.mark.parametrize("layers", [1, 2, 6, 160])
@pytest.mark.parametrize("epochs", [1, 3, 20])
def test_a_healthy_run_is_left_in_peace(layers, epochs):
    diagnosis = diagnose(synthetic(layers, epochs))
    assert diagnosis.alarms == ()
    assert str(diagnosis).startswith("Nothing wrong was found")


def test_a_sick_run_worst_first():
    diagnosis = diagnose(sick())
    assert [(f.kind, f.severity, f.where[0]) for f in diagnosis[:3]] == [
        ("nonfinite", "error", "conv_2/bias"),  # of the backward pass: the last, where the fault enters
        ("dead_units", "error", "conv_1"),
        ("vanishing_gradients", "error", "conv_0/kernel"),
    ]
    severities = [("error", "warning", "info").index(f.severity) for f in diagnosis]
    assert severities == sorted(severities)


def test_what_was_looked_at_is_said():
    diagnosis = diagnose(synthetic(6, 20))
    kinds = {rule.kind for rule in RULES}
    assert {*diagnosis.judged, *diagnosis.not_judged} == kinds
    assert "dead_units" in diagnosis.judged
    assert diagnosis.not_judged["head_loss_mismatch"] == "needs the model: diagnose(recording, model)"


def test_a_model_that_is_known_is_not_asked_for():
    recording = synthetic(6, 20)
    recording.metadata["description"] = {"layers": [{"name": "dense", "class": "Dense"}]}
    diagnosis = diagnose(recording)
    assert (
        diagnosis.not_judged["head_loss_mismatch"] == "needs a model with a loss that Keras knows, given to compile()"
    )
    recorded = "a description of inputs and targets, which are recorded where fit() is given arrays"
    assert diagnosis.not_judged["labels_out_of_range"].endswith(f" or {recorded}")


def test_what_was_not_collected_is_said():
    diagnosis = diagnose(synthetic(6, 20, views=("gradients",)))
    assert diagnosis.not_judged["dead_units"] == "needs the collector LayerOutputs()"
    assert diagnosis.not_judged["over_regularized"] == "needs the collector Weights()"
    assert "Not judged:" in str(diagnosis)
    one = diagnose(synthetic(6, 1))
    assert one.not_judged["dying_units"] == "needs 2 epochs, the recording has 1"


def test_a_statistic_that_was_left_out_is_said():
    diagnosis = diagnose(outputs(["a", "head"], rms=[[1.0, 1.0]]), kinds=["dead_units"])
    assert diagnosis.not_judged == {"dead_units": "needs 'dead_rate' of the collector LayerOutputs()"}


def test_an_empty_recording():
    diagnosis = diagnose(Recording())
    assert len(diagnosis) == 0
    assert diagnosis.judged == ()


def test_a_diagnosis_prints_all_of_a_finding():
    text = str(diagnose(sick(), kinds=["dead_units"]))
    (finding,) = diagnose(sick(), kinds=["dead_units"])
    for part in (finding.kind, finding.summary, finding.cause, finding.suggestion, "conv_1", "plots.activity_board"):
        assert part in text
    assert "layer_outputs/dead_rate conv_1 0.9" in text


def test_findings_are_plain_values():
    for finding in diagnose(sick()):
        assert isinstance(finding, Finding)
        assert all(type(name) is str for name in finding.where)
        assert all(type(value) is float for value in finding.evidence.values())
        assert finding.since is None or type(finding.since) is int
        assert hasattr(ki.plots, finding.picture)
        assert finding.cause
        assert finding.suggestion


def test_every_rule_says_what_it_is():
    kinds = [rule.kind for rule in RULES]
    assert len(set(kinds)) == len(kinds)
    for rule in RULES:
        assert rule.needs
        assert hasattr(ki.plots, rule.picture)
        for name in inspect.signature(rule).parameters if "__init__" in vars(rule) else ():
            assert f"{name}: " in rule.__doc__, f"{rule.__name__} does not say what {name} is"


class Wide(Rule):
    kind = "wide"
    needs = ("layer_outputs/rms",)
    order = 1

    def check(self, evidence: Evidence):
        for name, value in zip(evidence.names("layer_outputs"), evidence.latest("layer_outputs", "rms"), strict=True):
            if value > 10:
                yield self.finding("warning", f"rms {value:.0f}", [name], evidence={"rms": value})


def test_a_rule_of_ones_own():
    recording = outputs(["a", "head"], rms=[[20.0, 1.0]])
    diagnosis = diagnose(recording, rules=[Wide()])
    assert [(f.kind, f.where) for f in diagnosis] == [("wide", ("a",))]
    assert "dead_units" in diagnosis.not_judged
    assert diagnose(recording, rules=[Wide()], kinds="wide").not_judged == {}


def test_a_rule_takes_the_place_of_its_kind():
    (rule,) = chosen_rules([StepTooLarge(ratio=0.5)], ["step_too_large"])
    assert rule.ratio == 0.5
    assert len(chosen_rules([DeadUnits()])) == len(RULES)
    assert len(chosen_rules([Wide()])) == len(RULES) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recording": "run.npz"}, "got a str; expected a Recording"),
        ({"rules": [DeadUnits]}, r"give DeadUnits\(\), not DeadUnits"),
        ({"rules": ["dead_units"]}, "expected rules"),
        ({"kinds": ["dead_unit"]}, "Did you mean 'dead_units'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        diagnose(**{"recording": Recording(), **arguments})


def test_bad_findings():
    with pytest.raises(ValueError, match="severity='bad'"):
        Finding("a", "bad", "b")
    with pytest.raises(ValueError, match="tuple of names"):
        Finding("a", "info", "b", "layer")


def test_a_file_is_judged_like_the_run(tmp_path):
    recording = described(logged(kernels("gradients", [[1e-9, 0.1]] * 3), loss=[1.0] * 3), "mse", "linear", 1)
    recording.save(tmp_path / "run.npz")
    assert str(diagnose(Recording.load(tmp_path / "run.npz"))) == str(diagnose(recording))


def test_order_is_by_cause_among_equals():
    recording = kernels("gradients", [[0.0, 0.0, 0.1]] * 4, outputs(["relu", "head"], dead_rate=[[1.0, 0.0]] * 4))
    assert [f.kind for f in diagnose(recording)][:2] == ["dead_units", "no_gradient"]


def test_the_headline_counts():
    findings = [Finding("a", "error", "b"), Finding("c", "warning", "d"), Finding("e", "warning", "f")]
    assert Diagnosis(findings).headline == "Found: 1 error, 2 warnings"
    assert Diagnosis([Finding("a", "info", "b")]).headline == "Nothing wrong was found; 1 remark"
    assert Diagnosis(findings)[1:] == tuple(findings[1:])


def test_it_loads_without_tensorflow():
    code = (
        "import sys, keras_introspect as ki\n"
        "from keras_introspect.recording import Recording\n"
        "assert not len(ki.diagnose(Recording()))\n"
        "print(sorted({'tensorflow', 'keras', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_nothing_is_changed_by_judging():
    recording = sick()
    before = recording.to_bytes()
    diagnose(recording)
    assert recording.to_bytes() == before


def test_a_training_that_fails_at_once_is_judged_by_what_it_was_given():
    """Keras raises in the first step: what it was given, and the model's configuration, are in the recording."""
    keras = pytest.importorskip("keras")
    import keras_introspect as ki

    model = ki.IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", collectors="default")
    with pytest.raises(Exception, match="label value of 3"):
        model.fit(np.ones((8, 4)), np.array([1, 2, 3, 1] * 2), verbose=0)
    diagnosis = diagnose(model.recording)
    assert [finding.kind for finding in diagnosis] == ["labels_out_of_range"]
    assert "overfitting" in diagnosis.not_judged


def test_nothing_to_judge_is_not_called_healthy():
    assert diagnose(Recording()).headline == "Nothing could be judged"


def test_what_was_looked_for_is_named_where_nothing_is_wrong_and_counted_beside_findings():
    judged = [f"kind_{i}" for i in range(12)]
    assert f"Looked for: {', '.join(judged)}." in str(Diagnosis([], judged))
    dead = Finding("dead_units", "error", "all are dead")
    assert "Looked for 12 kinds of faults" in str(Diagnosis([dead], judged))
    assert "Looked for: kind_0, kind_1." in str(Diagnosis([dead], judged[:2]))
