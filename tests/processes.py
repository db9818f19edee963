"""Programs of the tests that run in a process of their own and print what they measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def printed(file: str, program: str) -> Any:
    """Runs a program of a file beside this one on the CPU; returns what its last line says, as JSON."""
    command = [sys.executable, str(Path(__file__).parent / file), program]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
