import numpy as np
import pytest

from diagnosis.made_up import described, found, logged, outputs
from keras_introspect.diagnosis import diagnose

HEADS = (
    "softmax_over_one_unit",
    "head_loss_mismatch",
    "logits_as_probabilities",
    "probabilities_as_logits",
    "squared_error_on_classes",
    "labels_out_of_range",
)
SPARSE, CATEGORICAL, BINARY = "sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy"


def head(activation, loss, units=3, low=0.0, high=1.0, from_logits=False, targets=None, **logs):
    recording = outputs(["hidden", "head"], units, min=[[0.0, low]] * 3, max=[[1.0, high]] * 3)
    logged(recording, **{"loss": [1.0, 0.9, 0.8], **logs})
    if targets is not None:
        y = np.asarray(targets, float)
        about = {
            "min": y.min(),
            "max": y.max(),
            "mean": y.mean(),
            "std": y.std(),
            "integers": bool((y == y.round()).all()),
        }
        recording.metadata["data"] = {"targets": [about]}
    return described(recording, loss, activation, units, from_logits)


def kinds(recording):
    return [finding.kind for finding in diagnose(recording, kinds=HEADS)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"activation": "softmax", "loss": "mean_squared_error", "units": 1, "low": 1.0}, "softmax_over_one_unit"),
        ({"activation": "softmax", "loss": BINARY, "units": 1, "low": 1.0}, "softmax_over_one_unit"),
        ({"activation": "sigmoid", "loss": CATEGORICAL}, "head_loss_mismatch"),
        ({"activation": "relu", "loss": SPARSE, "high": 9.0}, "head_loss_mismatch"),
        ({"activation": "tanh", "loss": BINARY, "units": 1, "low": -1.0}, "head_loss_mismatch"),
        ({"activation": "sigmoid", "loss": "poisson", "units": 1}, "head_loss_mismatch"),
        ({"activation": "linear", "loss": SPARSE, "low": -4.0, "high": 5.0}, "logits_as_probabilities"),
        ({"activation": "linear", "loss": BINARY, "units": 1, "low": -4.0, "high": 5.0}, "logits_as_probabilities"),
        ({"activation": "softmax", "loss": SPARSE, "from_logits": True}, "probabilities_as_logits"),
        ({"activation": "sigmoid", "loss": BINARY, "units": 1, "from_logits": True}, "probabilities_as_logits"),
        ({"activation": None, "loss": BINARY, "units": 1, "from_logits": True}, "probabilities_as_logits"),
        ({"activation": "relu", "loss": BINARY, "units": 1, "from_logits": True, "high": 9.0}, "head_loss_mismatch"),
        ({"activation": "softmax", "loss": "mean_squared_error"}, "squared_error_on_classes"),
        ({"activation": "sigmoid", "loss": "mean_absolute_error", "accuracy": [0.5] * 3}, "squared_error_on_classes"),
        ({"activation": "sigmoid", "loss": "mean_squared_error", "targets": [0, 1, 1]}, "squared_error_on_classes"),
        ({"activation": "sigmoid", "loss": BINARY, "units": 1, "targets": [1, 2]}, "labels_out_of_range"),
        ({"activation": "softmax", "loss": SPARSE, "targets": [1, 2, 3]}, "labels_out_of_range"),
        ({"activation": "softmax", "loss": SPARSE, "targets": [0, 1 / 255]}, "labels_out_of_range"),
        ({"activation": "sigmoid", "loss": "mean_squared_error", "targets": [0.5, 25.0]}, "labels_out_of_range"),
        ({"activation": "relu", "loss": "mean_squared_error", "targets": [-3.0, 2.5]}, "labels_out_of_range"),
        ({"activation": "sigmoid", "loss": BINARY, "units": 1, "loss_": [0.1, -3.0, -9.0]}, "labels_out_of_range"),
        (
            {"activation": "softmax", "loss": SPARSE, "loss_": [1.0, 0.1, 0.01], "accuracy": [0.1, 0.1, 0.1]},
            "labels_out_of_range",
        ),
        ({"activation": "sigmoid", "loss": "mean_squared_error", "loss_": [90.0, 80.0, 80.0]}, "labels_out_of_range"),
    ],
)
def test_what_does_not_fit(arguments, expected):
    arguments = dict(arguments)
    logs = {"loss": arguments.pop("loss_")} if "loss_" in arguments else {}
    logs |= {"accuracy": arguments.pop("accuracy")} if "accuracy" in arguments else {}
    recording = head(**arguments)
    assert kinds(logged(recording, **{"loss": [1.0, 0.9, 0.8], **logs})) == [expected]


@pytest.mark.parametrize(
    "arguments",
    [
        {"activation": "softmax", "loss": SPARSE, "targets": [0, 1, 2]},
        {"activation": "softmax", "loss": CATEGORICAL, "targets": [0, 1]},
        {"activation": None, "loss": BINARY, "units": 1, "from_logits": True, "low": -0.1},
        {"activation": None, "loss": SPARSE, "from_logits": True},  # from 0 to 1, but whether they sum to 1 is unknown
        {"activation": "relu", "loss": SPARSE, "from_logits": True, "high": 9.0},
        {"activation": "linear", "loss": SPARSE, "from_logits": True, "low": -4.0, "high": 5.0},
        {"activation": "sigmoid", "loss": BINARY, "units": 1, "targets": [0, 1]},
        {"activation": "sigmoid", "loss": BINARY, "units": 5, "targets": [0, 1]},  # several labels at once
        {"activation": "linear", "loss": BINARY, "units": 1, "from_logits": True, "low": -4.0, "high": 5.0},
        {"activation": "linear", "loss": "mean_squared_error", "units": 1, "low": -4.0, "high": 5.0},
        {"activation": "linear", "loss": "mean_absolute_error", "units": 1, "targets": [25, 346]},
        {"activation": "sigmoid", "loss": "mean_squared_error", "units": 64, "targets": [0.0, 0.5, 1.0]},  # pixels
        {"activation": "sigmoid", "loss": "mean_squared_error", "units": 64},
        {"activation": "sigmoid", "loss": BINARY, "units": 64, "targets": [0.0, 0.5, 1.0]},
        {"activation": "tanh", "loss": "mean_squared_error", "units": 3, "low": -1.0, "targets": [-1.0, 1.0]},
        {"activation": "softplus", "loss": "poisson", "units": 1, "high": 9.0, "targets": [0, 7]},
        {"activation": "relu", "loss": "mean_squared_error", "units": 1, "high": 9.0, "targets": [0.0, 7.5]},
        {"activation": "custom", "loss": SPARSE},
        {"activation": "linear", "loss": SPARSE},  # outputs from 0 to 1: a layer of one's own may make probabilities
        {"activation": None, "loss": "a_loss_of_mine"},
    ],
)
def test_what_fits(arguments):
    assert kinds(head(**arguments)) == []


@pytest.mark.parametrize(("mean", "named"), [(1 / 3, True), (0.3, False)])
def test_a_head_without_an_activation_is_judged_by_what_it_puts_out(mean, named):
    """Of three units that sum to 1 the mean is a third."""
    recording = outputs(["hidden", "head"], 3, min=[[0, 0]] * 3, max=[[1, 1]] * 3, mean=[[0.5, mean]] * 3)
    described(logged(recording, loss=[1.0, 0.9, 0.8]), SPARSE, None, from_logits=True)
    recording.metadata["description"]["outputs"] = [{"name": "head", "units": 3}]
    assert kinds(recording) == (["probabilities_as_logits"] if named else [])


@pytest.mark.parametrize(("axis", "named"), [(-1, False), (-2, True)])
def test_a_softmax_over_another_axis(axis, named):
    recording = head("softmax", SPARSE)
    recording.metadata["description"]["outputs"][0]["softmax_axis"] = axis
    assert kinds(recording) == (["head_loss_mismatch"] if named else [])


def test_a_loss_over_another_axis_expects_the_softmax_there():
    recording = head("softmax", CATEGORICAL)
    recording.metadata["description"]["outputs"][0]["softmax_axis"] = -2
    recording.metadata["description"]["losses"][0]["axis"] = -2
    assert kinds(recording) == []


@pytest.mark.parametrize(("ignored", "named"), [(255, False), (None, True)])
def test_labels_that_the_loss_ignores(ignored, named):
    recording = head("softmax", SPARSE, targets=[0, 1, 2, 255])
    if ignored is not None:
        recording.metadata["description"]["losses"][0]["ignore_class"] = ignored
    assert kinds(recording) == (["labels_out_of_range"] if named else [])


@pytest.mark.parametrize(("names", "named"), [(("five", "two"), False), (("two", "five"), True), (("0", "1"), True)])
def test_targets_of_a_dict_belong_to_the_heads_of_their_names(names, named):
    """Targets of five classes come first; the head of two units does. A list goes by its order."""
    recording = logged(outputs(["hidden", "two", "five"], min=[[0] * 3] * 3, max=[[1] * 3] * 3), loss=[1.0, 0.9, 0.8])
    described(recording, SPARSE)
    heads = [
        {"name": "two", "activation": "softmax", "units": 2},
        {"name": "five", "activation": "softmax", "units": 5},
    ]
    recording.metadata["description"]["outputs"] = heads
    about = [
        {"name": name, "min": 0.0, "max": most, "integers": True} for name, most in zip(names, (4.0, 1.0), strict=True)
    ]
    recording.metadata["data"] = {"targets": about}
    assert kinds(recording) == (["labels_out_of_range"] if named else [])


@pytest.mark.parametrize(
    ("targets", "dtype", "named"),
    [
        (np.arange(10), "int64", True),
        (np.arange(3), "uint8", True),
        (np.arange(10), "float32", False),  # a quantity, by its type
        (np.arange(2), "int64", False),  # yes or no
        (np.arange(100), "int64", False),  # as a year or an age
        ([0, 0, 0, 0, 1, 1, 2, 3, 9], "int64", False),  # counts: most are small
        (np.arange(1, 6), "int64", False),  # stars
    ],
)
def test_numbers_of_classes_as_targets(targets, dtype, named):
    recording = head("linear", "mean_squared_error", 1, -3.0, 12.0, targets=targets)
    recording.metadata["data"]["targets"][0]["dtype"] = dtype
    assert kinds(recording) == (["squared_error_on_classes"] if named else [])


def test_ones_tell_a_softmax_over_one_unit_without_a_description():
    recording = outputs(["hidden", "head"], 1, min=[[0.0, 1.0]] * 3, max=[[1.0, 1.0]] * 3)
    assert found(recording, "softmax_over_one_unit").where == ("head",)
    recording = outputs(["hidden", "head"], 1, min=[[0.0, 0.2]] * 3, max=[[1.0, 1.0]] * 3)
    assert found(recording, "softmax_over_one_unit") is None


def test_without_a_description_heads_are_not_judged():
    diagnosis = diagnose(outputs(["hidden", "head"], min=[[0, 0]], max=[[1, 1]]), kinds=HEADS)
    assert set(diagnosis.not_judged) == set(HEADS) - {"softmax_over_one_unit"}
    assert "diagnose(recording, model)" in diagnosis.not_judged["head_loss_mismatch"]


def test_each_of_several_heads_has_its_loss():
    recording = outputs(["hidden", "kind", "size"], min=[[0, 0, 0]] * 3, max=[[1, 1, 9]] * 3)
    described(logged(recording, loss=[1.0, 0.9, 0.8]))
    about = recording.metadata["description"]
    about["outputs"] = [
        {"name": "kind", "activation": "softmax", "units": 3},
        {"name": "size", "activation": "linear", "units": 1},
    ]
    about["losses"] = [
        {"output": "kind", "loss": SPARSE, "from_logits": False},
        {"output": "size", "loss": "mean_squared_error", "from_logits": False},
    ]
    assert kinds(recording) == []
    about["losses"][1]["loss"] = BINARY
    about["losses"][0]["from_logits"] = True
    findings = diagnose(recording, kinds=HEADS)
    assert [(f.kind, f.where) for f in findings] == [
        ("logits_as_probabilities", ("size",)),
        ("probabilities_as_logits", ("kind",)),
    ]


def test_the_range_of_the_head_is_the_evidence():
    finding = found(head("linear", SPARSE, low=-4.0, high=5.0), "logits_as_probabilities")
    assert finding.evidence == {"layer_outputs/min head": -4.0, "layer_outputs/max head": 5.0}
