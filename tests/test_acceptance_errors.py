"""Acceptance: what is wrong is said with what came and what exists."""

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_introspect as ki
import models

COLLECTORS = [ki.Weights, ki.Gradients, ki.Updates, ki.LayerOutputs, ki.OutputGradients]


def dense_model() -> Any:
    return ki.IntrospectiveSequential(
        [keras.Input((4,)), layers.Dense(6, activation="relu", name="hidden"), layers.Dense(1, name="head")],
        name="model",
    )


def compile_and_fit(model: Any, collectors: Any, **fit: Any) -> Any:
    x = np.random.default_rng(1).normal(size=(12, 4)).astype("float32")
    model.compile("sgd", "mse", collectors=collectors)
    return model.fit(x, x[:, :1], batch_size=6, epochs=1, verbose=0, **fit)


@contextlib.contextmanager
def refuses(*parts: str) -> Iterator[None]:
    """Expects a `ValueError` whose message has all these parts."""
    with pytest.raises(ValueError) as error:  # noqa: PT011
        yield
    for part in parts:
        assert part in str(error.value), f"{part!r} is missing in: {error.value}"


def test_unknown_collector_string() -> None:
    with refuses("defualt", "default", "all", "economy"):
        dense_model().compile("sgd", "mse", collectors="defualt")


@pytest.mark.parametrize("wrong", [42, "gradients/", keras.layers.ReLU, None], ids=str)
def test_unknown_collector_in_a_list(wrong: Any) -> None:
    with refuses(repr(wrong), "radients"):
        dense_model().compile("sgd", "mse", collectors=[ki.Weights(), wrong])


def test_unknown_collectors_object() -> None:
    with refuses("3.5", "default"):
        dense_model().compile("sgd", "mse", collectors=3.5)


@pytest.mark.parametrize("collector", COLLECTORS)
def test_unknown_statistic(collector: Any) -> None:
    with refuses("momnets", "moments", "activity"):
        compile_and_fit(dense_model(), [collector(statistics=["momnets"])])


@pytest.mark.parametrize("collector", COLLECTORS)
def test_unknown_layer(collector: Any) -> None:
    with refuses("nope*", "hidden", "head"):
        compile_and_fit(dense_model(), [collector(layers="nope*")])


@pytest.mark.parametrize("collector", COLLECTORS)
def test_one_unknown_layer_among_known_ones(collector: Any) -> None:
    with refuses("haed", "head"):
        compile_and_fit(dense_model(), [collector(layers=["*hidden*", "haed"])])


def test_unknown_layer_of_a_model_that_is_not_built_yet() -> None:
    x, y = models.data(8)
    model = models.build("subclassed", introspective=True)
    with refuses("nope*", "net/stem"):
        models.compile_and_fit(
            model, x, y, compile_args={"loss": models.loss("softmax"), "collectors": [ki.Gradients(layers="nope*")]}
        )


@pytest.mark.parametrize(
    ("callback", "key", "right"),
    [
        (keras.callbacks.EarlyStopping, "layer_outputs/dead_ratee", "layer_outputs/dead_rate"),
        (keras.callbacks.ReduceLROnPlateau, "gradients/rmss", "gradients/rms"),
        (keras.callbacks.EarlyStopping, "output_gradients/rms_", "output_gradients/"),
    ],
)
def test_callback_that_monitors_an_unknown_key(callback: Any, key: str, right: str) -> None:
    with refuses(key, right):
        compile_and_fit(dense_model(), "all", callbacks=[callback(key, mode="min")])


@pytest.mark.parametrize("key", ["layer_outputs/dead_rate", "layer_output/rms", "gradient/rms"])
def test_callback_that_monitors_a_key_of_a_collector_that_is_not_in_use(key: str) -> None:
    with refuses(key, "weights/rms"):
        compile_and_fit(dense_model(), [ki.Weights()], callbacks=[keras.callbacks.EarlyStopping(key, mode="min")])


def test_checkpoint_that_monitors_an_unknown_key(tmp_path: Any) -> None:
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "x.keras"), monitor="gradients/rmss", save_best_only=True
    )
    with refuses("gradients/rmss", "gradients/rms"):
        compile_and_fit(dense_model(), "all", callbacks=[checkpoint])


def test_collectors_without_an_optimizer() -> None:
    model = dense_model()
    with refuses("optimizer"):
        model.compile(optimizer=None, loss="mse", collectors="all")


class ArgMax(layers.Layer):
    """Returns integers."""

    def call(self, x: Any) -> Any:
        return tf.argmax(x, axis=-1)

    def compute_output_spec(self, x: Any) -> Any:
        return keras.KerasTensor(x.shape[:-1], dtype="int64")


def integer_model() -> Any:
    inputs = keras.Input((4,))
    h = layers.Dense(3, name="hidden")(inputs)
    index = ArgMax(name="winner")(h)
    code = layers.Embedding(3, 2, name="code")(index)
    return ki.IntrospectiveModel(inputs, layers.Dense(1, name="head")(layers.Concatenate(name="both")([h, code])))


@pytest.mark.parametrize("collector", [ki.LayerOutputs, ki.OutputGradients])
def test_integer_output_chosen_by_name(collector: Any) -> None:
    with refuses("winner", "int64"):
        compile_and_fit(integer_model(), [collector(layers="winner")])


def test_integer_output_among_all_is_listed_as_unobserved() -> None:
    model = integer_model()
    compile_and_fit(model, [ki.LayerOutputs()])
    names = model.recording["layer_outputs"].names
    assert set(names) == {"hidden", "code", "both", "head"}
    (reason,) = [reason for name, reason in model.recording.unobserved.items() if "winner" in name]
    assert "int" in reason
    assert len(model.recording.unobserved) == 1


@pytest.mark.parametrize("collector", COLLECTORS)
def test_the_same_collector_twice(collector: Any) -> None:
    with refuses(collector().name, "name="):
        dense_model().compile("sgd", "mse", collectors=[collector(), collector(layers="*hidden*")])


def test_two_collectors_of_a_kind_under_two_names() -> None:
    model = dense_model()
    compile_and_fit(model, [ki.Gradients(), ki.Gradients(layers="*hidden*", name="hidden_gradients")])
    assert set(model.recording["hidden_gradients"].names) == {"model/hidden/kernel", "model/hidden/bias"}
    assert len(model.recording["gradients"].names) == 4
    whole, part = model.recording["gradients"], model.recording["hidden_gradients"]
    for name in part.names:
        assert part.sel(name).epoch("rms") == whole.sel(name).epoch("rms")


@pytest.mark.parametrize("every", [0, -1, 1.5, "2"])
@pytest.mark.parametrize("collector", COLLECTORS[1:])
def test_every_is_a_positive_integer(collector: Any, every: Any) -> None:
    with refuses("every", repr(every)):
        collector(every=every)


@pytest.mark.parametrize("backend", ["jax", "torch", "numpy"])
def test_another_backend_is_refused_by_name(backend: str) -> None:
    program = """
        import keras_introspect as ki
        ki.Recording()  # needs no Keras
        for name in ("IntrospectiveModel", "IntrospectiveSequential", "instrument", "Gradients"):
            try:
                getattr(ki, name)
            except ImportError as error:
                assert not isinstance(error, ModuleNotFoundError), error
                print(error)
            else:
                raise SystemExit(f"{name} loaded")
        """
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) >= 4
    assert backend in done.stdout
    assert "tensorflow" in done.stdout.lower()


def test_a_dict_of_collectors_is_not_taken_for_its_keys() -> None:
    with refuses("{'weights': False, 'gradients': True}, a dict", "'default'", "ki.Gradients()", "a list"):
        dense_model().compile("sgd", "mse", collectors={"weights": False, "gradients": True})


@pytest.mark.parametrize("collector", [*COLLECTORS, ki.StepMetrics])
def test_unknown_argument_of_a_collector(collector: Any) -> None:
    with refuses(f"{collector.__name__}(): 'perstep'", "'every'", "Did you mean 'per_step'?"):
        collector(perstep=True)


def test_unknown_argument_of_a_statistic() -> None:
    with refuses("Values(): 'elemnts'", "Did you mean 'elements'?"):
        ki.Values(elemnts=3)


@pytest.mark.parametrize("wrong", [3, {"dense": True}, [3]], ids=str)
def test_layers_of_another_type(wrong: Any) -> None:
    with refuses(repr(wrong) if isinstance(wrong, int | dict) else "holds 3, an int", "layer names, globs"):
        ki.Gradients(layers=wrong)


@pytest.mark.parametrize("wrong", [3, {"moments": True}, [3]], ids=str)
def test_statistics_of_another_type(wrong: Any) -> None:
    with refuses("statistics= ", "expected", "'moments'", "Statistic"):
        ki.Gradients(wrong)


@pytest.mark.parametrize(("series", "statistic"), [("rms", "moments"), ("gsnr", "signal_to_noise")])
def test_a_series_is_no_statistic(series: str, statistic: str) -> None:
    with refuses(f"'{series}' is a series of the statistic '{statistic}'"):
        ki.Gradients(series)


@pytest.mark.parametrize("first", [True, False])
def test_a_collector_beside_a_preset_that_has_it(first: bool) -> None:
    given: list[Any] = ["default", ki.Gradients(per_step=True)]
    with refuses("'gradients'", "list the collectors instead", "[ki.Weights(), ki.Gradients(), ki.LayerOutputs()]"):
        dense_model().compile("sgd", "mse", collectors=given if first else given[::-1])


def test_a_view_that_was_not_collected_names_its_collector() -> None:
    model = dense_model()
    compile_and_fit(model, [ki.Weights()])
    for collector in [*COLLECTORS[1:], ki.StepMetrics]:
        with refuses(repr(collector.key), f"ki.{collector.__name__}()", "compile"):
            model.recording[collector.key]
    with refuses("'val_layer_outputs'", 'ki.LayerOutputs(phase="both")'):
        model.recording["val_layer_outputs"]
    with refuses("Nothing was observed", "collectors="):
        dense_model().recording["weights"]
    with refuses("0, an int", "a name (str)"):
        model.recording["weights"].sel(0)  # type: ignore[arg-type]


def test_merging_what_is_no_list() -> None:
    with refuses("a Recording", "a list of recordings"):
        ki.Recording.merge(ki.Recording())  # type: ignore[arg-type]


def test_files_in_a_folder_that_does_not_exist_are_named_themselves(tmp_path: Any) -> None:
    model = dense_model()
    compile_and_fit(model, "economy")
    writers = {"run.npz": model.recording.save, "run.html": lambda path: ki.report(model.recording, path)}
    for name, write in writers.items():
        path = tmp_path / "missing" / name
        with pytest.raises(FileNotFoundError, match=r"the folder '.*missing' does not exist") as error:
            write(path)
        assert error.value.filename == str(path)
        assert ".tmp" not in str(error.value)
