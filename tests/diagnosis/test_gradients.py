import numpy as np
import pytest

from diagnosis.made_up import described, found, kernels, logged, outputs, recorded


def chain(*rms, epochs=3, recording=None, **arguments):
    """Gradients of a chain of kernels, the same in each epoch."""
    return kernels("gradients", [list(rms)] * epochs, recording, **arguments)


@pytest.mark.parametrize(
    ("rms", "severity"), [([1e-5, 1e-3, 9e-3], None), ([1e-6, 1e-4, 1e-2], "warning"), ([1e-9, 1e-4, 1e-2], "error")]
)
def test_vanishing(rms, severity):
    finding = found(chain(*rms), "vanishing_gradients")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.where == ("layer0/kernel",)
        assert finding.evidence["ratio first over last, of rms"] == pytest.approx(rms[0] / rms[-1])


def test_a_deep_chain_may_vanish_by_halves():
    """0.45⁷ is 4e-3: above 1e-3, but each layer hands on less than half."""
    rms = [0.45**i for i in range(8)][::-1]
    assert found(chain(*rms), "vanishing_gradients").severity == "warning"
    assert found(logged(chain(*rms), loss=[1.0, 0.1, 0.01]), "vanishing_gradients") is None  # it has learned
    assert found(chain(*[0.6**i for i in range(8)][::-1]), "vanishing_gradients") is None


def test_small_everywhere_is_not_vanishing():
    assert found(chain(1e-12, 2e-12, 1e-12), "vanishing_gradients") is None


def test_small_kernels_near_the_input_may_have_small_norms():
    """Of a kernel of 27 elements under one of 2 million the norm says little; the rms must be small too."""
    shapes = [(3, 3, 3, 1), (2048, 1000)]
    recording = recorded("gradients", ["a/kernel", "b/kernel"], shapes, rms=[[1e-3, 1e-2]] * 3)
    assert found(recording, "vanishing_gradients") is None


def test_small_gradients_of_small_weights_do_not_vanish():
    recording = chain(1e-6, 1e-2)
    kernels("weights", [[1e-5, 1.0]] * 3, recording)
    assert found(recording, "vanishing_gradients") is None
    recording = chain(1e-6, 1e-2)
    kernels("weights", [[1.0, 1.0]] * 3, recording)
    assert found(recording, "vanishing_gradients") is not None


def test_embeddings_and_biases_are_no_measure_of_the_depth():
    names = ["embedding/embeddings", "a/bias", "a/kernel", "b/kernel"]
    recording = recorded("gradients", names, [(99, 8), (8,), (8, 8), (8, 8)], rms=[[1e-9, 1e-9, 0.1, 0.2]] * 3)
    assert found(recording, "vanishing_gradients") is None


def test_queries_and_keys_are_no_measure_of_the_depth():
    """Their gradients are tiny as long as attention is even."""
    names = ["attention/query/kernel", "attention/key/kernel", "attention/value/kernel", "head/kernel"]
    recording = recorded("gradients", names, [(8, 2, 4)] * 3 + [(8, 8)], rms=[[1e-7, 1e-7, 1e-2, 1e-2]] * 3)
    assert found(recording, "vanishing_gradients") is None
    recording = recorded("gradients", ["first/kernel", *names[1:]], [(8, 8)] * 4, rms=[[1e-7, 1e-7, 1e-2, 1e-2]] * 3)
    assert found(recording, "vanishing_gradients").where == ("first/kernel",)


def test_one_epoch_of_many_is_not_enough():
    rms = [[0.1, 0.1]] * 5 + [[1e-8, 0.1]]
    assert found(kernels("gradients", rms), "vanishing_gradients") is None
    assert found(kernels("gradients", rms[:3] + rms[5:] * 3), "vanishing_gradients").since == 3


def test_vanishing_that_does_no_harm_is_a_remark():
    recording = logged(chain(1e-9, 1e-4, 1e-2), loss=[1.0, 0.1, 0.01])
    assert found(recording, "vanishing_gradients").severity == "info"


DENSE = {"kernel_initializer": {"class": "RandomNormal"}}


def shrinking(factor, layers=6, accuracy=0.5, **more):
    """Outputs of which each layer hands on this part, in the first epoch; gradients of one size."""
    names = [f"layer{i}" for i in range(layers)] + ["head"]
    first = [factor**i for i in range(layers)] + [0.3]
    recording = outputs(names, 10, rms=[first, [0.3] * (layers + 1), [0.3] * (layers + 1)])
    chain(*[0.1] * (layers + 1), recording=recording)
    logged(recording, loss=[2.3, 1.5, 1.0], accuracy=[0.1, 0.3, accuracy])
    about = [{"name": name, "class": "Dense", **DENSE} for name in names]
    return described(recording, "categorical_crossentropy", "softmax", 10, layers=about, **more)


@pytest.mark.parametrize(
    ("factor", "layers", "accuracy", "named"),
    [(0.5, 6, 0.5, True), (0.75, 12, 0.5, False), (0.5, 3, 0.5, False), (0.5, 6, 0.95, False), (1.0, 6, 0.5, False)],
)
def test_outputs_that_shrink_from_the_start(factor, layers, accuracy, named):
    finding = found(shrinking(factor, layers, accuracy), "vanishing_gradients")
    assert bool(finding) == named
    if finding:
        assert finding.where == tuple(f"layer{i}" for i in range(layers))
        assert f"{1 / factor ** (layers - 1):.0f} times smaller" in finding.summary


@pytest.mark.parametrize(
    ("activation", "steps", "accuracy", "named"),
    [("sigmoid", 40, 0.5, True), ("tanh", 40, 0.5, False), ("sigmoid", 4, 0.5, False), ("sigmoid", 40, 0.97, False)],
)
def test_gradients_that_vanish_over_the_steps_of_a_sequence(activation, steps, accuracy, named):
    """A recurrent kernel of gain 1 under a sigmoid, of slope a quarter at most: 0.25⁴⁰ is 1e-24."""
    variables = ["rnn/simple_rnn_cell/kernel", "rnn/simple_rnn_cell/recurrent_kernel", "head/kernel"]
    shapes = [(1, 16), (16, 16), (16, 1)]
    recording = recorded("weights", variables, shapes, rms=[[0.3, 0.25, 0.3]] * 3)
    recorded("gradients", variables, shapes, recording, rms=[[0.1, 0.1, 0.1]] * 3)
    logged(recording, loss=[0.7, 0.69, 0.69], accuracy=[0.5, 0.5, accuracy])
    recording.metadata["data"] = {"inputs": [{"name": "", "shape": [steps, 1]}]}
    cell = {"name": "rnn/simple_rnn_cell", "class": "SimpleRNNCell", "activation": activation}
    described(recording, "binary_crossentropy", "sigmoid", 1, layers=[cell])
    finding = found(recording, "vanishing_gradients")
    assert bool(finding) == named
    if finding:
        assert finding.evidence == {"slope × gain of the recurrent kernel": 0.25, "time steps": 40}


@pytest.mark.parametrize(("shapes", "named"), [([(None, 16, 4)], False), ([(None, 64, 4)], True), ([], False)])
def test_the_steps_of_a_sequence_are_those_that_come_to_the_layer(shapes, named):
    """Of 1024 steps a strided convolution leaves 16, or 64; without it, the input has not the features."""
    names = ["conv", "net/rnn", "head"][-2 - len(shapes) :]
    variables = ["net/rnn/simple_rnn_cell/kernel", "net/rnn/simple_rnn_cell/recurrent_kernel"]
    recording = recorded("layer_outputs", names, [*shapes, (None, 16), (None, 1)], rms=[[1.0] * len(names)] * 3)
    recorded("weights", variables, [(4, 16), (16, 16)], recording, rms=[[0.3, 0.175]] * 3)  # a gain of 0.7
    recorded("gradients", variables, [(4, 16), (16, 16)], recording, rms=[[0.1, 0.1]] * 3)
    logged(recording, loss=[0.7, 0.69, 0.69], accuracy=[0.5] * 3)
    recording.metadata["data"] = {"inputs": [{"name": "", "shape": [1024, 1]}]}
    cell = {"name": "net/rnn/simple_rnn_cell", "class": "SimpleRNNCell", "activation": "tanh"}
    described(recording, "binary_crossentropy", "sigmoid", 1, layers=[cell])
    assert bool(found(recording, "vanishing_gradients")) == named  # 0.7⁶⁴ is 1e-10


def test_exploding_along_the_depth():
    assert found(chain(1e4, 10.0, 1.0), "exploding_gradients").severity == "error"
    assert found(chain(9e2, 10.0, 1.0), "exploding_gradients") is None


def test_convolutions_that_add_up_over_positions_do_not_explode():
    shapes = [(3, 3, 3, 8), (2048, 1000)]
    recording = recorded("gradients", ["a/kernel", "b/kernel"], shapes, rms=[[20.0, 0.01]] * 3)
    assert found(recording, "exploding_gradients") is None  # of norms the ratio is 20


def test_exploding_over_time():
    grown = [[0.1, 0.2], [10.0, 20.0], [1e4, 2e4]]
    finding = found(kernels("weights", [[1.0, 1.0]] * 3, kernels("gradients", grown)), "exploding_gradients")
    assert finding.severity == "error"
    assert finding.since == 2
    wide = kernels("weights", [[1e4, 1e4]] * 3, kernels("gradients", grown))  # and small against the weights
    assert found(wide, "exploding_gradients") is None


def test_exploding_activations_along_the_depth():
    rms = [[1.0, 50.0, 4e3, 1e6, 1.0]] * 2
    finding = found(outputs(["a", "b", "c", "d", "head"], rms=rms), "exploding_activations")
    assert finding.where == ("d", "c")
    assert found(outputs(["a", "b", "c", "head"], rms=[[1.0, 50.0, 9e2, 1e9]]), "exploding_activations") is None


def test_inputs_that_bring_their_scale_along_do_not_explode():
    rms = [[1e4, 2e4, 3e4, 1.0]] * 2
    assert found(outputs(["a", "b", "c", "head"], rms=rms), "exploding_activations") is None


def test_exploding_activations_over_time():
    rms = [[1.0, 1.0, 1.0], [30.0, 40.0, 1.0], [5e3, 6e3, 1.0]]
    finding = found(outputs(["a", "b", "head"], rms=rms), "exploding_activations")
    assert finding.since == 2
    assert "epoch 0" in finding.summary


def test_a_residual_stream_may_grow():
    rms = [[np.sqrt(i + 1.0) for i in range(100)] + [1.0]]
    names = [f"add{i}" for i in range(100)] + ["head"]
    assert found(outputs(names, rms=rms), "exploding_activations") is None


def test_no_gradient():
    finding = found(chain(0.0, 0.0, 0.1, 0.1, 0.1), "no_gradient")
    assert (finding.severity, finding.where) == ("warning", ("layer0/kernel", "layer1/kernel"))
    assert finding.since == 0
    assert found(chain(0.0, 0.0, 0.0, 0.1), "no_gradient").severity == "error"
    assert found(chain(1e-30, 0.1), "no_gradient") is None


def test_one_epoch_without_a_gradient_passes():
    assert found(kernels("gradients", [[0.1, 0.1], [0.0, 0.1]]), "no_gradient") is None


def test_biases_may_have_no_gradient():
    recording = recorded("gradients", ["a/kernel", "a/bias"], [(4, 4), (4,)], rms=[[0.1, 0.0]] * 2)
    assert found(recording, "no_gradient") is None


def test_kernels_that_no_optimizer_saw():
    recording = chain(0.1, 0.1)
    recording.unobserved = {
        "side/kernel": "gradients: no gradient reached an optimizer of the model in the step",
        "words/embeddings": "gradients: no gradient reached an optimizer of the model in the step",
        "side/bias": "gradients: no gradient reached an optimizer of the model in the step",
        "head": "output_gradients: another reason",
    }
    finding = found(recording, "no_gradient")
    assert finding.where == ("side/kernel", "words/embeddings")
    assert "does not depend" in finding.cause


def unmoved(*updates):
    recording = kernels("gradients", [[0.1] * len(updates)] * 3)
    return kernels("updates", [list(updates)] * 3, recording)


def test_unchanged_weights():
    finding = found(unmoved(0.0, 1e-3, 1e-3), "unchanged_weights")
    assert (finding.severity, finding.where) == ("warning", ("layer0/kernel",))
    assert found(unmoved(0.0, 0.0), "unchanged_weights").severity == "error"
    assert found(unmoved(1e-9, 1e-3), "unchanged_weights") is None


@pytest.mark.parametrize("frozen", [2, 1])
def test_a_model_of_which_nothing_trains(frozen):
    layers = [{"name": f"layer{i}", "class": "Dense", "trainable": i >= frozen, **DENSE} for i in range(2)]
    recording = described(logged(outputs(["layer0", "layer1"], rms=[[1.0, 1.0]] * 3), loss=[2.3] * 3), layers=layers)
    assert found(recording, "unchanged_weights") is None  # another part of the model may train, if nobody looked
    recording.metadata["collectors"] = [{"collector": "Weights"}]
    finding = found(recording, "unchanged_weights")
    assert bool(finding) == (frozen == 2)
    if finding:
        assert (finding.severity, finding.where) == ("error", ("layer0", "layer1"))


def test_what_no_gradient_reaches_is_another_fault():
    recording = kernels("updates", [[0.0, 1e-3]] * 3, kernels("gradients", [[0.0, 0.1]] * 3))
    assert found(recording, "unchanged_weights") is None


def test_without_updates_the_weights_tell():
    recording = kernels("gradients", [[0.1, 0.1]] * 4)
    moving = [[1.0, 1.0], [1.0, 1.1], [1.0, 1.2], [1.0, 1.3]]
    kernels("weights", moving, recording, mean=moving)
    assert found(recording, "unchanged_weights").where == ("layer0/kernel",)
