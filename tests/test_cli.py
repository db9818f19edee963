"""The command line: what it prints, leaves and returns."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_introspect import cli, demo
from keras_introspect.recording import Recording

SICK = "100 % of the units of relu were zero all through the last 3 epochs"


def recording(sick: bool = False) -> Recording:
    made = Recording()
    made.metadata = {"model": "net", "parameters": 12, "optimizer": "Adam"}
    made.unobserved = {"head": "output_gradients: no gradient came back to it"}
    for epoch in range(3):
        made.add_logs(epoch, {"loss": 1 / (epoch + 1), "accuracy": epoch / 4})
        for view, names in [("gradients", ["a/kernel", "b/kernel"]), ("layer_outputs", ["a", "relu", "b"])]:
            values = {"rms": np.arange(1.0, 1 + len(names))}
            if view == "layer_outputs":
                values |= {"activation_rate": np.full(3, 0.5), "dead_rate": np.array([0.0, float(sick), 0.0])}
            made.add_epoch(view, epoch, names, [(None, 4)] * len(names), values)
    return made


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "saved.npz"
    recording(sick=True).save(path)
    return str(path)


def failure(capsys: pytest.CaptureFixture[str], argv: list[str], code: int = 2) -> str:
    """What a command that fails says: one line on standard error, no traceback."""
    try:
        returned: Any = cli.main(argv)
    except SystemExit as exit_:
        returned = exit_.code
    said = capsys.readouterr().err
    assert returned == code
    assert said.count("\n") == 1
    assert said.endswith("\n")
    assert "error: " in said
    return said


# --- the whole of it ---


def test_demo_leaves_its_files_and_prints_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real network, but two steps, and eagerly: tracing it takes many times as long."""
    pytest.importorskip("sklearn")
    import keras

    digits = demo.Digits(*(part[: 2 * demo.BATCH_SIZE] for part in demo.load_digits()))
    build_model = demo.build_model

    def build_eager_model(*arguments: Any) -> Any:
        model = build_model(*arguments)
        model.run_eagerly = True
        return model

    monkeypatch.setattr(demo, "load_digits", lambda: digits)
    monkeypatch.setattr(demo, "build_model", build_eager_model)

    out = tmp_path / "new" / "demo"
    assert cli.main(["demo", "--epochs", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert sorted(os.listdir(out)) == ["dashboard.png", "model.keras", "run.npz"]
    assert (out / "dashboard.png").read_bytes().startswith(b"\x89PNG")
    loaded = Recording.load(out / "run.npz")
    assert set(loaded) == {"weights", "gradients", "updates", "layer_outputs", "output_gradients"}
    assert loaded["layer_outputs"].sel("relu1").epoch("dead_rate").shape == (1,)
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= set(loaded.logs)
    travelled = keras.saving.load_model(out / "model.keras").recording
    np.testing.assert_array_equal(travelled["gradients"].epoch("rms"), loaded["gradients"].epoch("rms"))
    assert "scenario healthy" in printed
    assert "Model digits" in printed
    assert re.search(r"^  layer_outputs +14 ", printed, re.MULTILINE)
    assert "probabilities: output_gradients: " in printed
    for name in ("dashboard.png", "run.npz", "model.keras"):
        assert str(out / name) in printed


def test_digits_are_split_in_the_same_way_each_time() -> None:
    pytest.importorskip("sklearn")
    digits, again = demo.load_digits(), demo.load_digits()
    assert [part.shape for part in digits] == [(1437, 8, 8, 1), (1437,), (360, 8, 8, 1), (360,)]
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert all(np.array_equal(one, other) for one, other in zip(digits, again, strict=True))


@pytest.mark.slow
def test_one_scenario_is_healthy_and_the_other_is_sick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    assert "Nothing wrong was found" in capsys.readouterr().out
    assert cli.main(["demo", "--scenario", "dying-relu", "--out", str(tmp_path)]) == 0
    assert re.search(r"^\d. (warning|error): (dead|dying)_units: .*relu", capsys.readouterr().out, re.MULTILINE)
    dead = Recording.load(tmp_path / "run.npz")["layer_outputs"].sel("relu1").epoch("dead_rate")
    assert dead[0] < 0.1
    assert dead[-1] > 0.5


class StubModel:
    """What `demo` uses of a model."""

    def __init__(self, made: Recording) -> None:
        self.recording = made

    def count_params(self) -> int:
        return 12

    def save(self, path: Path) -> None:
        path.write_text("a model")


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the network of the demo by a stub; `end` is raised by its training."""

    def stub(made: Recording, end: BaseException | None = None) -> None:
        def train(*_: Any, **__: Any) -> None:
            if end is not None:
                raise end

        digits = demo.Digits(*[np.zeros(3)] * 4)
        monkeypatch.setattr(demo, "load_digits", lambda: digits)
        monkeypatch.setattr(demo, "build_model", lambda *_: StubModel(made))
        monkeypatch.setattr(demo, "train", train)
        monkeypatch.setattr(cli.requirements, "check", lambda: None)

    return stub


def test_interrupted_demo_leaves_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stubbed: Any
) -> None:
    stubbed(recording(), KeyboardInterrupt())
    assert cli.main(["demo", "--out", str(tmp_path)]) == 130
    assert sorted(os.listdir(tmp_path)) == ["dashboard.png", "model.keras", "run.npz"]
    assert len(Recording.load(tmp_path / "run.npz").epochs) == 3
    assert "Interrupted" in capsys.readouterr().err


def test_demo_interrupted_in_its_first_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str], stubbed: Any) -> None:
    stubbed(Recording(), KeyboardInterrupt())
    assert "nothing was recorded" in failure(capsys, ["demo", "--out", str(tmp_path)], 130)
    assert os.listdir(tmp_path) == []


def test_demo_interrupted_while_it_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "load_digits", interrupt)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_demo_shows_a_sick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], stubbed: Any) -> None:
    stubbed(recording(sick=True))
    assert cli.main(["demo", "--scenario", "dying-relu", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert SICK in printed
    assert "scenario dying-relu" in printed


def test_demo_on_a_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stubbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    stubbed(recording())
    monkeypatch.setattr(Recording, "save", full)
    said = failure(capsys, ["demo", "--out", str(tmp_path)], 1)
    assert "run.npz" in said
    assert "No space left on device" in said


# --- mistakes ---


def test_demo_without_scikit_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert 'pip install "keras-introspect[demo]"' in failure(capsys, ["demo", "--out", str(tmp_path)])


@pytest.mark.parametrize("epochs", ["0", "-1", "1.5", "many"])
def test_demo_of_no_epochs(capsys: pytest.CaptureFixture[str], epochs: str) -> None:
    said = failure(capsys, ["demo", "--epochs", epochs])
    assert f"--epochs: '{epochs}' is no whole number from 1" in said


def test_demo_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "--out: cannot write into" in failure(capsys, ["demo", "--out", str(tmp_path / "file")])
    assert "--out: cannot write into" in failure(capsys, ["demo", "--out", str(tmp_path / "file" / "below")])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not hold this user back")
def test_demo_into_a_directory_without_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "Permission denied" in failure(capsys, ["demo", "--out", str(tmp_path)])


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["demo", "--scenario", "heathly"], "'heathly'"),
        (["demo", "--no-such-option"], "--no-such-option"),
        (["dmeo"], "'dmeo'"),
        (["show"], "FILE"),
        (["plot"], "FILE"),
        (["show", "run.npz", "--limit", "-1"], "'-1' is no whole number from 0"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], argv: list[str], part: str) -> None:
    assert part in failure(capsys, argv)


@pytest.mark.parametrize("command", ["show", "plot"])
def test_files_that_are_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert "No such file" in failure(capsys, [command, str(tmp_path / "missing.npz")])
    assert "Cannot read" in failure(capsys, [command, str(tmp_path)])
    (tmp_path / "text.npz").write_text("no recording")
    assert "no recording, or it is damaged" in failure(capsys, [command, str(tmp_path / "text.npz")])


# --- help ---


def test_help_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    printed = capsys.readouterr().out
    assert exit_.value.code == 0
    for part in ("demo", "show", "plot", "examples:", "exit codes:"):
        assert part in printed


def test_without_a_command_help_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "demo" in printed.err


@pytest.mark.parametrize("command", ["demo", "show", "plot"])
def test_help_of_a_command_has_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([command, "--help"])
    assert exit_.value.code == 0
    assert f"python -m keras_introspect {command}" in capsys.readouterr().out.split("examples:")[1]


# --- show, plot ---


def test_show_prints_what_stands_out(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", saved]) == 0
    printed = capsys.readouterr().out
    for kinds in ("Looked for:", "Not judged:"):  # which ones is tested in diagnosis
        printed = re.sub(rf"^{kinds}.*\n(?:(?!Not judged|$).*\n)*", f"{kinds}\n", printed, flags=re.MULTILINE)
    assert printed.splitlines() == [
        "Model net, 12 parameters, Adam: 3 epochs recorded.",
        "Last epoch: loss 0.3333, accuracy 0.5.",
        "",
        "Found: 1 error (epochs are counted from 0):",
        f"1. error: dead_units: {SICK} (relu)",
        "   cause: the biases or weights start so that no input switches the units on, or the first steps were too",
        "     large",
        "   try: lower the learning rate; He initialisation with zero bias; centre the inputs; LeakyReLU or ELU; batch",
        "     normalisation before the ReLU",
        "Looked for:",
        "Not judged:",
        "",
        "Root mean square in the last epoch, from the smallest to the largest tensor:",
        "  view           tensors  smallest          largest",
        "  gradients      2        1.0e+00 a/kernel  2.0e+00 b/kernel",
        "  layer_outputs  3        1.0e+00 a         3.0e+00 b",
        "",
        "Not observed:",
        "  head: output_gradients: no gradient came back to it",
    ]


def test_show_of_a_healthy_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording().save(tmp_path / "run.npz")
    assert cli.main(["show", str(tmp_path / "run.npz")]) == 0
    printed = capsys.readouterr().out
    assert "Nothing wrong was found." in printed
    assert re.search(r"^Looked for: .*dead units", printed, re.MULTILINE)
    assert "needs the collector Weights()" in printed


def test_show_keeps_to_its_limit(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", saved, "--limit", "0"]) == 0
    printed = capsys.readouterr().out
    assert SICK not in printed
    assert "Found: 1 error." in printed
    assert "and 1 more: see --limit." in printed


def test_show_of_an_empty_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Recording().save(tmp_path / "run.npz")
    assert cli.main(["show", str(tmp_path / "run.npz")]) == 0
    assert "0 epochs recorded" in capsys.readouterr().out


def test_show_of_a_recording_without_tensors_says_how_to_see_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Recording()
    run.add_logs(0, {"loss": 0.5})
    run.add_steps("metrics", [0, 1], ["metrics"], [()], {"loss": np.ones((2, 1))})
    run.save(tmp_path / "run.npz")
    assert cli.main(["show", str(tmp_path / "run.npz")]) == 0
    printed = capsys.readouterr().out
    assert 'No sizes of tensors were recorded: observe some with compile(…, collectors="default").' in printed
    assert "Root mean square" not in printed


def test_plot_draws_the_dashboard(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "picture.png"
    assert cli.main(["plot", saved, "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{picture}\n"


def test_plot_says_why_it_cannot(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in failure(capsys, ["plot", saved, "--out", str(tmp_path / "missing" / "picture.png")])
    assert "'nonsense'" in failure(capsys, ["plot", saved, "--out", str(tmp_path / "picture.nonsense")])
    Recording().save(tmp_path / "empty.npz")
    assert "cannot draw" in failure(capsys, ["plot", str(tmp_path / "empty.npz"), "--out", str(tmp_path / "p.png")])


def test_show_needs_neither_tensorflow_nor_matplotlib(saved: str) -> None:
    code = (
        "import sys\n"
        "for name in ('tensorflow', 'keras', 'matplotlib', 'sklearn', 'pandas'): sys.modules[name] = None\n"
        "from keras_introspect.cli import main\n"
        f"sys.exit(main(['show', {saved!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert SICK in done.stdout


def test_runs_as_a_module_and_ends_quietly_when_nobody_reads(saved: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "keras_introspect", "show", saved], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
