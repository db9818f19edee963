"""A statistic of the user's own, that of docs/contributing.md: recorded, logged, saved and restored like ours."""

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
import kinds
import oracle

PAGE = Path(__file__).parent.parent / "docs" / "contributing.md"


@pytest.fixture(scope="module")
def positive_rate(tmp_path_factory: pytest.TempPathFactory) -> type[ki.Statistic]:
    """The class of the page, without what the page does with it."""
    block = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    namespace: dict[str, Any] = {"__name__": "contributing"}
    exec(compile(block[: block.index("\nx = ")], str(PAGE), "exec"), namespace)
    return namespace["PositiveRate"]


def trained(collectors: Any, base: Any = ki.IntrospectiveModel, epochs: int = 2, eager: bool = False) -> Any:
    model = kinds.build("conv", base)
    x, y = kinds.data("conv")
    observed = {} if collectors is None else {"collectors": collectors}
    model.compile(kinds.optimizer(), kinds.loss(), run_eagerly=eager, **observed)
    model.history_of_fit = model.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0).history
    return model


@pytest.mark.parametrize("eager", [False, True])
def test_it_is_recorded_by_epoch_and_step_and_logged(positive_rate: Any, eager: bool, tmp_path: Path) -> None:
    statistics = ["moments", positive_rate()]
    collectors = [
        ki.LayerOutputs(statistics, per_step=True),
        ki.Gradients(statistics, logs="layers"),
        ki.Weights(statistics),
    ]
    model = trained(collectors, eager=eager)
    assert oracle.same_bits(model.get_weights(), trained(None, keras.Model, eager=eager).get_weights())
    x, y = kinds.data("conv")
    by_hand = kinds.build("conv")
    epochs, _ = kinds.by_hand(by_hand, kinds.optimizer(), kinds.loss(), x, y)
    outputs, gradients = model.recording["layer_outputs"], model.recording["gradients"]
    for name in epochs[0][0].outputs:
        steps = [np.mean(s.outputs[name] > 0) for epoch in epochs for s in epoch]
        np.testing.assert_allclose(outputs.sel(name).step("positive_rate"), steps, atol=1e-2)
        for e, epoch in enumerate(epochs):
            every = np.concatenate([s.outputs[name].ravel() for s in epoch])
            np.testing.assert_allclose(outputs.sel(name).epoch("positive_rate")[e], np.mean(every > 0), atol=1e-2)
    for e in range(2):
        rates = gradients.epoch("positive_rate")[e]
        assert model.history_of_fit["gradients/positive_rate"][e] == pytest.approx(rates.mean())
        assert model.history_of_fit["gradients/positive_rate/head/bias"][e] == rates[gradients.names.index("head/bias")]
    np.testing.assert_allclose(
        model.recording["weights"].sel("conv/kernel").epoch("positive_rate")[-1],
        np.mean(model.get_layer("conv").get_weights()[0] > 0),
    )
    model.recording.save(tmp_path / "run.npz")
    again = ki.Recording.load(tmp_path / "run.npz")["layer_outputs"]
    np.testing.assert_array_equal(again.step("positive_rate"), outputs.step("positive_rate"))


def test_it_is_saved_and_goes_on(positive_rate: Any, tmp_path: Path) -> None:
    model = trained([ki.LayerOutputs([positive_rate()])], epochs=1)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    assert type(loaded.collectors[0].statistics[0]) is positive_rate
    x, y = kinds.data("conv")
    loaded.fit(x, y, batch_size=8, epochs=2, initial_epoch=1, shuffle=False, verbose=0)
    whole = trained([ki.LayerOutputs([positive_rate()])], epochs=2)
    np.testing.assert_allclose(
        loaded.recording["layer_outputs"].epoch("positive_rate"),
        whole.recording["layer_outputs"].epoch("positive_rate"),
        atol=1e-6,
    )


def test_a_callback_may_watch_it(positive_rate: Any) -> None:
    model = kinds.build("conv", ki.IntrospectiveModel)
    x, y = kinds.data("conv")
    model.compile("sgd", kinds.loss(), collectors=[ki.LayerOutputs([positive_rate()])])
    stop = keras.callbacks.EarlyStopping("layer_outputs/positive_rate", mode="max", patience=1)
    model.fit(x, y, epochs=1, callbacks=[stop], verbose=0)
    assert np.isfinite(stop.best)
    with pytest.raises(ValueError, match="layer_outputs/positive_rat"):
        model.fit(x, y, callbacks=[keras.callbacks.EarlyStopping("layer_outputs/positive_rat", mode="max")], verbose=0)
