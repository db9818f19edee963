"""Trains a program, and keeps what was recorded, so that judging it again takes no training."""

import gc
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_introspect as ki
from benchmarks.diagnosis.programs import Program, Task
from keras_introspect.collectors import PRESETS

RULES = "rules"
OBSERVED = (RULES, *PRESETS)


class Trained(NamedTuple):
    """One run: its recording, the model as it was in the end, and what it was worth.

    `quality` is NaN where the training itself failed; `error` says how.
    """

    recording: ki.Recording
    model: Any
    quality: float
    seconds: float
    error: str = ""


def train(program: Program, seed: int, preset: str | None = RULES, epochs: int | None = None) -> Trained:
    """Builds and fits the program from this seed; the preset `None` observes nothing."""
    task = _built(program, seed)
    fit = task.fit if epochs is None else task.fit | {"epochs": min(epochs, task.fit["epochs"])}
    task.model.compile(**task.compile, collectors=None if preset is None else observers(preset))
    started, error = time.perf_counter(), ""
    try:
        task.model.fit(**fit, verbose=0)
    except Exception as problem:  # a fault may stop Keras, and the epochs before it are worth a look
        error = f"{type(problem).__name__}: {problem}"
    seconds = time.perf_counter() - started
    quality = float("nan") if error else task.quality(task.model)
    return Trained(task.model.recording, task.model, quality, seconds, error)


def observers(preset: str) -> list[Any]:
    """The collectors of a preset of the library, or `"rules"`: what the rules read and no more, which trains faster."""
    if preset != RULES:
        return PRESETS[preset]()
    return [
        ki.Weights("moments"),
        ki.Gradients("moments"),
        ki.Updates("moments"),
        ki.LayerOutputs(phase="both"),
        ki.StepMetrics(),
    ]


class Cache:
    """A folder of recordings, one a program, seed and preset.

    A program is trained anew when its text has changed. When what is recorded has changed, delete the folder.
    """

    def __init__(self, folder: Path, preset: str = RULES, epochs: int | None = None) -> None:
        self.folder = folder
        self.preset = preset
        self.epochs = epochs
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, program: Program, seed: int) -> Trained:
        """The run as it was kept, with a freshly built model of the same weights; else trained now."""
        kept = self._load(program, seed)
        if kept is not None:
            return kept
        trained = train(program, seed, self.preset, self.epochs)
        self._save(program, seed, trained)
        return trained

    def holds(self, program: Program, seed: int) -> bool:
        path = self._path(program, seed, "json")
        return path.is_file() and json.loads(path.read_text())["program"] == digest(program)

    def _load(self, program: Program, seed: int) -> Trained | None:
        if not self.holds(program, seed):
            return None
        facts = json.loads(self._path(program, seed, "json").read_text())
        recording = ki.Recording.load(self._path(program, seed, "npz"))
        task = _built(program, seed)
        task.model.compile(**task.compile)
        with np.load(self._path(program, seed, "weights.npz")) as weights:
            if len(weights.files) == len(task.model.weights):
                task.model.set_weights([weights[name] for name in weights.files])
        return Trained(recording, task.model, facts["quality"], facts["seconds"], facts["error"])

    def _save(self, program: Program, seed: int, trained: Trained) -> None:
        trained.recording.save(self._path(program, seed, "npz"))
        np.savez(self._path(program, seed, "weights.npz"), *trained.model.get_weights())
        facts: Mapping[str, Any] = {
            "program": digest(program),
            "quality": trained.quality,
            "seconds": trained.seconds,
            "error": trained.error,
            "keras_introspect": ki.__version__,
            "keras": keras.__version__,
        }
        self._path(program, seed, "json").write_text(json.dumps(facts, indent=1) + "\n")  # last: now it is whole

    def _path(self, program: Program, seed: int, ending: str) -> Path:
        parts = [program.name, self.preset, str(seed), *([] if self.epochs is None else [f"{self.epochs}epochs"])]
        return self.folder / f"{'-'.join(parts)}.{ending}"


def clear() -> None:
    """Frees what Keras and TensorFlow keep of the models so far."""
    keras.utils.clear_session()
    gc.collect()


def digest(program: Program) -> str:
    """Changes whenever the program's own text changes, its helpers' included."""
    return hashlib.sha256(program.text.encode()).hexdigest()[:16]


def _built(program: Program, seed: int) -> Task:
    keras.utils.set_random_seed(seed)
    return program.build(np.random.default_rng(seed))
