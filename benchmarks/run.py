"""Prints what introspection costs beside plain Keras, and writes it as JSON; see docs/performance.md."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_introspect as ki
from benchmarks.configurations import CONFIGURATIONS, PLAIN
from benchmarks.measure import MODES, Measured, measure, prepare
from benchmarks.subjects import SUBJECTS

FULL: dict[str, Any] = {
    "subjects": ",".join(SUBJECTS),
    "modes": "graph,xla",
    "configurations": ",".join(CONFIGURATIONS),
    "rounds": 15,
}
QUICK: dict[str, Any] = {
    "subjects": "cnn32,mlp",
    "modes": "graph",
    "configurations": "none,economy,default,all",
    "rounds": 7,
}

COLUMNS = (
    "subject",
    "mode",
    "configuration",
    "wall ratio",
    "quartiles",
    "processor ratio",
    "quartiles",
    "wall ms a step",
    "processor ms a step",
    "first call s",
    "first call ratio",
)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 1 if a configuration could not be measured."""
    settings = _settings(arguments)
    prepare(settings["modes"])
    load = _load()
    results: list[dict[str, Any]] = []
    print(_row(COLUMNS), _row(["---"] * 3 + ["--:"] * (len(COLUMNS) - 3)), sep="\n", flush=True)
    for name in settings["subjects"]:
        for mode in settings["modes"]:
            steps, measured = measure(SUBJECTS[name], mode, settings["configurations"], settings["rounds"])
            for configuration, of_this in measured.items():
                head = {"subject": name, "mode": mode, "configuration": configuration, "steps": steps}
                results.append(head | summary(of_this, measured[PLAIN], steps))
                print(_line(results[-1]), flush=True)
            if settings["json"]:  # after each part, so that a run cut short leaves what it had
                report = _environment(settings) | {"load": [load, _load()], "results": results}
                Path(settings["json"]).write_text(json.dumps(report, indent=1) + "\n")
    failed = [result for result in results if "error" in result]
    for result in failed:
        print(f"{result['subject']}, {result['mode']}, {result['configuration']}: {result['error']}", file=sys.stderr)
    return 1 if failed else 0


def summary(measured: Measured, plain: Measured, steps: int) -> dict[str, Any]:
    """The numbers of one row: ratios are paired, each unit to the plain unit of the same round."""
    if measured.error:
        return {"error": measured.error}
    if measured.not_applicable:
        return {"not_applicable": measured.not_applicable}
    times, base = np.asarray(measured.rounds), np.asarray(plain.rounds)  # (rounds, wall and processor)
    ratios = times / base
    return {
        "wall_ratio": _quartiles(ratios[:, 0]),
        "cpu_ratio": _quartiles(ratios[:, 1]),
        "wall_ms_per_step": _quartiles(times[:, 0] / steps * 1e3),
        "cpu_ms_per_step": _quartiles(times[:, 1] / steps * 1e3),
        "first_call_s": measured.first_call,
        "first_call_ratio": measured.first_call / plain.first_call,
        "rounds": [{"wall_s": unit.wall, "cpu_s": unit.cpu} for unit in measured.rounds],
    }


def _quartiles(values: np.ndarray) -> dict[str, float]:
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"q1": low, "median": middle, "q3": high}


def _line(result: Mapping[str, Any]) -> str:
    head = [result["subject"], result["mode"], result["configuration"]]
    if "error" in result or "not_applicable" in result:
        return _row([*head, "failed" if "error" in result else "not applicable", *[""] * (len(COLUMNS) - 4)])
    cells: list[str] = []
    for key in ("wall_ratio", "cpu_ratio"):
        found = result[key]
        cells += [f"{found['median']:.3f}", f"{found['q1']:.3f}–{found['q3']:.3f}"]
    cells += [f"{result[key]['median']:.2f}" for key in ("wall_ms_per_step", "cpu_ms_per_step")]
    return _row([*head, *cells, f"{result['first_call_s']:.1f}", f"{result['first_call_ratio']:.2f}"])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = ("subjects", "modes", "configurations")
    options = " ".join(f"--{name} {','.join(settings[name])}" for name in names)
    return {"command": f"python -m benchmarks.run {options} --rounds {settings['rounds']}", **environment()}


def environment() -> dict[str, Any]:
    """Versions and machine, as they stand in every JSON file of a benchmark."""
    return {
        "versions": {
            "keras_introspect": ki.__version__,
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "gpus": [
            tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
            for gpu in tf.config.list_physical_devices("GPU")
        ],
    }


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _settings(arguments: list[str] | None) -> dict[str, Any]:
    parser = argparse.ArgumentParser("python -m benchmarks.run", description=__doc__)
    for name, known in (("subjects", SUBJECTS), ("modes", MODES), ("configurations", CONFIGURATIONS)):
        parser.add_argument(f"--{name}", metavar="A,B", help=f"of {', '.join(known)}; default: {FULL[name]}")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default: {FULL['rounds']}")
    parser.add_argument("--json", metavar="FILE", help="where the numbers go, single rounds included")
    parser.add_argument("--quick", action="store_true", help=f"other defaults: {QUICK}")
    given = vars(parser.parse_args(arguments))
    settings = (QUICK if given["quick"] else FULL) | {key: value for key, value in given.items() if value is not None}
    try:
        settings["subjects"] = chosen(settings["subjects"], SUBJECTS)
        settings["modes"] = chosen(settings["modes"], MODES)
        settings["configurations"] = chosen(settings["configurations"], CONFIGURATIONS)
    except ValueError as error:
        parser.error(str(error))
    if settings["rounds"] < 1:
        parser.error(f"--rounds {settings['rounds']}; expected 1 or more")
    return {"json": None} | settings


def chosen(names: str, known: Iterable[str]) -> list[str]:
    """The known names that a comma-separated list asks for; `cnn` stands for all that begin so.

    Raises:
        ValueError: a name is unknown.
    """
    found: list[str] = []
    for name in names.split(","):
        matches = [name] if name in known else [other for other in known if name and other.startswith(name)]
        if not matches:
            raise ValueError(f"unknown: {name!r}; expected names of {', '.join(known)}")
        found += [match for match in matches if match not in found]
    return found


if __name__ == "__main__":
    sys.exit(main())
