import numpy as np
import pytest

from diagnosis.made_up import described, found, kernels, logged, outputs

SPARSE = "sparse_categorical_crossentropy"


def shrunk(last, progress, penalty=None, decay=None, epochs=5):
    """Kernels of 8 × 8 that start at Glorot's size and end at `last` times that; a training that came so far."""
    size = np.sqrt(2 / 16) * np.geomspace(1, last, epochs)
    recording = kernels("weights", [[value] * 3 for value in size], l2_norm=[[8 * value] * 3 for value in size])
    accuracy = 0.1 + 0.9 * progress
    logged(recording, loss=[3.0] * epochs, accuracy=[accuracy] * epochs)
    regularizers = {"regularizers": {"kernel_regularizer": penalty}} if penalty else {}
    layers = [{"name": f"layer{i}", "class": "Dense", **regularizers} for i in range(3)]
    optimizer = {"name": "AdamW", "learning_rate": 1e-3, **({"weight_decay": decay} if decay else {})}
    return described(recording, SPARSE, "softmax", 10, layers=layers, optimizer=optimizer)


def test_over_regularized():
    finding = found(shrunk(0.01, 0.05, {"l2": 0.5}), "over_regularized")
    assert finding.severity == "error"
    assert len(finding.where) == 3
    assert "l2=0.5" in finding.cause
    squares = 3 * 64 * (2 / 16) * 0.01**2
    assert finding.evidence["penalty over logs/loss"] == pytest.approx(0.5 * squares / 3.0)


def test_weight_decay_is_a_penalty_too():
    assert "weight_decay=0.5" in found(shrunk(0.1, 0.05, decay=0.5), "over_regularized").cause
    assert found(shrunk(0.1, 0.05), "over_regularized") is None  # no penalty: it shrank for another reason


@pytest.mark.parametrize(("last", "progress"), [(0.5, 0.05), (0.01, 0.95), (0.01, 0.75)])
def test_a_penalty_that_leaves_something_to_learn_with(last, progress):
    assert found(shrunk(last, progress, {"l2": 1e-2}), "over_regularized") is None


def penalised(rms, progress, amounts, units=16):
    """A layer whose outputs of this rms have a penalty; a loss of 0.6."""
    accuracy = 0.5 + 0.5 * progress
    recording = logged(
        outputs(["hidden", "head"], units, rms=[[rms, 1.0]] * 3), loss=[0.7, 0.65, 0.6], accuracy=[accuracy] * 3
    )
    kernels("weights", [[0.3] * 2] * 3, recording)
    layer = {"name": "hidden", "class": "Dense", "regularizers": {"activity_regularizer": amounts}}
    return described(recording, "binary_crossentropy", "sigmoid", 1, layers=[layer])


@pytest.mark.parametrize(
    ("rms", "progress", "l2", "named"),
    [
        (0.01, 0.2, 20.0, True),  # crushed
        (0.5, 0.2, 0.1, True),  # 0.1 × 16 × 0.25 of 0.6: two thirds
        (0.5, 0.2, 1e-3, False),
        (0.01, 0.9, 20.0, False),  # and learned all the same
    ],
)
def test_penalties_on_outputs(rms, progress, l2, named):
    finding = found(penalised(rms, progress, {"l2": l2}), "over_regularized")
    assert bool(finding) == named
    if finding:
        assert finding.where == ("hidden",)
        assert finding.evidence["its penalty over logs/loss hidden"] == pytest.approx(l2 * 16 * rms**2 / 0.6)
        assert f"l2={l2:g}" in finding.cause


@pytest.mark.parametrize(
    ("decay", "steps", "progress", "named"),
    [(5.0, 100, 0.8, True), (0.01, 100, 0.8, False), (5.0, 10, 0.8, False), (5.0, 100, 0.95, False)],
)
def test_a_decay_of_all_weights_within_few_steps(decay, steps, progress, named):
    """At 1e-3 a decay of 5 takes 0.5 % a step: of 500 steps the first 300 are forgotten."""
    recording = shrunk(0.6, progress, decay=decay)
    kernels("gradients", [[0.1] * 3] * 5, recording, count=[[64 * steps] * 3] * 5)
    finding = found(recording, "over_regularized")
    assert bool(finding) == named
    if finding:
        assert finding.evidence["learning rate × weight decay"] == pytest.approx(1e-3 * decay)


def test_a_penalty_that_is_most_of_the_loss():
    """Of kernels that have not shrunk: 3 × 64 × 2 / 16 of squares, at 0.1, of a loss of 3."""
    assert found(shrunk(1.0, 0.8, {"l2": 0.1}), "over_regularized").severity == "warning"
    assert found(shrunk(1.0, 0.8, {"l2": 0.04}), "over_regularized") is None
    assert found(shrunk(1.0, 0.5, {"l2": 0.04}), "over_regularized").severity == "warning"
    assert found(shrunk(1.0, 0.95, {"l2": 0.1}), "over_regularized") is None


FALL = [1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.09, 0.06, 0.04]


@pytest.mark.parametrize(
    ("val_loss", "severity"),
    [
        ([1.0, 0.8, 0.7, 0.65, 0.62, 0.6, 0.6, 0.59, 0.6, 0.6], None),
        ([1.0, 0.8, 0.7, 0.72, 0.74, 0.75, 0.77, 0.78, 0.8, 0.81], None),  # a sixth above its best: ordinary
        ([1.0, 0.8, 0.6, 0.62, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9], "info"),
        ([1.0, 0.8, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4], "warning"),
    ],
)
def test_overfitting(val_loss, severity):
    finding = found(logged(loss=FALL, val_loss=val_loss), "overfitting")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.since == 2


def test_a_validation_that_still_gains_accuracy_is_a_remark():
    val_loss = [1.0, 0.8, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1]
    assert found(logged(loss=FALL, val_loss=val_loss), "overfitting").severity == "warning"
    accuracy, val_accuracy = list(np.linspace(0.5, 1, 10)), list(np.linspace(0.5, 0.9, 10))
    recording = logged(loss=FALL, val_loss=val_loss, accuracy=accuracy, val_accuracy=val_accuracy)
    assert found(recording, "overfitting").severity == "info"
    logged(recording, loss=FALL, val_loss=val_loss, accuracy=accuracy, val_accuracy=list(np.linspace(0.5, 0.75, 10)))
    assert found(recording, "overfitting").severity == "warning"  # a quarter below the training


def test_a_training_loss_that_does_not_fall_does_not_overfit():
    val_loss = [1.0, 0.8, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4]
    assert found(logged(loss=[1.0] * 10, val_loss=val_loss), "overfitting") is None


def classified(loss, accuracy=None):
    logs = {} if accuracy is None else {"accuracy": accuracy}
    return described(logged(loss=loss, **logs), SPARSE, "softmax", 10)


@pytest.mark.parametrize(
    ("recording", "named"),
    [
        (classified([2.30] * 5, [0.1] * 5), True),
        (classified([2.30, 2.29, 2.29, 2.29, 2.29]), True),  # log(10) = 2.30
        (classified([2.30, 1.2, 0.9, 0.7, 0.6], [0.1, 0.5, 0.6, 0.7, 0.8]), False),
        (classified([0.05] * 5, [0.99] * 5), False),  # learned within the first epoch
        (classified([2.3, 2.2, 2.1, 1.9, 1.6], [0.1, 0.1, 0.12, 0.15, 0.18]), False),  # it has just begun
        (logged(loss=[1.0, 1.2, 0.9, 1.1, 1.05]), True),
        (logged(loss=[0.002] * 5), False),  # of a regression, flat: nobody knows
        (logged(loss=[1.0, 0.5, 0.4, 0.4, 0.4]), False),
    ],
)
def test_underfitting(recording, named):
    assert bool(found(recording, "underfitting")) == named


def test_squared_error_is_compared_with_the_variance_of_the_targets():
    recording = described(logged(loss=[4.1, 4.0, 4.0]), "mean_squared_error", "linear", 1)
    recording.metadata["data"] = {"targets": [{"mean": 5.0, "std": 2.0}]}
    finding = found(recording, "underfitting")
    assert finding.evidence["progress from guessing (0) to perfect (1)"] == 0.0
    recording.metadata["data"] = {"targets": [{"mean": 5.0, "std": 9.0}]}
    assert found(recording, "underfitting") is None


@pytest.mark.parametrize(("integers", "named"), [(True, True), (False, False)])
def test_the_least_loss_of_soft_targets_is_not_known(integers, named):
    """Grey pixels under binary cross-entropy: at log 2 they may be as good as they can be."""
    recording = described(logged(loss=[0.69, 0.69, 0.69]), "binary_crossentropy", "sigmoid", 1)
    recording.metadata["data"] = {"targets": [{"name": "", "integers": integers, "mean": 0.5, "std": 0.1}]}
    assert bool(found(recording, "underfitting")) == named


def test_stopped_early_is_a_remark():
    slowing = [2.0, 1.6, 1.3, 1.1, 1.0, 0.93, 0.87, 0.83, 0.77, 0.7]
    assert found(logged(loss=slowing), "stopped_early").severity == "info"
    settled = [2.0, 1.0, 0.8, 0.75, 0.73, 0.72, 0.72, 0.719, 0.719, 0.719]
    assert found(logged(loss=settled), "stopped_early") is None


def test_stopped_half_way_is_a_warning():
    falling = list(np.linspace(2.3, 1.9, 10))
    assert found(classified(falling, [0.3] * 10), "stopped_early").severity == "warning"
    assert found(classified(falling, [0.8] * 10), "stopped_early").severity == "warning"  # as fast as ever
    slowing = [2.3, 2.2, 2.1, 2.04, 2.01, 1.99, 1.97, 1.95, 1.92, 1.89]
    assert found(classified(slowing, [0.3] * 10), "stopped_early").severity == "info"
    assert found(classified(falling, [0.9] * 10), "stopped_early").severity == "info"  # most has been learned
    assert (
        found(classified(list(np.linspace(2.3, 2.25, 10)), [0.1] * 10), "stopped_early") is None
    )  # it fell by nothing


@pytest.mark.parametrize(
    ("loss", "severity"), [([2.2, 1.95, 1.7], "warning"), ([2.2, 1.4, 1.2], None), ([2.2, 0.9, 0.85], None)]
)
def test_three_epochs_may_be_too_few(loss, severity):
    finding = found(classified(loss, [0.2, 0.5, 0.7]), "stopped_early")
    assert (finding and finding.severity) == severity


def test_a_validation_that_rises_has_not_stopped_too_early():
    assert (
        found(logged(loss=list(np.linspace(2, 1, 10)), val_loss=list(np.linspace(1, 2, 10))), "stopped_early") is None
    )


@pytest.mark.parametrize(
    ("val_loss", "val_accuracy", "named"),
    [
        ([1.8, 1.9, 2.0], [0.3, 0.29, 0.28], True),
        ([1.8, 1.0, 2.0], [0.3, 0.6, 0.28], False),  # it was good once: that is overfitting
        ([1.8, 1.9, 2.0], [0.3, 0.8, 0.28], False),  # by its accuracy it was good
        ([0.2, 0.19, 0.18], [0.9, 0.9, 0.9], False),
    ],
)
def test_validation_that_was_never_good(val_loss, val_accuracy, named):
    recording = logged(loss=[1.5, 0.4, 0.05], val_loss=val_loss, accuracy=[0.4, 0.9, 0.99], val_accuracy=val_accuracy)
    finding = found(described(recording, SPARSE, "softmax", 10), "validation_mismatch")
    assert bool(finding) == named
    if finding:
        assert finding.evidence["last logs/val_loss"] == 2.0
        assert finding.evidence["best logs/val_accuracy"] == 0.3


def test_training_data_that_are_not_learned_say_nothing_of_the_validation():
    recording = logged(loss=[2.0, 1.9, 0.2], val_loss=[2.0, 2.1, 2.2], accuracy=[0.1] * 3, val_accuracy=[0.1] * 3)
    assert found(described(recording, SPARSE, "softmax", 10), "validation_mismatch") is None
