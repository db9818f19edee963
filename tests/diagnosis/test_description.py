import json

import keras
import numpy as np
import pytest
from keras import layers

import keras_introspect as ki
from keras_introspect.diagnosis import describe


def by_name(about):
    return {layer["name"].rsplit("/", 1)[-1]: layer for layer in about["layers"]}


def test_a_sequential_model():
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-2), name="dense"),
            layers.Dropout(0.25, name="drop"),
            layers.Dense(3, kernel_initializer=keras.initializers.RandomNormal(stddev=0.5), name="logits"),
            layers.Softmax(name="probabilities"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), "sparse_categorical_crossentropy")
    about = describe(model)
    found = by_name(about)
    assert list(found) == ["dense", "drop", "logits", "probabilities"]
    assert found["dense"]["activation"] == "relu"
    assert found["dense"]["units"] == 8
    assert found["dense"]["regularizers"]["kernel_regularizer"] == {
        "l1": pytest.approx(1e-3),
        "l2": pytest.approx(1e-2),
    }
    assert found["drop"]["rate"] == 0.25
    assert found["logits"]["kernel_initializer"] == {"class": "RandomNormal", "mean": 0.0, "stddev": 0.5}
    assert [(o["name"], o["activation"], o["units"]) for o in about["outputs"]] == [("probabilities", "softmax", 3)]
    assert about["losses"] == [{"output": "", "loss": "sparse_categorical_crossentropy", "from_logits": False}]
    assert about["optimizer"] == {"name": "SGD", "learning_rate": pytest.approx(0.5), "momentum": 0.9}
    assert about["custom_step"] is False
    assert json.loads(json.dumps(about)) == about


def test_a_head_is_looked_for_behind_layers_that_hand_it_on():
    inputs = keras.Input((4,))
    h = layers.Dense(6, "sigmoid", name="dense")(inputs)
    out = layers.Activation("linear", dtype="float32", name="as_float32")(layers.Reshape((3, 2), name="shape")(h))
    (head,) = describe(keras.Model(inputs, out))["outputs"]
    assert (head["name"], head["activation"], head["units"]) == ("as_float32", "sigmoid", 2)


def test_a_nested_model_makes_the_head():
    inner_in = keras.Input((4,))
    inner = keras.Model(inner_in, layers.Dense(2, "softmax", name="inner_head")(inner_in), name="inner")
    inputs = keras.Input((4,))
    about = describe(keras.Model(inputs, inner(inputs)))
    assert about["outputs"][0]["activation"] == "softmax"
    assert "inner_head" in by_name(about)


def test_several_heads_and_losses():
    inputs = keras.Input((4,))
    kind, size = layers.Dense(3, name="kind")(inputs), layers.Dense(1, "tanh", name="size")(inputs)
    model = keras.Model(inputs, [kind, size])
    loss = {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "MSE"}
    model.compile("adam", loss)
    about = describe(model)
    assert [(o["name"], o["activation"]) for o in about["outputs"]] == [("kind", "linear"), ("size", "tanh")]
    assert about["losses"] == [
        {"output": "kind", "loss": "sparse_categorical_crossentropy", "from_logits": True},
        {"output": "size", "loss": "mean_squared_error", "from_logits": False},
    ]


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        ("mse", "mean_squared_error"),
        ("MAE", "mean_absolute_error"),
        ("kl_divergence", "kl_divergence"),
        (keras.losses.KLDivergence(), "kl_divergence"),
        (keras.losses.MeanSquaredError(), "mean_squared_error"),
        (keras.losses.mean_squared_error, "mean_squared_error"),
        (keras.losses.BinaryCrossentropy(), "binary_crossentropy"),
        (keras.losses.CategoricalCrossentropy(), "categorical_crossentropy"),
        (keras.losses.Huber(), "huber"),
        (lambda y, p: keras.ops.mean(y - p), "<lambda>"),
    ],
)
def test_names_of_losses(loss, name):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss)
    assert describe(model)["losses"] == [{"output": "", "loss": name, "from_logits": False}]


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(4, name="first"), layers.LayerNormalization(name="norm")]
        self.last = layers.Dense(1, "sigmoid", name="last")

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class OwnStep(Own):
    def train_step(self, data):
        return super().train_step(data)


def test_a_subclassed_model():
    model = Own()
    model(np.ones((2, 3), "float32"))
    model.compile("adam", "binary_crossentropy")
    about = describe(model)
    assert list(by_name(about)) == ["first", "norm", "last"]
    assert "outputs" not in about
    assert about["custom_step"] is False
    assert describe(OwnStep())["custom_step"] is True


def test_an_introspective_model_has_no_step_of_its_own():
    model = ki.IntrospectiveSequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse", collectors="economy")
    assert describe(model)["custom_step"] is False
    assert describe(ki.instrument(Own()))["custom_step"] is False
    assert describe(ki.instrument(OwnStep()))["custom_step"] is True


@pytest.mark.parametrize(("axis", "expected"), [(-1, -1), (1, -1), (0, -2)])
def test_the_axis_of_a_softmax(axis, expected):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Softmax(axis=axis)])
    assert describe(model)["outputs"][0]["softmax_axis"] == expected


def test_a_head_that_is_distributed_over_the_steps_has_its_own_activation():
    head = layers.TimeDistributed(layers.Dense(2, activation="softmax"))
    about = describe(keras.Sequential([keras.Input((5, 3)), layers.LSTM(4, return_sequences=True), head]))["outputs"]
    assert [(head["activation"], head["units"]) for head in about] == [("softmax", 2)]
    head = layers.TimeDistributed(layers.Flatten())
    about = describe(keras.Sequential([keras.Input((5, 3)), layers.Dense(4, activation="tanh"), head]))["outputs"]
    assert about[0]["activation"] == "tanh"


def test_a_softmax_whose_axis_is_moved_afterwards_has_none():
    model = keras.Sequential([keras.Input((4, 5)), layers.Softmax(axis=1), layers.Permute((2, 1))])
    assert "softmax_axis" not in describe(model)["outputs"][0]


def test_what_a_loss_ignores_and_its_axis():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    for ignored in (255, -1):
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(ignore_class=ignored))
        assert describe(model)["losses"][0]["ignore_class"] == ignored
    model.compile(loss=keras.losses.CategoricalCrossentropy(axis=1))
    assert describe(model)["losses"][0]["axis"] == 1


def test_phases_that_a_functional_model_fixes():
    inputs = keras.Input((4,))
    h = layers.BatchNormalization(name="always")(inputs, training=True)
    h = layers.BatchNormalization(name="never")(h, training=False)
    h = layers.BatchNormalization(name="as_usual")(h)
    about = by_name(describe(keras.Model(inputs, h)))
    assert about["always"]["called_with_training"] is True
    assert about["never"]["called_with_training"] is False
    assert "called_with_training" not in about["as_usual"]


def test_frozen_statistics_have_their_scale():
    norm = layers.BatchNormalization(name="norm")
    model = keras.Sequential([keras.Input((4,)), norm])
    assert "frozen_statistics" not in by_name(describe(model))["norm"]
    norm.gamma.assign([3.0, 3.0, 3.0, 3.0])
    norm.trainable = False
    about = by_name(describe(model))["norm"]
    assert (about["frozen_statistics"], about["scale_rms"], about["offset_rms"]) == (True, 3.0, 0.0)


def test_activations_that_are_layers():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, layers.LeakyReLU(), name="dense"), layers.ReLU(name="relu")]
    )
    about = by_name(describe(model))
    assert about["dense"]["activation"] == "leaky_relu"
    assert about["relu"]["activation"] == "relu"


def test_loss_scaling():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.25)), "mse")
    assert describe(model)["optimizer"] == {"name": "Adam", "loss_scaled": True, "learning_rate": 0.25}


def test_the_model_joins_in():
    model = ki.IntrospectiveSequential([keras.Input((4,)), layers.Dense(3, "sigmoid", name="head")], name="net")
    model.compile("sgd", "categorical_crossentropy", collectors="economy")
    x, y = np.random.default_rng(0).normal(size=(32, 4)), np.eye(3)[np.arange(32) % 3]
    model.fit(x, y, epochs=2, verbose=0)
    (finding,) = ki.diagnose(model.recording, model, kinds=["head_loss_mismatch"])
    assert finding.where == ("head",) or finding.where == ("net/head",)
    low, high = (value for key, value in finding.evidence.items())
    assert 0 < low < high < 1


def test_describing_changes_nothing():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.BatchNormalization()])
    model.compile("adam", "mse")
    before = [weight.numpy() for weight in model.weights]
    attributes = set(vars(model))
    describe(model)
    assert set(vars(model)) == attributes
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, model.weights, strict=True))
