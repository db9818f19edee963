"""What a model's configuration says: layers, heads, losses, optimizer. Reads public attributes, imports no Keras."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Layers whose class is their activation.
_ACTIVATION_LAYERS = {
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "PReLU": "prelu",
    "ELU": "elu",
    "Softmax": "softmax",
    "ThresholdedReLU": "relu",
}
# Layers that hand on what they get, as far as its range goes.
_PASSING_ON = (
    "Reshape",
    "Flatten",
    "Permute",
    "RepeatVector",
    "Cropping1D",
    "Cropping2D",
    "Identity",
)
_NUMBERS = ("rate", "momentum", "epsilon", "axis", "stddev")
_LOSSES = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "msle": "mean_squared_logarithmic_error",
    "bce": "binary_crossentropy",
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "huber_loss": "huber",
    "logcosh": "log_cosh",
}

Description = dict[str, Any]


def describe(model: Any) -> Description:
    """What the configuration of a model says, as plain numbers, strings, lists and dicts.

    Reads public attributes of the model, its layers, loss and optimizer, and changes nothing. What cannot be had, such
    as the head of a subclassed model, is left out.

    Args:
        model: a Keras model, compiled or not.

    Returns:
        A dict with these keys, each left out where unknown: `layers`, a list with `name` (as in the recording),
        `class`, `trainable`, `activation`, `units`, `kernel_initializer`, `regularizers`, `called_with_training` where
        a functional model fixes the phase, and some numbers such as `rate`; `outputs`, the heads: `name`, `activation`,
        `units`, and `softmax_axis` (from the end) of a layer `Softmax`; `losses`: `output`, `loss`, `from_logits`, and
        `ignore_class` and `axis` where they are given; `optimizer`: `name`, `learning_rate`, `momentum`,
        `weight_decay`, `loss_scaled`; `custom_step`, whether the model has a `train_step` or `compute_loss` of its own.

    Example:

    >>> describe(object())
    {'layers': [], 'losses': [], 'custom_step': False}
    """
    layers = list(_walk(model))
    about: Description = {"layers": [_layer(layer) for layer in layers]}
    fixed = _fixed_phases([model, *layers])
    for layer, described in zip(layers, about["layers"], strict=True):
        if layer.name in fixed:
            described["called_with_training"] = fixed[layer.name]
    outputs = _outputs(model)
    if outputs:
        about["outputs"] = outputs
    about["losses"] = _losses(getattr(model, "loss", None), getattr(model, "output_names", None))
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        about["optimizer"] = _optimizer(optimizer)
    about["custom_step"] = _has_own_step(model)
    return about


# --- layers ---


def _is_layer(thing: Any) -> bool:
    return hasattr(thing, "trainable_variables") and hasattr(thing, "get_config") and hasattr(thing, "name")


def _children(layer: Any) -> Iterator[Any]:
    children = getattr(layer, "layers", None)
    if isinstance(children, list | tuple):
        yield from (child for child in children if _is_layer(child))
        return
    for value in list(getattr(layer, "__dict__", {}).values()):
        for item in value if isinstance(value, list | tuple) else [value]:
            if _is_layer(item):
                yield item


def _walk(model: Any) -> Iterator[Any]:
    """All layers below a model, at all depths, each once, in the order in which they were made."""
    seen = {id(model)}
    waiting = list(_children(model))[::-1]
    while waiting:
        layer = waiting.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield layer
        waiting += list(_children(layer))[::-1]


def _layer(layer: Any) -> Description:
    about: Description = {
        "name": str(getattr(layer, "path", None) or layer.name),
        "class": type(layer).__name__,
        "trainable": bool(getattr(layer, "trainable", True)),
    }
    activation = _activation(layer)
    if activation is not None:
        about["activation"] = activation
    units = getattr(layer, "units", None) or getattr(layer, "filters", None)
    if isinstance(units, int):
        about["units"] = units
    for key in _NUMBERS:
        value = getattr(layer, key, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            about[key] = value
    initializer = getattr(layer, "kernel_initializer", None)
    if initializer is not None:
        about["kernel_initializer"] = _configured(initializer)
    regularizers = {
        key: amounts
        for key in ("kernel_regularizer", "activity_regularizer")
        if (amounts := _regularizer(getattr(layer, key, None)))
    }
    if regularizers:
        about["regularizers"] = regularizers
    if hasattr(layer, "moving_variance") and not about["trainable"]:
        about["frozen_statistics"] = True
        for key, name in (("gamma", "scale_rms"), ("beta", "offset_rms")):
            size = _rms(getattr(layer, key, None))
            if size is not None:
                about[name] = size
    return about


def _fixed_phases(models: Sequence[Any]) -> dict[str, bool]:
    """Layers that a functional model calls with `training=True` or `False`, whatever the phase, by name."""
    found: dict[str, bool] = {}
    for model in models:
        if not getattr(model, "outputs", None) or not getattr(model, "layers", None):
            continue
        if not any(hasattr(layer, "rate") or hasattr(layer, "moving_variance") for layer in model.layers):
            continue
        try:
            config = model.get_config()
        except (NotImplementedError, TypeError, ValueError):  # a layer of the user's own that cannot be configured
            continue
        for layer in config.get("layers", ()):
            nodes = [node for node in layer.get("inbound_nodes", ()) if isinstance(node, Mapping)]
            phases = {node.get("kwargs", {}).get("training") for node in nodes}
            if phases in ({True}, {False}):
                found[str(layer.get("name"))] = phases.pop()
    return found


def _activation(layer: Any) -> str | None:
    """The name of a layer's activation; `None` where it has none, `"custom"` where it has no name."""
    kind = type(layer).__name__
    if kind in _ACTIVATION_LAYERS:
        return _ACTIVATION_LAYERS[kind]
    activation = getattr(layer, "activation", None)
    if activation is None:
        return None
    if _is_layer(activation):
        return _ACTIVATION_LAYERS.get(type(activation).__name__, "custom")
    return str(getattr(activation, "__name__", "custom"))


def _configured(thing: Any) -> Description:
    config = thing.get_config() if hasattr(thing, "get_config") else {}
    numbers = {key: value for key, value in config.items() if isinstance(value, int | float) and key != "seed"}
    return {"class": type(thing).__name__, **numbers}


def _regularizer(regularizer: Any) -> Description:
    amounts = {}
    for key in ("l1", "l2"):
        try:
            value = float(getattr(regularizer, key, 0.0))
        except (TypeError, ValueError):  # something else of that name
            continue
        if value:
            amounts[key] = value
    return amounts


def _rms(variable: Any) -> float | None:
    if variable is None or not hasattr(variable, "numpy"):
        return None
    values = variable.numpy().astype("float64")
    return float((values**2).mean() ** 0.5) if values.size else None


# --- heads ---


def _outputs(model: Any) -> list[Description]:
    """A model's heads; none where its layers are called by code of its own."""
    tensors, layers = getattr(model, "outputs", None), getattr(model, "layers", None)
    if not tensors or not layers:
        return []
    made_by = {id(output): layer for layer in layers for output in _tensors(layer, "output")}
    found = []
    for tensor in tensors:
        layer = made_by.get(id(tensor))
        if layer is None and len(tensors) == 1:
            layer = layers[-1]  # a model within the model, whose own output is another tensor
        if layer is None:
            return []
        found.append(_head(layer, made_by))
    return found


def _tensors(layer: Any, which: str) -> list[Any]:
    try:
        value = getattr(layer, which)
    except (AttributeError, ValueError):  # of a layer that is called twice, or never
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _head(layer: Any, made_by: Mapping[int, Any]) -> Description:
    """The activation that makes an output, looked for behind layers that only hand it on."""
    name, shape = str(getattr(layer, "path", None) or layer.name), None
    for tensor in _tensors(layer, "output")[:1]:
        shape = getattr(tensor, "shape", None)
    about: Description = {"name": name, "class": type(layer).__name__}
    if shape is not None and len(shape) > 1 and isinstance(shape[-1], int):
        about["units"] = shape[-1]
    moved = False  # whether the axes are other ones than those of the layer looked at
    for _ in range(8):
        wrapper = layer
        if type(layer).__name__ == "TimeDistributed":
            layer, moved = layer.layer, True
        inner = _outputs(layer) if getattr(layer, "layers", None) else []
        if inner:
            if "activation" in inner[0]:
                about["activation"] = inner[0]["activation"]
            return about
        activation = _activation(layer)
        passes = type(layer).__name__ in _PASSING_ON or (
            type(layer).__name__ == "Activation" and activation == "linear"
        )
        before = [made_by[id(t)] for t in _tensors(wrapper, "input") if id(t) in made_by]
        if not passes or len(before) != 1:
            if activation is not None:
                about["activation"] = activation
            axis = getattr(layer, "axis", None)
            if type(layer).__name__ == "Softmax" and isinstance(axis, int) and not moved:
                about["softmax_axis"] = axis if axis < 0 or shape is None else axis - len(shape)
            return about
        layer, moved = before[0], True
    return about


# --- loss, optimizer, step ---


def _losses(loss: Any, names: Any) -> list[Description]:
    if loss is None:
        return []
    if isinstance(loss, Mapping):
        items = [(str(key), value) for key, value in loss.items()]
    elif isinstance(loss, Sequence) and not isinstance(loss, str):
        outputs = names if isinstance(names, Sequence) and len(names) == len(loss) else range(len(loss))
        items = [(str(key), value) for key, value in zip(outputs, loss, strict=True)]
    else:
        items = [("", loss)]
    return [{"output": key, **_loss(value)} for key, value in items if value is not None]


def _loss(loss: Any) -> Description:
    if isinstance(loss, str):
        return {"loss": _canonical(loss), "from_logits": False}
    config = {}
    if hasattr(loss, "get_config"):
        try:
            config = loss.get_config()
        except NotImplementedError:  # a loss of the user's own
            config = {}
    name = getattr(loss, "__name__", None) or type(loss).__name__
    about = {"loss": _canonical(name), "from_logits": bool(config.get("from_logits", False))}
    for key, usual in (("ignore_class", None), ("axis", -1)):
        if config.get(key, usual) != usual:
            about[key] = config[key]
    return about


def _canonical(name: str) -> str:
    """`"MSE"`, `"MeanSquaredError"` and `"mean_squared_error"` are one."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    snake = (name if name.isupper() else snake).lower()
    snake = {"kldivergence": "kl_divergence", "kl_divergence": "kl_divergence"}.get(snake, snake)
    return _LOSSES.get(snake, snake)


def _optimizer(optimizer: Any) -> Description:
    about: Description = {"name": type(optimizer).__name__}
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        about = {"name": type(inner).__name__, "loss_scaled": True}
        optimizer = inner
    config = optimizer.get_config() if hasattr(optimizer, "get_config") else {}
    for key in ("learning_rate", "momentum", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm"):
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            about[key] = float(value)
    return about


def _has_own_step(model: Any) -> bool:
    methods = (getattr(type(model), name, None) for name in ("train_step", "compute_loss"))
    modules = (str(getattr(method, "__module__", "keras")) for method in methods)
    return any(module.split(".")[0] not in ("keras", "keras_introspect") for module in modules)
