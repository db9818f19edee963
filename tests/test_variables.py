"""Rows of the collectors of variables."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import keras_introspect as ki


class OneName(ki.IntrospectiveModel):
    """Keras takes two layers of one name in a subclassed model, and gives their variables one path."""

    def __init__(self) -> None:
        super().__init__(name="net")
        self.first, self.second = layers.Dense(3, name="same"), layers.Dense(4, name="same")

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


def test_two_layers_of_one_path_have_rows_of_their_own() -> None:
    keras.utils.set_random_seed(0)
    model = OneName()
    views = ["weights", "gradients", "updates"]
    collectors = [ki.Weights(), ki.Gradients(), ki.Updates(), ki.LayerOutputs()]
    model.compile("sgd", "mse", collectors=collectors)
    model.fit(np.ones((8, 2)), np.zeros((8, 4)), epochs=2, verbose=0)
    rows = ("net/same/kernel", "net/same/bias", "net/same~2/kernel", "net/same~2/bias")
    for view in views:
        assert model.recording[view].names == rows
        assert model.recording[view].shapes == ((2, 3), (3,), (3, 4), (4,))
    assert model.recording["layer_outputs"].names == ("net/same", "net/same~2")
    expected = [np.sqrt(np.mean(v.numpy() ** 2)) for v in model.trainable_variables]
    np.testing.assert_allclose(model.recording["weights"].epoch("rms")[-1], expected, rtol=1e-6)


@pytest.mark.parametrize("chosen", ["same", "net/same"])
def test_a_name_of_both_chooses_both(chosen: str) -> None:
    model = OneName()
    model.compile("sgd", "mse", collectors=[ki.Weights(layers=chosen)])
    model.fit(np.ones((8, 2)), np.zeros((8, 4)), verbose=0)
    assert len(model.recording["weights"].names) == 4
