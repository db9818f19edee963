"""`introspection_cost`: what it says before training is what exists after, counted where variables are made."""

from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
import keras_introspect.state
import kinds


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every variable that introspection makes, as it makes it."""
    sizes: list[int] = []
    create = keras_introspect.state.ResourceVariable

    def counting(initial: np.ndarray, *args: Any, **kwargs: Any) -> Any:
        sizes.append(np.asarray(initial).nbytes)
        return create(initial, *args, **kwargs)

    monkeypatch.setattr(keras_introspect.state, "ResourceVariable", counting)
    return sizes


def collectors(kind: str) -> list[Any]:
    return [
        ki.Weights(per_step=True, statistics="moments"),
        ki.Gradients(["moments", "quantiles", "per_unit", "signal_to_noise"], epoch_sum=True, per_step=True, values=8),
        ki.Updates(every=2),
        ki.LayerOutputs(["moments", "activity", "quantiles", "per_unit"], phase="both", per_step=True, values=8),
        ki.OutputGradients(),
    ]


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=pytest.mark.long)])
def test_before_training_it_says_what_exists_after(kind: str, eager: bool, made: list[int]) -> None:
    model = kinds.build(kind, ki.IntrospectiveModel)
    model.compile(kinds.optimizer(), kinds.loss(), metrics=["accuracy"], run_eagerly=eager, collectors=collectors(kind))
    weights = model.get_weights()
    before = model.introspection_cost()
    assert all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))
    assert int(model.optimizer.iterations.numpy()) == 0
    x, y = kinds.data(kind)
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x, y))
    after = model.introspection_cost()
    if eager and kind == "recurrent":  # run by Python, a loop lets the gradients out that are in it
        cell = "output_gradients"
        assert before[cell] < after[cell]
        assert {k: v for k, v in before.items() if k != cell} == {k: v for k, v in after.items() if k != cell}
    else:
        assert before.by_statistic == after.by_statistic
    assert set(before) == {
        "weights",
        "gradients",
        "gradients_epoch_sum",
        "updates",
        "layer_outputs",
        "val_layer_outputs",
        "output_gradients",
    }
    # besides, one counter of the steps of evaluations
    assert after.total == sum(made) - 8, (after, sum(made))
    assert before.total == sum(before.values()) == sum(sum(parts.values()) for parts in before.by_statistic.values())


@pytest.mark.parametrize(
    "collector",
    [
        ki.Gradients("moments"),
        ki.Gradients("signal_to_noise"),
        ki.Gradients("moments", per_step=True),
        ki.LayerOutputs("quantiles"),
        ki.LayerOutputs("activity", phase="inference"),
        ki.LayerOutputs(["moments", "per_unit"], calls="separate"),
        ki.OutputGradients("moments"),
        ki.Updates("moments", values=16),
        ki.Weights(),
    ],
    ids=repr,
)
def test_each_collector_by_itself(collector: Any, made: list[int]) -> None:
    model = kinds.build("recurrent", ki.IntrospectiveModel)
    model.compile(kinds.optimizer(), kinds.loss(), collectors=[collector])
    before = model.introspection_cost()
    x, y = kinds.data("recurrent")
    model.fit(x, y, batch_size=8, epochs=1, verbose=0, validation_data=(x, y))
    counter = 8 if collector.name.startswith("val_") else 0
    assert before.total == sum(made) - counter, (before, made)
    assert list(before) == [collector.name]


def test_metrics_are_estimated_before_and_right_after(made: list[int]) -> None:
    model = kinds.build("conv", ki.IntrospectiveModel)
    model.compile(kinds.optimizer(), kinds.loss(), metrics=["accuracy"], collectors=[ki.StepMetrics()])
    before = model.introspection_cost()
    x, y = kinds.data("conv")
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    after = model.introspection_cost()
    assert after.total == sum(made)
    assert 0.5 < before.total / after.total < 2


class Net(ki.IntrospectiveModel):
    def __init__(self) -> None:
        super().__init__(name="net")
        self.hidden = keras.layers.Dense(6, activation="relu", name="hidden")
        self.head = keras.layers.Dense(1, name="head")

    def build(self, shape: Any) -> None:
        self.hidden.build(shape)
        self.head.build((None, 6))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.head(self.hidden(x))


def built_net() -> Net:
    model = Net()
    model.compile("sgd", "mse", collectors="all")
    model.build((None, 4))
    return model


def test_a_subclassed_model_needs_a_batch(made: list[int]) -> None:
    x = np.ones((8, 4), "float32")
    model = Net()
    model.compile("sgd", "mse", collectors="all")
    with pytest.raises(ValueError, match=r"not built.*introspection_cost\(x\)"):
        model.introspection_cost()
    assert model.introspection_cost(x).total == sum(made)
    with pytest.raises(ValueError, match=r"introspection_cost\(x\)"):
        built_net().introspection_cost()
    before = model.introspection_cost(x)
    model.fit(x, x[:, :1], epochs=1, verbose=0)
    assert before.total == model.introspection_cost().total == sum(made)
    assert str(before).splitlines()[-1].split()[-1] == f"{before.total:,}"


def test_without_collectors_there_is_nothing_to_say() -> None:
    model = kinds.build("conv", ki.IntrospectiveModel)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="collectors"):
        model.introspection_cost()
