"""Statistics: pure functions from a tensor to a partial state, with a merge and a read-out; one a file."""

from collections.abc import Iterable, Mapping

from keras_introspect.errors import WrongTypeError, a_type, unknown_name
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
        WrongTypeError: something is neither a name nor a statistic.
    """
    single = isinstance(statistics, (str, Statistic, type))
    if not single and (not isinstance(statistics, Iterable) or isinstance(statistics, Mapping | bytes)):
        raise WrongTypeError(
            f"statistics= was given {statistics!r}, {a_type(statistics)}; expected a name "
            f"({', '.join(map(repr, NAMED))}), an instance of Statistic, or a list of these."
        )
    given = [statistics] if single else list(statistics)  # type: ignore[arg-type]
    resolved: list[Statistic] = []
    for item in given:
        if isinstance(item, str):
            if item not in NAMED:
                raise unknown_name("statistic", item, NAMED, _yielding(item))
            item = NAMED[item]()
        elif isinstance(item, type) and issubclass(item, Statistic):
            item = item()
        if not isinstance(item, Statistic):
            raise WrongTypeError(
                f"statistics= holds {item!r}, {a_type(item)}; expected names ({', '.join(map(repr, NAMED))}) or "
                "instances of Statistic."
            )
        if any(item.name == other.name for other in resolved):
            raise ValueError(f"The statistic {item.name!r} comes twice in statistics={statistics!r}; name it once.")
        resolved.append(item)
    return tuple(resolved)


def _yielding(series: str) -> str:
    """Which statistics to ask for, where a name is that of a series."""
    found = [repr(name) for name, cls in NAMED.items() if series in (*cls.series, *cls.unit_series)]
    if not found:
        return ""
    return f"{series!r} is a series of the statistic{'s' * (len(found) > 1)} {' and '.join(found)}: ask for that."
