"""The gradients of what the layers return."""

import keras
import tensorflow as tf

from keras_introspect.capture import Capture, Seen, Wanted
from keras_introspect.capture.layers import HEAD_REASON
from keras_introspect.capture.loops import sums_of_gradient
from keras_introspect.capture.optimizers import unscaled
from keras_introspect.collectors.base import Group
from keras_introspect.collectors.layer_outputs import LayerCollector
from keras_introspect.statistics import Moments, Piece, TensorSpec


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
        scale = capture.loss_scale
        # In the order of the outputs; inside a loop they are noted only where a collector wants them.
        names = dict.fromkeys((*capture.outputs, *capture.output_gradients))
        return {
            name: [c if c.values is None else c._replace(values=unscaled(c.values, scale)) for c in calls]
            for name in names
            if (calls := capture.output_gradients.get(name))
        }

    def group_in_loops(self, capture: Capture, name: str, inside: list[Seen], outside: list[Seen]) -> Group:
        sums = tf.add_n([call.sums for call in inside])
        if capture.loss_scale is not None:
            scale = tf.cast(capture.loss_scale, tf.float64)
            one = tf.ones_like(scale)
            sums /= tf.stack([one, scale, scale * scale, scale, one, one])
        sums = tf.add_n([sums, *(sums_of_gradient(capture.apart(call.values)) for call in outside)])
        count, total, squares, total_abs, nonfinite, nonzero = tf.unstack(sums)
        moments = Moments.state_of_sums(tf.stack([count, total, squares, total_abs, nonfinite]))
        step = tf.cast(0 if capture.iterations is None else capture.iterations, tf.float64)
        first = tf.where(nonfinite > 0, step, moments[0, -1])
        states = {
            "moments": tf.concat([moments[:, :-1], first[None, None]], axis=1),
            "activity": tf.stack([count + nonfinite, nonzero])[:, None],
        }
        capture.missed[(self.key, f"{name} (in loops)")] = (
            "of gradients inside a loop only sums get out: no minimum, maximum and dead rates"
        )
        spec = TensorSpec(name, (None, None), batched=True, channel_axis=1)
        return [Piece(None, spec, states=states)]

    def groups(self, capture: Capture) -> list[Group]:
        groups = super().groups(capture)
        for name, calls in capture.outputs.items():
            if name in capture.output_gradients or not self.selection.chooses(calls[0].layer, name):
                continue
            head = hasattr(calls[0].values, "_keras_logits")  # Keras's softmax and sigmoid leave it on their result
            reason = HEAD_REASON if head else "the loss does not depend on it in the step: no gradient came back to it"
            capture.missed.setdefault((self.key, name), reason)
        return groups
