"""Every mode of training: the weights are plain Keras's, and the numbers are what the spies saw."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compatibility.checks import PLAIN_FAILS, check, check_that_plain_keras_fails
from compatibility.modes import MODES
from compatibility.own_steps import CONSTRUCTS

CARRIERS = ("convolutional", "lstm", "transformer")
CROSSINGS = [
    ("embedding", "mixed_float16"),
    ("named_inputs_and_outputs", "eager"),
    ("while_loop", "xla"),
    ("rematerialised", "xla"),
    ("frozen", "recompiled"),
    ("lora", "mixed_bfloat16"),
]


QUICK = {
    "accumulation",
    "clipnorm",
    "eager",
    "overflow",
    "mixed_bfloat16",
    "recompiled",
    "sample_weights",
    "steps_per_execution_4",
    "train_on_batch",
    "trainable_changed",
}


def parameters() -> list[Any]:
    """A few modes, on one carrier, in the fast tests."""
    return [
        pytest.param(carrier, mode, marks=[] if mode in QUICK and carrier == CARRIERS[0] else [pytest.mark.long])
        for mode in MODES
        if mode != "graph"
        for carrier in CARRIERS
    ]


def check_cell(construct: str, mode: str) -> None:
    if (construct, mode) in PLAIN_FAILS:
        check_that_plain_keras_fails(CONSTRUCTS[construct], MODES[mode])
    else:
        check(CONSTRUCTS[construct], MODES[mode])


@pytest.mark.parametrize(("construct", "mode"), parameters())
def test_a_mode(construct: str, mode: str) -> None:
    check_cell(construct, mode)


@pytest.mark.long
@pytest.mark.parametrize(("construct", "mode"), CROSSINGS)
def test_a_crossing(construct: str, mode: str) -> None:
    check_cell(construct, mode)


@pytest.mark.long
def test_two_replicas() -> None:
    command = [sys.executable, str(Path(__file__).parent / "replicas.py")]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
