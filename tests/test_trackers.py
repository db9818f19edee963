"""The recipes of docs/trackers.md, run against the real clients, offline."""

import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

PAGE = Path(__file__).parent.parent / "docs" / "trackers.md"


def run(title: str) -> dict[str, Any]:
    """Runs the first block of the page, which makes the model, and that under a title; returns what they define."""
    text = PAGE.read_text("utf-8")
    matplotlib.use("Agg")
    namespace: dict[str, Any] = {"__name__": "trackers"}
    for part in (text, text.split(f"## {title}\n")[1]):
        block = re.search(r"^```py\w*\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        assert block
        exec(compile(block[1], str(PAGE), "exec"), namespace)
    return namespace


# The clients warn of what is theirs.
@pytest.mark.filterwarnings("default")
def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    pytest.importorskip("pandas")
    for key, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(tmp_path)
    run("Weights & Biases")
    wandb.teardown()  # its own process writes the file
    (folder,) = tmp_path.glob("wandb/offline-run-*")
    (written,) = folder.glob("*.wandb")
    records = written.read_bytes()
    for key in ("epoch/gradients/rms", "epoch/layer_outputs/dead_rate", "epoch/loss", "dashboard", "introspection"):
        assert key.encode() in records
    assert len(list(folder.glob("files/media/images/dashboard*.png"))) == 1
    (table,) = folder.glob("files/media/table/introspection*.json")
    assert "hidden/kernel" in table.read_text("utf-8")


@pytest.mark.filterwarnings("default")
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("jinja2")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the lightest of its stores
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    try:
        made = run("MLflow")
        client = mlflow.MlflowClient()
        (found,) = client.search_runs(["0"])
        history = client.get_metric_history(found.info.run_id, "gradients/rms")
        assert [entry.step for entry in history] == [0, 1]
        assert [entry.value for entry in history] == pytest.approx(made["model"].history.history["gradients/rms"])
        assert {file.path for file in client.list_artifacts(found.info.run_id)} == {"dashboard.png", "run.html"}
    finally:
        mlflow.set_tracking_uri(None)
