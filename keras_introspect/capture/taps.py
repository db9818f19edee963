"""Functions put over the methods of objects while a step is traced or run."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

_LOCK = threading.RLock()


class Taps:
    """Context: taps some methods of some objects, refcounted, since replica threads share them.

    The taps are instance attributes, put past `setattr`, which Keras would track. An object on which somebody has put
    the first of the methods already is left alone.

    Args:
        model: the observed model.
        owners: gives the objects of the model, at each first entry.
        methods: name of a method → takes (object, its method), gives what is put over it.
    """

    def __init__(
        self, model: Any, owners: Callable[[Any], list[Any]], methods: Mapping[str, Callable[[Any, Any], Any]]
    ) -> None:
        self._model = model
        self._owners = owners
        self._methods = methods
        self._users = 0
        self._tapped: list[Any] = []

    def __enter__(self) -> None:
        with _LOCK:
            self._users += 1
            if self._users == 1:
                first = next(iter(self._methods))
                self._tapped = [owner for owner in self._owners(self._model) if first not in owner.__dict__]
                for owner in self._tapped:
                    for name, tap in self._methods.items():
                        owner.__dict__[name] = tap(owner, getattr(owner, name))

    def __exit__(self, *_: object) -> None:
        with _LOCK:
            self._users -= 1
            if self._users == 0:
                for owner in self._tapped:
                    for name in self._methods:
                        owner.__dict__.pop(name, None)
                self._tapped = []
