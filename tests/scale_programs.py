"""Large models, each in a process of its own, whose peak memory is the model's: `python scale_programs.py PROGRAM`.

Prints what was measured as JSON.
"""

import json
import resource
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki

ROWS, WIDTH = 25_000_000, 8  # 200 million elements, 800 MB of float32
DEPTH = 160


def peak() -> int:
    """Bytes that this process has ever had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def embedding(observe: Any) -> dict[str, Any]:
    """Peak memory of a training in which a large embedding is looked up in a few places."""
    inputs = keras.Input((4,), dtype="int32")
    rows = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer="zeros", name="table")
    outputs = keras.layers.Dense(1, name="head")(keras.layers.Flatten(name="flat")(rows(inputs)))
    model = ki.IntrospectiveModel(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.1), "mse", collectors=observe)
    x = np.arange(64).reshape(16, 4) * (ROWS // 64)
    x[1] = x[0]  # rows that are looked up twice
    before = peak()
    model.fit(x, np.ones((16, 1)), batch_size=8, epochs=2, shuffle=False, verbose=0)
    found = {"before": before, "after": peak()}
    if observe:
        series = model.recording["gradients"].sel("table/embeddings")
        found |= {key: series.epoch(key).tolist() for key in ("count", "activation_rate")}
    return found


def deep() -> dict[str, Any]:
    """A chain of dense layers, each observed."""
    keras.utils.set_random_seed(1)
    inputs = hidden = keras.Input((8,))
    for i in range(DEPTH):
        step = keras.layers.Dense(8, activation="tanh", name=f"layer{i}")(hidden)
        hidden = step if i % 2 else keras.layers.Add(name=f"add{i}")([hidden, step])
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(hidden))
    model.compile(keras.optimizers.SGD(0.01), "mse", collectors="all")
    weights = model.get_weights()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 8)).astype("float32"), rng.normal(size=(16, 1)).astype("float32")
    outputs = keras.Model(inputs, [layer.output for layer in model.layers[1:]])(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    model.fit(x, y, batch_size=16, epochs=1, verbose=0)
    observed = model.recording
    rms = lambda values: [float(np.sqrt(np.mean(np.square(np.asarray(v, np.float64))))) for v in values]  # noqa: E731
    return {
        "layers": len(observed["layer_outputs"].names),
        "outputs": [rms(outputs), observed["layer_outputs"].epoch("rms")[0].tolist()],
        "gradients": [rms(gradients), observed["gradients"].epoch("rms")[0].tolist()],
        "output_gradients": len(observed["output_gradients"].names),
        "unobserved": observed.unobserved,
        "weights": len(weights),
    }


if __name__ == "__main__":
    programs: dict[str, Any] = {
        "plain": lambda: embedding(None),
        "observed": lambda: embedding([ki.Gradients(), ki.LayerOutputs(), ki.OutputGradients()]),
        "deep": deep,
    }
    print(json.dumps(programs[sys.argv[1]]()))
