"""One tensor under two names: Keras shortens paths when it loads a model."""

from collections.abc import Iterable, Sequence


def known_names(known: Iterable[str], names: Sequence[str]) -> list[str]:
    """The names under which tensors are known already, where they are.

    `keras.saving.load_model` builds a layer outside of the layer or Sequential that holds it: `net/block/conv` is then
    `block/conv`, or `conv`. A new name with which one known name alone ends, or the reverse, is taken for that one.

    Args:
        known: the names so far.
        names: the names now.

    Example:

    >>> known_names(["net/a/kernel", "net/b/kernel"], ["a/kernel", "b/kernel", "c/kernel"])
    ['net/a/kernel', 'net/b/kernel', 'c/kernel']
    """
    taken = set(names)
    gone = [name for name in known if name not in taken]
    if not gone:
        return list(names)
    new = taken - set(known)
    found: dict[str, str] = {}
    for name in names:
        fits = [old for old in gone if old.endswith(f"/{name}") or name.endswith(f"/{old}")] if name in new else []
        if len(fits) == 1:
            found[name] = fits[0]
    claimed = list(found.values())
    return [found[name] if name in found and claimed.count(found[name]) == 1 else name for name in names]
