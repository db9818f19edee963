"""Statistics: pure functions from a tensor to a partial state, with a merge and a read-out; one a file."""

from collections.abc import Iterable

from keras_introspect.errors import unknown_name
from keras_introspect.statistics.activity import Activity
from keras_introspect.statistics.base import Context, Piece, Statistic
from keras_introspect.statistics.implicit_rate import ImplicitRate
from keras_introspect.statistics.moments import Moments
from keras_introspect.statistics.per_unit import PerUnit
from keras_introspect.statistics.quantiles import Quantiles
from keras_introspect.statistics.signal_to_noise import SignalToNoise
from keras_introspect.statistics.spec import TensorSpec
from keras_introspect.statistics.update_ratio import UpdateRatio
from keras_introspect.statistics.values import Values

__all__ = [
    "NAMED",
    "Activity",
    "Context",
    "ImplicitRate",
    "Moments",
    "PerUnit",
    "Piece",
    "Quantiles",
    "SignalToNoise",
    "Statistic",
    "TensorSpec",
    "UpdateRatio",
    "Values",
    "resolve",
]

NAMED: dict[str, type[Statistic]] = {
    cls.name: cls for cls in (Moments, Activity, Quantiles, PerUnit, SignalToNoise, UpdateRatio, ImplicitRate, Values)
}


def resolve(statistics: str | Statistic | Iterable[str | Statistic]) -> tuple[Statistic, ...]:
    """Turns names and instances into instances.

    Raises:
        ValueError: a name is unknown, or a name comes twice.
        TypeError: something is neither a name nor a statistic.
    """
    given = [statistics] if isinstance(statistics, (str, Statistic)) else list(statistics)
    resolved: list[Statistic] = []
    for item in given:
        if isinstance(item, str):
            if item not in NAMED:
                raise unknown_name("statistic", item, NAMED)
            item = NAMED[item]()
        elif isinstance(item, type) and issubclass(item, Statistic):
            item = item()
        if not isinstance(item, Statistic):
            raise TypeError(
                f"statistics= holds {item!r}; expected names ({', '.join(map(repr, NAMED))}) or instances of Statistic."
            )
        if any(item.name == other.name for other in resolved):
            raise ValueError(f"The statistic {item.name!r} comes twice in statistics={statistics!r}; name it once.")
        resolved.append(item)
    return tuple(resolved)
