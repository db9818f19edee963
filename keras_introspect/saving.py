"""What of a model's introspection is saved and restored, by every file format that Keras and TensorFlow have."""

import threading
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_introspect.capture.internals import KerasSaveable, room_in
from keras_introspect.files import SavedState, States, joined, pack, pieces, unpack
from keras_introspect.recording import Recording
from keras_introspect.state import Accumulator
from keras_introspect.statistics import Statistic

_LOCK = threading.Lock()
_TREE = ("non_trainable_variables", "keras_introspect")  # where a state tree keeps the blob


class Observed(Protocol):
    """What is saved of the collectors compiled now, as an `Observer` offers it.

    Attributes:
        accumulators: "collector|statistic" → accumulator.
        statistics: "collector|statistic" → statistic, also of what needs no accumulator.
    """

    accumulators: dict[str, Accumulator]
    statistics: dict[str, Statistic]

    def flush_steps(self) -> None:
        """Moves the steps that wait on the device into the recording."""

    def discard(self) -> None:
        """Forgets the steps that wait on the device, and the epoch begun."""


class IntrospectionState(tf.train.experimental.PythonState, KerasSaveable):
    """What a model keeps for us: one object, saved by Keras's files and TensorFlow's checkpoints alike.

    Attributes:
        recording: what was observed.
    """

    def __init__(self) -> None:
        self.name = "introspection"
        self.recording = Recording()
        self._observed: Observed | None = None
        self._restored: States = {}
        self._versions: dict[str, int] = {}

    def _obj_type(self) -> str:
        return "Metric"  # Keras's saver takes a closed list of kinds (≥ 3.10); this one adds no behaviour

    def use(self, observed: Observed | None) -> None:
        """Takes newly compiled collectors, or none; restored states that fit them are kept."""
        if self._observed is not None:
            self._observed.flush_steps()
        self._observed = observed
        self._hand_out()

    def is_empty(self) -> bool:
        """Whether there is nothing to save: nothing was recorded, restored, or observed in a step."""
        waiting = self._observed is not None and any(not a.is_untouched() for a in self._observed.accumulators.values())
        return not (waiting or self._restored or len(self.recording) or len(self.recording.epochs))

    # --- one blob ---

    def serialize(self) -> bytes:
        """Everything as bytes, for `tf.train.Checkpoint`; where that fails, it warns and the model is saved without."""
        try:
            with tf.init_scope():  # a checkpoint may be written from inside a tf.function
                return self._packed()
        except Exception as error:
            warnings.warn(
                f"The introspection of this model cannot be saved; the file holds the model without it: {error!r}",
                stacklevel=2,
            )
            return b""

    def _packed(self) -> bytes:
        states: States = dict(self._restored)
        if self._observed is not None:
            self._observed.flush_steps()
            for key, accumulator in self._observed.accumulators.items():
                saved = accumulator.to_save()
                if saved:
                    states[key] = saved
            self._versions |= {key: statistic.version for key, statistic in self._observed.statistics.items()}
        return pack(SavedState(self.recording.to_bytes(), self._versions, states))

    def deserialize(self, string_value: bytes) -> None:
        """Called by `tf.train.Checkpoint`: like `restore`, but what cannot be read is a warning.

        The weights of a file are worth loading where our part of it is damaged, and a training that resumes goes on.
        """
        try:
            if string_value:
                self.restore(string_value)
        except Exception as error:
            _warn_unreadable(error)

    def restore(self, blob: bytes) -> None:
        """The inverse of `serialize`.

        Raises:
            ValueError: the bytes are damaged or of a newer version; what is in memory is left as it was.
        """
        saved = unpack(blob)
        self.recording = Recording.from_bytes(saved.recording)
        self._restored, self._versions = saved.states, saved.versions
        if self._observed is not None:
            self._observed.discard()  # what was observed since belongs to the model that the loaded one replaces
        self._hand_out()

    def _hand_out(self) -> None:
        """Gives the restored states to the accumulators that they fit; says in one warning which are lost, and why."""
        if self._observed is None:
            return
        lost = []
        states, self._restored = self._restored, {}
        for key, statistic in self._observed.statistics.items():
            collector, _, name = key.partition("|")
            version = self._versions.get(key, statistic.version)
            if version != statistic.version:
                lost.append(
                    f"{name!r} of {collector!r} was recorded by version {version} of the statistic; from now on "
                    f"version {statistic.version} is, and a started epoch begins anew"
                )
                states.pop(key, None)
            elif key in states and key in self._observed.accumulators:
                self._observed.accumulators[key].restore(states.pop(key))
            self._versions[key] = statistic.version
            lost += self._other_levels(collector, statistic)
        for key in states:
            collector, _, name = key.partition("|")
            lost.append(f"{name!r} of {collector!r} is collected no more: what a started epoch had of it is dropped")
        if lost:
            _warn("The collectors are not those of the saved run. " + "; ".join(lost) + ".")

    def _other_levels(self, collector: str, statistic: Statistic) -> list[str]:
        old = self.recording[collector].quantile_levels if collector in self.recording else None
        new = statistic.quantile_levels
        if old is None or new is None or np.array_equal(old, new):
            return []
        return [
            f"the quantiles of {collector!r} were recorded at levels {old.tolist()}; those at {new.tolist()}, from the "
            "next epoch on, replace them"
        ]

    def report_unplaced(self) -> None:
        """Called when a step was traced: warns of restored states that its tensors do not fit."""
        if self._observed is None:
            return
        with _LOCK:  # replicas trace in threads
            unplaced = {key: a.take_unplaced() for key, a in self._observed.accumulators.items()}
        tensors = [f"{key.replace('|', ' ')} of {', '.join(names)}" for key, names in unplaced.items() if names]
        if tensors:
            _warn(
                "The loaded file holds the state of a started epoch for tensors that the step does not have, or has in "
                f"another shape; it is dropped: {'; '.join(tensors)}."
            )

    # --- Keras's files ---

    def save_own_variables(self, store: Any) -> None:
        """Called by Keras's `.keras` and `.weights.h5` files."""
        if self.is_empty():
            return
        blob, (limit, room) = self.serialize(), room_in(store)
        if len(blob) > room:
            _warn(
                f"The introspection of this model takes {len(blob)} bytes, more than the {int(room)} of a shard, and "
                "Keras 3.10 reads one shard of each object: the files hold the model without it. Give save_weights() a "
                "larger max_shard_size."
            )
            return
        for key, piece in pieces(blob, limit).items():
            store[key] = piece

    def load_own_variables(self, store: Any) -> None:
        try:
            blob = joined(store)
        except Exception as error:
            _warn_unreadable(error)
        else:
            self.deserialize(blob)

    # --- Keras's state tree, which `keras.callbacks.OrbaxCheckpoint` (≥ 3.13) saves ---

    def put_into_tree(self, tree: dict[str, Any]) -> None:
        """Adds the blob as one more variable that does not train; Keras passes over variables that it does not know."""
        group, name = _TREE
        if not self.is_empty():
            tree[group] = {**tree[group], name: {"state": np.frombuffer(self.serialize(), np.uint8)}}

    def take_from_tree(self, tree: Mapping[str, Any]) -> None:
        group, name = _TREE
        ours = tree.get(group, {}).get(name)
        if ours is not None:
            self.deserialize(np.asarray(ours["state"]).astype(np.uint8).tobytes())


def _warn_unreadable(error: Exception) -> None:
    _warn(
        "The recording in this file cannot be read. The recording in memory stays as it was, and the weights are "
        f"loaded all the same: {error}"
    )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
