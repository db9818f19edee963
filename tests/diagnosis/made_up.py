"""Recordings of made-up numbers, for tests that know to the last digit what a rule reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_introspect.diagnosis import Diagnosis, Finding, diagnose
from keras_introspect.recording import Recording

LEVELS = np.linspace(0, 100, 9)


def recorded(
    view: str,
    names: Sequence[str],
    shapes: Sequence[Sequence[int | None]],
    recording: Recording | None = None,
    start: int = 0,
    **statistics: Any,
) -> Recording:
    """Adds epochs of a view: each statistic is (epochs, tensors), or (epochs, tensors, levels)."""
    recording = Recording() if recording is None else recording
    for i in range(len(next(iter(statistics.values())))):
        values = {key: np.asarray(value[i], float) for key, value in statistics.items()}
        recording.add_epoch(view, start + i, names, shapes, values, quantile_levels=LEVELS)
    return recording


def logged(recording: Recording | None = None, **logs: Sequence[float]) -> Recording:
    """Adds Keras's logs: each key a value an epoch."""
    recording = Recording() if recording is None else recording
    for epoch in range(len(next(iter(logs.values())))):
        recording.add_logs(epoch, {key: values[epoch] for key, values in logs.items()})
    return recording


def kernels(
    view: str, rms: Any, recording: Recording | None = None, shape: Sequence[int] = (8, 8), **more: Any
) -> Recording:
    """A chain of kernels `layer0/kernel`, … of one shape."""
    count = len(rms[0])
    return recorded(view, [f"layer{i}/kernel" for i in range(count)], [shape] * count, recording, rms=rms, **more)


def outputs(names: Sequence[str], units: int = 8, recording: Recording | None = None, **statistics: Any) -> Recording:
    """Layer outputs of shape (None, units), the last of which is the head."""
    return recorded("layer_outputs", names, [(None, units)] * len(names), recording, **statistics)


def described(
    recording: Recording,
    loss: str | None = None,
    head: str | None = None,
    units: int = 3,
    from_logits: bool = False,
    layers: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Recording:
    """Adds the description of a model."""
    about: dict[str, Any] = {"layers": [{"trainable": True, **layer} for layer in layers], "custom_step": False, **more}
    if head is not None:
        about["outputs"] = [{"name": "head", "class": "Dense", "activation": head, "units": units}]
    if loss is not None:
        about["losses"] = [{"output": "", "loss": loss, "from_logits": from_logits}]
    recording.metadata["description"] = about
    return recording


def found(recording: Recording, kind: str, **arguments: Any) -> Finding | None:
    """What `diagnose` finds of one kind; `None` where it finds nothing. That it can judge the kind is asserted."""
    diagnosis: Diagnosis = diagnose(recording, kinds=[kind], **arguments)
    assert diagnosis.judged == (kind,), diagnosis.not_judged
    assert len(diagnosis) <= 1
    return diagnosis[0] if len(diagnosis) else None
