import numpy as np
import pytest

from diagnosis.made_up import described, found, logged, recorded

NORM = {"name": "norm", "class": "BatchNormalization", "momentum": 0.99}
NAMES, SHAPES = ["dense", "norm", "relu", "head"], [(None, 8)] * 4


def normalized(rms, gamma=1.0, beta=0.0, epochs=3, norm=NORM, loss=(2.0, 1.8, 1.7), **views):
    """A normalised layer whose outputs have this rms."""
    recording = recorded("layer_outputs", NAMES, SHAPES, rms=[[5.0, rms, 1.0, 1.0]] * epochs)
    variables = ["dense/kernel", "norm/gamma", "norm/beta", "head/kernel"]
    recorded("weights", variables, [(8, 8), (8,), (8,), (8, 8)], recording, rms=[[1.0, gamma, beta, 1.0]] * epochs)
    logged(recording, loss=list(loss))
    return described(recording, layers=[{"name": "dense", "class": "Dense"}, norm, {"name": "relu", "class": "ReLU"}])


@pytest.mark.parametrize(
    ("rms", "gamma", "beta", "named"),
    [
        (1.0, 1.0, 0.0, False),
        (0.95, 1.0, 0.0, False),
        (2.24, 2.0, 1.0, False),  # √(2² + 1²)
        (5.0, 1.0, 0.0, True),
        (0.1, 1.0, 0.0, True),
        (1.0, 0.2, 0.1, True),
    ],
)
def test_a_normalisation_that_does_not_normalise(rms, gamma, beta, named):
    finding = found(normalized(rms, gamma, beta), "wrong_phase")
    assert bool(finding) == named
    if finding:
        assert finding.where == ("norm",)


def test_the_phase_that_was_seen_decides():
    recording = normalized(1.0)
    recording.metadata["phases"] = {"norm": {"train": False}}
    assert found(recording, "wrong_phase").where == ("norm",)
    recording = normalized(5.0)
    recording.metadata["phases"] = {"norm": {"train": True}}
    assert found(recording, "wrong_phase") is None


def test_a_frozen_normalisation_belongs_in_the_inference_phase():
    assert found(normalized(1.3, norm={**NORM, "trainable": False}), "wrong_phase") is None


def test_training_that_is_fixed_in_the_model():
    finding = found(normalized(1.0, norm={**NORM, "called_with_training": True}), "wrong_phase")
    assert (finding.severity, finding.where) == ("warning", ("norm",))
    assert "training=True" in finding.summary


def test_training_that_was_seen_in_inference():
    recording = normalized(1.0)
    recording.metadata["phases"] = {"norm": {"train": True, "inference": True}}
    assert "training=True" in found(recording, "wrong_phase").summary
    recording.metadata["phases"] = {"norm": {"train": True, "inference": False}}
    assert found(recording, "wrong_phase") is None


def test_inference_that_is_fixed_in_the_model():
    """Of a part trained before it is the custom; where nothing is learned it is the cause."""
    norm = {**NORM, "called_with_training": False}
    assert found(normalized(1.0, norm=norm), "wrong_phase") is None
    recording = normalized(1.0, norm=norm, loss=[2.0, np.nan, np.nan])
    assert found(recording, "wrong_phase").severity == "error"


def test_what_was_seen_counts_for_more_than_the_configuration():
    """Newer releases of Keras pass over the `training=` with which a functional model was built."""
    for configured in (True, False):
        norm = {**NORM, "called_with_training": configured}
        recording = normalized(1.0, norm=norm, loss=[2.0, np.nan, np.nan])
        assert found(recording, "wrong_phase") is not None
        recording.metadata["phases"] = {"norm": {"train": True, "inference": False}}
        assert found(recording, "wrong_phase") is None
        recording.metadata["phases"] = {"norm": {"train": not configured}}
        finding = found(recording, "wrong_phase")
        assert finding is None or "did not normalise" in finding.summary  # by what was seen


def dropped(rates, val=None, rate=0.5):
    names, shapes = ["relu", "dropout", "head"], [(None, 8)] * 3
    size = [[1.0, 1.0 if rates[0] == rates[1] else 1.4, 1.0]] * 2
    values = {"activation_rate": [[*rates, 1.0]] * 2, "rms": size, "mean": size}
    recording = recorded("layer_outputs", names, shapes, **values)
    recorded("weights", ["relu/kernel", "head/kernel"], [(8, 8)] * 2, recording, rms=[[1.0, 1.0]] * 2)
    if val is not None:
        recorded("val_layer_outputs", names, shapes, recording, activation_rate=[[*val, 1.0]] * 2)
    layers = [{"name": "relu", "class": "Dense"}, {"name": "dropout", "class": "Dropout", "rate": rate}]
    return described(recording, layers=layers)


def test_dropout_that_drops_nothing():
    assert found(dropped([0.6, 0.6]), "wrong_phase").where == ("dropout",)
    assert found(dropped([0.6, 0.3]), "wrong_phase") is None
    assert found(dropped([0.6, 0.6], rate=0.0), "wrong_phase") is None


def test_dropout_that_drops_in_validation():
    assert found(dropped([0.6, 0.3], val=[0.6, 0.3]), "wrong_phase").view == "val_layer_outputs"
    assert found(dropped([0.6, 0.3], val=[0.6, 0.6]), "wrong_phase") is None
    assert found(dropped([0.2, 0.1], val=[0.2, 0.1]), "wrong_phase") is not None  # a sparse layer
    assert found(dropped([0.2, 0.1], val=[0.2, 0.02]), "wrong_phase") is None  # the layer before it is another


@pytest.mark.parametrize(("inference", "named"), [(True, True), (False, False)])
def test_dropout_that_was_seen_to_be_off_is_off(inference, named):
    """What stands before it may be a branch that is half as sparse."""
    recording = dropped([0.6, 0.3], val=[0.6, 0.3])
    recording.metadata["phases"] = {"dropout": {"train": True, "inference": inference}}
    assert bool(found(recording, "wrong_phase")) == named


def gap(val_rms, loss, val_loss, epochs=3, steps=None):
    recording = normalized(1.0, epochs=epochs)
    if steps is not None:
        count = [[8 * steps, 8 * steps]] * epochs
        recorded("gradients", ["norm/gamma", "norm/beta"], [(8,)] * 2, recording, rms=[[0.1] * 2] * epochs, count=count)
    recorded("val_layer_outputs", NAMES, SHAPES, recording, rms=[[5.0, val_rms, 1.0, 1.0]] * epochs)
    return logged(recording, loss=loss, val_loss=val_loss)


def test_another_function_in_validation():
    finding = found(gap(3.0, [1.0, 0.5, 0.3], [1.2, 1.1, 1.0]), "normalization_phase_gap")
    assert (finding.severity, finding.where) == ("error", ("norm",))
    assert finding.evidence["val_layer_outputs/rms norm, factor"] == 3.0
    assert found(gap(1.2, [1.0, 0.5, 0.3], [1.2, 1.1, 1.0]), "normalization_phase_gap") is None  # it overfits
    assert found(gap(3.0, [1.0, 0.5, 0.3], [1.0, 0.5, 0.32]), "normalization_phase_gap") is None  # it does no harm


@pytest.mark.parametrize(
    ("val_rms", "steps", "named"), [(1.7, 6, True), (1.2, 6, False), (1.7, 400, False), (2.1, 400, True)]
)
def test_a_narrower_gap_tells_where_the_averages_have_not_arrived(val_rms, steps, named):
    recording = gap(val_rms, [1.0, 0.5, 0.1], [1.0, 0.5, 0.2], steps=steps)
    assert bool(found(recording, "normalization_phase_gap")) == named


@pytest.mark.parametrize(("rms", "named"), [(1.2, False), (8.0, True)])
def test_frozen_statistics_of_other_data(rms, named):
    norm = {**NORM, "trainable": False, "frozen_statistics": True, "scale_rms": 1.0, "offset_rms": 0.2}
    finding = found(normalized(rms, norm=norm), "normalization_phase_gap")
    assert bool(finding) == named


@pytest.mark.parametrize(("rms", "named"), [(8.0, False), (50.0, True)])
def test_frozen_statistics_hidden_by_what_saturates_behind_them(rms, named):
    """Most normalisations fit, since a tanh bounds what comes to them; the first is far off."""
    names = ["norm", "norm2", "norm3"]
    norms = [{**NORM, "name": name, "trainable": False, "frozen_statistics": True, "scale_rms": 1.0} for name in names]
    recording = recorded("layer_outputs", names, SHAPES[:3], rms=[[rms, 1.1, 0.9]] * 3)
    described(logged(recording, loss=[2.0, 1.8, 1.7]), layers=norms)
    assert bool(found(recording, "normalization_phase_gap")) == named


def test_frozen_statistics_that_a_learned_model_made_do_with():
    norm = {**NORM, "trainable": False, "frozen_statistics": True, "scale_rms": 1.0, "offset_rms": 0.0}
    learned = [1.0, 0.1, 0.01]
    assert found(normalized(3.0, norm=norm, loss=learned), "normalization_phase_gap") is None
    assert found(normalized(50.0, norm=norm, loss=learned), "normalization_phase_gap").severity == "warning"


@pytest.mark.parametrize(("steps", "named"), [(20, True), (400, False)])
def test_moving_averages_that_have_not_arrived(steps, named):
    """Of momentum 0.99, 60 steps leave 0.99⁶⁰ = 55 % of the start; 1200 steps nothing."""
    recording = normalized(1.0)
    count = [[8 * steps, 8 * steps]] * 3
    recorded("gradients", ["norm/gamma", "norm/beta"], [(8,), (8,)], recording, rms=[[0.1, 0.1]] * 3, count=count)
    logged(recording, loss=[1.0, 0.3, 0.05], val_loss=[2.0, 2.2, 2.4])
    assert bool(found(recording, "normalization_phase_gap")) == named


def test_models_without_normalisation_have_no_gap():
    recording = described(logged(loss=[1.0, 0.1], val_loss=[2.0, 3.0]), layers=[{"name": "a", "class": "Dense"}])
    assert found(recording, "normalization_phase_gap") is None


def test_the_identity_of_batch_normalisation():
    """What the rule rests on: of a normalised batch rms² = rms(γ)² + rms(β)²."""
    random = np.random.default_rng(0)
    x, gamma, beta = random.normal(3, 7, (4096, 8)), random.normal(size=8), random.normal(size=8)
    y = gamma * (x - x.mean(axis=0)) / x.std(axis=0) + beta
    assert np.mean(y**2) == pytest.approx(np.mean(gamma**2) + np.mean(beta**2))
