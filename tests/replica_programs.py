"""Two logical CPU devices, in a process of their own, since devices are fixed when TensorFlow starts.

`python replica_programs.py PROGRAM FOLDER` ends without an error if all is well.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki

FOLDER = Path(sys.argv[2])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
TWO = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(32, 5, 3)).astype("float32"), rng.normal(size=(32, 1)).astype("float32")


def collectors() -> list[ki.Collector]:
    kinds = (ki.Weights, ki.Gradients, ki.LayerOutputs, ki.OutputGradients)
    return [kind(["moments", "activity"], per_step=kind is not ki.Weights) for kind in kinds]


def on(strategy: Any) -> Any:
    return strategy.scope() if strategy else contextlib.nullcontext()


def build(strategy: Any, observe: Any) -> Any:
    """Cells in a loop, a layer inside a wrapper, and layers outside of loops."""
    with on(strategy):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((5, 3))
        cells = [keras.layers.SimpleRNNCell(4, activation="relu", name="a"), keras.layers.GRUCell(4, name="b")]
        stacked = keras.layers.StackedRNNCells(cells, name="cells")
        hidden = keras.layers.RNN(stacked, return_sequences=True, name="rnn")(inputs)
        hidden = keras.layers.TimeDistributed(keras.layers.Dense(3, name="inner"), name="wrapper")(hidden)
        hidden = keras.layers.Flatten(name="flat")(hidden)
        model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(hidden), name="net")
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", collectors=observe)
    return model


def fit(model: Any, epochs: int = 2, initial_epoch: int = 0) -> Any:
    model.fit(*data(), batch_size=16, epochs=epochs, initial_epoch=initial_epoch, shuffle=False, verbose=0)
    return model


def assert_same(a: ki.Recording, b: ki.Recording) -> None:
    assert list(a) == list(b)
    assert a.unobserved == b.unobserved
    for view in a:
        assert a[view].names == b[view].names
        assert a[view].epochs.tolist() == b[view].epochs.tolist()
        for of, statistics in (("epoch", a[view].statistics), ("step", a[view].step_statistics)):
            for statistic in statistics:
                x, y = (getattr(recording[view], of)(statistic) for recording in (a, b))
                np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6, err_msg=f"{view} {statistic} by {of}")


def layers_inside_loops() -> None:
    plain, two, one = fit(build(TWO, None)), fit(build(TWO, collectors())), fit(build(None, collectors()))
    for a, b in zip(plain.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert "rnn/cells/a" in two.recording["layer_outputs"].names
    assert "rnn/cells/a" in two.recording["output_gradients"].names
    assert_same(two.recording, one.recording)


def saved_on_one_kind_of_device_and_loaded_on_another() -> None:
    observe = [ki.Gradients("moments"), ki.LayerOutputs("moments")]
    whole = fit(build(None, observe), epochs=2).recording
    for first, second in ((TWO, None), (None, TWO)):
        path = FOLDER / f"on-{'two' if first else 'one'}"
        saved = fit(build(first, observe), epochs=1)
        saved.save(f"{path}.keras")
        saved.save_weights(f"{path}.weights.h5")
        tf.train.Checkpoint(model=saved).write(str(path))
        with on(second):
            resumed = keras.saving.load_model(f"{path}.keras")
        loaded = [build(second, observe), build(second, observe)]
        with on(second):
            loaded[0].optimizer.build(loaded[0].trainable_variables)
            loaded[0].load_weights(f"{path}.weights.h5")
            tf.train.Checkpoint(model=loaded[1]).read(str(path)).expect_partial()
        for model in (resumed, *loaded):
            assert_same(model.recording, saved.recording)
        assert_same(fit(resumed, epochs=2, initial_epoch=1).recording, whole)


class AfterFirstBatch(keras.callbacks.Callback):
    def __init__(self, action: str, path: Path) -> None:
        super().__init__()
        self.action, self.path = action, path

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            getattr(self.model, self.action)(self.path)


def saved_in_the_midst_of_an_epoch() -> None:
    """Steps of an epoch begun on two devices count, once, with those that end it on one; and the reverse.

    What is loaded after the first batch, another one, takes the place of what that batch left.
    """
    x, y = data()
    observe = [ki.Gradients(["moments"]), ki.LayerOutputs(["moments", "activity"], layers=["flat", "head"])]
    whole = fit(build(None, observe), epochs=1).recording
    for first, second in ((TWO, None), (None, TWO)):
        path = FOLDER / f"begun-on-{'two' if first else 'one'}.weights.h5"
        saved = build(first, observe)
        one_batch = {"batch_size": 16, "shuffle": False, "verbose": 0}
        saved.fit(x[:16], y[:16], callbacks=[AfterFirstBatch("save_weights", path)], **one_batch)
        other_first = np.concatenate([2 * x[16:], x[16:]]), np.concatenate([y[16:], y[16:]])
        resumed = build(second, observe)
        resumed.fit(*other_first, callbacks=[AfterFirstBatch("load_weights", path)], **one_batch)
        assert_same(resumed.recording, whole)


if __name__ == "__main__":
    {
        "loops": layers_inside_loops,
        "saved": saved_on_one_kind_of_device_and_loaded_on_another,
        "begun": saved_in_the_midst_of_an_epoch,
    }[sys.argv[1]]()
