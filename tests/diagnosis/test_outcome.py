import numpy as np
import pytest

from diagnosis.made_up import described, found, kernels, logged

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


def test_stopped_early_is_a_remark():
    assert found(logged(loss=list(np.linspace(2, 1, 10))), "stopped_early").severity == "info"
    settled = [2.0, 1.0, 0.8, 0.75, 0.73, 0.72, 0.72, 0.719, 0.719, 0.719]
    assert found(logged(loss=settled), "stopped_early") is None


def test_stopped_half_way_is_a_warning():
    falling = list(np.linspace(2.3, 1.9, 10))
    assert found(classified(falling, [0.3] * 10), "stopped_early").severity == "warning"
    assert found(classified(falling, [0.8] * 10), "stopped_early").severity == "info"
    assert (
        found(classified(list(np.linspace(2.3, 2.25, 10)), [0.1] * 10), "stopped_early") is None
    )  # it fell by nothing


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
