"""Errors that say what came, what was expected and how to mend it."""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

NOTHING_OBSERVED = (
    'Nothing was observed: give the model collectors, as in compile(…, collectors="default"), then train for an epoch.'
)
_SPOKEN_AS_CONSONANT = re.compile(r"eu|on(?:c)?e|u(?:int|func|net|s[aeiu]|ni(?![mn])|t[ei])", re.IGNORECASE)


class UnknownNameError(KeyError, ValueError):
    """A name (view, series, layer, statistic) that does not exist here.

    It is a `KeyError`, as a mapping raises, and a `ValueError`, as a bad argument raises.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class WrongTypeError(TypeError, ValueError):
    """Something of a type that cannot be taken.

    It is a `TypeError`, as Python raises, and a `ValueError`, as a bad argument raises.
    """


class UnknownArgumentError(UnknownNameError, TypeError):
    """An argument that a class does not have: a `TypeError` too, as Python raises."""


def unknown_name(kind: str, given: object, existing: Iterable[str], mend: str = "") -> UnknownNameError:
    """Builds the error for a name that does not exist, with what exists and the nearest guess.

    Args:
        kind: what the name should have named, such as `"statistic"`.
        given: what came.
        existing: every name that would have been right.
        mend: a further sentence on how to mend it.

    Example:

    >>> print(unknown_name("statistic", "momnets", ["moments", "activity"]))
    Unknown statistic: 'momnets'. Expected one of: 'moments', 'activity'. Did you mean 'moments'?
    """
    names = list(existing)
    shown = ", ".join(repr(name) for name in names[:40]) + (f", … ({len(names)} in all)" if len(names) > 40 else "")
    close = difflib.get_close_matches(str(given), names, n=1)
    parts = [f"Unknown {kind}: {given!r}.", f"Expected one of: {shown}." if names else f"There is no {kind} here."]
    if close:
        parts.append(f"Did you mean {close[0]!r}?")
    if mend:
        parts.append(mend)
    return UnknownNameError(" ".join(parts))


def a(word: str) -> str:
    """A word with its article.

    Example:

    >>> a("Series"), a("IntrospectiveFunctional"), a("UserModel")
    ('a Series', 'an IntrospectiveFunctional', 'a UserModel')
    """
    vowel = word[:1].lower() in tuple("aeiou") and not _SPOKEN_AS_CONSONANT.match(word)
    return f"{'an' if vowel else 'a'} {word}"


def a_type(value: object) -> str:
    """What came, by its type: 'a Series'."""
    return a(type(value).__name__)


def as_names(given: object, what: str) -> list[str]:
    """A name, or several, as a list.

    Args:
        given: a string, or a list, tuple, … of strings.
        what: what was given, for the error, such as `"layers"`.

    Raises:
        WrongTypeError: it is neither.

    Example:

    >>> as_names("conv1", "layers"), as_names(("conv*", "head"), "layers")
    (['conv1'], ['conv*', 'head'])
    """
    if isinstance(given, str):
        return [given]
    expected = f"{what} was given {given!r}, {a_type(given)}; expected a name (str), a glob such as 'conv*', or a list"
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        raise WrongTypeError(f"{expected} of these.")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise WrongTypeError(f"{expected} of these: {name!r} is {a_type(name)}.")
    return names


def arguments_of(cls: type) -> list[str]:
    """The arguments of a class, those of its bases too to which it passes on what it does not know itself."""
    names: list[str] = []
    for base in cls.__mro__:
        if "__init__" not in base.__dict__ or base is object:
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        names += [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return list(dict.fromkeys(names))


def _naming_arguments(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except UnknownArgumentError:
            raise
        except TypeError as error:
            known = arguments_of(type(self))
            unknown = [name for name in kwargs if name not in known]
            said = [name for name in unknown if f"unexpected keyword argument '{name}'" in str(error)]
            if not said:
                raise
            kind = f"argument of {type(self).__name__}()"
            raise UnknownArgumentError(*unknown_name(kind, said[0], known).args) from None

    return wrapped


class NamesItsArguments:
    """Base of classes that say which arguments they have when they are given another one.

    Python's own error names the base class that was reached last, not the one that was written.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _naming_arguments(cls.__init__)  # type: ignore[method-assign]
