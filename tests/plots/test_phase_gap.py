import numpy as np
import pytest

from keras_introspect.plots import phase_gap
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def test_both_phases_layer_by_layer():
    recording = synthetic(6, 20, phases=True)
    upper, lower = phase_gap(recording).axes
    training, inference = upper.lines
    np.testing.assert_array_equal(training.get_ydata(), recording["layer_outputs"].epoch("rms")[-1])
    np.testing.assert_array_equal(inference.get_ydata(), recording["val_layer_outputs"].epoch("rms")[-1])
    train, held = recording["layer_outputs"], recording["val_layer_outputs"]
    shift = (held.epoch("mean")[-1] - train.epoch("mean")[-1]) / train.epoch("std")[-1]
    np.testing.assert_allclose([bar.get_height() for bar in lower.patches], shift)
    assert [label.get_text() for label in lower.get_xticklabels()] == list(train.names)


def test_the_epoch_can_be_chosen_and_validation_may_be_rarer():
    recording = Recording()
    for epoch in range(4):
        recording.add_epoch("layer_outputs", epoch, ["a"], [(None, 4)], {"rms": [epoch + 1.0]})
        if epoch % 2:
            recording.add_epoch("val_layer_outputs", epoch, ["a"], [(None, 4)], {"rms": [epoch + 10.0]})
    upper, lower = phase_gap(recording, iterations=[0, 1, 2]).axes
    assert [line.get_ydata().tolist() for line in upper.lines] == [[3.0], [11.0]]
    assert "mean and std were not collected" in lower.get_title(loc="left")


def test_the_widest_gap_is_named():
    upper = phase_gap(synthetic(6, 20, sick=True, phases=True)).axes[0]
    assert upper.get_title(loc="left").endswith("rms ×4 at inference")
    assert upper.get_title(loc="left").startswith("widest gap: ")


def test_layers_of_both_phases_only():
    recording = Recording()
    recording.add_epoch("layer_outputs", 0, ["a", "b"], [(None, 4)] * 2, {"rms": [1.0, 2.0]})
    recording.add_epoch("val_layer_outputs", 0, ["b", "c"], [(None, 4)] * 2, {"rms": [3.0, 4.0]})
    assert [line.get_ydata().tolist() for line in phase_gap(recording).axes[0].lines] == [[2.0], [3.0]]
    with pytest.raises(ValueError, match=r"'a'.*phase=\"both\""):
        phase_gap(recording, layers="a")


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (("gradients",), r"the views 'layer_outputs' and 'val_layer_outputs' in the recording: it has 'gradients'\. "),
        (("layer_outputs",), r"; 'val_layer_outputs' is missing: it has 'layer_outputs'\. "),
        (
            ("val_layer_outputs", "weights"),
            r"; 'layer_outputs' is missing: it has 'val_layer_outputs' and 'weights'\. ",
        ),
        ((), r"in the recording: it has no view, only logs\. "),
    ],
)
def test_both_phases_are_needed(views, message):
    recording = synthetic(2, 2, views=views)
    mend = r"Collect both phases: LayerOutputs\(phase=\"both\"\) in compile\(\), and give fit\(\) validation_data=\."
    with pytest.raises(ValueError, match=message + mend):
        phase_gap(recording)


def test_both_phases_asked_for_but_never_validated():
    recording = synthetic(2, 2)
    recording.metadata["collectors"] = [{"collector": "LayerOutputs", "phase": "both"}]
    with pytest.raises(ValueError, match=r"there was no validation: give fit\(\) validation_data=\."):
        phase_gap(recording)


def test_other_views_have_no_inference_phase():
    with pytest.raises(ValueError, match=r"'val_weights' is missing.*Layer outputs alone .*leave view= out"):
        phase_gap(synthetic(2, 2), view="weights")
    with pytest.raises(ValueError, match=r"view='val_layer_outputs'.*expected that of the training.*'layer_outputs'"):
        phase_gap(synthetic(2, 2, phases=True), view="val_layer_outputs")
