"""The benchmark of the diagnosis: its programs, its cache, and the arithmetic of its table."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from benchmarks.diagnosis import __main__ as command
from benchmarks.diagnosis import training
from benchmarks.diagnosis.catalogue import PROGRAMS
from benchmarks.diagnosis.judging import Verdict, lines, table
from keras_introspect.diagnosis import RULES


def _finding(kind: str, severity: str = "error") -> dict[str, Any]:
    return {"kind": kind, "severity": severity}


def _verdict(
    name: str, kinds: tuple[str, ...] = (), quality: float = 0.5, twin: float = 0.9, found: Any = ()
) -> Verdict:
    return Verdict(name, 0, kinds, True, quality, twin, tuple(found))


def test_table_counts_what_was_found_missed_and_falsely_accused() -> None:
    dead, steps = ("dead_units", "dying_units"), ("step_too_large",)
    others = [_finding("overfitting", "warning"), _finding("oscillation", "info"), _finding("nonfinite")]
    rows = table(
        [
            _verdict("a", dead, found=[_finding("dead_units")]),
            _verdict("b", dead, found=[*others[:2], _finding("dying_units")]),  # in the third place, by its second kind
            _verdict("c", dead, found=[*others, _finding("dead_units")]),  # in the fourth: detected, not named
            _verdict("d", dead, found=[_finding("oscillation", "info")]),  # a remark is no detection
            _verdict("e", dead, quality=0.87, found=[]),  # as good as its twin: does not count
            _verdict("e", dead, twin=math.nan),  # its twin failed: nothing to be worse than
            _verdict("f", steps, quality=math.nan, found=[_finding("step_too_large", "warning")]),
            _verdict("g"),
            _verdict("h", found=[_finding("step_too_large", "info")]),
            _verdict("i", found=[_finding("overfitting", "warning"), _finding("dead_units"), _finding("dead_units")]),
        ]
    )
    assert [tuple(row) for row in rows] == [
        # kind, runs, tried, detected, named, false alarms, healthy
        ("dead_units", 4, 6, 3, 2, 1, 3),
        ("overfitting", 0, 0, 0, 0, 1, 3),
        ("step_too_large", 1, 1, 1, 1, 0, 3),
        ("all", 5, 7, 4, 3, 1, 3),
    ]
    assert lines(rows)[2] == "| dead_units | 6 | 4 | 3/4 (75 %) | 2/4 (50 %) | 1/3 (33 %) |"
    assert lines(rows)[3] == "| overfitting | 0 | 0 | – | – | 1/3 (33 %) |"


def test_programs_are_of_known_kinds_and_have_twins() -> None:
    known = {rule.kind for rule in RULES}
    faulty = [program for program in PROGRAMS.values() if program.faulty]
    for program in faulty:
        assert set(program.kinds) <= known, program.name
        twin = PROGRAMS[program.twin or ""]
        assert not twin.faulty
        assert twin.development == program.development
    assert len(PROGRAMS) - 2 * len(faulty) >= 40  # healthy ones beside the twins
    held_out = [program for program in faulty if not program.development]
    assert len(held_out) >= len(faulty) / 3
    assert all(program.about for program in PROGRAMS.values())


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1:UserWarning")  # Keras sees this fault too
def test_two_programs_from_training_to_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, report = tmp_path / "cache", tmp_path / "report.json"
    arguments = ["--programs", "softmax_for_two_classes", "--seeds", "1", "--epochs", "2"]
    arguments += ["--collectors", "economy", "--cache", str(cache), "--json", str(report)]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "| softmax_over_one_unit | 1 |" in printed
    assert "development: 2 programs, 1 seeds" in printed
    trained = json.loads(report.read_text())
    assert [run["program"] for run in trained["runs"]] == ["softmax_for_two_classes_twin", "softmax_for_two_classes"]
    kinds = [finding["kind"] for finding in trained["runs"][1]["findings"]]
    assert "softmax_over_one_unit" in kinds[:3]
    assert trained["runs"][1]["twin_quality"] == trained["runs"][0]["quality"]
    assert trained["tables"]["development"][-1]["healthy"] == 1
    assert not any(run["error"] for run in trained["runs"])

    def fail(*_: Any) -> None:
        raise AssertionError("trained again, though the recording is there")

    monkeypatch.setattr(training, "train", fail)
    assert command.main(arguments) == 0
    assert capsys.readouterr().out == printed
    again = json.loads(report.read_text())
    for run in (*trained["runs"], *again["runs"]):
        del run["seconds"]
    assert again["runs"] == trained["runs"]


def test_cache_gives_the_trained_model_and_knows_a_changed_program(tmp_path: Path) -> None:
    program, cache = PROGRAMS["linear_regression"], training.Cache(tmp_path, "economy", epochs=1)
    assert not cache.holds(program, 0)
    trained = cache.run(program, 0)
    kept = cache.run(program, 0)
    assert kept.quality == trained.quality
    np.testing.assert_array_equal(kept.recording["weights"].epoch("rms"), trained.recording["weights"].epoch("rms"))
    for ours, theirs in zip(kept.model.get_weights(), trained.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert cache.holds(program, 0)
    assert not cache.holds(program, 1)
    assert not cache.holds(dataclasses.replace(program, text=program.text + "# changed"), 0)


def test_unknown_program_is_an_error_that_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--programs", "xro"])
    said = capsys.readouterr().err
    assert "no program matches 'xro'; there are" in said
    assert all(name in said for name in ("xor", "xor_twin", "relu_network"))
