"""What the layers return."""

from typing import Any

import keras

from keras_introspect.capture import Capture, Seen, Wanted
from keras_introspect.capture.internals import flatten_layers
from keras_introspect.capture.layers import INTEGER_REASON, VARYING_REASON
from keras_introspect.collectors.base import Collector, Group, group_of_calls
from keras_introspect.errors import unknown_name
from keras_introspect.statistics import Piece

CALLS = ("pooled", "separate")
PHASES = ("train", "inference", "both")
INFERENCE_PREFIX = "val_"  # as Keras names the logs of validation


class LayerCollector(Collector):
    """Base of the collectors of layer outputs: their rows are layers, by path.

    Args:
        calls: `"pooled"` puts all calls of a layer in a step into one row, `"separate"` names them `path`, `path#1`, …
    """

    missing: str

    def __init__(self, statistics: Any = None, calls: str = "pooled", **kwargs: Any) -> None:
        super().__init__(statistics, **kwargs)
        if calls not in CALLS:
            raise unknown_name(f"value of calls= of {type(self).__name__}", calls, CALLS)
        self.calls = calls

    def seen(self, capture: Capture) -> dict[str, list[Seen]]:
        """Name → what came by."""
        raise NotImplementedError

    def candidates(self, model: Any) -> list[tuple[Any, tuple[str, ...]]]:
        return [(layer, ()) for layer in flatten_layers(model)]

    def groups(self, capture: Capture) -> list[Group]:
        groups = []
        for name, calls in self.seen(capture).items():
            if not self.selection.chooses(calls[0].layer, name):
                continue
            outside = [call for call in calls if call.values is not None]
            if len(outside) < len(calls):
                inside = [call for call in calls if call.values is None]
                groups.append(self.group_in_loops(capture, name, inside, outside))
            elif self.calls == "separate":
                for number in sorted({call.call for call in calls}):
                    row = f"{name}#{number}" if number else name
                    groups.append(group_of_calls(row, [call for call in calls if call.call == number]))
            else:
                groups.append(group_of_calls(name, calls))
        self._note_missing(capture)
        return groups

    def group_in_loops(self, capture: Capture, name: str, inside: list[Seen], outside: list[Seen]) -> Group:
        """The row of a layer that is called inside loops, and perhaps outside of them too."""
        raise NotImplementedError

    def _note_missing(self, capture: Capture) -> None:
        for layer in flatten_layers(capture.model):
            name = capture.names.of(layer)
            if not self.selection.chooses(layer, name):
                continue
            reason = capture.missed.get((self.key, name), "")
            if reason.startswith(INTEGER_REASON) and self.selection.demands(layer.name, name):
                raise ValueError(
                    f"{type(self).__name__}(layers=...) asks for the layer {name!r}, but {reason}. Statistics need a "
                    "float16, bfloat16, float32 or float64 tensor: leave this layer out of layers=."
                )
            if id(layer) not in capture.called:
                capture.missed[(self.key, name)] = self.missing

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "calls": self.calls}


@keras.saving.register_keras_serializable("keras_introspect")
class LayerOutputs(LayerCollector):
    """Every floating-point tensor that a layer's call returns in the step, at all depths of the model.

    A row is named by the layer's path, with `:i` for the i-th further tensor of a structured output.

    Args:
        phase: `"train"` observes the training steps; `"inference"` those of validation and `evaluate`, recorded as
            `val_layer_outputs`; `"both"` both, side by side. An `evaluate` outside of `fit` is recorded as of the last
            epoch.
        statistics: see `Collector`, as all further arguments.

    Example:

    >>> LayerOutputs(layers=["conv*", "dense"], calls="separate").calls
    'separate'
    """

    key = "layer_outputs"
    wanted = Wanted(outputs=True)
    missing = "it was not called in the training step, or not where it can be seen"

    def __init__(self, statistics: Any = None, phase: str = "train", name: str | None = None, **kwargs: Any) -> None:
        if phase not in PHASES:
            raise unknown_name("value of phase= of LayerOutputs", phase, PHASES)
        self.phase = phase
        self.inference = phase == "inference"
        if self.inference:
            self.missing = "it was not called in the step of evaluate, or not where it can be seen"
        super().__init__(statistics, name=name or (INFERENCE_PREFIX + self.key if self.inference else None), **kwargs)

    def parts(self) -> list[Collector]:
        if self.phase != "both":
            return [self]
        # The keyword arguments are the constructor's; the selection itself, since a function of layers has no config.
        same = {**self.get_config(), "statistics": self.statistics, "layers": self.selection}
        return [
            type(self)(**{**same, "phase": "train"}),
            type(self)(**{**same, "phase": "inference", "name": INFERENCE_PREFIX + self.name}),
        ]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "phase": self.phase}

    def seen(self, capture: Capture) -> dict[str, list[Seen]]:
        # A rematerialised layer runs twice; its forward pass, recorded by no tape, is the one that counts.
        outputs = {}
        for name, calls in capture.outputs.items():
            first = [call for call in calls if call.values is None or not call.recomputed]
            chosen = first if any(call.values is not None for call in first) else calls
            outputs[name] = [call._replace(call=number) for number, call in enumerate(chosen)]
        return outputs

    def group_in_loops(self, capture: Capture, name: str, inside: list[Seen], outside: list[Seen]) -> Group:
        carried = capture.carried(name)
        # `keras.ops.map` calls its function once before its loop, to learn a shape, and drops the result.
        outside = [call for call in outside if capture.uses(call.values)]
        if carried:
            if (self.name, name) in capture.loop_states:
                capture.missed[(self.key, f"{name} (in loops)")] = VARYING_REASON
            group = group_of_calls(name, [*(Seen(values, inside[0].layer) for values, _ in carried), *outside])
            newest = [{"newest": last} for _, last in carried] + [{} for _ in outside]
            return [piece._replace(beside=beside) for piece, beside in zip(group, newest, strict=True)]
        if outside:
            capture.missed[(self.key, f"{name} (outside loops)")] = "only its calls inside loops are observed"
        spec, states = capture.loop_states[self.name, name]
        return [Piece(None, spec, states=states)]
