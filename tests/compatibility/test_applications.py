"""Every family of `keras.applications`, through `instrument`: one step, and the weights of plain Keras."""

from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
import oracle

# The smallest member of each family, and the smallest input that it takes.
FAMILIES: dict[str, tuple[str, int]] = {
    "convnext": ("ConvNeXtTiny", 32),
    "densenet": ("DenseNet121", 32),
    "efficientnet": ("EfficientNetB0", 32),
    "efficientnet_v2": ("EfficientNetV2B0", 32),
    "inception_resnet_v2": ("InceptionResNetV2", 75),
    "inception_v3": ("InceptionV3", 75),
    "mobilenet": ("MobileNet", 32),
    "mobilenet_v2": ("MobileNetV2", 32),
    "mobilenet_v3": ("MobileNetV3Small", 32),
    "nasnet": ("NASNetMobile", 32),
    "resnet": ("ResNet50", 32),
    "resnet_v2": ("ResNet50V2", 32),
    "vgg16": ("VGG16", 32),
    "vgg19": ("VGG19", 32),
    "xception": ("Xception", 71),
}
NOT_FAMILIES = {"imagenet_utils", "resnet50"}  # helpers, and another name of resnet


def test_every_family_is_in_the_list() -> None:
    named = {
        name.split(".")[-1]
        for name, module in vars(keras.applications).items()
        if not name.startswith("_") and hasattr(module, "preprocess_input")
    }
    assert named - NOT_FAMILIES == set(FAMILIES)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family(family: str) -> None:
    name, size = FAMILIES[family]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, size, size, 3)).astype("float32"), rng.integers(0, 3, 2)

    def trained(collectors: Any) -> Any:
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(1)
        network = getattr(keras.applications, name)
        model = network(weights=None, classes=3, input_shape=(size, size, 3))
        compile_args = {"optimizer": keras.optimizers.SGD(1e-3), "loss": "sparse_categorical_crossentropy"}
        if collectors is not None:
            assert ki.instrument(model) is model
            compile_args["collectors"] = collectors
        model.compile(**compile_args)
        model.fit(x, y, batch_size=2, epochs=1, verbose=0, shuffle=False)
        return model

    plain = trained(None)
    model = trained("default")
    assert oracle.same_bits(model.get_weights(), plain.get_weights())
    recording = model.recording
    assert set(recording) == {"weights", "gradients", "layer_outputs"}
    assert len(recording["gradients"].names) == len(plain.trainable_variables)
    assert np.isfinite(recording["gradients"].epoch("rms")).all()
    called = {layer.path or layer.name for layer in plain.layers if not isinstance(layer, keras.layers.InputLayer)}
    seen = set(recording["layer_outputs"].names) | set(recording.unobserved)
    assert not {layer for layer in called if not any(layer in name for name in seen)}
