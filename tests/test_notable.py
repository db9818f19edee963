import numpy as np
import pytest

from keras_introspect.notable import Notable, depth_ratio, judged_for_death, notable
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def outputs(names, shapes, **statistics):
    recording = Recording()
    epochs = len(next(iter(statistics.values())))
    for epoch in range(epochs):
        recording.add_epoch("layer_outputs", epoch, names, shapes, {key: v[epoch] for key, v in statistics.items()})
    return recording


def with_variables(recording, names):
    recording.add_epoch("weights", 0, names, [(3, 3)] * len(names), {"rms": np.ones(len(names))})
    return recording


@pytest.mark.parametrize("layers", [1, 2, 6, 160])
@pytest.mark.parametrize("epochs", [1, 20])
def test_a_healthy_run_is_left_in_peace(layers, epochs):
    assert notable(synthetic(layers, epochs)) == []


def test_a_sick_run_names_all_that_is_wrong_worst_first():
    entries = notable(synthetic(6, 20, sick=True))
    assert [(e.view, e.name, e.statistic, e.severity) for e in entries] == [
        ("logs", "loss", "nonfinite", "error"),
        ("gradients", "conv_2/bias", "nonfinite", "error"),  # of the backward pass: the last, where the fault enters
        ("gradients", "conv_0/kernel", "rms", "error"),
        ("layer_outputs", "conv_1", "dead_rate", "error"),
        ("layer_outputs", "conv_3", "dead_rate", "warning"),
    ]
    assert entries[0].sentence == "not finite from epoch 16"
    assert entries[1].value == 4 * 17
    assert entries[2].value < 1e-6
    assert entries[3].value == 0.9
    assert entries[3].sentence == "90 % of the channels dead since epoch 9"


def test_limit_keeps_the_worst():
    recording = synthetic(6, 20, sick=True)
    assert notable(recording, limit=2) == notable(recording)[:2]
    assert notable(recording, limit=0) == []


@pytest.mark.parametrize(("rate", "severity"), [(0.04, None), (0.05, "warning"), (0.49, "warning"), (0.5, "error")])
def test_dead_rate_is_named_from_five_percent_and_bad_from_fifty(rate, severity):
    recording = outputs(["relu", "head"], [(None, 64), (None, 3)], dead_rate=[[rate, 0.0]])
    assert [e.severity for e in notable(recording)] == ([] if severity is None else [severity])


def test_a_head_is_never_dead_nor_is_the_copy_of_it():
    shapes = [(None, 8), (None, 2), (None, 2)]
    recording = outputs(["net/relu", "net/head", "net"], shapes, dead_rate=[[0, 0.5, 0.5]], rms=[[1.0, 0.3, 0.3]])
    assert judged_for_death(recording).tolist() == [True, False, False]
    assert notable(recording) == []


def test_what_comes_before_the_first_variables_is_not_judged():
    names, shapes = ["flatten", "dense", "head"], [(None, 784), (None, 8), (None, 3)]
    recording = with_variables(outputs(names, shapes, dead_rate=[[0.1, 0.0, 0.0]]), ["dense/kernel", "head/kernel"])
    assert notable(recording) == []


def test_a_part_of_the_layers_is_judged_all_the_same():
    recording = outputs(["relu_1", "relu_2", "head"], [(None, 8)] * 3, dead_rate=[[0.6, 0.1, 0.0]])
    with_variables(recording, ["dense_1/kernel", "dense_2/kernel", "head/kernel"])
    assert [e.name for e in notable(recording)] == ["relu_1", "relu_2"]


def test_flattening_makes_no_channels_out_of_places():
    names, shapes = ["conv", "flat", "head"], [(None, 4, 4, 2), (None, 32), (None, 3)]
    recording = with_variables(outputs(names, shapes, dead_rate=[[0.0, 0.3, 0.0]]), ["conv/kernel", "head/kernel"])
    assert notable(recording) == []


def test_dead_channels_handed_on_are_named_once():
    names, shapes = ["dense", "relu", "dropout", "head"], [(None, 8)] * 4
    recording = outputs(names, shapes, dead_rate=[[0.0, 0.25, 0.25, 0.0]])
    assert [e.name for e in notable(recording)] == ["relu"]


def test_the_last_epoch_decides():
    recording = outputs(["relu", "head"], [(None, 8), (None, 3)], dead_rate=[[0.9, 0.0], [0.0, 0.0]])
    assert notable(recording) == []


def gradients(rms, shapes=None, names=None, **more):
    recording = Recording()
    count = len(rms)
    names = names or [f"layer_{i}/kernel" for i in range(count)]
    recording.add_epoch("gradients", 0, names, shapes or [(8, 8)] * count, {"rms": rms, **more})
    return recording


@pytest.mark.parametrize(
    ("rms", "severity"),
    [([1e-4, 1e-3, 1e-2], None), ([1e-6, 1e-4, 1e-2], "warning"), ([1e-9, 1e-4, 1e-2], "error"), ([1, 0.1, 0.1], None)],
)
def test_vanishing_is_judged_along_the_depth(rms, severity):
    entries = notable(gradients(rms))
    assert [e.severity for e in entries] == ([] if severity is None else [severity])
    if entries:
        assert entries[0].name == "layer_0/kernel"
        assert entries[0].value == pytest.approx(rms[0] / rms[-1])
        assert "vanish" in entries[0].sentence


def test_exploding():
    (entry,) = notable(gradients([1000.0, 1.0, 0.1]))
    assert (entry.severity, entry.value) == ("error", pytest.approx(1e4))
    assert "explode" in entry.sentence


def test_small_everywhere_is_not_vanishing():
    assert notable(gradients([1e-12, 2e-12, 1e-12])) == []


def test_a_small_first_kernel_may_have_a_large_rms():
    shapes = [(3, 3, 3, 8), (2048, 1000)]
    assert notable(gradients([1.0, 0.01], shapes)) == []


def test_biases_and_embeddings_are_no_measure_of_depth():
    names = ["embedding/embeddings", "scale/gamma", "a/kernel", "b/kernel", "b/bias"]
    shapes = [(20000, 8), (8,), (8, 8), (8, 8), (8,)]
    recording = gradients([1e-8, 1e-8, 0.1, 0.2, 1e3], shapes, names)
    assert depth_ratio(recording) == ("gradients", "a/kernel", "b/kernel", pytest.approx(0.5), pytest.approx(0.5))
    assert notable(recording) == []


def test_a_gradient_that_is_exactly_zero_is_named_once():
    entries = notable(gradients([0.0, 0.0, 0.1]))
    assert [(e.name, e.value, e.severity) for e in entries] == [("layer_0/kernel", 0.0, "error")]
    assert "2" not in entries[0].name
    assert "1 more" in entries[0].sentence


def test_non_finite_names_where_the_fault_entered():
    recording = Recording()
    names, shapes = ["a", "b", "c"], [(None, 4)] * 3
    recording.add_epoch("layer_outputs", 0, names, shapes, {"nonfinite": [0, 0, 0]})
    recording.add_epoch("layer_outputs", 1, names, shapes, {"nonfinite": [0, 5, 7]})
    recording.add_epoch("gradients", 1, ["a/k", "b/k", "c/k"], [(4, 4)] * 3, {"nonfinite": [3, 3, 0]})
    entries = notable(recording)
    assert [(e.view, e.name, e.value) for e in entries] == [("layer_outputs", "b", 5.0), ("gradients", "b/k", 3.0)]
    assert entries[0].sentence == "5 non-finite values, first in epoch 1; 1 more tensor"


def test_update_ratio_far_out_is_named_but_not_of_biases():
    recording = Recording()
    names, shapes = ["a/kernel", "a/bias", "b/kernel", "c/kernel"], [(8, 8), (8,), (8, 8), (8, 8)]
    recording.add_epoch("updates", 0, names, shapes, {"update_ratio": [1e-3, 5.0, 0.3, 2.0]})
    assert [(e.name, e.severity) for e in notable(recording)] == [("c/kernel", "error"), ("b/kernel", "warning")]


def test_oscillation_beyond_chance_is_named_and_noise_is_not():
    steps = 100
    recording = gradients([0.1, 0.1], oscillation=[0.99, 0.9], count=[64 * steps] * 2)
    assert [(e.name, e.statistic) for e in notable(recording)] == [("layer_0/kernel", "oscillation")]


def test_an_empty_recording_has_nothing_notable():
    assert notable(Recording()) == []


def test_missing_validation_epochs_are_no_fault():
    recording = Recording()
    for epoch in range(4):
        recording.add_logs(epoch, {"loss": 1.0} | ({"val_loss": 1.0} if epoch % 2 else {}))
    recording.add_epoch("weights", 4, ["a"], [(2, 2)], {"rms": [1.0]})  # its logs are not yet there
    assert notable(recording) == []


@pytest.mark.parametrize(("argument", "limit"), [("run.npz", 10), (None, 10), (Recording(), -1)])
def test_bad_input(argument, limit):
    with pytest.raises(ValueError, match="notable"):
        notable(argument, limit)


def test_entries_are_plain_values():
    entry = notable(synthetic(6, 20, sick=True))[0]
    assert isinstance(entry, Notable)
    assert isinstance(entry.value, float)
