"""The documentation builds without a warning, and its reference has every public name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_introspect as ki

ROOT = Path(__file__).parent.parent


def public_names() -> set[str]:
    modules = {"plots", "callbacks"}
    names = {name for name in ki.__all__ if name not in modules and not name.startswith("_")}
    return names | {name for module in modules for name in getattr(ki, module).__all__}


def test_every_public_name_is_in_the_reference() -> None:
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE)
    assert len(shown) == len(set(shown))
    assert public_names() <= {path.rpartition(".")[2] for path in shown}


def test_every_page_is_in_the_index() -> None:
    linked = re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "index.md").read_text("utf-8"))
    pages = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb")}
    assert set(linked) == pages - {"index.md"}


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    for tool in ("mkdocs", "mkdocstrings"):
        pytest.importorskip(tool, reason='the documentation needs more packages: pip install -e ".[docs]"')
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "api" / "index.html").read_text("utf-8")
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(keras_introspect\.[^"]+)"', page)}
    assert public_names() <= anchors
    # Examples are code, not quotations, and arguments stand in the tables that the docstrings' sections make.
    assert "<blockquote>" not in page
    assert page.count("&gt;&gt;&gt;") > 100
    assert page.count("Raises:") > 20
