"""Small networks that really train, in NumPy, well and badly."""

import numpy as np
import pytest

from diagnosis.numpy_training import Net, data_of
from keras_introspect.diagnosis import diagnose

datasets = pytest.importorskip("sklearn.datasets")


def digits():
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order] / 16, y[order]


def circles():
    return datasets.make_circles(400, noise=0.05, factor=0.4, random_state=0)


def line():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (600, 3))
    return x, x @ [[1.0], [-2.0], [0.5]] + random.normal(0, 0.1, (600, 1))


def constant(random, a, b):
    return np.full((a, b), 0.01)


def large(random, a, b):
    return random.normal(0, 3, (a, b))


BINARY, SQUARED = "binary_crossentropy", "mean_squared_error"
HEALTHY = {
    "adam": ([64, 64, 32, 10], {}, digits, {}),
    "sgd": ([64, 64, 32, 10], {"optimizer": "sgd", "rate": 0.1}, digits, {}),
    "momentum": ([64, 64, 32, 10], {"optimizer": "sgd", "rate": 0.02, "momentum": 0.9}, digits, {}),
    "tanh": ([64, 64, 32, 10], {"hidden": "tanh"}, digits, {}),
    "sigmoid": ([64, 64, 10], {"hidden": "sigmoid", "rate": 5e-3}, digits, {}),
    "dropout": ([64, 128, 10], {"dropout": 0.5}, digits, {}),
    "penalty": ([64, 64, 10], {"l2": 1e-4}, digits, {}),
    "logits": ([64, 64, 10], {"head": "linear", "from_logits": True}, digits, {}),
    "regression": ([3, 32, 1], {"head": "linear", "loss": SQUARED, "rate": 1e-2, "accuracy": False}, line, {}),
    "linear": ([3, 1], {"head": "linear", "loss": SQUARED, "rate": 1e-2, "accuracy": False}, line, {}),
    "circles": ([2, 32, 32, 1], {"head": "sigmoid", "loss": BINARY, "start": "he", "rate": 5e-3}, circles, {}),
}
FAULTY = {
    "softmax_over_one_unit": ([3, 32, 1], {"head": "softmax", "loss": SQUARED, "accuracy": False}, line, {}),
    "head_loss_mismatch": ([64, 32, 10], {"head": "sigmoid"}, digits, {}),
    "logits_as_probabilities": ([64, 32, 10], {"head": "linear"}, digits, {}),
    "vanishing_gradients": (
        [2] + [5] * 15 + [1],
        {"hidden": "sigmoid", "head": "sigmoid", "loss": BINARY},
        circles,
        {},
    ),
    "large_initialization": ([2] + [20] * 8 + [1], {"head": "sigmoid", "loss": BINARY, "start": large}, circles, {}),
    "constant_initialization": ([64, 32, 32, 10], {"start": constant}, digits, {}),
    "step_too_large": ([64, 64, 32, 10], {"rate": 0.3}, digits, {}),
    "step_too_small": ([64, 64, 32, 10], {"rate": 1e-5}, digits, {}),
    "dead_units": ([64, 64, 32, 10], {"optimizer": "sgd", "rate": 3.0}, digits, {}),
    "over_regularized": ([64, 64, 10], {"l2": 0.3}, digits, {}),
    "unscaled_targets": ([3, 32, 1], {"head": "linear", "loss": SQUARED, "accuracy": False}, line, {"target": 1e4}),
    "unscaled_inputs": ([3, 32, 1], {"head": "linear", "loss": SQUARED, "accuracy": False}, line, {"input": 1e4}),
    "labels_out_of_range": ([64, 32, 10], {}, digits, {"target": 1 / 255}),
}


def trained(sizes, arguments, data, scale):
    x, y = data()
    x, y = x * scale.get("input", 1), y * scale.get("target", 1)
    with np.errstate(all="ignore"):
        recording = Net(sizes, seed=1, **arguments).fit(x, y, epochs=10)
    recording.metadata["data"] = data_of(x, y)
    return recording


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_trainings_are_left_in_peace(name):
    recording = trained(*HEALTHY[name])
    assert diagnose(recording).alarms == (), str(diagnose(recording))
    del recording.metadata["description"], recording.metadata["data"]  # as of an older recording
    assert diagnose(recording).alarms == (), str(diagnose(recording))


@pytest.mark.parametrize("kind", FAULTY)
def test_the_cause_is_among_the_first_three(kind):
    diagnosis = diagnose(trained(*FAULTY[kind]))
    assert kind in [finding.kind for finding in diagnosis.alarms[:3]], str(diagnosis)
