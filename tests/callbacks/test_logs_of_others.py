"""What other callbacks add to the epoch logs is in the recording, whatever the progress bar does."""

from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki


class Own(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        assert logs is not None
        logs["own/score"] = 10.0 * epoch


@pytest.mark.parametrize("verbose", [0, 1, 2])
@pytest.mark.parametrize("bar_first", [False, True])
def test_own_keys_and_the_learning_rate_are_recorded(verbose: int, bar_first: bool) -> None:
    inputs = keras.Input((4,))
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(inputs))
    model.compile("sgd", "mse", collectors=[ki.Weights("moments")])
    callbacks = [Own(), keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))]
    if bar_first:
        callbacks.insert(0, keras.callbacks.ProgbarLogger())
    history = model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=3, verbose=verbose, callbacks=callbacks).history
    logs = model.recording.logs
    assert set(logs) == {"loss", "own/score", "learning_rate"}  # and not the collectors' own
    assert logs["own/score"].tolist() == [0.0, 10.0, 20.0]
    np.testing.assert_allclose(logs["learning_rate"], [0.1, 0.05, 0.1 / 3], rtol=1e-6)
    assert "weights/rms" in history
    axes = ki.plots.training_curves(model.recording, ["loss", "own/score", "learning_rate"]).figure.axes
    assert [ax.get_ylabel().split()[0] for ax in axes] == ["loss", "own/score", "learning_rate"]


def test_a_list_of_keras_that_is_used_again_holds_it_once() -> None:
    inputs = keras.Input((4,))
    model = ki.IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(inputs))
    model.compile("sgd", "mse", collectors=[ki.Weights("moments")])
    callbacks = keras.callbacks.CallbackList([Own()], model=model, add_history=True)
    for _ in range(2):
        model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=callbacks)
    assert [type(callback).__name__ for callback in callbacks.callbacks].count("LastLogs") == 1
    assert model.recording.logs["own/score"].tolist() == [0.0, 0.0]
