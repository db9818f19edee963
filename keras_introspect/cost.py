"""What introspection takes on the device."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_introspect.observer import Observer


class IntrospectionCost(Mapping[str, int]):
    """Bytes on each device by collector, as `model.introspection_cost()` gives them: a mapping name → bytes.

    Attributes:
        by_statistic: name of a collector → statistic → bytes of its accumulator; `"steps"` is the buffer of single
            steps, `"loops"` what brings gradients out of loops.
        total: of all collectors.
    """

    def __init__(self, by_statistic: Mapping[str, Mapping[str, int]]) -> None:
        self.by_statistic = {name: dict(parts) for name, parts in by_statistic.items()}
        self.total = sum(self.values())

    def __getitem__(self, name: str) -> int:
        return sum(self.by_statistic[name].values())

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_statistic)

    def __len__(self) -> int:
        return len(self.by_statistic)

    def __repr__(self) -> str:
        lines = [f"{'collector':20} {'bytes':>14}  of which"]
        for name, parts in self.by_statistic.items():
            lines.append(f"{name:20} {self[name]:>14,}  {', '.join(f'{k} {v:,}' for k, v in parts.items())}".rstrip())
        return "\n".join([*lines, f"{'total':20} {self.total:>14,}"])


def cost_of(observer: Observer, model: Any, x: Any = None) -> IntrospectionCost:
    """See `IntrospectiveModel.introspection_cost`."""
    if not observer.has_allocated:
        if not model.built:
            if x is None:
                raise ValueError(
                    f"introspection_cost() of {model.name!r}, which is not built: its tensors are not known yet. Give "
                    "a batch of its inputs, introspection_cost(x), or train one step."
                )
            model(keras.tree.map_structure(_symbolic, x))
        observer.allocate(model, _input_specs(model, x))
    return IntrospectionCost(observer.allocated(model))


def _symbolic(tensor: Any) -> Any:
    """What builds a model without computing anything."""
    return keras.KerasTensor((None, *tensor.shape[1:]), keras.backend.standardize_dtype(tensor.dtype))


def _input_specs(model: Any, x: Any) -> Any:
    if x is None and getattr(model, "inputs", None):
        x = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    if x is None:
        raise ValueError(
            f"introspection_cost() of {model.name!r}, a model without symbolic inputs, does not know their shapes. "
            "Give a batch of them: model.introspection_cost(x)."
        )

    def spec(tensor: Any) -> Any:
        shape = tuple(tensor.shape)
        return tf.TensorSpec((None, *shape[1:]), keras.backend.standardize_dtype(tensor.dtype))

    return keras.tree.map_structure(spec, x)
