"""All programs: importing a module of them registers them."""

from benchmarks.diagnosis import first_held_out, further, healthy, held_out, listed  # noqa: F401
from benchmarks.diagnosis.programs import PROGRAMS

__all__ = ["PROGRAMS"]
