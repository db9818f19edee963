"""What `python -m keras_introspect demo` trains: a small convolutional network on handwritten digits.

Keras is imported inside the functions, so that the command line can list the scenarios without it.
"""

from typing import Any, NamedTuple

import numpy as np

BATCH_SIZE = 32
_TRAINING_IMAGES = 1437  # of 1797: 80 %
_SPLIT_SEED = 0


class Scenario(NamedTuple):
    """One way to train the network.

    Attributes:
        learning_rate: of SGD with momentum 0.9.
        batch_normalization: whether the network has it.
        about: what happens, in one sentence.
    """

    learning_rate: float
    batch_normalization: bool
    about: str


SCENARIOS = {
    "healthy": Scenario(0.02, True, "a network that learns well"),
    # With batch normalization this rate, and twice as much, kills hardly a unit.
    "dying-relu": Scenario(
        0.1, False, "five times the learning rate and no batch normalization, which would protect the units: ReLUs die"
    ),
}


class Digits(NamedTuple):
    """Images, float32, (n, 8, 8, 1), from 0 to 1, and labels, int64, (n,): for training and for validation."""

    x: np.ndarray
    y: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray


def load_digits() -> Digits:
    """scikit-learn's 1797 handwritten digits of 8×8 pixels, split 80:20, always in the same way.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            'the demo needs scikit-learn, which is not installed: pip install "keras-introspect[demo]"'
        ) from error
    x, y = datasets.load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    train, validation = order[:_TRAINING_IMAGES], order[_TRAINING_IMAGES:]
    return Digits(images[train], y[train], images[validation], y[validation])


def build_model(scenario: str, seed: int = 0) -> Any:
    """The network of a scenario, compiled with all collectors.

    It seeds Python, NumPy and Keras (`keras.utils.set_random_seed`), as a program may and a library function may not.

    Args:
        scenario: a key of `SCENARIOS`.
        seed: of the weights, the dropout and the order of the batches.
    """
    import keras
    from keras import layers

    from keras_introspect.model import IntrospectiveModel

    learning_rate, batch_normalization, _ = SCENARIOS[scenario]
    keras.utils.set_random_seed(seed)

    def normalized_relu(x: Any, number: int) -> Any:
        if batch_normalization:
            x = layers.BatchNormalization(momentum=0.9, name=f"norm{number}")(x)
        return layers.ReLU(name=f"relu{number}")(x)

    bias = not batch_normalization  # which has one of its own
    inputs = keras.Input((8, 8, 1), name="image")
    x = normalized_relu(layers.Conv2D(16, 3, padding="same", use_bias=bias, name="conv1")(inputs), 1)
    x = normalized_relu(layers.Conv2D(32, 3, padding="same", use_bias=bias, name="conv2")(x), 2)
    x = layers.MaxPooling2D(name="pool")(x)
    x = layers.Dropout(0.25, name="dropout1")(x)
    x = layers.Flatten(name="flatten")(x)
    x = normalized_relu(layers.Dense(64, use_bias=bias, name="dense")(x), 3)
    x = layers.Dropout(0.5, name="dropout2")(x)
    outputs = layers.Dense(10, activation="softmax", name="probabilities")(x)

    model = IntrospectiveModel(inputs, outputs, name="digits")
    model.compile(
        keras.optimizers.SGD(learning_rate, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        collectors="all",
    )
    return model


def train(model: Any, digits: Digits, epochs: int, verbose: int = 2) -> None:
    """Fits the model; whatever ends it early, `model.recording` holds the epochs that were completed.

    Args:
        model: of `build_model`.
        digits: of `load_digits`.
        epochs: how many.
        verbose: 0 silent, 1 progress bar, 2 one line an epoch.
    """
    model.fit(
        digits.x,
        digits.y,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        validation_data=(digits.x_validation, digits.y_validation),
        verbose=verbose,
    )
