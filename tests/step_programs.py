"""Trainings of some thousand steps for tests, run in a process of their own: `python step_programs.py PROGRAM`.

Prints what was measured as JSON.
"""

import gc
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki

STEPS, EPOCHS = 1000, 5
WIDTHS = (8, 6, 4, 3)


def chain(widths: Sequence[int], base: Any = ki.IntrospectiveModel) -> Any:
    """Dense layers one behind the other, and a head of one unit; each has the width given."""
    keras.utils.set_random_seed(0)
    hidden = inputs = keras.Input((5,), name="x")
    for i, width in enumerate(widths):
        hidden = keras.layers.Dense(width, activation="relu", name=f"layer{i}")(hidden)
    return base(inputs, keras.layers.Dense(1, name="head")(hidden), name="net")


def batches(steps: int, size: int = 4) -> Any:
    """The same few batches again and again, all of one size."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, size, 5)).astype("float32"), rng.normal(size=(8, size, 1)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().take(steps)


def every_view(**arguments: Any) -> list[Any]:
    """All five collectors."""
    views = (ki.Weights, ki.Gradients, ki.Updates, ki.LayerOutputs, ki.OutputGradients)
    return [view(**arguments) for view in views]


def observed(observe: str) -> Any:
    """A chain that is compiled with what `observe` says: `"plain"`, a preset or `"per_step"`."""
    if observe == "plain":
        model = chain(WIDTHS, keras.Model)
        model.compile("adam", "mse")
    else:
        model = chain(WIDTHS)
        model.compile("adam", "mse", collectors=every_view(per_step=True) if observe == "per_step" else observe)
    return model


def bytes_a_step(recording: ki.Recording) -> float:
    """What one step takes in the recording: a number a statistic and tensor, and the step's own."""
    return sum(
        8 + sum(series.step(key).nbytes for key in series.step_statistics) / len(series.steps)
        for series in recording.values()
        if len(series.steps)
    )


class ResidentSet(keras.callbacks.Callback):
    """The memory that this process has, after each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        gc.collect()
        self.bytes.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())


def main(observe: str) -> dict[str, Any]:
    model, resident = observed(observe), ResidentSet()
    model.fit(batches(STEPS), epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[resident])
    recorded = 0.0 if observe == "plain" else bytes_a_step(model.recording)
    return {"resident": resident.bytes, "bytes_a_step": recorded}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
