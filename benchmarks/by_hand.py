"""What is written without this package: a training loop that takes statistics of all outputs and gradients itself."""

from collections import defaultdict
from typing import Any

import keras
import numpy as np
import tensorflow as tf

LEVELS = np.linspace(0, 100, 9)


class NotApplicable(Exception):
    """A configuration cannot be had of this subject in this mode."""


class ByHand:
    """Trains a compiled functional model, an epoch a call, and keeps what it saw in lists.

    Of each layer's output and each variable's gradient, in each step: norm, mean, standard deviation and the share of
    zeros, in the train step, and exact percentiles, by NumPy of the whole tensor.

    Args:
        model: compiled with one loss; the model is trained, its optimizer does it.
        mode: of the benchmark: "graph", "xla" or "eager".
    """

    def __init__(self, model: Any, mode: str) -> None:
        if mode == "mirrored":
            raise NotApplicable("a loop over replicas would be another program")
        layers = [layer for layer in getattr(model, "layers", ()) if not isinstance(layer, keras.layers.InputLayer)]
        try:
            outputs = [layer.output for layer in layers]
        except (AttributeError, ValueError) as error:  # not functional, or a layer that is called twice
            raise NotApplicable(f"a layer has no output of its own: {error}") from error
        if not all(isinstance(output, keras.KerasTensor) for output in outputs):
            raise NotApplicable("a layer has several outputs")
        self.names = [layer.name for layer in layers] + [variable.path for variable in model.trainable_variables]
        self._model = model
        self._monitor = keras.Model(model.inputs, [model.output, *outputs])
        self._loss = keras.losses.get(model.loss)
        self._metrics = [keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()]
        self._step = self._train if mode == "eager" else tf.function(self._train, jit_compile=mode == "xla")
        self.kept: dict[str, dict[str, list[Any]]] = {}

    def __call__(self, data: Any) -> None:
        for metric in self._metrics:
            metric.reset_state()
        self.kept = {name: defaultdict(list) for name in self.names}
        for x, y in data:
            numbers, tensors = self._step(x, y)
            for name, of_this, tensor in zip(self.names, numbers, tensors, strict=True):
                for key, value in of_this.items():
                    self.kept[name][key].append(float(value))
                self.kept[name]["percentiles"].append(np.percentile(tensor.numpy(), LEVELS))
        for metric in self._metrics:
            metric.result().numpy()

    def _train(self, x: Any, y: Any) -> tuple[list[dict[str, Any]], list[Any]]:
        variables = [variable.value for variable in self._model.trainable_variables]
        with tf.GradientTape() as tape:
            predicted, *outputs = self._monitor(x, training=True)
            loss = tf.reduce_mean(self._loss(y, predicted))
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
        self._model.optimizer.apply_gradients(zip(gradients, self._model.trainable_variables, strict=True))
        self._metrics[0].update_state(loss)
        self._metrics[1].update_state(y, predicted)
        tensors = [*outputs, *gradients]
        return [_numbers(tensor) for tensor in tensors], tensors


def _numbers(tensor: Any) -> dict[str, Any]:
    return {
        "norm": tf.norm(tensor),
        "mean": tf.reduce_mean(tensor),
        "std": tf.math.reduce_std(tensor),
        "zeros": tf.reduce_mean(tf.cast(tensor == 0, tf.float32)),
    }
