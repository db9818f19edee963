"""Every picture, and what to call it with: tests of all pictures go over these."""

from typing import Any

from keras_introspect import plots
from keras_introspect.recording import Recording

VIEW = {"activity_board": "layer_outputs", "unit_activity": "layer_outputs"}
OF_RECORDING = {"dashboard", "training_curves", "phase_gap", "update_board", "comparison"}
OF_ONE_TENSOR = {"value_distribution", "magnitude_distribution", "unit_activity", "histogram_ridges"}
BOARDS = [name for name in plots.__all__ if name.endswith("board") or name in ("comparison", "phase_gap")]
AXES = [name for name in plots.__all__ if name not in BOARDS]


def argument(name: str, recording: Recording) -> Any:
    """What the picture takes, from a recording that has it all."""
    if name == "comparison":
        return [recording, recording]
    if name == "phase_gap" and "val_layer_outputs" not in recording and "layer_outputs" in recording:
        held = recording["layer_outputs"]
        for i, epoch in enumerate(held.epochs):
            values = {key: held.epoch(key)[i] for key in ("rms", "mean", "std")}
            recording.add_epoch("val_layer_outputs", int(epoch), held.names, held.shapes, values)
    if name in OF_RECORDING:
        return recording
    series = recording[VIEW.get(name, "gradients")]
    return series.sel(series.names[0]) if name in OF_ONE_TENSOR else series


def draw(name: str, recording: Recording, **keywords: Any) -> Any:
    return getattr(plots, name)(argument(name, recording), **keywords)
