"""The benchmark's loop by hand: it trains as `fit` does, and what it keeps is what NumPy says."""

from typing import Any

import keras
import numpy as np
import pytest

from benchmarks import measure, run
from benchmarks.by_hand import LEVELS, ByHand, NotApplicable
from benchmarks.subjects import CLASSES, Subject

LEAST = 3  # steps


def _build(cls: type) -> Any:
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(5, activation="relu", name="hidden")(inputs)
    return cls(inputs, keras.layers.Dense(CLASSES, activation="softmax", name="head")(hidden))


SUBJECT = Subject(_build, (6,), batch=4, steps=LEAST)


def trained(by_hand: bool, mode: str = "graph") -> tuple[Any, Any]:
    keras.utils.set_random_seed(0)
    model = _build(keras.Model)
    model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    data = SUBJECT.dataset(LEAST)
    loop = ByHand(model, mode) if by_hand else None
    if loop is None:
        model.fit(data, verbose=0, shuffle=False)
    else:
        loop(data)
    return model, loop


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_it_trains_as_fit_does(mode: str) -> None:
    (plain, _), (model, loop) = trained(False), trained(True, mode)
    for expected, weights in zip(plain.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)
    assert int(model.optimizer.iterations.numpy()) == LEAST
    assert list(loop.kept) == ["hidden", "head", *(variable.path for variable in model.trainable_variables)]
    assert all(len(values) == LEAST for of in loop.kept.values() for values in of.values())


def test_what_it_keeps_is_what_numpy_says() -> None:
    model, loop = trained(True)
    x, y = next(iter(SUBJECT.dataset(1)))
    loop([(x, y)])
    before = _build(keras.Model)  # of the weights now, to see what the last step changed
    before.set_weights(model.get_weights())
    loop([(x, y)])
    expected = np.asarray(keras.Model(before.inputs, before.get_layer("hidden").output)(x), np.float64)
    kept = loop.kept["hidden"]
    assert kept["norm"] == [pytest.approx(np.sqrt((expected**2).sum()), rel=1e-4)]
    assert kept["mean"] == [pytest.approx(expected.mean(), rel=1e-4)]
    assert kept["std"] == [pytest.approx(expected.std(), rel=1e-4)]
    assert kept["zeros"] == [pytest.approx((expected == 0).mean())]
    np.testing.assert_allclose(kept["percentiles"][0], np.percentile(expected, LEVELS), rtol=1e-4, atol=1e-6)


def test_what_it_cannot_do_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(CLASSES, activation="softmax")

        def call(self, x: Any) -> Any:
            return self.head(x)

    with pytest.raises(NotApplicable, match="output"):
        ByHand(Net(), "graph")
    monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
    _, found = measure.measure(Subject(lambda cls: Net(), (6,), 4, LEAST), "graph", ["by_hand"], rounds=1)
    result = run.summary(found["by_hand"], found["plain"], LEAST)
    assert result == {"not_applicable": found["by_hand"].not_applicable}
    assert "not applicable" in run._line({"subject": "net", "mode": "graph", "configuration": "by_hand", **result})
