"""Several replicas: two logical CPU devices, in a process of their own: devices are fixed when TensorFlow starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import contextlib, sys
import keras, numpy as np, tensorflow as tf
import keras_introspect as ki

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(64, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 64)

def trained(strategy, collectors):
    with strategy.scope() if strategy else contextlib.nullcontext():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((8, 8, 1))
        h = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(inputs)
        h = keras.layers.Flatten(name="flat")(h)
        model = ki.IntrospectiveModel(inputs, keras.layers.Dense(3, name="head")(h))
        optimizer = keras.optimizers.SGD(0.05, **(dict(clipnorm=0.05) if "clipped" in sys.argv else {}))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, collectors=collectors)
    model.fit(x, y, epochs=2, batch_size=32, verbose=0, shuffle=False)
    return model

def collectors():
    kinds = (ki.Weights, ki.Gradients, ki.Updates, ki.LayerOutputs, ki.OutputGradients)
    return [kind(["moments", "activity"]) for kind in kinds]

mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
plain = trained(mirrored, None)
two, one = trained(mirrored, collectors()), trained(None, collectors())
for a, b in zip(plain.get_weights(), two.get_weights(), strict=True):
    np.testing.assert_array_equal(a, b)
if "clipped" not in sys.argv:  # Keras clips each replica's gradient for itself: that training is another one
    for view in one.recording:
        for statistic in one.recording[view].statistics:
            np.testing.assert_allclose(
                two.recording[view].epoch(statistic), one.recording[view].epoch(statistic),
                rtol=1e-2 if statistic.startswith("implicit") else 1e-4, atol=1e-6, err_msg=f"{view} {statistic}",
            )
else:  # the first step starts from the same weights: its gradient is summed over the replicas, before clipping
    first = lambda model: model.recording["gradients"].epoch("count")
    np.testing.assert_array_equal(first(two), first(one))
print("all equal")
"""


@pytest.mark.parametrize("optimizer", ["plain", "clipped"])
def test_two_replicas_record_what_one_does(optimizer: str) -> None:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", PROGRAM, optimizer]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "all equal" in result.stdout


@pytest.mark.long
@pytest.mark.parametrize("program", ["loops", "saved", "begun"])
def test_replicas(program: str, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent / "replica_programs.py"), program, str(tmp_path)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
