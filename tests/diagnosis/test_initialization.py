import numpy as np
import pytest

from diagnosis.made_up import described, found, kernels, logged, recorded
from keras_introspect.diagnosis.rules import LargeInitialization

VARIABLES = ["a/kernel", "a/bias", "b/kernel", "b/bias"]
SHAPES = [(8, 8), (8,), (8, 4), (4,)]


def weights(mean, std, epochs=2):
    """The same in each epoch, but for the means, which move."""
    means = [[m * (1 + 0.1 * epoch) for m in mean] for epoch in range(epochs)]
    return recorded("weights", VARIABLES, SHAPES, mean=means, std=[std] * epochs)


def test_units_that_stay_equal():
    finding = found(weights([0.01, 0.02, 0.01, 0.03], [0.01, 0.0, 0.01, 0.01]), "constant_initialization")
    assert (finding.severity, finding.where) == ("error", ("a/bias",))


def test_units_that_differ():
    assert found(weights([0.01, 0.02, 0.01, 0.03], [0.1, 0.01, 0.1, 0.01]), "constant_initialization") is None


def test_a_bias_that_never_moved_is_as_it_was_made():
    recording = recorded("weights", VARIABLES, SHAPES, mean=[[0, 1, 0, 0]] * 2, std=[[0.1, 0, 0.1, 0]] * 2)
    assert found(recording, "constant_initialization") is None


def test_one_layer_that_starts_at_zero_is_on_purpose():
    """As the heads of many models do, or the last layer of a residual branch."""
    recording = recorded("weights", VARIABLES, SHAPES, mean=[[0.1, 0, 0, 0]], std=[[0.1, 0.1, 0, 0]])
    assert found(recording, "constant_initialization") is None


def test_several_layers_of_zeros():
    recording = recorded("weights", VARIABLES, SHAPES, mean=[[0, 0, 0, 0]] * 2, std=[[0, 0, 0, 0.1]] * 2)
    assert found(recording, "constant_initialization").where == ("a/kernel", "b/kernel")


@pytest.mark.parametrize(("last", "named"), [(0.0, True), (0.1, False)])
def test_an_embedding_that_is_constant_to_the_end(last, named):
    names, shapes = ["users/embeddings", "items/embeddings"], [(40, 6)] * 2
    std = [[0.0, 0.0], [last, last]]
    recording = recorded("weights", names, shapes, mean=[[0.0, 0.0]] * 2, std=std)
    layers = [{"name": "users", "class": "Embedding"}, {"name": "items", "class": "Embedding"}]
    finding = found(described(recording, layers=layers), "constant_initialization")
    assert (finding and finding.where) == (tuple(names) if named else None)


def test_two_units_may_be_equal_by_chance():
    recording = recorded("weights", ["a/bias"], [(2,)], mean=[[0.1], [0.2]], std=[[0.0]] * 2)
    assert found(recording, "constant_initialization") is None


def test_the_initialiser_is_named():
    recording = weights([0.01, 0.02, 0.01, 0.03], [0.01, 0.0, 0.01, 0.0])
    layer = {"name": "a", "class": "Dense", "units": 8, "kernel_initializer": {"class": "Constant", "value": 0.01}}
    described(recording, layers=[layer])
    assert "(a)" in found(recording, "constant_initialization").cause


@pytest.mark.parametrize(("rms", "named"), [(0.99, False), (1.01, True)])
def test_large_initialization(rms, named):
    """Of 64 inputs, √inputs is 8."""
    recording = kernels("updates", [[1e-3, 1e-3]], kernels("weights", [[rms, 0.1]], shape=(64, 8)), shape=(64, 8))
    recording = kernels("gradients", [[1e-3, 1e-3]], recording, shape=(64, 8), count=[[64 * 8 * 10] * 2])
    finding = found(recording, "large_initialization")
    assert bool(finding) == named
    if finding:
        assert finding.where == ("layer0/kernel",)
        assert finding.since == 0
        assert list(finding.evidence.values()) == [pytest.approx(rms * 8)]


@pytest.mark.parametrize(
    ("gain", "kind", "named"),
    [(2.0, "SimpleRNNCell", True), (1.4, "SimpleRNNCell", False), (2.0, "LSTMCell", False), (2.0, "GRUCell", False)],
)
def test_a_recurrent_kernel_that_multiplies_its_state(gain, kind, named):
    names, shapes = ["rnn/cell/kernel", "rnn/cell/recurrent_kernel"], [(4, 16), (16, 16)]
    recording = recorded("weights", names, shapes, rms=[[0.3, gain / 4]] * 2)
    recorded("updates", names, shapes, recording, rms=[[1e-4] * 2] * 2, count=[[640, 2560]] * 2)
    described(recording, layers=[{"name": "rnn/cell", "class": kind}])
    finding = found(recording, "large_initialization")
    assert bool(finding) == named
    if finding:
        assert finding.where == (names[1],)
        assert "its state at each step by about 2" in finding.summary


@pytest.mark.parametrize(("kind", "named"), [("DepthwiseConv2D", False), ("Conv2D", True)])
def test_a_depthwise_kernel_takes_each_channel_by_itself(kind, named):
    """0.5 × √(3 · 3) is 1.5, and times √400 it is 30."""
    shape = (3, 3, 400, 1)
    recording = recorded("weights", ["conv/kernel"], [shape], rms=[[0.5]])
    recorded("updates", ["conv/kernel"], [shape], recording, rms=[[1e-4]], count=[[3.6e4]])
    described(recording, layers=[{"name": "conv", "class": kind}])
    assert bool(found(recording, "large_initialization")) == named


@pytest.mark.parametrize("name", ["glorot", "he", "lecun"])
def test_usual_initialisers_are_left_in_peace(name):
    random = np.random.default_rng(0)
    for shape in ((1, 64), (64, 1), (3, 3, 3, 64), (1000, 1000)):
        inputs, outputs = np.prod(shape[:-1]), np.prod(shape[:-2]) * shape[-1]
        variance = {"glorot": 2 / (inputs + outputs), "he": 2 / inputs, "lecun": 1 / inputs}[name]
        size = np.sqrt(np.mean(random.normal(0, np.sqrt(variance), int(np.prod(shape))) ** 2))
        recording = kernels("updates", [[1e-4]], kernels("weights", [[size]], shape=shape), shape=shape, count=[[1e4]])
        assert found(recording, "large_initialization") is None


def test_weights_that_the_first_epoch_made_large_did_not_start_so():
    shape = (64, 8)
    recording = kernels("weights", [[2.0]], shape=shape)
    kernels("updates", [[0.02]], recording, shape=shape, count=[[512 * 100]])  # 100 steps
    assert found(recording, "large_initialization") is None


def test_without_updates_the_configured_initialiser_tells():
    recording = logged(kernels("weights", [[3.0]], shape=(64, 8)), loss=[1.0])
    assert found(recording, "large_initialization") is None
    start = {"class": "RandomNormal", "mean": 0.0, "stddev": 3.0}
    described(recording, layers=[{"name": "layer0", "class": "Dense", "kernel_initializer": start}])
    assert "stddev=3.0" in found(recording, "large_initialization").cause
    assert found(recording, "large_initialization", rules=[LargeInitialization(gain=30)]) is None
