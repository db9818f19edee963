"""Makes the pictures of gallery.md and README.md: small networks on handwritten digits, trained well and trained badly.

    python docs/make_gallery.py            all, into docs/images; some minutes on a laptop without a GPU
    python docs/make_gallery.py dropout    one subject

Needs `pip install "keras-introspect[demo]"`.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from keras import layers
from matplotlib.figure import Figure
from PIL import Image

import keras_introspect as ki
from keras_introspect import demo, plots
from keras_introspect.reporting.pictures import with_palette

OUT = Path(__file__).parent / "images" / "gallery"
EPOCHS = 12
DPI = 90
COLOURS = 96

Pair = tuple[ki.Recording, ki.Recording]  # healthy, sick
Picture = tuple[str, Any, Any]  # its name, the healthy figure or axes, the sick one


def fit(model: Any, optimizer: Any, collectors: Any = "all", epochs: int = EPOCHS) -> ki.Recording:
    digits = demo.load_digits()
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], collectors=collectors)
    validation = (digits.x_validation, digits.y_validation)
    model.fit(digits.x, digits.y, batch_size=32, epochs=epochs, validation_data=validation, verbose=0)
    return model.recording


def network(body: Callable[[Any], Any]) -> Any:
    """A model of the flattened image, what `body` makes of it, and ten probabilities."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    hidden = body(layers.Flatten(name="flatten")(inputs))
    return ki.IntrospectiveModel(inputs, layers.Dense(10, "softmax", name="head")(hidden))


def dense(depth: int, units: int = 48, activation: str = "relu", norm: bool = False, **keywords: Any) -> Any:
    def body(x: Any) -> Any:
        for i in range(1, depth + 1):
            x = layers.Dense(units, name=f"dense{i}", **keywords)(x)
            if norm:
                x = layers.BatchNormalization(name=f"norm{i}")(x)
            x = layers.Activation(activation, name=f"{activation}{i}")(x)
        return x

    return body


# --- the subjects: each trains a healthy and a sick network, and draws them alike ---


def learning_rate() -> Iterator[Picture]:
    models = [(network(dense(3, activation="tanh")), rate) for rate in (0.02, 0.2)]
    runs = [fit(model, keras.optimizers.SGD(rate, momentum=0.9)) for model, rate in models]
    yield "curves", *(plots.training_curves(run) for run in runs)
    yield "updates", *(plots.update_board(run, layers="*kernel") for run in runs)


def dying_relu() -> Iterator[Picture]:
    digits = demo.load_digits()
    runs = []
    for scenario in ("healthy", "dying-relu"):
        model = demo.build_model(scenario)
        demo.train(model, digits, EPOCHS, verbose=0)
        runs.append(model.recording)
    yield "dashboard", *(plots.dashboard(run) for run in runs)
    yield "activity", *(plots.activity_board(run["layer_outputs"], figsize=(10, 7.5)) for run in runs)
    into_relu1 = [run["layer_outputs"].sel(name) for run, name in zip(runs, ("norm1", "conv1"), strict=True)]
    yield "ridges", *(plots.histogram_ridges(series) for series in into_relu1)


def vanishing_gradients() -> Iterator[Picture]:
    relu = network(dense(8, kernel_initializer="he_normal"))
    sigmoid = network(dense(8, activation="sigmoid"))
    runs = [fit(model, keras.optimizers.SGD(0.02, momentum=0.9)) for model in (relu, sigmoid)]
    gradients = [run["gradients"].sel("*kernel") for run in runs]
    yield "lines", *(plots.scale_lines(series) for series in gradients)
    yield "stack", *(plots.scale_stack(series) for series in gradients)
    yield "magnitudes", *(plots.magnitude_distribution(series, layers="dense1/kernel") for series in gradients)
    yield "board", *(plots.distribution_board(series) for series in gradients)


def batch_normalization() -> Iterator[Picture]:
    """Eight ReLU layers whose weights start out too small, which batch normalization makes good."""
    small = keras.initializers.RandomNormal(stddev=0.06, seed=1)
    models = [network(dense(8, norm=norm, kernel_initializer=small)) for norm in (True, False)]
    runs = [fit(model, keras.optimizers.SGD(0.02, momentum=0.9)) for model in models]
    outputs = [run["layer_outputs"].sel("relu*") for run in runs]
    yield "lines", *(plots.scale_lines(series) for series in outputs)
    yield "values", *(plots.value_distribution(series, layers="relu4") for series in outputs)
    yield "comparison", plots.comparison({"with": runs[0], "without": runs[1]}), None


class Block(layers.Layer):
    """Dense, ReLU, dropout; `frozen` is the mistake of one who meant to switch dropout off for a test, and forgot."""

    def __init__(self, number: int, frozen: bool) -> None:
        super().__init__(name=f"block{number}")
        self.dense = layers.Dense(96, name=f"dense{number}")
        self.relu = layers.ReLU(name=f"relu{number}")
        self.dropout = layers.Dropout(0.5, name=f"dropout{number}")
        self.frozen = frozen

    def call(self, x: Any, training: Any = None) -> Any:
        return self.dropout(self.relu(self.dense(x)), training=False if self.frozen else training)


def dropout() -> Iterator[Picture]:
    def body(frozen: bool) -> Any:
        return lambda x: Block(2, frozen)(Block(1, frozen)(x))

    runs = [fit(network(body(frozen)), keras.optimizers.Adam(2e-3)) for frozen in (False, True)]
    chosen = ["*relu?", "*dropout?"]
    yield "activity", *(plots.activity_board(run["layer_outputs"], layers=chosen) for run in runs)
    yield "curves", *(plots.training_curves(run, "loss") for run in runs)


SUBJECTS = {
    "learning-rate": learning_rate,
    "dying-relu": dying_relu,
    "vanishing-gradients": vanishing_gradients,
    "batch-normalization": batch_normalization,
    "dropout": dropout,
}


def save(made: Any, path: Path) -> None:
    """With a palette: a third of the bytes."""
    figure = made if isinstance(made, Figure) else made.figure
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI)
    with Image.open(buffer) as full:
        reduced = with_palette(full.convert("RGB"), COLOURS)
    reduced.save(path, optimize=True)
    print(f"{path.stat().st_size / 1000:6.0f} kB  {path.name}", flush=True)


def readme() -> None:
    """What `python -m keras_introspect demo --scenario dying-relu` draws."""
    model = demo.build_model("dying-relu")
    demo.train(model, demo.load_digits(), 10, verbose=0)
    save(plots.dashboard(model.recording), OUT.parent / "dashboard.png")


def main(subjects: list[str]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for subject in subjects or ["readme", *SUBJECTS]:
        if subject == "readme":
            readme()
            continue
        for name, healthy, sick in SUBJECTS[subject]():
            if sick is None:
                save(healthy, OUT / f"{subject}-{name}.png")
            else:
                save(healthy, OUT / f"{subject}-{name}-healthy.png")
                save(sick, OUT / f"{subject}-{name}-sick.png")


if __name__ == "__main__":
    main(sys.argv[1:])
