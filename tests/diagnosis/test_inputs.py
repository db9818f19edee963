import pytest

from diagnosis.made_up import described, found, logged, outputs, recorded

NAMES, SHAPES = ["dense/kernel", "dense/bias", "head/kernel", "head/bias"], [(4, 8), (8,), (8, 2), (2,)]


def data(recording, what="inputs", mean=0.0, std=1.0, **more):
    about = {"name": "x", "dtype": "float32", "mean": mean, "std": std, "min": mean - 3 * std, "max": mean + 3 * std}
    recording.metadata["data"] = {what: [{**about, **more}]}
    return recording


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ({"mean": 0.0, "std": 1.0}, False),
        ({"mean": 0.3, "std": 0.3}, False),  # pixels from 0 to 1
        ({"mean": 3.5, "std": 2.0}, False),  # centimetres of flowers
        ({"mean": 33.0, "std": 78.0}, True),  # pixels from 0 to 255
        ({"mean": 0.0, "std": 2000.0}, True),
        ({"mean": 0.0, "std": 10.0, "feature_std_min": 0.1, "feature_std_max": 90.0}, True),
        ({"mean": 0.0, "std": 1.0, "feature_std_min": 0.5, "feature_std_max": 2.0}, False),
        ({"mean": 1e-3, "std": 1e-3}, True),  # divided by 255 twice
        ({"mean": 1e-3, "std": 5e-3, "max": 1.0}, False),  # sparse: a few ones
    ],
)
def test_described_inputs(about, named):
    finding = found(data(logged(loss=[1.0, 0.9]), **about), "unscaled_inputs")
    assert bool(finding) == named
    if finding:
        assert finding.severity == "warning"
        assert finding.where == ("inputs",)


def test_an_input_beside_an_embedding_is_judged_by_itself():
    layers = [{"name": name, "class": name.capitalize()} for name in ("embedding", "dense")]
    recording = described(data(logged(loss=[1.0, 0.9]), std=5000.0), layers=layers)
    assert found(recording, "unscaled_inputs") is None  # the only input is what the embedding looks up
    numbers = {"name": "1", "dtype": "float32", "mean": 0.0, "std": 4000.0, "min": -1e4, "max": 1e4}
    recording.metadata["data"]["inputs"][0] |= {"name": "0", "integers": True}
    recording.metadata["data"]["inputs"].append(numbers)
    finding = found(recording, "unscaled_inputs")
    assert finding.evidence == {"rms of input 1": 4000.0}
    assert finding.summary.startswith("input 1 has rms 4e+03")
    recording.metadata["data"]["inputs"][1] |= {"std": 1.0, "min": -3.0, "max": 3.0}
    assert found(recording, "unscaled_inputs") is None


def first_layer(ratio, names=NAMES):
    """Gradients of a first layer whose kernel has `ratio` times the rms of the bias."""
    return recorded("gradients", names, SHAPES, rms=[[0.1 * ratio, 0.1, 0.1, 0.1]] * 2)


def test_the_size_of_the_inputs_follows_from_the_gradients():
    finding = found(first_layer(100.0), "unscaled_inputs")
    assert finding.evidence == {"gradients/rms dense/kernel over dense/bias": pytest.approx(100.0)}
    assert found(first_layer(1.0), "unscaled_inputs") is None


def test_a_model_that_scales_its_inputs_is_not_judged():
    recording = described(first_layer(100.0), layers=[{"name": "scale", "class": "Rescaling"}])
    assert found(recording, "unscaled_inputs") is None
    described(recording, layers=[{"name": "dense", "class": "Dense"}])
    assert found(recording, "unscaled_inputs") is not None


def test_a_frozen_start_was_trained_on_inputs_of_that_scale():
    layer = {"name": "dense", "class": "Dense", "trainable": False, "kernel_initializer": {"class": "GlorotUniform"}}
    assert found(described(first_layer(100.0), layers=[layer]), "unscaled_inputs") is None


def test_inputs_that_were_learned_all_the_same_are_a_remark():
    recording = logged(data(logged(loss=[1.0]), std=100.0), loss=[1.0, 0.01])
    assert found(recording, "unscaled_inputs").severity == "info"


@pytest.mark.parametrize(("std", "losses", "named"), [(500.0, [1e5, 1e5], True), (1.0, [1.0, 1.0], False)])
def test_unscaled_targets(std, losses, named):
    recording = data(logged(loss=losses), "targets", std=std)
    described(recording, "mean_squared_error", "linear", units=1)
    assert bool(found(recording, "unscaled_targets")) == named


def test_the_size_of_the_targets_follows_from_the_first_loss():
    recording = described(logged(loss=[9e6, 8e6, 9e6]), "mean_squared_error", "linear", units=1)
    assert found(recording, "unscaled_targets").evidence == {"first logs/loss": 9e6}
    described(recording, "mean_absolute_error", "linear", units=1)
    assert found(recording, "unscaled_targets") is not None
    described(recording, "sparse_categorical_crossentropy", "softmax")
    assert found(recording, "unscaled_targets") is None


def test_targets_that_were_learned_are_left_in_peace():
    recording = data(logged(loss=[2.5e5, 1e3]), "targets", std=500.0)
    assert found(described(recording, "mean_squared_error", "linear", units=1), "unscaled_targets") is None


def test_constant_inputs():
    assert found(data(logged(loss=[1.0]), mean=0.5, std=0.0), "constant_inputs").severity == "error"
    assert found(data(logged(loss=[1.0]), mean=0.5, std=1e-3), "constant_inputs") is None


@pytest.mark.parametrize(("value", "named"), [(1.0, False), (0.0, True)])
def test_of_a_constant_input_beside_others_zeros_alone_are_a_fault(value, named):
    recording = data(logged(loss=[1.0]), mean=value, std=0.0, name="y")  # ones may be a mask
    recording.metadata["data"]["inputs"].append({"name": "x", "mean": 0.0, "std": 1.0, "min": -3.0, "max": 3.0})
    finding = found(recording, "constant_inputs")
    assert bool(finding) == named
    if finding:  # the first state of a decoder, say
        assert (finding.severity, finding.where) == ("info", ("input y",))
        recording.metadata["data"]["inputs"][0]["shape"] = [4]
        recorded("gradients", NAMES, SHAPES, recording, rms=[[0.0, 0.1, 0.1, 0.1]])
        assert found(recording, "constant_inputs").severity == "warning"  # a kernel of four inputs learns nothing
        recording.metadata["data"]["inputs"][0]["dtype"] = "int32"
        assert found(recording, "constant_inputs").severity == "info"  # as the segments of a text


@pytest.mark.parametrize(("std", "named"), [(0.0, True), (0.5, False)])
def test_a_normalisation_that_leaves_nothing(std, named):
    """In training its offset drifts, in validation it stands still."""
    names, shapes = ["norm", "dense", "head"], [(None, 8)] * 3
    recording = recorded("layer_outputs", names, shapes, std=[[0.01, 1, 1]], mean=[[0.1, 0, 0]])
    recorded("val_layer_outputs", names, shapes, recording, std=[[std, 1, 1]], mean=[[0.1, 0, 0]])
    recorded("weights", ["norm/gamma", "norm/beta", "dense/kernel"], [(8,), (8,), (8, 8)], recording, rms=[[1.0] * 3])
    described(recording, layers=[{"name": "norm", "class": "LayerNormalization"}, {"name": "dense", "class": "Dense"}])
    finding = found(recording, "constant_inputs")
    assert (finding and finding.where) == (("norm",) if named else None)


def test_constant_outputs_of_the_input_layers():
    shapes = [(None, 8)] * 3
    recording = recorded("layer_outputs", ["flatten", "dense", "head"], shapes, std=[[0, 1, 1]], mean=[[0.1, 0, 0]])
    recorded("weights", ["dense/kernel"], [(8, 8)], recording, rms=[[1.0]])
    assert found(recording, "constant_inputs").where == ("flatten",)
    assert found(outputs(["dense", "head"], std=[[0, 1]], mean=[[0, 1]]), "constant_inputs") is None  # another fault
