"""Several workers: real processes on this machine, which find each other through TF_CONFIG."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki

PROGRAM = Path(__file__).parent / "worker_programs.py"
pytestmark = pytest.mark.long
APPROXIMATE = ("quantiles", "magnitude_quantiles")  # interpolated between bins: a value at a bin's edge may change bins


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def run(program: str, folder: Path, workers: int, *arguments: str, fails: tuple[int, ...] = ()) -> list[Any]:
    """Runs a program on so many workers, or, of none, alone; returns what each of them reported.

    Args:
        program: of `worker_programs.py`.
        folder: where they report.
        workers: how many.
        arguments: further ones.
        fails: the workers that are to end with an error.
    """
    folder.mkdir(exist_ok=True)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = []
    for i in range(max(workers, 1)):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "MPLBACKEND": "Agg"}
        if workers:
            task = {"type": "worker", "index": i}
            environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        command = [sys.executable, str(PROGRAM), program, str(folder), *arguments]
        log = (folder / f"log-{i}.txt").open("w")
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        log.close()
    try:
        codes = wait_for(processes, fails)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    logs = [(folder / f"log-{i}.txt").read_text()[-3000:] for i in range(len(processes))]
    for i, code in enumerate(codes):
        assert code is not None, f"worker {i} did not end; all ended with {codes}:\n" + "\n".join(logs)
        assert bool(code) == (i in fails), f"worker {i} ended with {code}:\n" + "\n".join(logs)
    reports = [folder / f"worker-{i}.json" for i in range(len(processes))]
    return [json.loads(report.read_text()) if report.exists() else logs[i] for i, report in enumerate(reports)]


def wait_for(processes: list[Any], fails: tuple[int, ...]) -> list[int | None]:
    """The exit codes of all, or, once one failed that should not have, of those that have ended."""
    for _ in range(4000):
        codes = [process.poll() for process in processes]
        if None not in codes or any(code and i not in fails for i, code in enumerate(codes)):
            break
        time.sleep(0.1)
    return codes


def recordings(folder: Path, workers: int) -> list[ki.Recording]:
    return [ki.Recording.load(folder / f"worker-{i}.npz") for i in range(workers)]


def assert_same(a: ki.Recording, b: ki.Recording, **tolerance: float) -> None:
    """Compares all series; bit by bit, unless a tolerance is given."""
    assert list(a) == list(b)
    assert a.unobserved == b.unobserved
    for view in a:
        assert a[view].names == b[view].names
        assert a[view].steps.tolist() == b[view].steps.tolist()
        for of, kinds in (("epoch", a[view].statistics), ("step", a[view].step_statistics)):
            for statistic in kinds:
                x, y = (getattr(recording[view], of)(statistic) for recording in (a, b))
                if not tolerance:
                    np.testing.assert_array_equal(x, y, err_msg=f"{view} {statistic} {of}")
                elif statistic in APPROXIMATE:
                    np.testing.assert_allclose(x, y, rtol=0.08, atol=1e-3, err_msg=f"{view} {statistic} {of}")
                else:
                    np.testing.assert_allclose(x, y, **tolerance, err_msg=f"{view} {statistic} {of}")
    for key in a.logs:
        np.testing.assert_allclose(a.logs[key], b.logs[key], **(tolerance or {"rtol": 0}), err_msg=key)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ki.Recording]:
    folder = tmp_path_factory.mktemp("alone")
    (report,) = run("train", folder, 0)
    return report, *recordings(folder, 1)


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_train_and_record_what_one_process_does(
    workers: int, tmp_path: Path, alone: tuple[Any, ki.Recording]
) -> None:
    reports = run("train", tmp_path, workers)
    of_workers = recordings(tmp_path, workers)
    expected, expected_recording = alone
    for report, recording in zip(reports, of_workers, strict=True):
        assert {**report, "files": 0} == {**reports[0], "files": 0}
        assert_same(recording, of_workers[0])
    for a, b in zip(reports[0]["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(reports[0]["predicted"], expected["predicted"], rtol=1e-4, atol=1e-5)
    for of in ("history", "evaluated"):
        assert set(reports[0][of]) == set(expected[of])
        for key, value in expected[of].items():
            np.testing.assert_allclose(reports[0][of][key], value, rtol=1e-4, atol=1e-5, err_msg=f"{of} {key}")
    assert_same(of_workers[0], expected_recording, rtol=2e-4, atol=1e-6)

    # Only the chief writes.
    assert [bool(report["files"]) for report in reports] == [True] + [False] * (workers - 1)
    assert reports[0]["files"] == expected["files"]

    # What the chief saved goes on in one process.
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    assert_same(loaded.recording, of_workers[0])


def test_plain_keras_still_needs_it(tmp_path: Path) -> None:
    """When this fails, Keras has healed: `_maybe_symbolic_build` and `_make_function` of our models can go."""
    logs = run("plain_keras", tmp_path, 2, fails=(0, 1))
    assert all("PerReplica" in log for log in logs)


@pytest.mark.parametrize("victim", [0, 1], ids=["the chief", "another"])
def test_a_worker_that_dies_is_told_and_all_resume(victim: int, tmp_path: Path) -> None:
    other = 1 - victim
    run("resume", tmp_path / "broken", 2, str(victim), fails=(0, 1))
    told = json.loads((tmp_path / "broken" / f"worker-{other}.json").read_text())
    assert told["seconds"] < 60  # from the death to the error
    assert told["error"] == "UnavailableError"
    assert f"/task:{victim}" in told["message"]
    assert "Start all workers again" in told["notes"][0]

    reports = run("resume", tmp_path / "broken", 2, str(victim))
    assert [report["epochs"] for report in reports] == [[2, 3], [2, 3]]
    whole = run("resume", tmp_path / "whole", 2, "nobody")
    assert [report["weights"] for report in reports] == [report["weights"] for report in whole]
    for a, b in zip(recordings(tmp_path / "broken", 2), recordings(tmp_path / "whole", 2), strict=True):
        assert a.epochs.tolist() == [0, 1, 2, 3]
        assert_same(a, b)
    assert not (tmp_path / "broken" / "backup").exists()


def test_workers_that_would_begin_at_different_steps_say_so(tmp_path: Path) -> None:
    for report in run("unshared", tmp_path, 2):
        assert "worker 0 after step 3, worker 1 after step 0" in report["error"]
        assert "BackupAndRestore" in report["error"]
