"""Acceptance: a model with collectors is the Keras model it was, its logs are Keras logs, and it saves and loads."""

import collections
import csv
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_introspect as ki
import models
import oracle
from traced import find_tf_function, operations_of

PREFIXES = ("weights/", "gradients/", "updates/", "layer_outputs/", "output_gradients/")


def small_net(introspective: bool, dropout: bool = False) -> Any:
    """A dense network that no seed state keeps from resuming exactly, unless it has dropout."""
    keras.utils.set_random_seed(7)
    base = ki.IntrospectiveSequential if introspective else keras.Sequential
    chain = [layers.Dense(8, activation="relu", name="hidden")]
    if dropout:
        chain.append(layers.Dropout(0.3, seed=1, name="drop"))
    return base([keras.Input((4,)), *chain, layers.Dense(3, activation="softmax", name="head")], name="model")


def small_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(40, 4)).astype("float32"), rng.integers(0, 3, 40).astype("int32")


def small_compile(model: Any, **kwargs: Any) -> Any:
    if isinstance(model, ki.IntrospectiveModel):
        kwargs.setdefault("collectors", "all")
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"], **kwargs)
    return model


def small_fit(model: Any, epochs: int = 2, **kwargs: Any) -> Any:
    x, y = small_data()
    return model.fit(x, y, **{"batch_size": 16, "epochs": epochs, "shuffle": False, "verbose": 0, **kwargs})


# --- undisturbed training ---

# Each is sensitive to the order of summation: a graph rewritten differently shows in the last bits.
NETS = {
    "normalised": lambda: [
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dense(12),
        layers.Dense(5, activation="softmax"),
    ],
    "regularised": lambda: [
        layers.Conv2D(4, 3, kernel_regularizer="l2", bias_regularizer="l1"),
        layers.LayerNormalization(),
        layers.SpatialDropout2D(0.2, seed=1),
        layers.Conv2D(6, 3, strides=2, activation="gelu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(12, activation="tanh", kernel_regularizer="l2"),
        layers.Dropout(0.2, seed=2),
        layers.Dense(5, activation="softmax"),
    ],
    "recurrent": lambda: [
        layers.Reshape((8, 24)),
        layers.GRU(6, return_sequences=True),
        layers.LSTM(5, dropout=0.2, seed=3),
        layers.Dense(5, activation="softmax"),
    ],
}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01, global_clipnorm=1.0, use_ema=True),
}


@pytest.mark.parametrize(
    ("net", "optimizer", "eager"),
    [
        ("normalised", "sgd", False),
        ("normalised", "adamw", True),
        ("regularised", "adamw", False),
        ("regularised", "sgd", True),
        ("recurrent", "adamw", False),
    ],
)
def test_bits_of_weights_and_optimizer_are_undisturbed(net: str, optimizer: str, eager: bool) -> None:
    x, y = models.data()
    trained = []
    for introspective in (False, True):
        keras.utils.set_random_seed(1)
        base = ki.IntrospectiveSequential if introspective else keras.Sequential
        model = base([keras.Input(models.SHAPE), *NETS[net]()])
        compile_args = {
            "optimizer": OPTIMIZERS[optimizer](),
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy"],
            "run_eagerly": eager,
        }
        if introspective:
            quick = [
                collector(statistics=["moments"]) for collector in (ki.Gradients, ki.LayerOutputs, ki.OutputGradients)
            ]
            compile_args["collectors"] = "all" if net == "normalised" else quick
        history = models.compile_and_fit(model, x, y, compile_args=compile_args, validation_data=(x[:20], y[:20]))
        trained.append((model, history))
    (plain, before), (model, after) = trained
    differ = [
        v.path
        for v, w in zip(model.variables, plain.variables, strict=True)
        if not oracle.same_bits([v.numpy()], [w.numpy()])
    ]
    assert not differ
    assert oracle.same_bits(oracle.optimizer_values(model.optimizer), oracle.optimizer_values(plain.optimizer))
    for key, values in before.history.items():
        assert after.history[key] == values


def graph_of_step(model: Any, data: Any = None) -> collections.Counter[str]:
    """How often each kind of operation occurs in the traced train step, with all functions that it calls."""
    dataset = tf.data.Dataset.from_tensor_slices(data or models.data()).batch(32)
    model.make_train_function()
    return operations_of(find_tf_function(model.train_function).get_concrete_function(iter(dataset)).graph)


@pytest.mark.parametrize("kind", models.KINDS)
def test_without_collectors_the_graph_is_that_of_keras(kind: str) -> None:
    graphs = []
    for introspective in (False, True):
        model = models.build(kind, introspective=introspective)
        model(np.zeros((1, *models.SHAPE), "float32"), training=False)
        model.compile(models.optimizer("adam"), models.loss("softmax"), metrics=["accuracy"])
        graphs.append(graph_of_step(model))
    plain, ours = graphs
    assert sum(plain.values()) > 300  # the step itself, not only the call of it
    assert ours == plain


def test_collectors_that_are_taken_away_leave_no_trace_in_the_graph() -> None:
    model = small_compile(small_net(True), collectors=[ki.Updates(statistics=["activity"])])
    data = small_data()
    observed = graph_of_step(model, data)
    small_compile(model, collectors=None)
    plain = graph_of_step(small_compile(small_net(False)), data)
    assert graph_of_step(model, data) == plain
    assert sum(observed.values()) > sum(plain.values())


def summary_of(model: Any) -> str:
    lines: list[str] = []
    model.summary(print_fn=lambda line, line_break=None: lines.append(line), expand_nested=True, show_trainable=True)
    return "\n".join(lines)


def surface(model: Any) -> dict[str, Any]:
    x, y = models.data()
    return {
        "weights": [(w.path.split("/")[-2:], w.shape, w.dtype, w.trainable) for w in model.weights],
        "variables": len(model.variables),
        "trainable": len(model.trainable_variables),
        "layers": [layer.name for layer in model.layers],
        "count_params": model.count_params(),
        "summary": summary_of(model),
        "metrics_names": model.metrics_names,
        "metrics": [m.name for m in model.metrics],
        "evaluate": model.evaluate(x, y, batch_size=32, verbose=0),
        "evaluate_dict": model.evaluate(x, y, batch_size=32, verbose=0, return_dict=True),
        "predict": model.predict(x, batch_size=32, verbose=0).tobytes(),
        "get_weights": [w.tobytes() for w in model.get_weights()],
    }


@pytest.mark.parametrize(
    ("kind", "eager"), [("functional", True), ("sequential", True), ("subclassed", False), ("instrumented", True)]
)
def test_the_surface_of_the_model_is_that_of_keras(kind: str, eager: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    x, y = models.data()
    surfaces = []
    for introspective in (False, True):
        keras.utils.clear_session(free_memory=False)
        model = models.build(kind, introspective=introspective)
        model(np.zeros((1, *models.SHAPE), "float32"), training=False)
        compile_args = {"run_eagerly": eager, **({"collectors": "all"} if introspective else {})}
        model.compile(models.optimizer("adam"), models.loss("softmax"), metrics=["accuracy"], **compile_args)
        before = surface(model)
        model.fit(x, y, batch_size=32, epochs=1, shuffle=False, verbose=0)
        surfaces.append((before, surface(model)))
    for moment, plain, ours in zip(("before", "after"), *surfaces, strict=True):
        for key, value in plain.items():
            assert ours[key] == value, f"{key} differs {moment} training"


# --- callbacks and logs ---


class Reader(keras.callbacks.Callback):
    """Reads the recording inside `on_epoch_end`."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.epochs: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)
        recording = self.model.recording
        for view in ("weights", "gradients", "updates", "layer_outputs", "output_gradients"):
            series = recording[view]
            if list(series.epochs) != list(range(epoch + 1)):
                self.problems.append(f"{view}: epochs {series.epochs} in epoch {epoch}")
            elif not np.isfinite(series.epoch("rms")[-1]).all():
                self.problems.append(f"{view}: {series.epoch('rms')[-1]} in epoch {epoch}")
        for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
            if recording.logs[key][-1] != logs[key]:
                self.problems.append(
                    f"recording.logs[{key!r}] is {recording.logs[key]} in epoch {epoch}, logs: {logs[key]}"
                )
        if "gradients/rms" not in logs:
            self.problems.append(f"logs of epoch {epoch} have {sorted(logs)}")


@pytest.mark.parametrize("eager", [False, True])
def test_callbacks_and_history_take_our_keys(tmp_path: Path, eager: bool) -> None:
    x, y = small_data()
    model = small_compile(small_net(True), run_eagerly=eager)
    first, last = Reader(), Reader()
    best = tmp_path / "best.weights.h5"
    history = small_fit(
        model,
        epochs=3,
        validation_data=(x, y),
        callbacks=[
            first,
            keras.callbacks.EarlyStopping("layer_outputs/dead_rate", mode="min", patience=10),
            keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
            keras.callbacks.ModelCheckpoint(
                str(best), monitor="gradients/rms", mode="max", save_best_only=True, save_weights_only=True
            ),
            keras.callbacks.ReduceLROnPlateau("gradients/rms", mode="min", patience=10),
            last,
        ],
    )
    for reader in (first, last):
        assert not reader.problems, "\n".join(reader.problems)
        assert reader.epochs == [0, 1, 2]
    ours = [key for key in history.history if key.startswith(PREFIXES)]
    wanted = {
        "gradients/rms",
        "layer_outputs/dead_rate",
        "layer_outputs/activation_rate",
        *(f"{view}nonfinite" for view in PREFIXES),
    }
    assert wanted <= set(ours)
    for key in (*ours, "loss", "val_loss"):
        assert len(history.history[key]) == 3
        assert all(isinstance(value, float) and np.isfinite(value) for value in history.history[key]), key
    worst = np.nanmax(model.recording["layer_outputs"].epoch("dead_rate"), axis=1)
    np.testing.assert_allclose(history.history["layer_outputs/dead_rate"], worst, rtol=1e-6)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    for key in ours:
        np.testing.assert_allclose([float(row[key]) for row in rows], history.history[key], rtol=1e-6)
    assert best.exists()


def test_early_stopping_stops_on_our_key() -> None:
    model = small_net(True)
    hidden = model.get_layer("hidden")
    kernel, bias = hidden.get_weights()
    bias[:3] = -1e3
    hidden.set_weights([kernel, bias])
    hidden.trainable = False
    small_compile(model, run_eagerly=True)
    stop = keras.callbacks.EarlyStopping("layer_outputs/dead_rate", mode="min", patience=1)
    history = small_fit(model, epochs=5, callbacks=[stop])
    assert history.history["layer_outputs/dead_rate"] == [3 / 8, 3 / 8]
    assert stop.stopped_epoch == 1
    assert stop.best == 3 / 8


@pytest.mark.parametrize("verbose", [1, 2])
def test_progress_bar_shows_none_of_our_keys(verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = small_data()
    model = small_compile(small_net(True), run_eagerly=True)
    history = small_fit(model, verbose=verbose, validation_data=(x, y))
    shown = capsys.readouterr()
    assert "gradients/rms" in history.history
    assert "accuracy" in shown.out
    assert "val_loss" in shown.out
    for prefix in PREFIXES:
        assert prefix not in shown.out
        assert prefix.rstrip("/") not in shown.out
    assert not shown.err


def test_a_callback_list_and_a_history_of_the_user() -> None:
    model = small_compile(small_net(True), run_eagerly=True)
    mine = keras.callbacks.History()
    assert small_fit(model, callbacks=[mine]) is mine
    assert len(mine.history["gradients/rms"]) == 2
    reader = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append("gradients/rms" in logs))
    seen: list[bool] = []
    small_fit(model, callbacks=reader)  # one callback, not in a list
    assert seen == [True, True]


# --- save and load ---


def assert_same_recording(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    assert one.unobserved == other.unobserved
    np.testing.assert_array_equal(one.epochs, other.epochs)
    assert set(one.logs) == set(other.logs)
    for key in one.logs:
        np.testing.assert_array_equal(one.logs[key], other.logs[key])
    for view in one:
        assert one[view].names == other[view].names
        assert one[view].shapes == other[view].shapes
        assert set(one[view].statistics) == set(other[view].statistics)
        np.testing.assert_array_equal(one[view].epochs, other[view].epochs)
        for statistic in one[view].statistics:
            np.testing.assert_array_equal(one[view].epoch(statistic), other[view].epoch(statistic), err_msg=statistic)


@pytest.mark.parametrize("kind", models.KINDS)
def test_recording_travels_in_the_keras_file(kind: str, tmp_path: Path) -> None:
    x, y = models.data()
    model = models.build(kind, introspective=True)
    compile_args = {"loss": models.loss("softmax"), "run_eagerly": True, "collectors": "all"}
    models.compile_and_fit(model, x, y, compile_args=compile_args)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    assert isinstance(loaded, ki.IntrospectiveModel)
    assert_same_recording(loaded.recording, model.recording)
    assert oracle.same_bits(loaded.get_weights(), model.get_weights())

    loaded.fit(x, y, batch_size=32, epochs=1, shuffle=False, verbose=0)  # the collectors came along, too
    for view in model.recording:
        np.testing.assert_array_equal(loaded.recording[view].epochs, [0, 1, 2])
        assert loaded.recording[view].names == model.recording[view].names
        for statistic in ("rms", "count"):
            old, new = model.recording[view].epoch(statistic), loaded.recording[view].epoch(statistic)
            np.testing.assert_array_equal(new[:2], old)
            np.testing.assert_array_equal(np.isnan(new[2]), np.isnan(old[1]))
    assert list(model.recording.epochs) == [0, 1]


@pytest.fixture
def interrupted(tmp_path: Path) -> Any:
    model = small_compile(small_net(True), run_eagerly=True)
    small_fit(model, epochs=1)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    small_fit(loaded, epochs=1)
    return loaded


def test_training_goes_on_after_loading_as_if_unbroken(interrupted: Any) -> None:
    unbroken = small_compile(small_net(True), run_eagerly=True)
    small_fit(unbroken, epochs=2)
    assert oracle.same_bits(interrupted.get_weights(), unbroken.get_weights())
    assert_same_recording(interrupted.recording, unbroken.recording)


def test_npz_round_trip(tmp_path: Path) -> None:
    model = small_compile(small_net(True, dropout=True), run_eagerly=True)
    small_fit(model)
    model.recording.save(tmp_path / "run.npz")
    assert_same_recording(ki.Recording.load(tmp_path / "run.npz"), model.recording)


def test_weights_interchange_with_plain_keras(tmp_path: Path) -> None:
    ours, plain = (small_compile(small_net(introspective), run_eagerly=True) for introspective in (True, False))
    small_fit(ours)
    small_fit(plain, epochs=1)  # its optimizer gets its variables
    ours.save_weights(tmp_path / "ours.weights.h5")
    plain.load_weights(tmp_path / "ours.weights.h5")
    assert oracle.same_bits(plain.get_weights(), ours.get_weights())
    small_fit(plain)
    plain.save_weights(tmp_path / "plain.weights.h5")
    ours.load_weights(tmp_path / "plain.weights.h5")
    assert oracle.same_bits(plain.get_weights(), ours.get_weights())
