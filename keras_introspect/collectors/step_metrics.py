"""The loss and the metrics of each batch by itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_introspect.capture import Capture, Wanted
from keras_introspect.capture.metrics import values_of_step
from keras_introspect.collectors.base import Collector, Group
from keras_introspect.statistics.quantiles import DEFAULT_LEVELS, checked_levels


@keras.saving.register_keras_serializable("keras_introspect")
class StepMetrics(Collector):
    """The batch's own loss and metrics in each step, where Keras's logs are running means over the epoch.

    `recording["metrics"].step("loss")` is a value a step, `.epoch("loss")` their quantiles over the batches of the
    epoch, exact, at `levels`. Besides the loss, its parts and the metrics, as Keras names them: `learning_rate`, that
    of the first optimizer before the step, and `gradient_norm`, sqrt(Σ g²) over all gradients that reach an optimizer,
    the loss scale divided out, before clipping.

    Args:
        levels: percent, ascending, from 0 to 100.
        every: observe each n-th step, counted by `optimizer.iterations`.
        per_step: keep the values of the steps, not their quantiles alone.
        name: key in the recording.

    Example:

    >>> StepMetrics(every=10)
    StepMetrics(every=10)
    """

    key = "metrics"
    replicated = True
    wanted = Wanted(gradients=True, metrics=True)

    def __init__(
        self, levels: Sequence[float] = DEFAULT_LEVELS, every: int = 1, per_step: bool = True, name: str | None = None
    ) -> None:
        super().__init__((), every=every, per_step=per_step, logs=None, name=name)
        self.levels = checked_levels(levels)

    def candidates(self, model: Any) -> list[tuple[Any, tuple[str, ...]]]:
        return []

    def groups(self, capture: Capture) -> list[Group]:
        return []

    def values(self, capture: Capture) -> dict[str, Any]:
        """Name → float64 scalar, of this step."""
        values = values_of_step(capture)
        if capture.learning_rate is not None:
            values.setdefault("learning_rate", tf.cast(capture.learning_rate, tf.float64))
        gradients = [capture.apart(seen.values) for _, calls in capture.gradients.values() for seen in calls]
        if gradients:
            squares = [tf.cast(2.0 * tf.nn.l2_loss(tf.cast(g, tf.float32)), tf.float64) for g in gradients]
            values.setdefault("gradient_norm", tf.sqrt(tf.add_n(squares)))
        return values

    def quantiles(self, steps: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The epoch values (1, Q) from the steps (S,) of one epoch."""
        found = {}
        for name, values in steps.items():
            finite = values[np.isfinite(values)]
            found[name] = (np.percentile(finite, self.levels) if len(finite) else np.full(len(self.levels), np.nan))[
                None
            ]
        return found

    def get_config(self) -> dict[str, Any]:
        return {"levels": self.levels.tolist(), "every": self.every, "per_step": self.per_step, "name": self.name}
