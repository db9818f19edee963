"""Every python block of README.md and docs/*.md runs, and every link and picture in them is there."""

import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace a page, from top to bottom, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    text = page.read_text("utf-8")
    namespace: dict[str, Any] = {"__name__": f"blocks_of_{page.stem}"}
    for match in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, match.start(1))  # so that a traceback shows the line of the page
        exec(compile("\n" * lines_before + match[1], str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), f"{name(page)} links to {target}"
            if anchor:
                assert anchor in anchors(linked.read_text("utf-8")), f"{name(page)} links to {target}"


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_costs_are_named_as_they_were_measured() -> None:
    """What the first page says of the costs stands, in the same words, on the page that has the figures."""
    told = re.findall(r"about \d\.\d times the processor time", " ".join(PAGES[0].read_text("utf-8").split()))
    measured = " ".join((ROOT / "docs" / "performance.md").read_text("utf-8").split())
    assert told
    assert all(figure in measured for figure in told)


def test_blocks_are_found() -> None:
    assert BLOCK.findall("a\n```python\nx = 1\n```\nb\n```console\ny\n```\n") == ["x = 1\n"]
    assert BLOCK.search(PAGES[0].read_text("utf-8"))


def test_every_statistic_and_collector_is_described() -> None:
    import keras_introspect as ki
    from keras_introspect.statistics import NAMED

    statistics, collectors = ((ROOT / "docs" / page).read_text("utf-8") for page in ("statistics.md", "collectors.md"))
    for key, statistic in NAMED.items():
        assert f"## {key}\n" in statistics
        for series in statistic.series:
            assert f"`{series}`" in statistics, f"docs/statistics.md does not define {series!r}"
    for name in ki.__all__:
        thing = getattr(ki, name)
        if isinstance(thing, type) and issubclass(thing, ki.Collector) and thing is not ki.Collector:
            assert f"| `{name}` | `{thing.key}` |" in collectors
