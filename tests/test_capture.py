"""What `capture` touches inside Keras and TensorFlow, pinned; twins; tensors inside loops."""

import inspect
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.python.eager import context

import keras_introspect as ki
from keras_introspect.capture import LayerNames, optimizers_of
from keras_introspect.capture.internals import (
    attribute_scope,
    current_graph,
    flatten_layers,
    functional_init_arguments,
    hides_logits,
    inside_control_flow_of,
    is_not_a_real_call,
    is_ours,
    own_variables,
    sublayers,
    tape_is_stopped,
)
from keras_introspect.capture.optimizers import loss_scale
from keras_introspect.capture.twins import needed, twin

# --- the private names ---


def test_what_operation_and_layer_call() -> None:
    """Taps sit on the instance: Keras must look up `call` and its kin there, by these names."""
    source = inspect.getsource(keras.Operation.__call__)
    for name in ("self.call", "self.quantized_call", "self.rematerialized_call", "_remat_mode", "quantization_mode"):
        assert name in source, name


def test_layers_and_variables_are_found_where_keras_keeps_them() -> None:
    inner = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="dense")], name="inner")
    model = keras.Sequential([keras.Input((3,)), inner, layers.BatchNormalization(name="norm")])
    assert {layer.name for layer in flatten_layers(model)} >= {"inner", "dense", "norm"}
    assert not any(isinstance(layer, layers.InputLayer) for layer in flatten_layers(model))
    assert [layer.name for layer in sublayers(inner)][-1:] == ["dense"]
    norm = model.get_layer("norm")
    assert {v.name for v in own_variables(norm)} == {"gamma", "beta", "moving_mean", "moving_variance"}


def test_functional_arguments_are_told_apart() -> None:
    assert functional_init_arguments((1, 2), {})
    assert functional_init_arguments((), {"inputs": 1, "outputs": 2})
    assert not functional_init_arguments((), {"name": "net"})


def test_symbolic_calls_are_no_real_calls() -> None:
    seen = []

    class Look(layers.Layer):
        def call(self, x: Any) -> Any:
            seen.append(is_not_a_real_call())
            return x

    Look()(keras.Input((2,)))
    Look()(tf.zeros((1, 2)))
    assert seen == [True, False]


def test_a_stopped_tape_is_seen() -> None:
    seen = []

    @tf.recompute_grad
    def twice(x: Any) -> Any:
        seen.append(tape_is_stopped())
        return x * x

    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        assert not tape_is_stopped()
        y = twice(x)
    tape.gradient(y, x)
    assert seen == [True, False]


def test_control_flow_is_told_from_functions() -> None:
    found = {}

    @tf.function
    def function(x: Any) -> Any:
        found["function"] = inside_control_flow_of(current_graph(), root)
        return x

    @tf.function
    def step(x: Any) -> Any:
        nonlocal root
        root = current_graph()

        def body(i: Any, y: Any) -> Any:
            found["loop"] = inside_control_flow_of(current_graph(), root)
            return i + 1, y * 2

        tf.while_loop(lambda i, y: i < 2, body, [0, x])

        def branch() -> Any:
            found["branch"] = inside_control_flow_of(current_graph(), root)
            return x

        tf.cond(x > 0, branch, branch)
        return function(x)

    root = None
    step(tf.constant(1.0))
    assert found == {"loop": True, "branch": True, "function": False}


def test_logits_behind_an_op_are_seen_where_keras_looks() -> None:
    @tf.function
    def step(x: Any) -> None:
        assert hides_logits(tf.nn.softmax(x))
        assert hides_logits(tf.sigmoid(x))
        assert not hides_logits(tf.nn.relu(x))
        assert not hides_logits(keras.activations.softmax(x))  # carries _keras_logits, which a tap hands on
        assert hasattr(keras.activations.softmax(x), "_keras_logits")

    step(tf.zeros((2, 3)))


def test_the_loss_scale_is_the_one_before_the_step() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)
    assert float(loss_scale(optimizer)) == 8
    optimizer.build([keras.Variable(np.ones(2))])
    assert float(loss_scale(optimizer)) == 8
    assert float(loss_scale(keras.optimizers.SGD(loss_scale_factor=4.0))) == 4
    assert loss_scale(keras.optimizers.SGD()) is None


def test_optimizers_are_found_in_attributes_and_containers() -> None:
    model = keras.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    model.first = keras.optimizers.Adam()
    model.others = {"a": keras.optimizers.RMSprop(), "b": [keras.optimizers.Adagrad()]}
    kinds = [type(optimizer).__name__ for optimizer in optimizers_of(model)]
    assert kinds[0] == "SGD"
    assert sorted(kinds) == ["Adagrad", "Adam", "RMSprop", "SGD"]


def test_optimizers_reduce_where_we_read() -> None:
    assert "self._all_reduce_sum_gradients(" in inspect.getsource(keras.optimizers.SGD._backend_update_step)


# --- names ---


def test_layers_without_a_path_are_named_beside_their_siblings() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="a"), layers.ReLU(name="r")], name="net")
    names = LayerNames(model)
    by_name = {layer.name: names.of(layer) for layer in flatten_layers(model)}
    prefix = model.get_layer("a").path[: -len("a")]
    assert by_name["r"] == prefix + "r"


# --- twins ---


def test_a_twin_is_made_only_of_what_grappler_regroups() -> None:
    @tf.function
    def step(x: Any, y: Any) -> Any:
        unused, lonely, shared, otherwise_dead = x * y, x * y, x * y, x * y
        dense = tf.matmul(x[None], y[:, None]) + 1.0
        _ = tf.nn.tanh(otherwise_dead)
        results = lonely * 2.0, shared * 2.0, tf.nn.relu(shared), tf.nn.relu(dense), otherwise_dead * 2.0
        with attribute_scope():
            live = needed(current_graph(), results)
            assert is_ours(twin(unused, live).op)
            for copied in (lonely, otherwise_dead):
                assert is_ours(twin(copied, live).op)
            for kept in (shared, dense, results[2]):
                assert twin(kept, live) is kept
        return results

    step(tf.ones(3), tf.ones(3))
    eager = tf.ones(2) * 3.0
    assert twin(eager, set()) is eager


def test_tensorflow_adds_up_in_an_order_that_depends_on_who_else_reads() -> None:
    """What the README says of sums of three; if this fails, TensorFlow has mended it."""
    terms = [np.random.default_rng(i).normal(size=(16, 5)).astype("float32") for i in range(3)]

    def added(*also_read: int) -> np.ndarray:
        @tf.function(autograph=False)
        def step(*values: Any) -> Any:
            made = [value * 1.1 for value in values]
            return tf.add_n(made), [made[i] for i in also_read]

        return step(*terms)[0].numpy()

    assert (added() == added(0)).all()
    assert (added() != added(0, 1)).any()


def test_tensorflow_rewrites_such_sums_where_it_thinks_that_memory_is_short() -> None:
    """What the README says of large models; if this fails, TensorFlow has mended it.

    Its memory optimizer takes a CPU for one of 256 MB and counts the tensors of known shapes, those of readers too.
    """
    side = 3000  # 36 MB a tensor: three are added up, the limit is 80 %

    def is_rewritten(readers: int, rows: int | None = side) -> bool:
        @tf.function(autograph=False, input_signature=[tf.TensorSpec((rows, side), tf.float32)])
        def step(x: Any) -> Any:
            made = [tf.sin(x * factor) for factor in (1.1, 1.2, 1.3)]
            return tf.add_n(made), [tf.cos(value * 1.5) for value in made[:readers]]

        context.enable_run_metadata()
        try:
            step(tf.ones((side, side)))
            seen = context.context().export_run_metadata()
        finally:
            context.context().disable_run_metadata()
        kinds = {node.op for graph in seen.function_graphs for part in graph.partition_graphs for node in part.node}
        assert ("AddN" in kinds) != ("DestroyTemporaryVariable" in kinds)
        return "AddN" not in kinds

    assert not is_rewritten(readers=0)
    assert is_rewritten(readers=3)
    assert not is_rewritten(readers=3, rows=None)


def test_what_a_step_needs() -> None:
    """What is returned, and what something is done with; not what is dropped, nor what only we do."""
    counter = tf.Variable(0.0)
    names = {}

    @tf.function
    def step(x: Any) -> Any:
        returned, assigned, dropped, ours = (tf.add(x, 1.0, name=name) for name in ("r", "a", "d", "o"))
        counter.assign(assigned)
        _ = dropped * 2.0
        with attribute_scope():
            counter.assign(ours)
        live = needed(current_graph(), {"loss": returned})
        names.update(r=returned.op.name in live, a=assigned.op.name in live)
        names.update(d=dropped.op.name in live, o=ours.op.name in live)
        return returned

    step(tf.constant(1.0))
    assert names == {"r": True, "a": True, "d": False, "o": False}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam", "accumulating", "clipped"])
def test_collectors_change_no_bit_of_training(optimizer: str) -> None:
    """Batch normalisation's gamma, regularisers, sums of layers: the chains that grappler regroups."""
    make = {
        "sgd": lambda: keras.optimizers.SGD(0.1),
        "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01),
        "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "clipped": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
    }[optimizer]

    def trained(collectors: Any) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        inputs = keras.Input((6, 6, 2))
        h = layers.Conv2D(4, 3, padding="same", kernel_regularizer="l2")(inputs)
        h = layers.BatchNormalization()(h)
        h = layers.Add()([h, layers.Conv2D(4, 1)(inputs)])
        h = layers.LayerNormalization()(h)
        h = layers.Multiply()([h, layers.Activation("sigmoid")(h)])
        h = layers.Flatten()(h)
        model = ki.IntrospectiveModel(inputs, layers.Dense(3, kernel_regularizer="l1l2")(h))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(make(), loss, collectors=collectors)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(50, 6, 6, 2)).astype("float32"), rng.integers(0, 3, 50)
        model.fit(x, y, batch_size=16, epochs=3, verbose=0, shuffle=False)
        return [v.numpy() for v in [*model.variables, *model.optimizer.variables]]

    for one, other in zip(trained(None), trained("all"), strict=True):
        np.testing.assert_array_equal(one, other)


def _frozen(layer: Any) -> Any:
    layer.trainable = False
    return layer


@pytest.mark.parametrize(
    "kind", ["sum of three", "tanh", "elu", "frozen tanh", "convolution and elu", "residual", "mean of sums"]
)
def test_what_grappler_fuses_and_regroups_keeps_its_bits(kind: str) -> None:
    def build() -> tuple[Any, Any]:
        inputs = keras.Input((6, 6, 2))
        h = layers.Conv2D(4, 3, padding="same", name="first")(inputs)
        if kind == "sum of three":
            h = layers.BatchNormalization()(h)
            h = layers.Add()([layers.Add()([h, layers.Conv2D(4, 1)(inputs)]), h])
            h = layers.LayerNormalization()(h)
        elif kind == "convolution and elu":
            h = layers.Activation("elu")(h)
        elif kind == "mean of sums":  # the gradient of the divisor is traced, and used by nobody
            h = layers.Add()([layers.Average()([layers.Add()([h, h]), layers.Conv2D(4, 1)(inputs)]), h])
        elif kind == "residual":
            for _ in range(2):
                inner = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.BatchNormalization()(h))
                h = layers.Add()([h, inner])
        h = layers.Flatten()(h)
        if kind.endswith(("tanh", "elu")) and "convolution" not in kind:
            dense = layers.Dense(32)
            h = layers.Activation(kind.split()[-1])((_frozen(dense) if "frozen" in kind else dense)(h))
        return inputs, layers.Dense(3)(h)

    def trained(collectors: Any) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        model = ki.IntrospectiveModel(*build())
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, collectors=collectors)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(50, 6, 6, 2)).astype("float32"), rng.integers(0, 3, 50)
        model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
        return model.get_weights()

    for one, other in zip(trained(None), trained("all"), strict=True):
        np.testing.assert_array_equal(one, other)


# --- loops ---


def recurrent(collectors: Any, **compile_args: Any) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((7, 5))
    h = layers.LSTM(4, return_sequences=True, name="lstm")(inputs)
    h = layers.Bidirectional(layers.RNN(layers.SimpleRNNCell(3, name="cell"), name="rnn"), name="both")(h)
    model = ki.IntrospectiveModel(inputs, layers.Dense(2, name="head")(h))
    model.compile("sgd", "mse", collectors=collectors, **compile_args)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 7, 5)).astype("float32"), rng.normal(size=(20, 2)).astype("float32")
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    return model


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_cells_inside_loops_are_observed(jit_compile: bool) -> None:
    plain = recurrent(None, jit_compile=jit_compile)
    model = recurrent("all", jit_compile=jit_compile)
    if not jit_compile:
        for one, other in zip(plain.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    recording = model.recording
    outputs = recording["layer_outputs"]
    # An LSTM returns what its cell returned at each time step: the same numbers, seen in and outside the loop.
    cell, layer = outputs.sel("lstm/lstm_cell"), outputs.sel("lstm")
    for statistic in ("count", "mean", "std", "min", "max", "mean_abs", "activation_rate", "dead_rate"):
        np.testing.assert_allclose(cell.epoch(statistic), layer.epoch(statistic), rtol=1e-5, atol=1e-8)
    gradients = recording["output_gradients"].sel("lstm/lstm_cell")
    assert np.all(gradients.epoch("count") == 20 * 7 * 4)
    assert np.all(gradients.epoch("rms") > 0)
    assert np.all(np.isnan(gradients.epoch("min")))
    assert any("only sums get out" in reason for reason in recording.unobserved.values())


class Looping(keras.Model):
    """Calls its layers inside a loop, with one shape or two, under an ordinary or a persistent tape."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.narrow, self.wide = layers.Dense(4, activation="tanh", name="narrow"), layers.Dense(6, name="wide")
        self.act, self.head = layers.ReLU(name="act"), layers.Dense(1, name="head")
        self.recurrent = layers.RNN(layers.GRUCell(4, name="cell"), name="recurrent")

    def build(self, shape: Any) -> None:
        for layer in (self.narrow, self.wide, self.head):
            layer.build((None, 4))
        self.recurrent.build((None, 5, 4))
        self.built = True

    def turn(self, h: Any) -> Any:
        if self.kind == "two shapes":
            return self.act(self.narrow(h)) + tf.reduce_sum(self.act(self.wide(h)), 1, keepdims=True)
        return self.act(self.narrow(h))

    def call(self, x: Any) -> Any:
        if self.kind == "remat":
            return self.head(keras.remat(lambda t: self.narrow(self.recurrent(t)))(x[:, None] * tf.ones([1, 5, 1])))
        if self.kind == "outside too":
            x = self.act(self.narrow(x))
        return self.head(tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, self.turn(h)), (0, x))[1])

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape(persistent=self.kind == "persistent") as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        weights = self.trainable_variables
        pairs = zip(tape.gradient(loss, weights), weights, strict=True)
        self.optimizer.apply_gradients([(gradient, weight) for gradient, weight in pairs if gradient is not None])
        return {"loss": loss}


@pytest.mark.parametrize("kind", ["ordinary", "persistent", "two shapes", "remat", "outside too"])
def test_outputs_inside_loops_are_those_of_the_eager_run(kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")

    def trained(observed: bool, eager: bool = False) -> Any:
        keras.utils.set_random_seed(0)
        model = Looping(kind)
        if observed:
            ki.instrument(model)
        kinds = [ki.LayerOutputs, *([ki.OutputGradients] if kind == "outside too" else [])]
        collectors = {"collectors": [each(["moments", "activity"]) for each in kinds]} if observed else {}
        model.compile("sgd", "mse", run_eagerly=eager, jit_compile=False, **collectors)
        model.fit(x, x[:, :1], batch_size=8, verbose=0, shuffle=False)
        return model

    graph, eager = trained(True), trained(True, eager=True)
    for one, other in zip(graph.get_weights(), trained(False).get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    seen, expected = (model.recording["layer_outputs"] for model in (graph, eager))
    assert [name.split("/", 1)[1] for name in seen.names] == [name.split("/", 1)[1] for name in expected.names]
    for statistic in ("count", "mean", "std", "min", "max", "activation_rate", "dead_rate"):
        np.testing.assert_allclose(seen.epoch(statistic), expected.epoch(statistic), rtol=1e-4, atol=1e-6)
    if kind == "outside too":
        calls = expected.sel(expected.names[0]).epoch("count")[0] / (16 * 4)
        assert calls == 4  # three in the loop, one before
        seen, expected = (model.recording["output_gradients"] for model in (graph, eager))
        for statistic in ("count", "mean", "std", "rms", "mean_abs", "activation_rate"):
            np.testing.assert_allclose(seen.epoch(statistic), expected.epoch(statistic), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("eager", [False, True])
def test_separate_calls_are_numbered_as_they_were_made(eager: bool) -> None:
    """Also where gradients come back in another order, and where a call has none."""

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.shared = layers.Dense(2, use_bias=False, kernel_initializer="ones", name="shared")

        def call(self, x: Any) -> Any:
            first, _, third = self.shared(x), self.shared(2.0 * x), self.shared(3.0 * x)
            return 5.0 * first + 7.0 * third

    model = ki.instrument(Net())
    both = [kind("moments", calls="separate") for kind in (ki.LayerOutputs, ki.OutputGradients)]
    model.compile(keras.optimizers.SGD(0.0), "mean_absolute_error", collectors=both, run_eagerly=eager)
    x = np.ones((4, 3), "float32")
    model.fit(x, np.zeros((4, 2)), batch_size=4, verbose=0)
    outputs, gradients = model.recording["layer_outputs"], model.recording["output_gradients"]
    rows = ["net/shared", "net/shared#1", "net/shared#2"]
    assert [*outputs.names] == rows
    np.testing.assert_allclose(outputs.epoch("mean")[0], [3.0, 6.0, 9.0])
    assert [*gradients.names] == [rows[0], rows[2]]
    np.testing.assert_allclose(gradients.epoch("mean")[0], [5.0 / 8, 7.0 / 8])


def test_an_embedding_of_which_no_row_is_looked_up_has_zeros_for_its_gradient() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = layers.Embedding(7, 4), layers.Dense(1)

        def call(self, x: Any) -> Any:
            none = self.table(tf.boolean_mask(x, x > 900))
            return self.head(tf.cast(x, tf.float32)) + tf.reduce_sum(none)

    model = ki.instrument(Net())
    model.compile("sgd", "mse", collectors=[ki.Gradients("moments", layers="*embedding*")])
    model.fit(np.ones((8, 3), "int32"), np.ones((8, 1)), batch_size=4, verbose=0)
    gradient = model.recording["gradients"]
    assert gradient.epoch("count")[0, 0] == 2 * 7 * 4
    assert gradient.epoch("rms")[0, 0] == 0


def test_gradients_inside_loops_equal_those_of_an_unrolled_net() -> None:
    def trained(unroll: bool) -> Any:
        keras.utils.set_random_seed(1)
        inputs = keras.Input((4, 3))
        h = layers.RNN(layers.SimpleRNNCell(5, name="cell"), unroll=unroll, name="rnn")(inputs)
        model = ki.IntrospectiveModel(inputs, layers.Dense(1, name="head")(h))
        model.compile("sgd", "mse", collectors=[ki.OutputGradients(statistics="moments")])
        x = np.random.default_rng(0).normal(size=(12, 4, 3)).astype("float32")
        model.fit(x, x[:, 0, :1], batch_size=12, epochs=1, verbose=0)
        return model.recording["output_gradients"].sel("rnn/cell")

    loop, unrolled = trained(False), trained(True)
    # Squares add up over the calls; in the loop, the state of the last step, which nothing uses, counts as zeros.
    np.testing.assert_allclose(loop.epoch("l2_norm"), unrolled.epoch("l2_norm"), rtol=1e-5)


# --- nothing stays behind ---


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_an_exception_in_the_step_passes_and_leaves_no_tap(run_eagerly: bool) -> None:
    class Fails(layers.Layer):
        broken = False

        def call(self, x: Any) -> Any:
            if self.broken:
                raise RuntimeError("the user's own")
            return x

    fails = Fails()
    model = ki.IntrospectiveSequential([keras.Input((2,)), layers.Dense(3), fails, layers.Dense(1)])
    model.compile("sgd", "mse", collectors="all", run_eagerly=run_eagerly)
    x = np.ones((8, 2), "float32")
    fails.broken = True
    with pytest.raises(RuntimeError, match="the user's own"):
        model.fit(x, x[:, :1], verbose=0)
    tapped = [o for o in [model, *flatten_layers(model), model.optimizer] if {"call", "apply"} & set(o.__dict__)]
    assert not tapped
    fails.broken = False
    model.compile("sgd", "mse", collectors="all", run_eagerly=run_eagerly)  # plain Keras needs it too, after that
    model.fit(x, x[:, :1], verbose=0)
    assert len(model.recording["layer_outputs"].epochs) == 1
