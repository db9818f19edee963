"""For all tests: a quiet TensorFlow, no window, a fixed seed, and no Keras state left over from the test before.

TensorFlow is not imported from here: tests that need NumPy alone stay quick.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

# --doctest-modules would import the helpers a second time, as `tests.tiny` beside `tiny`, and register classes twice.
_HERE = Path(__file__).parent
collect_ignore = [str(path) for path in _HERE.rglob("*.py") if not path.name.startswith("test_")]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # the workers share the cores


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Seeds every generator before a test and drops Keras's global state (names, graphs) after it."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)
    else:
        random.seed(0)
        np.random.seed(0)
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session(free_memory=False)  # its gc.collect() costs 0.2 s a test
