"""The commands that make files of a saved recording: report, plot, compare, export."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_introspect import cli, cli_files, plots
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording in a file, and the working folder beside it."""
    path = tmp_path / "run.npz"
    synthetic(3, 4, sick=True, phases=True).save(path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """What a command that succeeds prints."""
    assert cli.main([str(argument) for argument in argv]) == 0
    return capsys.readouterr().out.strip()


def failure(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 2) -> str:
    """What a command that fails says: one line on standard error, no traceback."""
    try:
        returned: Any = cli.main([str(argument) for argument in argv])
    except SystemExit as exit_:
        returned = exit_.code
    said = capsys.readouterr().err
    assert returned == code
    assert said.count("\n") == 1
    assert "error: " in said
    return said


# --- report ---


def test_report(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    assert run(capsys, "report", saved) == "run.html"
    whole = Path("run.html").read_text("utf-8")
    assert whole.startswith("<!DOCTYPE html>")
    assert run(capsys, "report", saved, "--out", "other.html", "--title", "My <run>", "--no-boards") == "other.html"
    short = Path("other.html").read_text("utf-8")
    assert "<h1>My &lt;run&gt;</h1>" in short
    assert short.count("<figure") == 1 < whole.count("<figure")


def test_report_without_jinja2(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "pip install" in failure(capsys, "report", saved)


# --- plot ---


def test_every_picture_can_be_plotted() -> None:
    assert set(cli_files.PICTURES) == set(plots.__all__) - {"comparison"}


@pytest.mark.parametrize("picture", list(cli_files.PICTURES))
def test_plot(saved: Path, capsys: pytest.CaptureFixture[str], picture: str) -> None:
    one = {"unit_activity": "conv_1", "value_distribution": "conv_1/kernel", "magnitude_distribution": "conv_1/kernel"}
    one["histogram_ridges"] = "conv_1/kernel"
    chosen = ["--layers", one[picture]] if picture in one else []
    assert run(capsys, "plot", saved, "--picture", picture, *chosen) == f"{picture}.png"
    assert Path(f"{picture}.png").read_bytes().startswith(b"\x89PNG")


def test_plot_of_a_view_and_some_layers(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def look(series: Any, layers: Any = None) -> Any:
        drawn.append((series.view, layers))
        return plots.norm(series, layers)

    monkeypatch.setattr(plots, "scale_stack", look)
    arguments = ["--picture", "scale_stack", "--view", "updates", "--layers", "*/kernel", "head/bias", "--out", "a.svg"]
    assert run(capsys, "plot", saved, *arguments) == "a.svg"
    assert drawn == [("updates", ["*/kernel", "head/bias"])]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--picture", "nonsense"], "invalid choice: 'nonsense'"),
        (["--picture", "norm", "--view", "nonsense"], "Unknown view in this recording: 'nonsense'"),
        (["--picture", "norm", "--layers", "nonsense"], "Unknown tensor in 'gradients': 'nonsense'"),
        (["--picture", "value_distribution"], "draws one tensor, got 6"),
        (["--picture", "histogram_ridges"], "choose one, as in --layers conv_0/kernel"),
        (["--picture", "histogram_ridges", "--layers", "*kernel"], "got 3 of weights"),
        (["--view", "gradients"], "the dashboard is drawn of the whole recording"),
        (["--picture", "training_curves", "--layers", "conv"], "the training_curves are of no layer"),
        (["--out", "missing/dashboard.png"], "No such file or directory: the folder 'missing' does not exist"),
        (["--out", "dashboard.xyz"], "xyz"),
    ],
)
def test_plot_tells_mistakes(saved: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert said in failure(capsys, "plot", saved, *arguments)


# --- compare ---


def test_compare(saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = saved.with_name("healthy.npz")
    synthetic(3, 4).save(other)
    seen: list[Any] = []
    comparison = plots.comparison

    def look(recordings: Any, layers: Any = None) -> Any:
        seen.append((list(recordings), layers))
        return comparison(recordings, layers)

    monkeypatch.setattr(plots, "comparison", look)
    assert run(capsys, "compare", saved, other, "--layers", "conv*") == "comparison.png"
    assert Path("comparison.png").read_bytes().startswith(b"\x89PNG")
    elsewhere = saved.parent / "work" / "run.npz"
    synthetic(3, 4).save(elsewhere)
    run(capsys, "compare", saved, elsewhere, "--out", "c.png")  # two files of one name
    assert seen == [(["run", "healthy"], ["conv*"]), ([str(saved), str(elsewhere)], None)]


def test_compare_tells_mistakes(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 given; expected two to five recordings" in failure(capsys, "compare", saved)
    assert "6 given; expected two to five recordings" in failure(capsys, "compare", *[saved] * 6)
    assert "the same file is given twice" in failure(capsys, "compare", saved, saved)
    assert "No such file" in failure(capsys, "compare", saved, "missing.npz")


# --- export ---


def test_export_writes_what_the_dataframe_holds(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    assert run(capsys, "export", saved) == "run.csv"
    expected = Recording.load(saved).to_dataframe()
    pandas.testing.assert_frame_equal(pandas.read_csv("run.csv"), expected, check_dtype=False)


def test_export_to_parquet(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert run(capsys, "export", saved, "--out", "run.parquet") == "run.parquet"
    expected = Recording.load(saved).to_dataframe()
    pandas.testing.assert_frame_equal(pandas.read_parquet("run.parquet"), expected, check_dtype=False)


def test_export_of_steps_to_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    recording = Recording()
    recording.add_steps("gradients", [7, 8], ["a/kernel"], [(2,)], {"rms": np.array([[0.5], [0.25]])})
    recording.save(tmp_path / "run.npz")
    printed = run(capsys, "export", tmp_path / "run.npz", "--steps", "--out", "-")
    assert printed.splitlines() == ["collector,name,step,rms", "gradients,a/kernel,7,0.5", "gradients,a/kernel,8,0.25"]


def test_export_tells_mistakes(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ends in .csv or .parquet" in failure(capsys, "export", saved, "--out", "run.xlsx")
    assert "No such file or directory" in failure(capsys, "export", saved, "--out", "missing/run.csv")
    synthetic(2, 2).save("quiet.npz")
    assert "per_step=True" in failure(capsys, "export", "quiet.npz", "--steps", code=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert "keras-introspect[dataframe]" in failure(capsys, "export", saved)
    assert list(Path().glob("*.csv")) == []


def test_export_ends_quietly_when_nobody_reads_on(saved: Path) -> None:
    pytest.importorskip("pandas")
    command = f"{sys.executable} -m keras_introspect export {saved} --out - | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("collector,name,epoch")
    assert done.stderr == ""


# --- all ---


@pytest.mark.parametrize("command", ["report", "plot", "compare", "export"])
def test_help_has_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    examples = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith(f"  {cli.PROG}")]
    assert len(examples) >= 2
    for example in examples:
        arguments = example.removeprefix(cli.PROG).split("|")[0].split()
        assert cli._parser().parse_args(arguments).command == command


def test_a_file_that_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.npz").write_bytes(b"nonsense")
    for command in ("report", "plot", "export"):
        assert "run.npz" in failure(capsys, command, tmp_path / "run.npz")
