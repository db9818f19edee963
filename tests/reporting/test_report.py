"""The report as a file: what it holds, and that nothing in a recording can change what it is."""

import gc
import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import keras_introspect as ki
from keras_introspect.diagnosis import Finding, diagnose
from keras_introspect.recording import Recording
from keras_introspect.reporting import table
from keras_introspect.reporting.boards import NAMES, available_boards
from keras_introspect.reporting.report import render, report
from plots.synthetic import synthetic

pytest.importorskip("jinja2")

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></title><b>bold</b>",
    "{{ 7 * 7 }}{% raise %}",
    "a&amp;b & c",
    "javascript:alert(1)",
]


class Page(HTMLParser):
    """What a test asks of a page: its elements, the text of each, and that they are nested as they should be."""

    VOID = frozenset({"meta", "link", "img", "input", "br", "wbr", "path"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open:
            self.texts.append((self.open[-1], data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("script", "style"))


def hostile_recording() -> Recording:
    recording = Recording()
    recording.metadata = {
        "model": HOSTILE[0],
        "optimizer": HOSTILE[1],
        HOSTILE[2]: HOSTILE[3],
        "collectors": [{"collector": HOSTILE[1], HOSTILE[0]: HOSTILE[2]}],
    }
    recording.unobserved = dict.fromkeys(HOSTILE, HOSTILE[1])
    for epoch in range(3):
        recording.add_logs(epoch, {"loss": 1.0, HOSTILE[0]: 2.0})
        values = {
            "rms": np.ones(6),
            "dead_rate": np.full(6, 0.9),
            "activation_rate": np.full(6, 0.1),
            HOSTILE[2]: np.ones(6),
        }
        for view in ("layer_outputs", HOSTILE[1]):
            recording.add_epoch(view, epoch, HOSTILE, [(None, 4)] * 6, values)
    return recording


def test_every_name_is_harmless() -> None:
    text = render(hostile_recording(), title=HOSTILE[2])
    page = Page(text)
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert page.texts[0] == ("title", HOSTILE[2])
    assert not page.all("b")
    assert all("onerror" not in attributes for _, attributes in page.elements)
    assert all((a["src"] or "").startswith("data:image/") for a in page.all("img"))
    assert all((a["href"] or "").startswith("#") for a in page.all("a"))
    for name in HOSTILE:
        assert name in re.sub(r"(?<=[/_.:]) ", "", page.text())  # a name is broken into pieces by <wbr>
    assert "49{%" not in text


def test_the_page_lets_the_browser_load_and_run_nothing_else() -> None:
    page = Page(render(synthetic(3, 3)))
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not any("style" in attributes for _, attributes in page.elements)  # the policy would refuse it
    addresses = [value for _, a in page.elements for key, value in a.items() if key in ("src", "href") and value]
    assert all(value.startswith(("#", "data:")) for value in addresses)


def test_links_lead_to_what_is_there() -> None:
    page = Page(render(synthetic(6, 20, sick=True)))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in page.all("a")]
    assert {str(link)[1:] for link in links} <= set(ids)
    assert sum(str(link).startswith("#r") for link in links) >= 3


def test_what_stands_out_and_the_dashboard_come_first() -> None:
    text = render(synthetic(6, 20, sick=True))
    places = [text.index(part) for part in ("vanishing gradients", 'id="dashboard"', 'id="boards"', 'id="tensors"')]
    assert places == sorted(places)
    healthy = render(synthetic(6, 20), chosen=())
    assert "Nothing wrong was found" in healthy
    assert "Looked for: nonfinite, " in healthy
    assert "(needs the model: diagnose(recording, model))" in healthy  # and what could not be judged is said


def test_a_finding_says_why_and_what_to_try() -> None:
    recording = synthetic(6, 20, sick=True)
    text = html.unescape(render(recording, chosen=()))
    for finding in diagnose(recording):
        for part in (finding.kind.replace("_", " "), finding.summary, finding.cause, finding.suggestion):
            assert part in text
        for name, value in list(finding.evidence.items())[:8]:
            assert f"{name} = {value:.3g}" in text


def test_a_finding_leads_to_the_rows_of_all_its_layers() -> None:
    recording = synthetic(4, 5)
    finding = Finding("dead_units", "error", "dead", ("conv_2", "conv_0", "gone"), view="layer_outputs")
    found = table.rows_of(recording, finding)
    rows = list(table.rows(recording, [finding], []))
    assert [(rows[found[name]].name, rows[found[name]].view) for name in ("conv_2", "conv_0")] == [
        ("conv_2", "layer_outputs"),
        ("conv_0", "layer_outputs"),
    ]
    assert found["gone"] is None
    assert [row.name for row in rows if row.severity == "error"] == ["conv_0", "conv_2"]


def test_the_table_holds_every_tensor_with_the_values_recorded() -> None:
    recording = synthetic(4, 5)
    columns = table.columns(recording)
    rows = list(table.rows(recording, [], columns))
    assert len(rows) == sum(len(series.names) for series in recording.values())
    assert [row.number for row in rows] == list(range(len(rows)))
    keys = [column.key for column in columns]
    assert keys[:3] == ["rms", "change", "mean"]
    for view, series in recording.items():
        of_view = [row for row in rows if row.view == view]
        assert [row.name for row in of_view] == list(series.names)
        for key in set(series.statistics) & set(keys):
            shown = [float(row.cells[keys.index(key)].value) for row in of_view]
            np.testing.assert_allclose(shown, series.epoch(key)[-1], rtol=1e-5)
        change = [float(row.cells[1].value) for row in of_view]
        np.testing.assert_allclose(change, series.epoch("rms")[-1] / series.epoch("rms")[0], rtol=1e-5)


def test_the_table_says_what_is_missing_or_not_finite() -> None:
    recording = Recording()
    for epoch, rms in enumerate([(1.0, 2.0, np.nan), (np.nan, np.inf, np.nan)]):
        recording.add_epoch("weights", epoch, ["old", "infinite", "never"], [(2,)] * 3, {"rms": rms, "mine": rms})
    columns = table.columns(recording)
    assert [column.key for column in columns] == ["rms", "change", "mine"]
    old, infinite, never = (row.cells[0] for row in table.rows(recording, [], columns))
    assert old == ("1", "1", "last observed in epoch 0")
    assert infinite == ("∞", "Infinity", "")
    assert never == ("", "", "")


def test_a_trend_is_broken_where_nothing_was_observed() -> None:
    recording = Recording()
    for epoch, rms in enumerate([1.0, 10.0, np.nan, 10.0, 1.0]):
        recording.add_epoch("weights", epoch, ["a"], [(2,)], {"rms": [rms]})
    (row,) = table.rows(recording, [], [])
    assert row.trend == "M0 19l24-18M72 1l24 18"
    assert row.trend_remark == "rms 1 in epoch 0, 1 in 4"


def test_every_board_that_the_data_allow() -> None:
    recording = synthetic(4, 4, sick=True, phases=True)
    found = [(board.picture, board.view) for board in available_boards(recording)]
    assert {picture for picture, _ in found} | {"training_curves"} == set(NAMES)
    assert len(Page(render(recording)).all("img")) == 1 + len(found)
    some = Page(render(recording, chosen=["update_board", "phase_gap"]))
    assert len(some.all("img")) == 3
    assert len(Page(render(recording, chosen=())).all("img")) == 1
    for image in some.all("img"):
        assert len(image["alt"] or "") > 20


def test_activity_of_what_is_no_output_is_drawn_only_where_channels_are_zero() -> None:
    recording = Recording()
    for view, dead in (("layer_outputs", 0.0), ("weights", 0.0), ("gradients", 0.3)):
        shape = (None, 4) if view == "layer_outputs" else (4, 4)
        recording.add_epoch(view, 0, ["a"], [shape], {"activation_rate": [0.9], "dead_rate": [dead]})
    outputs, gradients = (board for board in available_boards(recording) if board.picture == "activity_board")
    assert (outputs.view, outputs.question) == ("layer_outputs", "Which layers work, which are dead?")
    assert (gradients.view, gradients.question) == ("gradients", "How much is exactly zero?")
    assert "dead" not in gradients.reading


def test_further_metrics_have_a_board() -> None:
    recording = Recording()
    for epoch in range(3):
        recording.add_logs(epoch, {"loss": 1.0, "accuracy": 0.5, "auc": 0.7, "val_auc": 0.6})
    assert [board.picture for board in available_boards(recording)] == ["training_curves"]
    assert "auc" in (Page(render(recording)).all("img")[1]["alt"] or "")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_search_for_garbage_rests_while_a_board_is_drawn_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    states = []

    def refuse(*_: object, **__: object) -> None:
        states.append(gc.isenabled())
        raise ValueError("no such layer")

    monkeypatch.setattr(ki.plots, "update_board", refuse)
    if not enabled:
        gc.disable()
    try:
        render(synthetic(2, 2), chosen=["update_board"])
        assert states == [False]
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_a_large_report_draws_each_page_once_and_few_artists(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the time of a report is made of: pages drawn, and on each of them the axes, areas, lines and texts."""
    drawn: list[Figure] = []
    draw = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: (drawn.append(self), draw(self, renderer))[1])
    recording = synthetic(160, 4)
    text = render(recording, chosen=["distribution_board"])
    assert len({id(figure) for figure in drawn}) == len(drawn) == 1 + len(recording)
    assert text.count("data:image/png") == len(drawn)
    for figure in drawn[1:]:
        assert len(figure.axes) == 162
        for ax in figure.axes[2:]:
            assert len(ax.collections) == len(ax.lines) == 1
            assert len(ax.texts) <= 8  # two remarks, the scale of a row, the ends of the epochs


def test_a_board_that_cannot_be_drawn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no <such> layer")

    monkeypatch.setattr(ki.plots, "update_board", refuse)
    text = render(synthetic(3, 3), chosen=["update_board"])
    assert "Could not be drawn: no &lt;such&gt; layer" in text


def odd() -> dict[str, Recording]:
    only_logs, gone = Recording(), Recording()
    only_logs.add_logs(0, {"loss": 1.0})
    gone.add_logs(0, {"loss": np.nan, "accuracy": np.inf})
    gone.add_epoch(
        "gradients", 0, ["a/kernel"], [(2, 2)], {"rms": [np.nan], "quantiles": [[np.nan] * 3]}, None, [0, 50, 100]
    )
    steps = Recording()
    steps.add_steps("gradients", [0, 1], ["a"], [(2,)], {"rms": [[1.0], [2.0]]})
    return {
        "only logs": only_logs,
        "nothing finite": gone,
        "only steps": steps,
        "one layer, one epoch": synthetic(1, 1),
        "no gradients": synthetic(3, 3, views=("weights", "layer_outputs")),
        "gaps": synthetic(3, 12, gaps=True),
    }


@pytest.mark.parametrize("case", list(odd()))
def test_odd_recordings(case: str) -> None:
    page = Page(render(odd()[case]))
    assert page.all("img")
    assert not re.search(r"\b(None|nan%|undefined)\b", page.text())


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    assert ki.report(synthetic(2, 2), path, boards=()) == path
    assert path.read_text("utf-8").endswith("</html>")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="expected at least one epoch"):
        ki.report(Recording(), path)
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError):
        ki.report(synthetic(2, 2), tmp_path / "missing" / "run.html", boards=())
    assert os.listdir(tmp_path) == ["run.html"]


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="got a Series; expected a Recording"):
        render(synthetic(2, 2)["weights"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Unknown board.*Did you mean 'update_board'"):
        render(synthetic(2, 2), chosen=["updateboard"])


def test_without_jinja2_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'pip install "keras-introspect\[report\]"'):
        ki.report(synthetic(2, 2), tmp_path / "run.html")
    assert not os.listdir(tmp_path)


def test_a_report_needs_no_tensorflow(tmp_path: Path) -> None:
    synthetic(2, 2).save(tmp_path / "run.npz")
    code = (
        "import sys, keras_introspect as ki\n"
        f"ki.report(ki.Recording.load({str(tmp_path / 'run.npz')!r}), {str(tmp_path / 'run.html')!r}, boards=())\n"
        "print(callable(ki.report), sorted({'tensorflow', 'keras', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "True []"), done.stderr


def test_a_path_that_promises_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run\.pdf.*writes HTML.*run\.html"):
        report(synthetic(2, 3), tmp_path / "run.pdf")
    assert not list(tmp_path.iterdir())
