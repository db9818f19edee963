"""Trains faulty and healthy programs, diagnoses each, and prints what was found, missed and falsely accused.

See docs/diagnosis.md.
"""

import argparse
import fnmatch
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import keras_introspect as ki
from benchmarks.diagnosis.catalogue import PROGRAMS
from benchmarks.diagnosis.judging import Verdict, judged, lines, plain, table
from benchmarks.diagnosis.programs import Program
from benchmarks.diagnosis.training import OBSERVED, RULES, Cache, clear
from benchmarks.run import environment

PARTS = {"development": True, "held-out": False}
RUNS_A_PROCESS = 12  # Keras keeps some 8 MB of each model it has trained, whatever is cleared, and grows slower


def main(arguments: list[str] | None = None) -> int:
    """Runs the command."""
    settings = _settings(arguments)
    tf.get_logger().setLevel("ERROR")  # many models in one process look like one that is traced again and again
    with tempfile.TemporaryDirectory() as folder:
        verdicts = measured(settings, Cache(settings.cache or Path(folder), settings.collectors, settings.epochs))
    for part, development in PARTS.items():
        of_part = [verdict for verdict in verdicts if verdict.development is development]
        if of_part:
            print(f"\n{part}: {len({v.program for v in of_part})} programs, {settings.seeds} seeds\n")
            print(*lines(table(of_part)), sep="\n", flush=True)
    return 0


def measured(settings: argparse.Namespace, cache: Cache) -> list[Verdict]:
    """Trains what the cache lacks, and judges all."""
    programs = chosen(settings.programs, settings.part)
    verdicts: list[Verdict] = []
    for seed in range(settings.seeds):
        train_missing(programs, seed, cache, settings.jobs)
        verdicts += run(programs, seed, cache, settings.without_model)
        if settings.json:  # after each seed, so that a run cut short leaves what it had
            settings.json.write_text(json.dumps(plain(report(verdicts, settings)), indent=1) + "\n")
    return verdicts


def train_missing(programs: Sequence[Program], seed: int, cache: Cache, jobs: int) -> None:
    """Trains what the cache lacks of this seed, in processes that are replaced after a while."""
    missing = [(program.name, seed, cache) for program in programs if not cache.holds(program, seed)]
    if missing:
        with multiprocessing.get_context("spawn").Pool(
            min(jobs, len(missing)), maxtasksperchild=RUNS_A_PROCESS
        ) as pool:
            pool.starmap(train_one, missing, chunksize=1)


def train_one(name: str, seed: int, cache: Cache) -> None:
    """Trains one program into the cache."""
    tf.get_logger().setLevel("ERROR")
    cache.run(PROGRAMS[name], seed)
    clear()


def run(programs: Sequence[Program], seed: int, cache: Cache, without_model: bool = False) -> list[Verdict]:
    """Diagnoses each program from this seed, as it lies in the cache; prints a line a run."""
    verdicts: dict[str, Verdict] = {}
    for program in programs:
        trained = cache.run(program, seed)
        started = time.perf_counter()
        findings = list(ki.diagnose(trained.recording, None if without_model else trained.model))
        seconds = time.perf_counter() - started
        twin = verdicts[program.twin].quality if program.twin else float("nan")
        verdict = verdicts[program.name] = judged(program, seed, trained, twin, findings, seconds)
        print(line(verdict), flush=True)
        clear()
    return list(verdicts.values())


def line(verdict: Verdict) -> str:
    """One run in words."""
    if not verdict.faulty:
        said = "false alarm" if verdict.alarms else "ok"
    elif not verdict.reproduced:
        said = f"no worse than its twin ({verdict.twin_quality:.3f})"
    else:
        said = "named" if verdict.named else "detected" if verdict.alarms else "missed"
    found = ", ".join(f"{finding['kind']} ({finding['severity']})" for finding in verdict.findings) or "nothing found"
    failed = f" [training failed: {verdict.error}]" if verdict.error else ""
    return f"{verdict.program} {verdict.seed}: quality {verdict.quality:.3f}: {said}: {found}{failed}"


def report(verdicts: Sequence[Verdict], settings: argparse.Namespace) -> dict[str, Any]:
    """All that was measured, for JSON."""
    options = " ".join(
        f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}"
        for name, value in vars(settings).items()
        if value and name not in ("json", "cache", "jobs")
    )
    tables = {
        part: [row._asdict() for row in table(v for v in verdicts if v.development is development)]
        for part, development in PARTS.items()
    }
    runs = [verdict._asdict() | {"reproduced": verdict.reproduced, "named": verdict.named} for verdict in verdicts]
    return {"command": f"python -m benchmarks.diagnosis {options}", **environment(), "tables": tables, "runs": runs}


def chosen(globs: str, part: str | None = None) -> list[Program]:
    """The programs that match, and the twins of the faulty ones; each twin before its program.

    Raises:
        ValueError: a glob matches none.
    """
    names: dict[str, None] = {}
    for glob in globs.split(","):
        matches = fnmatch.filter(PROGRAMS, glob)
        if not matches:
            raise ValueError(f"no program matches {glob!r}; there are {', '.join(PROGRAMS)}.")
        for name in matches:
            twin = PROGRAMS[name].twin
            names |= {twin: None, name: None} if twin else {name: None}
    return [PROGRAMS[name] for name in names if part is None or PROGRAMS[name].development is PARTS[part]]


def _settings(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.diagnosis", description=__doc__)
    parser.add_argument("--programs", default="*", metavar="GLOB", help="which, also several with commas; default: all")
    parser.add_argument("--part", choices=PARTS, help="only those that thresholds were chosen by, or only the others")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="runs of each program; default: 5")
    parser.add_argument("--epochs", type=int, metavar="N", help="no more of each program, only to try the command out")
    parser.add_argument(
        "--collectors", choices=OBSERVED, default=RULES, help="what is recorded; default: what the rules read"
    )
    parser.add_argument("--without-model", action="store_true", help="diagnose from the recording alone")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keeps recordings; trains what it lacks")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs trained at once; default: 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where every finding of every run goes")
    settings = parser.parse_args(arguments)
    for name in ("seeds", "jobs"):
        if getattr(settings, name) < 1:
            parser.error(f"--{name} {getattr(settings, name)}; expected 1 or more")
    try:
        chosen(settings.programs)
    except ValueError as error:
        parser.error(str(error))
    return settings


if __name__ == "__main__":
    sys.exit(main())
