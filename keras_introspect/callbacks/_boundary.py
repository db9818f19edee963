"""The epoch boundary: read, record, log, reset."""

from typing import Any

import keras

from keras_introspect.errors import unknown_name
from keras_introspect.observer import BUFFER_STEPS, Observer


class Recorder(keras.callbacks.Callback):
    """First in the list: records the epoch and adds our keys to its logs, before any other callback looks."""

    def __init__(self, observer: Observer, others: list[Any]) -> None:
        super().__init__()
        self._observer = observer
        self._others = others
        self._run: tuple[int, int] | None = None  # epochs and steps, until their budget is checked

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        for callback in self._others:
            key = getattr(callback, "monitor", None)
            if isinstance(key, str) and self._observer.reading.is_log_key(key) is False:
                raise unknown_name(
                    f"key that {type(callback).__name__} monitors",
                    key,
                    self._observer.reading.log_keys(),
                    'A collector with logs="layers" adds "<collector>/<statistic>/<layer>" keys.',
                )

        params = self.params or {}  # a CallbackList of the user's own may have none
        epochs, steps = params.get("epochs") or 1, params.get("steps") or 1
        self._run = (epochs, epochs * steps)
        self._check_budgets()

    def _check_budgets(self) -> None:
        """At the beginning, or, of a model that its first step builds, after its first epoch."""
        if self._run is not None and self.model.built:
            self._observer.check_budgets(self.model, *self._run)
            self._run = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._observer.flush_steps()  # of before, as of a loop over train_on_batch: they are none of this epoch
        self._observer.reading.begin_epoch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._check_budgets()
        ours = self._observer.reading.end_epoch(self.model, epoch)
        if logs is not None:
            self._observer.reading.add_logs(logs)
            logs.update(ours)


class StepRecorder(Recorder):
    """A `Recorder` that fetches the values of single steps, a block at a time.

    Keras runs callbacks that look at batches in step with the training, not beside it: this one is used only where
    `per_step` was asked for.
    """

    _waiting = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        execution = self.model.steps_per_execution
        self._waiting += execution
        if self._waiting + execution > BUFFER_STEPS:
            self._observer.reading.flush_steps()
            self._waiting = 0


class HideFromProgressBar(keras.callbacks.Callback):
    """Just before the progress bar: takes our keys out of the logs, and `ShowAgain` puts them back."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer
        self.hidden: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            self.hidden = {
                key: logs.pop(key) for key in list(logs) if self._observer.reading.hidden_from_progress_bar(key)
            }


class ShowAgain(keras.callbacks.Callback):
    """Just after the progress bar."""

    def __init__(self, hider: HideFromProgressBar) -> None:
        super().__init__()
        self._hider = hider

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs.update(self._hider.hidden)


class LastLogs(keras.callbacks.Callback):
    """Behind all others, which may have added logs of their own, such as the learning rate: keeps these too."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            self._observer.reading.add_logs(logs)


def with_recorder(callbacks: Any, observer: Observer, verbose: Any) -> Any:
    """The callbacks of a `fit`, with ours around them.

    Args:
        callbacks: what the user gave: `None`, a callback, a list, or a `CallbackList`.
        observer: the model's observer.
        verbose: as given to `fit`.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        inner = callbacks.callbacks
        inner[:] = _around(
            [c for c in inner if not isinstance(c, (Recorder, HideFromProgressBar, ShowAgain, LastLogs))], observer
        )
        callbacks.set_model(callbacks.model)
        return callbacks
    if callbacks is None:
        given = []
    elif isinstance(callbacks, (list, tuple)):
        given = list(keras.tree.flatten(callbacks))
    else:
        given = [callbacks]
    # Keras appends a History and a progress bar of its own where there are none, behind everything else: too late.
    if not any(isinstance(callback, keras.callbacks.History) for callback in given):
        given.append(keras.callbacks.History())
    if verbose != 0 and not any(isinstance(callback, keras.callbacks.ProgbarLogger) for callback in given):
        given.append(keras.callbacks.ProgbarLogger())
    return _around(given, observer)


def _around(callbacks: list[Any], observer: Observer) -> list[Any]:
    recorder = StepRecorder if observer.keeps_steps else Recorder
    arranged: list[Any] = [recorder(observer, callbacks)]
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.ProgbarLogger):
            hider = HideFromProgressBar(observer)
            arranged += [hider, callback, ShowAgain(hider)]
        else:
            arranged.append(callback)
    return [*arranged, LastLogs(observer)]
