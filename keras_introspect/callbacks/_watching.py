"""What the public callbacks have in common: they look at the recording, and never end a training."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from keras_introspect.errors import a_type
from keras_introspect.recording import Recording


class Watching(keras.callbacks.Callback):
    """A callback that reads `model.recording`.

    Keras calls `on_epoch_end` of the recorder first: the recording is complete when a subclass looks.

    Attributes:
        writes_files: of several workers, it is called on the chief alone.
    """

    writes_files = False

    def __init__(self) -> None:
        super().__init__()
        self._warned = False

    @property
    def recording(self) -> Recording:
        recording: Recording = self.model.recording
        return recording

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Raises before the training starts, if there will be nothing to look at."""
        name = type(self).__name__
        if not hasattr(self.model, "recording"):
            raise ValueError(
                f"{name} was given to {a_type(self.model)}, which records nothing. Expected an "
                "IntrospectiveModel; keras_introspect.instrument(model) makes one of a model that exists already."
            )
        if not self.model.collectors:
            raise ValueError(
                f"{name} has nothing to show: the model was compiled without collectors. "
                'Choose some: model.compile(..., collectors="default").'
            )

    @contextlib.contextmanager
    def _training_goes_on(self, what: str) -> Iterator[None]:
        """Whatever fails inside is told once, as a warning: a view must never end the training that it shows."""
        try:
            yield
        except Exception as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{type(self).__name__} cannot {what} ({type(error).__name__}: {error}). The training goes on and "
                    "the recording is unharmed; it is tried again after each epoch, and not said again.",
                    stacklevel=2,
                )
