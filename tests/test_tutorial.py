"""The tutorial: every cell runs in order, its pictures are shown, and it finds and mends what it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TUTORIAL = DOCS / "tutorial.ipynb"

# As Jupyter does it: IPython runs a cell, and shows the value of its last line in the best form that it has.
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        "No window is opened."

shell = Shell.instance()
cells = json.loads(open(sys.argv[1], encoding="utf-8").read())["cells"]
shown = []
for cell in cells:
    if cell["cell_type"] == "code":
        result = shell.run_cell("".join(cell["source"]))
        result.raise_error()
        shown.append([] if result.result is None else list(shell.display_formatter.format(result.result)[0]))
space = shell.user_ns
print("RESULT" + json.dumps({
    "shown": shown,
    "kinds": [f.kind for f in space["findings"].alarms],
    "where": list(space["findings"][0].where),
    "alarms": len(space["ki"].diagnose(space["mended"].recording, space["mended"]).alarms),
    "accuracy": [float(m.recording.logs["val_accuracy"][-1]) for m in (space["model"], space["mended"])],
    "gradient": float(space["gradients"].epoch("rms")[-1, 0]),
}))
"""


def cells() -> list[dict[str, Any]]:
    notebook = json.loads(TUTORIAL.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return list(notebook["cells"])


def test_it_holds_neither_outputs_nor_paths() -> None:
    assert len({cell["id"] for cell in cells()}) == len(cells())
    for cell in cells():
        assert cell["cell_type"] in ("markdown", "code")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert not re.search(r"/(home|root|work|tmp|Users)/", TUTORIAL.read_text("utf-8"))


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", "".join(line for cell in cells() for line in cell["source"]))
    assert links
    for target in links:
        assert (DOCS / target).is_file(), target


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_the_text_says(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    pytest.importorskip("sklearn")
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(TUTORIAL)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.split("RESULT")[1])
    assert sum("image/png" in forms for forms in result["shown"]) == 4  # dashboard, activity, comparison, updates
    assert result["kinds"][0] == "dead_units"
    assert result["where"][0] == "digits/hidden1"
    assert result["gradient"] == 0
    assert result["alarms"] == 0
    assert result["accuracy"][0] < 0.2
    assert result["accuracy"][1] > 0.85
    assert (tmp_path / "run.npz").is_file()
