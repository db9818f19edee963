"""The gradients of what the layers return."""

import keras

from keras_introspect.capture import Capture, Seen, Wanted
from keras_introspect.capture.layers import HEAD_REASON
from keras_introspect.collectors.base import Group
from keras_introspect.collectors.layer_outputs import LayerCollector


@keras.saving.register_keras_serializable("keras_introspect")
class OutputGradients(LayerCollector):
    """d loss / d layer output, of the unscaled loss.

    The probabilities of a softmax or sigmoid head have none under Keras's cross-entropies, which start from the logits:
    the recording lists them as unobserved.

    Example:

    >>> OutputGradients(layers="conv*").name
    'output_gradients'
    """

    key = "output_gradients"
    wanted = Wanted(outputs=True, output_gradients=True)
    missing = "it was not called in the training step, or not where it can be seen"

    def seen(self, capture: Capture) -> dict[str, list[Seen]]:
        return {name: capture.output_gradients[name] for name in capture.outputs if name in capture.output_gradients}

    def groups(self, capture: Capture) -> list[Group]:
        groups = super().groups(capture)
        for name, calls in capture.outputs.items():
            if name in capture.output_gradients or not self.selection.chooses(calls[0].layer, name):
                continue
            head = hasattr(calls[0].values, "_keras_logits")
            reason = HEAD_REASON if head else "the loss does not depend on it in the step: no gradient came back to it"
            capture.missed.setdefault((self.key, name), reason)
        return groups
