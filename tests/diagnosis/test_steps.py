import numpy as np
import pytest

from diagnosis.made_up import described, found, kernels, logged, recorded

FLAT = [1.0, 1.0, 1.0, 1.0]


def ratios(*rows, loss=FLAT, recording=None, **more):
    """Update-to-weight ratios of kernels, a row an epoch, and a loss."""
    recording = kernels("updates", np.array(rows) * 0.1, recording, update_ratio=rows, **more)
    return logged(recording, loss=list(loss)[: len(rows)])


@pytest.mark.parametrize(("ratio", "named"), [(0.09, False), (0.11, True)])
def test_step_too_large_by_the_ratio(ratio, named):
    finding = found(ratios(*[[ratio] * 3] * 4), "step_too_large")
    assert bool(finding) == named
    if finding:
        assert finding.severity == "warning"
        assert finding.since == 0
        assert f"{100 * ratio:.0f} % of their size" in finding.summary


def test_most_kernels_must_be_hit():
    assert found(ratios(*[[0.5, 1e-3, 1e-3]] * 4), "step_too_large") is None


def test_large_steps_that_have_passed_are_a_remark():
    rows = [[0.5] * 3, [1e-2] * 3, [1e-2] * 3]
    assert found(ratios(*rows, loss=[2.0, 1.5, 1.4]), "step_too_large").severity == "info"
    assert found(ratios(*rows, loss=[2.0, 1.5, 4.0]), "step_too_large").severity == "error"


def test_biases_start_at_zero_and_are_not_judged():
    recording = recorded("updates", ["a/bias", "b/bias"], [(4,), (4,)], rms=[[1.0, 1.0]] * 3, update_ratio=[[9, 9]] * 3)
    logged(recording, loss=FLAT[:3])
    assert found(recording, "step_too_large") is None


def test_the_ratio_follows_from_updates_and_weights():
    recording = kernels("weights", [[1.0, 1.0]] * 4, kernels("updates", [[0.2, 0.3]] * 4))
    finding = found(logged(recording, loss=FLAT), "step_too_large")
    assert finding.evidence["updates/rms over weights/rms layer1/kernel"] == pytest.approx(0.3)


def test_the_ratio_follows_from_sgds_learning_rate():
    recording = kernels("weights", [[1.0, 1.0]] * 4, kernels("gradients", [[0.5, 0.5]] * 4))
    logged(recording, loss=FLAT)
    assert found(recording, "step_too_large") is None  # the learning rate is not known
    described(recording, optimizer={"name": "SGD", "learning_rate": 0.5})
    assert found(recording, "step_too_large").evidence[
        "learning rate × gradients/rms over weights/rms layer0/kernel"
    ] == pytest.approx(0.25)
    described(recording, optimizer={"name": "SGD", "learning_rate": 0.05})
    assert found(recording, "step_too_large") is None


def test_a_loss_that_climbs():
    finding = found(logged(loss=[2.0, 1.0, 2.5, 3.0, 3.5]), "step_too_large")
    assert (finding.severity, finding.since) == ("error", 2)
    assert found(logged(loss=[2.0, 1.0, 1.5, 1.8, 1.9]), "step_too_large") is None  # not above its start
    assert found(logged(loss=[2.0, 1.5, 1.2, 1.1, 1.0]), "step_too_large") is None


@pytest.mark.parametrize(("name", "rate", "named"), [("Adam", 0.1, True), ("Adam", 1e-2, False), ("SGD", 0.1, False)])
def test_the_first_steps_of_adaptive_optimizers(name, rate, named):
    """Of kernels (64, 64) Glorot's rms is 0.125: a step of 0.1 is 80 % of it."""
    recording = kernels("weights", [[1.0] * 3] * 4, shape=(64, 64))
    logged(recording, loss=[2.0, 1.5, 1.2, 1.1], accuracy=[0.1, 0.3, 0.4, 0.5])
    described(recording, "sparse_categorical_crossentropy", "softmax", optimizer={"name": name, "learning_rate": rate})
    finding = found(recording, "step_too_large")
    assert bool(finding) == named
    if finding:
        assert max(finding.evidence.values()) == pytest.approx(0.1 / np.sqrt(2 / 128))


@pytest.mark.parametrize(
    ("size", "steps", "named"),
    [(20.0, 100, True), (3.0, 100, False), (20.0, 10, False)],  # ten steps of 0.05 do not make it 20
)
def test_a_first_epoch_that_made_the_kernels_large(size, steps, named):
    """Later steps are small against weights that the first ones have made so."""
    recording = kernels("weights", [[size * np.sqrt(2 / 16)] * 3] * 3)
    kernels("updates", [[0.05] * 3, [1e-6] * 3, [1e-6] * 3], recording, count=[[64 * steps] * 3] * 3)
    finding = found(logged(recording, loss=FLAT[:3]), "step_too_large")
    assert bool(finding) == named
    if finding:
        assert finding.since == 0
        assert "made the kernels 20 times as large" in finding.summary


def test_step_series_show_the_first_steps_of_any_optimizer():
    recording = kernels("updates", [[1e-2] * 3] * 4, kernels("weights", [[1.0] * 3] * 4))
    names, shapes = recording["updates"].names, recording["updates"].shapes
    for view, size in (("updates", [0.6, 0.5, 0.1]), ("weights", [1.0, 1.0, 1.0])):
        recording.add_steps(view, np.arange(3), names, shapes, {"rms": [size] * 3})
    logged(recording, loss=[2.0, 1.5, 1.2, 1.1], accuracy=[0.1, 0.3, 0.4, 0.5])
    finding = found(recording, "step_too_large")
    assert finding.where == ("layer0/kernel", "layer1/kernel")


CREEPING = [2.30, 2.29, 2.28, 2.27, 2.26, 2.25]


def slow(ratio, loss, steps=10):
    rows = [[ratio] * 3] * len(loss)
    return logged(kernels("updates", rows, update_ratio=rows, count=[[64 * steps] * 3] * len(loss)), loss=loss)


@pytest.mark.parametrize(
    ("ratio", "loss", "named"),
    [
        (1e-4, CREEPING, True),
        (1e-3, CREEPING, False),  # steps of the customary size
        (1e-4, [2.3, 1.5, 1.2, 1.1, 1.05, 1.04], False),  # it falls, and settles
        (1e-4, [2.3, 1.9, 1.5, 1.1, 0.7, 0.3], False),  # it falls by much
        (1e-8, [2.3] * 6, True),
    ],
)
def test_step_too_small(ratio, loss, named):
    finding = found(slow(ratio, loss), "step_too_small")
    assert bool(finding) == named
    if finding:
        assert finding.severity == "warning"


def test_weights_that_have_travelled_far_did_not_step_too_small():
    assert found(slow(2e-4, CREEPING, steps=10000), "step_too_small") is None


def test_fine_tuning_makes_small_steps_and_is_healthy():
    recording = logged(slow(1e-5, [0.5, 0.45, 0.42, 0.40, 0.38, 0.36]), loss=[0.2] * 6, accuracy=[0.96] * 6)
    described(recording, "sparse_categorical_crossentropy", "softmax")
    assert found(recording, "step_too_small") is None


SWINGING = [2.0, 1.5, 1.0, 1.8, 0.9, 1.9, 1.0, 1.7, 0.8, 1.8, 1.0, 1.9]


def test_oscillation():
    finding = found(logged(loss=SWINGING), "oscillation")
    assert (finding.severity, finding.where) == ("warning", ("loss",))
    assert found(logged(loss=list(np.linspace(2, 0.1, 12))), "oscillation") is None  # a steady fall
    assert found(logged(loss=list(2 * np.exp(-np.arange(12.0)))), "oscillation") is None  # a fast one


def test_a_swing_of_next_to_nothing_is_none():
    loss = [2.0, 0.5] + [0.01 * value for value in SWINGING]
    assert found(logged(loss=loss), "oscillation") is None


def test_the_validation_may_swing_alone():
    recording = logged(loss=list(np.linspace(2, 1, 12)), val_loss=SWINGING)
    assert found(recording, "oscillation").where == ("val_loss",)


@pytest.mark.parametrize(("cosine", "steps", "named"), [(-0.8, 100, True), (-0.1, 100, False), (-0.8, 5, False)])
def test_gradients_that_turn_around(cosine, steps, named):
    """Of batches without replacement the cosine is −1 / (steps − 1): of five steps −0.25, of nothing but chance."""
    count = [[64 * steps] * 2] * 4
    recording = kernels("gradients", [[0.1, 0.1]] * 4, step_cosine=[[cosine] * 2] * 4, count=count)
    finding = found(recording, "oscillation")
    assert bool(finding) == named
    if finding:
        assert finding.view == "gradients"


def test_a_model_with_a_step_of_its_own_is_not_judged_by_its_loss():
    from keras_introspect.diagnosis import diagnose

    recording = described(logged(loss=SWINGING))
    recording.metadata["description"]["custom_step"] = True
    diagnosis = diagnose(recording, kinds=["oscillation"])
    assert len(diagnosis) == 0
    assert "a training step of its own" in diagnosis.not_judged["oscillation"]
