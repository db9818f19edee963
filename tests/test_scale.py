"""Wide: a large embedding is not made dense. Deep: 160 layers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scale_programs import DEPTH, ROWS, WIDTH

pytestmark = pytest.mark.long
TABLE = 4 * ROWS * WIDTH  # bytes of the embedding


def measured(program: str) -> Any:
    command = [sys.executable, str(Path(__file__).parent / "scale_programs.py"), program]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_embedding_of_200_million_elements_is_not_made_dense() -> None:
    plain, observed = measured("plain"), measured("observed")
    assert plain["before"] > TABLE  # the variable itself: the measure sees it
    assert observed["after"] - observed["before"] < plain["after"] - plain["before"] + TABLE / 4
    # Exact all the same: 16 samples look up 4 rows each, and two of them the same ones.
    assert observed["count"] == [2.0 * ROWS * WIDTH] * 2
    np.testing.assert_allclose(observed["activation_rate"], [60 * WIDTH / (2 * ROWS * WIDTH)] * 2)


def test_160_layers() -> None:
    deep = measured("deep")
    assert deep["layers"] == DEPTH + DEPTH // 2 + 1
    assert deep["output_gradients"] == deep["layers"]
    assert deep["unobserved"] == {}
    for view in ("outputs", "gradients"):
        expected, observed = deep[view]
        # Rounding grows along the layers, and the expected numbers come of an eager step.
        np.testing.assert_allclose(observed, expected, rtol=1e-3, err_msg=view)
