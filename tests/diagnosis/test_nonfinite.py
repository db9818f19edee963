import numpy as np
import pytest

from diagnosis.made_up import described, found, kernels, logged, outputs, recorded

NAMES, SHAPES = ["a", "b", "head"], [(None, 4)] * 3


def test_the_layer_and_the_epoch_of_birth_are_named():
    recording = outputs(NAMES, nonfinite=[[0, 0, 0], [0, 5, 7]], count=[[64] * 3, [59, 59, 57]])
    kernels("weights", [[1.0], [1.0]], recording, nonfinite=[[0], [3]])
    finding = found(recording, "nonfinite")
    assert (finding.severity, finding.where, finding.since, finding.view) == ("error", ("b",), 1, "layer_outputs")
    assert "5 non-finite values" in finding.summary
    assert "forward pass" in finding.summary
    assert finding.evidence["layer_outputs/nonfinite b"] == 5


@pytest.mark.parametrize(("of_outputs", "of_gradients", "way"), [(32, 64, "backward"), (64, 64, "forward")])
def test_what_was_hit_in_most_of_the_steps_was_hit_first(of_outputs, of_gradients, way):
    """Of four steps of 32 elements: gradients that went first are bad in one step more than the outputs after them."""
    recording = outputs(["a", "head"], nonfinite=[[of_outputs, 0]], count=[[128 - of_outputs, 128]])
    count = [[128 - of_gradients] * 2]
    kernels("gradients", [[1.0, 1.0]], recording, nonfinite=[[of_gradients] * 2], count=count)
    logged(recording, loss=[np.nan], accuracy=[0.1])
    finding = found(recording, "nonfinite")
    assert way in finding.summary
    assert finding.where == (("layer1/kernel",) if way == "backward" else ("a",))  # the backward pass starts at the end


def test_with_step_series_the_step_is_exact():
    recording = outputs(NAMES, nonfinite=[[0, 0, 0], [0, 9, 9]])
    recording.add_steps("layer_outputs", [4, 5, 6], NAMES, SHAPES, {"nonfinite": [[0, 0, 0], [0, 0, 3], [0, 6, 6]]})
    finding = found(recording, "nonfinite")
    assert (finding.step, finding.where, finding.since) == (5, ("head",), 1)
    assert "since step 5" in str(finding)


def test_the_first_step_is_exact_too():
    count, steps = [[64, 64, 64], [40, 40, 40]], [[np.nan] * 3, [13, 12, 13]]
    recording = outputs(NAMES, nonfinite=[[0, 0, 0], [24, 24, 24]], count=count, first_nonfinite_step=steps)
    of_gradients = [[np.nan, np.nan], [11, 12]]
    bad = [[0, 0], [99, 99]]
    kernels("gradients", [[1.0, 1.0]] * 2, recording, nonfinite=bad, first_nonfinite_step=of_gradients)
    finding = found(recording, "nonfinite")
    assert (finding.view, finding.where, finding.step) == ("gradients", ("layer0/kernel",), 11)


def test_the_loss_alone_tells_the_epoch():
    finding = found(logged(loss=[1.0, np.inf, np.nan], accuracy=[0.5, 0.4, 0.1]), "nonfinite")
    assert (finding.where, finding.since, finding.view) == (("loss",), 1, "logs")


def test_logs_without_a_loss_in_some_epochs_are_no_fault():
    recording = logged(loss=[1.0, 0.5])
    kernels("weights", [[1.0]] * 3, recording)  # the logs of the last epoch are not yet there
    assert found(recording, "nonfinite") is None


def test_a_loss_that_is_nan_to_the_end_is_one_even_alone():
    assert found(logged(loss=[1.0, np.nan, np.nan]), "nonfinite").since == 1


def test_overflowing_steps_of_a_loss_scale_are_no_fault():
    recording = kernels("gradients", [[1.0, 1.0]], nonfinite=[[64, 64]])
    kernels("weights", [[1.0, 1.0]], recording, nonfinite=[[0, 0]])
    assert found(recording, "nonfinite").severity == "error"
    described(recording, optimizer={"name": "Adam", "loss_scaled": True})
    assert found(recording, "nonfinite") is None


def test_what_never_reaches_the_loss_is_a_remark():
    recording = outputs(["mask", "b", "head"], nonfinite=[[12, 0, 0]])
    kernels("gradients", [[1.0]], recording, nonfinite=[[0]])
    logged(recording, loss=[0.5])
    assert found(recording, "nonfinite").severity == "info"


def test_a_finite_run():
    assert found(outputs(NAMES, nonfinite=[[0, 0, 0]]), "nonfinite") is None


def test_after_the_birth_nothing_else_is_judged():
    """Dead units of an epoch whose weights are NaN say nothing."""
    dead = recorded("layer_outputs", ["relu", "head"], [(None, 8), (None, 2)], dead_rate=[[0, 0], [1, 0], [1, 0]])
    assert found(dead, "dead_units") is not None
    kernels("weights", [[1.0], [np.nan], [np.nan]], dead, nonfinite=[[0], [64], [64]])
    assert found(dead, "dead_units") is None
