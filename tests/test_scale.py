"""Wide: a large embedding is not made dense. Deep: 160 layers."""

import numpy as np
import pytest

from processes import printed
from scale_programs import DEPTH, ROWS, WIDTH

pytestmark = pytest.mark.long
TABLE = 4 * ROWS * WIDTH  # bytes of the embedding


def test_an_embedding_of_200_million_elements_is_not_made_dense() -> None:
    plain, observed = (printed("scale_programs.py", program) for program in ("plain", "observed"))
    assert plain["before"] > TABLE  # the variable itself: the measure sees it
    assert observed["after"] - observed["before"] < plain["after"] - plain["before"] + TABLE / 4
    # Exact all the same: 16 samples look up 4 rows each, and two of them the same ones.
    assert observed["count"] == [2.0 * ROWS * WIDTH] * 2
    np.testing.assert_allclose(observed["activation_rate"], [60 * WIDTH / (2 * ROWS * WIDTH)] * 2)


def test_160_layers() -> None:
    deep = printed("scale_programs.py", "deep")
    assert deep["layers"] == DEPTH + DEPTH // 2 + 1
    assert deep["output_gradients"] == deep["layers"]
    assert deep["unobserved"] == {}
    for view in ("outputs", "gradients"):
        expected, observed = deep[view]
        # Rounding grows along the layers, and the expected numbers come of an eager step.
        np.testing.assert_allclose(observed, expected, rtol=1e-3, err_msg=view)
