"""Two replicas record what one would: all statistics beyond moments, in a process of its own."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib
import keras, numpy as np, tensorflow as tf
import keras_introspect as ki

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(40, 6, 5, 2)).astype("float32"), rng.integers(0, 2, (40, 1)).astype("float32")

def collectors():
    return [
        ki.Gradients(["moments", "per_unit", "signal_to_noise"], epoch_sum=True, per_step=True, values=16),
        ki.Updates(["moments"], per_step=True),
        ki.LayerOutputs(["moments", "activity", "quantiles", "per_unit"], phase="both", per_step=True),
        ki.StepMetrics(),
    ]

def trained(strategy, collectors):
    with strategy.scope() if strategy else contextlib.nullcontext():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((6, 5, 2))
        h = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(inputs)
        h = keras.layers.Dense(3, activation="relu", name="dense")(keras.layers.Flatten(name="flat")(h))
        model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, activation="sigmoid", name="head")(h))
        metrics = ["accuracy", keras.metrics.AUC(name="auc")]
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "binary_crossentropy", metrics=metrics, collectors=collectors)
    fit = dict(epochs=2, batch_size=16, verbose=0, shuffle=False, validation_data=(x[:24], y[:24]))
    return model, model.fit(x, y, **fit).history

mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
plain, history_plain = trained(mirrored, None)
(two, history), (one, _) = trained(mirrored, collectors()), trained(None, collectors())
for a, b in zip(plain.get_weights(), two.get_weights(), strict=True):
    np.testing.assert_array_equal(a, b)
for key, values in history_plain.items():
    assert history[key] == values, (key, history[key], values)

checked = 0
for view, series in one.recording.items():
    other = two.recording[view]
    assert series.names == other.names, (view, series.names, other.names)
    np.testing.assert_array_equal(series.steps, other.steps)
    np.testing.assert_array_equal(series.epochs, other.epochs)
    assert set(series.step_statistics) == set(other.step_statistics)
    for how in ("epoch", "step"):
        for key in series.statistics if how == "epoch" else series.step_statistics:
            if key == "auc" or "implicit" in key and key.endswith("quantiles"):
                continue  # of a probability at a threshold, and of a gradient near zero, the last bit decides
            if key == "noise_scale":
                continue  # by the replicas' shares where there are some, by the steps where not
            a, b = getattr(series, how)(key), getattr(other, how)(key)
            np.testing.assert_allclose(b, a, rtol=5e-3, atol=1e-5, err_msg=f"{view} {how} {key}")
            checked += 1
    for key in series.unit_statistics:
        a, b = series.unit(key), other.unit(key)
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_allclose(b[name], a[name], rtol=1e-3, atol=1e-5, err_msg=f"{view} unit {key} {name}")
            checked += 1
auc = [model.recording["metrics"].step("auc") for model in (one, two)]
np.testing.assert_allclose(auc[1], auc[0], atol=0.02)
print("compared", checked)
"""


NOISE = """
import keras, numpy as np, tensorflow as tf
import keras_introspect as ki

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 4)).astype("float32"), 1 + rng.normal(size=(32, 2)).astype("float32")

def made():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", name="hidden")(inputs)
    return ki.IntrospectiveModel(inputs, keras.layers.Dense(2, name="head")(hidden), name="net")

checked = 0
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])  # TensorFlow mixes up the reductions of two of them
for clipnorm in (None, 1e9):  # read where the optimizer reduces, or reduced by us
    with mirrored.scope():
        model = made()
        optimizer = keras.optimizers.SGD(0.0, clipnorm=clipnorm)
        model.compile(optimizer, "mse", collectors=[ki.Gradients("signal_to_noise")])
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    alone = made()  # the weights do not move
    parts = {v.path: [] for v in alone.trainable_variables}
    for k in range(0, 32, 4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((alone(x[k : k + 4]) - y[k : k + 4]) ** 2)
        for v, g in zip(alone.trainable_variables, tape.gradient(loss, alone.trainable_variables)):
            parts[v.path].append(g.numpy().astype("float64").ravel())
    for name, own in parts.items():
        own = np.array(own)
        whole = (own.reshape(4, 2, -1).mean(axis=1) ** 2).sum(axis=1).mean()
        part = (own ** 2).sum(axis=1).mean()
        signal = 2 * whole - part
        expected = (part - whole) / (1 - 1 / 2) / signal if signal > 0 else np.nan
        found = model.recording["gradients"].sel(name).epoch("noise_scale")[0]
        np.testing.assert_allclose(found, expected, rtol=1e-3, err_msg=name)
        checked += 1
print("compared", checked)
"""


@pytest.mark.long
def test_noise_scale_from_the_shares_of_the_replicas() -> None:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", NOISE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) == 8


@pytest.mark.long
def test_two_replicas_record_what_one_does() -> None:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 100
