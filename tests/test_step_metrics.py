"""`StepMetrics`: the loss and the metrics of each batch by itself, against an evaluation of each batch by hand."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_introspect as ki
import kinds
import oracle

MODES = ("graph", "eager", pytest.param("xla", marks=pytest.mark.long))


def how(mode: str) -> dict[str, Any]:
    return {"run_eagerly": mode == "eager", "jit_compile": mode == "xla"}


def dense(base: Any, seed: int = 3) -> Any:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", name="hidden")(inputs)
    return base(inputs, keras.layers.Dense(1, activation="sigmoid", name="head")(hidden), name="net")


def dense_data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 4)).astype("float32")
    return x, (x.sum(axis=1, keepdims=True) + rng.normal(size=(samples, 1)) > 0).astype("float32")


def fit(model: Any, x: Any, y: Any, metrics: Any, collectors: Any = None, **options: Any) -> Any:
    fit_options = {"batch_size": 8, "epochs": 2, **options.pop("fit", {})}
    observed = {} if collectors is None else {"collectors": collectors}
    model.compile(keras.optimizers.SGD(0.3), "binary_crossentropy", metrics=metrics, **options, **observed)
    return model.fit(x, y, shuffle=False, verbose=0, **fit_options)


def batch_values(x: np.ndarray, y: np.ndarray, epochs: int, batch_size: int = 8) -> list[dict[str, float]]:
    """Loss, accuracy and AUC of each batch alone, before its step, of the model that `dense` makes."""
    model = dense(keras.Model)
    steps, _ = kinds.by_hand(
        model, keras.optimizers.SGD(0.3), keras.losses.BinaryCrossentropy(), x, y, epochs, batch_size
    )
    found = []
    for step in (s for epoch in steps for s in epoch):
        auc = keras.metrics.AUC(name="auc")
        auc.update_state(step.y, step.prediction)
        right = (step.prediction > 0.5) == (step.y > 0.5)
        found.append({"loss": step.loss, "accuracy": float(right.mean()), "auc": float(auc.result())})
    return found


def assert_steps(metrics: Any, expected: list[dict[str, float]], rtol: float = 1e-4) -> None:
    assert metrics.steps.tolist() == list(range(len(expected)))
    for key in expected[0]:
        np.testing.assert_allclose(metrics.step(key), [e[key] for e in expected], rtol=rtol, atol=1e-6, err_msg=key)


def with_auc() -> list[Any]:
    return ["accuracy", keras.metrics.AUC(name="auc")]


@pytest.mark.parametrize(
    ("mode", "execution"),
    [
        ("graph", 1),
        ("graph", 4),
        ("eager", 1),
        pytest.param("graph", 50, marks=pytest.mark.long),
        pytest.param("xla", 1, marks=pytest.mark.long),
        pytest.param("xla", 4, marks=pytest.mark.long),
    ],
)
def test_each_batch_by_itself(mode: str, execution: int) -> None:
    """With a metric that has a state, a partial last batch, and several steps in one execution."""
    x, y = dense_data(60)  # seven batches of 8 and one of 4
    model = dense(ki.IntrospectiveModel)
    history = fit(model, x, y, with_auc(), [ki.StepMetrics()], steps_per_execution=execution, **how(mode))
    metrics = model.recording["metrics"]
    assert_steps(metrics, batch_values(x, y, 2))
    for key in ("loss", "accuracy", "auc"):
        quantiles = [np.percentile(part, metrics.quantile_levels) for part in metrics.step(key).reshape(2, -1)]
        np.testing.assert_allclose(metrics.epoch(key), quantiles, rtol=1e-12)

    plain = dense(keras.Model)
    history_plain = fit(plain, x, y, with_auc(), steps_per_execution=execution, **how(mode))
    if mode != "xla":
        assert history.history == history_plain.history
        assert oracle.same_bits(model.get_weights(), plain.get_weights())
        states, states_plain = ([v.numpy() for m in one.metrics for v in m.variables] for one in (model, plain))
        assert len(states) > 4
        assert oracle.same_bits(states, states_plain)
    # the running mean of Keras is the mean of the batches, weighted by their sizes
    weights = np.array([8] * 7 + [4])
    means = [np.average(part, weights=weights) for part in metrics.step("loss").reshape(2, -1)]
    np.testing.assert_allclose(history.history["loss"], means, rtol=1e-5)


def test_more_steps_than_the_buffer_holds() -> None:
    """300 steps an epoch, of two samples: none is lost."""
    x, y = dense_data(600)
    model = dense(ki.IntrospectiveModel)
    options = {"batch_size": 2, "epochs": 1}
    fit(model, x, y, [], [ki.StepMetrics()], steps_per_execution=100, fit=options)
    assert_steps(model.recording["metrics"], [{"loss": v["loss"]} for v in batch_values(x, y, 1, 2)], 1e-3)


def test_quantiles_without_the_steps_and_with_levels() -> None:
    x, y = dense_data(60)
    model = dense(ki.IntrospectiveModel)
    fit(model, x, y, ["accuracy"], [ki.StepMetrics(levels=(0, 50, 100), per_step=False, name="batches")])
    metrics = model.recording["batches"]
    losses = np.reshape([v["loss"] for v in batch_values(x, y, 2)], (2, 8))
    expected = np.percentile(losses, [0, 50, 100], axis=1).T
    np.testing.assert_allclose(metrics.epoch("loss"), expected, rtol=1e-4)
    assert not len(metrics.steps)
    assert metrics.quantile_levels.tolist() == [0, 50, 100]


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_every_third_step(mode: str) -> None:
    x, y = dense_data(60)
    model = dense(ki.IntrospectiveModel)
    fit(model, x, y, ["accuracy"], [ki.StepMetrics(every=3)], **how(mode))
    metrics = model.recording["metrics"]
    assert metrics.steps.tolist() == [0, 3, 6, 9, 12, 15]
    losses = np.array([v["loss"] for v in batch_values(x, y, 2)])
    np.testing.assert_allclose(metrics.step("loss"), losses[::3], rtol=1e-4)
    expected = [np.percentile(losses[rows], metrics.quantile_levels) for rows in ([0, 3, 6], [9, 12, 15])]
    np.testing.assert_allclose(metrics.epoch("loss"), expected, rtol=1e-4)


def test_learning_rate_and_gradient_norm() -> None:
    x, y = dense_data(24)
    model = dense(ki.IntrospectiveModel)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1, 3], [0.3, 0.2, 0.1])
    model.compile(
        keras.optimizers.SGD(schedule, global_clipnorm=1e-3), "binary_crossentropy", collectors=[ki.StepMetrics()]
    )
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    metrics = model.recording["metrics"]
    np.testing.assert_allclose(metrics.step("learning_rate"), [0.3, 0.3, 0.2, 0.2, 0.1, 0.1], rtol=1e-6)
    steps, _ = kinds.by_hand(
        dense(keras.Model),
        keras.optimizers.SGD(schedule, global_clipnorm=1e-3),
        keras.losses.BinaryCrossentropy(),
        x,
        y,
    )
    norms = [np.sqrt(sum(np.sum(g**2) for g in s.gradients.values())) for epoch in steps for s in epoch]
    assert min(norms) > 1e-2  # before clipping
    np.testing.assert_allclose(metrics.step("gradient_norm"), norms, rtol=1e-4)


def two_heads(base: Any) -> Any:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", name="hidden", kernel_regularizer="l2")(inputs)
    one, two = keras.layers.Dense(1, name="one")(hidden), keras.layers.Dense(2, name="two")(hidden)
    return base(inputs, {"one": one, "two": two}, name="net")


@pytest.mark.parametrize("mode", MODES)
def test_several_outputs_with_losses_of_their_own_and_sample_weights(mode: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4)).astype("float32")
    y = {"one": rng.normal(size=(20, 1)).astype("float32"), "two": rng.normal(size=(20, 2)).astype("float32")}

    def trained(base: Any, **observed: Any) -> tuple[Any, Any]:
        model = two_heads(base)
        model.compile(
            keras.optimizers.SGD(0.1),
            {"one": "mse", "two": "mae"},
            loss_weights={"one": 1.0, "two": 0.5},
            metrics={"one": ["mae"], "two": ["mse"]},
            **how(mode),
            **observed,
        )
        return model, model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history

    model, history = trained(ki.IntrospectiveModel, collectors=[ki.StepMetrics()])
    plain, history_plain = trained(keras.Model)
    if mode != "xla":
        assert history == history_plain
        assert oracle.same_bits(model.get_weights(), plain.get_weights())
    metrics = model.recording["metrics"]

    by_hand, optimizer = two_heads(keras.Model), keras.optimizers.SGD(0.1)
    expected: dict[str, list[float]] = {}
    for _ in range(2):
        for start in range(0, 20, 8):
            rows = slice(start, start + 8)
            with tf.GradientTape() as tape:
                out = by_hand(x[rows], training=True)
                one = tf.reduce_mean((out["one"] - y["one"][rows]) ** 2)
                two = tf.reduce_mean(tf.abs(out["two"] - y["two"][rows]))
                total = one + 0.5 * two + tf.add_n(by_hand.losses)
            variables = by_hand.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(total, [v.value for v in variables]), variables, strict=True))
            numbers = {
                "loss": total,
                "one_loss": one,
                "two_loss": two,
                "one_mae": np.mean(np.abs(out["one"] - y["one"][rows])),
                "two_mse": np.mean((out["two"] - y["two"][rows]) ** 2),
            }
            for key, value in numbers.items():
                expected.setdefault(key, []).append(float(value))
    assert set(expected) <= set(metrics.step_statistics)
    assert set(history) == set(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(metrics.step(key), values, rtol=1e-4, err_msg=key)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_sample_weights(mode: str) -> None:
    x, y = dense_data(24)
    weights = np.random.default_rng(1).uniform(0, 2, 24).astype("float32")
    model = dense(ki.IntrospectiveModel)
    model.compile(
        keras.optimizers.SGD(0.0), "mse", weighted_metrics=["mae"], collectors=[ki.StepMetrics()], **how(mode)
    )
    model.fit(x, y, sample_weight=weights, batch_size=8, epochs=1, shuffle=False, verbose=0)
    error = (np.array(model(x)) - y)[:, 0].reshape(3, 8)
    w = weights.reshape(3, 8)
    metrics = model.recording["metrics"]
    np.testing.assert_allclose(metrics.step("mae"), (w * np.abs(error)).sum(axis=1) / w.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(metrics.step("loss"), (w * error**2).mean(axis=1), rtol=1e-5)


class Custom(ki.IntrospectiveModel):
    """A step of its own, with a metric of its own under another name, and a number that no metric has."""

    def __init__(self) -> None:
        super().__init__(name="net")
        self.head = keras.layers.Dense(1, name="head")
        self.tracker = keras.metrics.Mean(name="tracker")
        self.error = keras.metrics.MeanAbsoluteError(name="error")

    def build(self, shape: Any) -> None:
        self.head.build(shape)
        self.built = True

    def call(self, x: Any) -> Any:
        return self.head(x)

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.error]

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = tf.reduce_mean((prediction - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        self.error(y, prediction)
        return {"mse": self.tracker.result(), "error": self.error.result(), "largest": tf.reduce_max(prediction)}


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_training_step_of_the_users_own(mode: str) -> None:
    """What it returns of a metric is that metric's own value of the batch, under the name that it gives it."""
    keras.utils.set_random_seed(3)
    model = Custom()
    model.build((None, 4))
    x, y = dense_data(24)
    weights = model.get_weights()
    model.compile(keras.optimizers.SGD(0.0), collectors=[ki.StepMetrics()], **how(mode))
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    prediction = x @ weights[0] + weights[1]
    error = (prediction - y).reshape(3, 8)
    metrics = model.recording["metrics"]
    np.testing.assert_allclose(metrics.step("largest"), np.tile(prediction.reshape(3, 8).max(axis=1), 2), rtol=1e-5)
    np.testing.assert_allclose(metrics.step("error"), np.tile(np.abs(error).mean(axis=1), 2), rtol=1e-5)
    np.testing.assert_allclose(metrics.step("mse"), np.tile((error**2).mean(axis=1), 2), rtol=1e-5)
    np.testing.assert_allclose(history.history["mse"], [(error**2).mean()] * 2, rtol=1e-5)


def test_loops_over_train_on_batch() -> None:
    x, y = dense_data(20)
    model = dense(ki.IntrospectiveModel)
    model.compile(keras.optimizers.SGD(0.3), "binary_crossentropy", metrics=["accuracy"], collectors=[ki.StepMetrics()])
    for xb, yb in kinds.batches(x, y):
        model.train_on_batch(xb, yb)
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    metrics = model.recording["metrics"]
    expected = [{k: v[k] for k in ("loss", "accuracy")} for v in batch_values(x, y, 2)]
    assert_steps(metrics, expected)
    losses = [v["loss"] for v in expected[3:]]  # the epoch is that of fit alone
    np.testing.assert_allclose(metrics.epoch("loss"), [np.percentile(losses, metrics.quantile_levels)], rtol=1e-4)


def test_what_is_no_number_is_named() -> None:
    """A metric that yields a vector has no value a step: it is listed as unobserved."""

    class PerClass(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="per_class")
            self.total = self.add_weight(shape=(2,), initializer="zeros", name="total")

        def update_state(self, y: Any, prediction: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(tf.stack([tf.reduce_sum(y), tf.reduce_sum(prediction)]))

        def result(self) -> Any:
            return self.total

    x, y = dense_data(16)
    model = dense(ki.IntrospectiveModel)
    fit(model, x, y, [PerClass()], [ki.StepMetrics()])
    assert "per_class" not in model.recording["metrics"].step_statistics
    assert any("per_class" in name for name in model.recording.unobserved)


class RawVariable(keras.metrics.Metric):
    """Counts samples in a variable that Keras does not know of."""

    def __init__(self, name: str = "raw") -> None:
        super().__init__(name=name)
        self.seen = tf.Variable(0.0, trainable=False)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.seen.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

    def result(self) -> Any:
        return tf.identity(self.seen)

    def reset_state(self) -> None:
        self.seen.assign(0.0)


class PythonState(keras.metrics.Metric):
    """Keeps its batches in a list and a number, of a metric within it too."""

    def __init__(self, name: str = "python", inner: bool = True) -> None:
        super().__init__(name=name)
        self.batches: list[Any] = []
        self.calls = 0
        if inner:
            self.inner = PythonState("inner", inner=False)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.batches.append(float(tf.reduce_mean(y_pred)))
        self.calls += 1
        self.later = self.calls
        if hasattr(self, "inner"):
            self.inner.update_state(y_true, y_pred)

    def result(self) -> Any:
        return tf.constant(sum(self.batches) + self.calls, tf.float32)

    def reset_state(self) -> None:
        self.batches.clear()
        self.calls = 0
        if hasattr(self, "inner"):
            self.inner.reset_state()


@pytest.mark.parametrize("mode", MODES[:2])
def test_a_metric_with_variables_of_its_own_is_left_alone(mode: str) -> None:
    """Its state would really be reset; it is left out, and said, and Keras's own logs are what they would be."""
    x, y = dense_data(40)
    model, plain = dense(ki.IntrospectiveModel), dense(keras.Model)
    ours = fit(model, x, y, [RawVariable(), "accuracy"], [ki.StepMetrics()], **how(mode))
    theirs = fit(plain, x, y, [RawVariable(), "accuracy"], **how(mode))
    assert ours.history["raw"] == theirs.history["raw"] == [40.0, 40.0]
    assert ours.history["accuracy"] == theirs.history["accuracy"]
    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    assert "raw" not in model.recording["metrics"].statistics
    assert "accuracy" in model.recording["metrics"].statistics
    assert "outside of Keras's variables" in model.recording.unobserved["raw"]


def test_a_metric_with_python_state_is_left_alone() -> None:
    x, y = dense_data(40)
    model, plain = dense(ki.IntrospectiveModel), dense(keras.Model)
    ours_metric, their_metric = PythonState(), PythonState()
    ours = fit(model, x, y, [ours_metric, "accuracy"], [ki.StepMetrics()], run_eagerly=True)
    theirs = fit(plain, x, y, [their_metric, "accuracy"], run_eagerly=True)
    assert ours.history["python"] == theirs.history["python"]
    for mine, other in ((ours_metric, their_metric), (ours_metric.inner, their_metric.inner)):
        assert (mine.batches, mine.calls, mine.later) == (other.batches, other.calls, other.later)
    assert "python" not in model.recording["metrics"].statistics  # it cannot be traced, so nobody knows what it does
    assert "accuracy" in model.recording["metrics"].statistics
    assert "python" in model.recording.unobserved


class Hidden(keras.metrics.Metric):
    """Keeps its state where nobody looks for it."""

    def __init__(self, state: str, name: str = "hidden") -> None:
        super().__init__(name=name)
        variable = tf.Variable(0.0, trainable=False)
        self.get = lambda: variable
        self.state, self.deep, self.array = state, {"a": [0]}, np.zeros(2)
        self.mean = keras.metrics.Mean()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if self.state == "closure":
            self.get().assign_add(tf.reduce_sum(y_pred))
        elif self.state == "python":
            self.deep["a"][0] += 1
            self.array[0] += 1.0
        elif self.state == "random":
            self.mean.update_state(tf.random.normal([]))
        self.mean.update_state(y_pred)

    def result(self) -> Any:
        return self.get() + self.mean.result() + float(self.deep["a"][0]) + float(self.array[0])

    def reset_state(self) -> None:
        self.get().assign(0.0)
        self.deep["a"][0] = 0
        self.mean.reset_state()


class Outer(Hidden):
    """Has such a metric within, in a dict."""

    def __init__(self, state: str) -> None:
        super().__init__("nothing", "hidden")
        self.within = {"part": [Hidden(state, "part")]}

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        super().update_state(*args, **kwargs)
        self.within["part"][0].update_state(*args, **kwargs)

    def result(self) -> Any:
        return super().result() + self.within["part"][0].result()


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("state", ["closure", "python", "random"])
@pytest.mark.parametrize("kind", [Hidden, Outer])
def test_state_that_is_hidden_is_left_alone(kind: Any, state: str, mode: str) -> None:
    x, y = dense_data(24)
    history = []
    for base, collectors in ((keras.Model, None), (ki.IntrospectiveModel, [ki.StepMetrics()])):
        model = dense(base)
        history.append(fit(model, x, y, [kind(state), "accuracy"], collectors, **how(mode)).history)
    assert history[0] == history[1]
    assert "accuracy" in model.recording["metrics"].statistics


class Spread(keras.metrics.Metric):
    """Is made of two metrics, whose values it subtracts."""

    def __init__(self) -> None:
        super().__init__(name="spread")
        self.low, self.high = keras.metrics.Mean(), keras.metrics.Mean()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.low.update_state(tf.reduce_min(y_pred))
        self.high.update_state(tf.reduce_max(y_pred))

    def result(self) -> Any:
        return self.high.result() - self.low.result()


def test_a_metric_made_of_others_stays_beside_one_that_is_left_out() -> None:
    x, y = dense_data(24)
    model = dense(ki.IntrospectiveModel)
    fit(model, x, y, [Spread(), RawVariable()], [ki.StepMetrics()])
    assert np.all(model.recording["metrics"].step("spread") > 0)
    assert set(model.recording.unobserved) == {"raw"}


def test_metrics_and_logs_of_dicts() -> None:
    """As Keras flattens its logs, at any depth."""

    class Both(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="both")
            self.low, self.high = keras.metrics.Mean(), keras.metrics.Mean()

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.low.update_state(tf.reduce_min(y_pred))
            self.high.update_state(tf.reduce_max(y_pred))

        def result(self) -> Any:
            return {"low": self.low.result(), "high": self.high.result()}

    x, y = dense_data(24)
    model = dense(ki.IntrospectiveModel)
    fit(model, x, y, [Both()], [ki.StepMetrics()])
    metrics = model.recording["metrics"]
    assert np.all(metrics.step("low") <= metrics.step("high"))
    assert len(metrics.step("low")) == 6


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("mode", MODES[:2])
def test_data_that_end_when_they_end(mode: str) -> None:
    """A generator says only when asked for more that there is no more: no step is counted in that call."""
    lengths = iter([3, 2])

    def batches() -> Any:
        for k in range(next(lengths)):
            yield np.full((2, 4), 1.0 + k, "float32"), np.ones((2, 1), "float32")

    data = tf.data.Dataset.from_generator(
        batches, output_signature=(tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    )
    model = dense(ki.IntrospectiveModel)
    collectors = [ki.StepMetrics(), ki.Gradients("moments", per_step=True), ki.Weights("moments", per_step=True)]
    model.compile(keras.optimizers.SGD(0.3), "binary_crossentropy", collectors=collectors, **how(mode))
    model.fit(data, epochs=2, verbose=0)
    loss = model.recording["metrics"].step("loss")
    assert len(loss) == 5
    ends = [(part.min(), part.max()) for part in (loss[:3], loss[3:])]
    np.testing.assert_allclose(model.recording["metrics"].epoch("loss")[:, [0, -1]], ends)
    for view in ("gradients", "weights"):
        series = model.recording[view]
        assert len(series.steps) == 5
        assert np.isfinite(series.step("rms")).all()
