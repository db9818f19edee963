"""Makes the files of this release that later ones must still read: `python tests/old_files.py`, once a release.

They lie in tests/data/<version>/: a recording alone, a model, its weights, a checkpoint taken in the midst of an epoch.
"""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki

FOLDER = Path(__file__).with_name("data")
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 4)).astype("float32"), RNG.normal(size=(20, 1)).astype("float32")
FIT: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": 0}


def made() -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, activation="relu", name="hidden")(inputs)
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(hidden), name="net")
    every = ["moments", "activity", "quantiles", "per_unit"]
    collectors = [
        ki.Weights(),
        ki.Gradients(["moments", "signal_to_noise"], per_step=True, epoch_sum=True),
        ki.Updates(),
        ki.LayerOutputs(every, phase="both", values=4),
        ki.OutputGradients(every),
        ki.StepMetrics(),
    ]
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], collectors=collectors)
    return model


class InTheMidst(keras.callbacks.Callback):
    """Saves a checkpoint after the second of three steps of the third epoch."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        self.prefix, self.epoch = prefix, -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (2, 1):
            tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer).write(str(self.prefix))


def main() -> None:
    folder = FOLDER / ki.__version__
    folder.mkdir(parents=True)
    model = made()
    model.fit(X, Y, epochs=2, validation_data=(X[:8], Y[:8]), **FIT)
    model.recording.save(folder / "run.npz")
    model.save(folder / "m.keras")
    model.save_weights(folder / "m.weights.h5")
    model.fit(X, Y, initial_epoch=2, epochs=3, callbacks=[InTheMidst(folder / "midst")], **FIT)


if __name__ == "__main__":
    sys.exit(main())
