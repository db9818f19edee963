"""`layers=`: which layers, or variables, a collector looks at."""

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from keras_introspect.errors import WrongTypeError, a_type, unknown_name

_TYPE = "type:"  # how a layer type is written in a saved model
_EXPECTED = "expected layer names, globs such as 'conv*', layer types or functions of a layer"

LayerSelection = str | type | Callable[[Any], bool] | Iterable[str | type | Callable[[Any], bool]] | None


class Selection:
    """A choice by name, path, glob, layer type or predicate, or a list of them; `None` chooses everything.

    Args:
        layers: what a user gave as `layers=`.

    Raises:
        WrongTypeError: it, or an item, is none of these.
    """

    def __init__(self, layers: LayerSelection) -> None:
        if isinstance(layers, Selection):
            layers = layers._items or None
        if layers is None:
            items: list[Any] = []
        else:
            single = isinstance(layers, (str, type)) or callable(layers) or hasattr(layers, "path")
            if not single and (not isinstance(layers, Iterable) or isinstance(layers, Mapping | bytes)):
                raise WrongTypeError(
                    f"layers= was given {layers!r}, {a_type(layers)}; {_EXPECTED}, or a list of these."
                )
            items = [layers] if single else list(layers)  # type: ignore[arg-type]
        # A layer or variable of the model stands for its name.
        items = [
            item.path or item.name if hasattr(item, "path") and not isinstance(item, type) else item for item in items
        ]
        for item in items:
            if not (isinstance(item, str) or callable(item)):
                raise WrongTypeError(f"layers= holds {item!r}, {a_type(item)}; {_EXPECTED}.")
        if layers is not None and not items:
            raise ValueError("layers= is an empty list: it chooses nothing. Leave it out to observe everything.")
        self.everything = layers is None
        self._items = items
        self._chosen: dict[int, list[str]] = {}

    def chooses(self, layer: Any, *names: str) -> bool:
        """Whether this layer, or one of the further names, is chosen."""
        return self.everything or any(self._fits(item, layer, names) for item in self._items)

    def _fits(self, item: Any, layer: Any, names: tuple[str, ...]) -> bool:
        if isinstance(item, str) and item.startswith(_TYPE):
            return any(cls.__name__ == item[len(_TYPE) :] for cls in type(layer).__mro__)
        if isinstance(item, str):
            known = {*names, *((layer.name, layer.path or layer.name) if layer is not None else ())}
            return any(name == item or fnmatch.fnmatchcase(name, item) for name in known)
        if isinstance(item, type):
            return isinstance(layer, item)
        if layer is None or not item(layer):
            return False
        chosen = self._chosen.setdefault(id(item), [])
        if layer.name not in chosen:
            chosen.append(layer.name)
        return True

    def check(self, candidates: list[tuple[Any, tuple[str, ...]]], collector: str) -> None:
        """Raises if an item chooses none of the candidates: (layer, further names)."""
        for item in self._items:
            if any(self._fits(item, layer, names) for layer, names in candidates):
                continue
            existing = dict.fromkeys(name for layer, names in candidates for name in (names or (layer.name,)))
            raise unknown_name(
                f"layer in layers= of {collector}",
                item if isinstance(item, str) else getattr(item, "__name__", repr(item)),
                existing,
                "Names, paths, globs such as 'conv*', layer types and functions of a layer are accepted.",
            )

    def demands(self, *names: str) -> bool:
        """Whether one of these is asked for by its own full name, so that leaving it out silently would be wrong."""
        return any(name in self._items for name in names)

    def get_config(self) -> list[str] | None:
        """The selection as strings, as a saved model keeps it: a function is replaced by the names it chose so far."""
        if self.everything:
            return None
        saved: list[str] = []
        for item in self._items:
            if isinstance(item, str):
                saved.append(item)
            elif isinstance(item, type):
                saved.append(_TYPE + item.__name__)
            else:
                saved += self._chosen.get(id(item), [])
        return saved or None
