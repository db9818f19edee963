"""Errors that say what came, what was expected and how to mend it."""

import difflib
from collections.abc import Iterable


class UnknownNameError(KeyError, ValueError):
    """A name (view, series, layer, statistic) that does not exist here.

    It is a `KeyError`, as a mapping raises, and a `ValueError`, as a bad argument raises.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


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
