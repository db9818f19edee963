"""Runs test modules that Keras ships in its wheel, with its models or with ours.

python tests/compatibility/keras_own_tests.py            both, and what differs
python tests/compatibility/keras_own_tests.py plain      Keras's models alone
python tests/compatibility/keras_own_tests.py ours       ours alone, all collectors switched on at every compile
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODULES = ("models", "callbacks")
TIMEOUT = 3000


def test_files() -> list[Path]:
    import keras

    source = Path(keras.__file__).parent / "src"
    return sorted(path for module in MODULES for path in (source / module).glob("*_test.py"))


# --- inside the subprocess ---


def replaced_models() -> dict[type, type]:
    """Keras's class → ours, with all collectors switched on at every compile that has an optimizer to observe.

    They write no logs: Keras's tests compare all keys of the history, and ours, which are tested elsewhere, are further
    ones.
    """
    import keras
    from tensorflow.python.eager import context

    import keras_introspect as ki
    from keras_introspect.statistics.base import forget_traces

    reset = context._reset_context

    def reset_context() -> None:
        """Some of Keras's tests take TensorFlow's context from under everybody, to have two devices."""
        reset()
        forget_traces()

    context._reset_context = reset_context

    def collectors() -> list[Any]:
        views = (ki.Weights, ki.Gradients, ki.Updates, ki.LayerOutputs, ki.OutputGradients)
        return [*(view(logs=None) for view in views), ki.StepMetrics()]

    original = ki.IntrospectiveModel.compile

    def compile(self: Any, *args: Any, **kwargs: Any) -> None:
        optimizer = args[0] if args else kwargs.get("optimizer", "rmsprop")
        kwargs.setdefault("collectors", None if optimizer is None else collectors())
        original(self, *args, **kwargs)

    ki.IntrospectiveModel.compile = compile  # type: ignore[method-assign]
    return {keras.Model: ki.IntrospectiveModel, keras.Sequential: ki.IntrospectiveSequential}


class Plugin:
    """Notes outcomes; with `ours`, replaces the classes in each test module as it is collected."""

    def __init__(self, ours: bool) -> None:
        self.outcomes: dict[str, str] = {}
        self.replaced = 0
        self.classes = replaced_models() if ours else {}

    def pytest_configure(self, config: Any) -> None:
        for marker in ("requires_trainable_backend", "multi_device"):
            config.addinivalue_line("markers", marker)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        import keras

        for module in {item.module for item in items}:
            for name, value in list(vars(module).items()):
                for plain, ours in self.classes.items():
                    if value is plain:
                        setattr(module, name, ours)
                        self.replaced += 1
        if self.classes:
            # keras.Model(...) and models.Sequential(...), through modules that the tests import
            import keras.src.models as models

            for namespace in (keras, keras.models, models):
                for plain, ours in self.classes.items():
                    setattr(namespace, plain.__name__, ours)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            name = Path(report.location[0]).name + report.nodeid[report.nodeid.index("::") :]
            text = str(report.longrepr)[-1500:] if report.failed else ""
            if self.outcomes.get(name, ("", ""))[0] != "failed":
                self.outcomes[name] = (report.outcome, text)


def run_here(ours: bool, result: str, chosen: list[str]) -> None:
    import pytest

    plugin = Plugin(ours)
    files = [str(path) for path in test_files() if not chosen or path.name in chosen]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        options = ["-q", "--continue-on-collection-errors", "-p", "no:cacheprovider", "-p", "no:xdist"]
        pytest.main([*options, "-c", f"{folder}/pytest.ini", "--import-mode=importlib", *files], plugins=[plugin])
    Path(result).write_text(json.dumps({"outcomes": plugin.outcomes, "replaced": plugin.replaced}))


# --- from outside ---


def outcomes(which: str, chosen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Runs them in a process of their own: test → (outcome, the end of its traceback)."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "outcomes.json"
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        for name in list(environment):
            if name.startswith("PYTEST_"):
                del environment[name]
        command = [sys.executable, __file__, "--here", which, str(result), *chosen]
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        if not result.exists():
            ends = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{ends}")
        return json.loads(result.read_text())


def lost(plain: dict[str, Any], ours: dict[str, Any]) -> dict[str, str]:
    """The tests that pass with Keras's models and not with ours."""
    return {
        name: ours["outcomes"].get(name, ["was not run", ""])[1] or "was not run"
        for name, (outcome, _) in plain["outcomes"].items()
        if outcome == "passed" and ours["outcomes"].get(name, ["missing"])[0] != "passed"
    }


def main() -> int:
    if "--here" in sys.argv:
        which, result, *chosen = sys.argv[2:]
        run_here(which == "ours", result, chosen)
        return 0
    wanted = sys.argv[1] if len(sys.argv) > 1 else "both"
    runs = {which: outcomes(which) for which in ("plain", "ours") if wanted in (which, "both")}
    for which, run in runs.items():
        counts = collections.Counter(outcome for outcome, _ in run["outcomes"].values())
        print(which, dict(counts), f"{run['replaced']} names replaced")
    if len(runs) == 2:
        missing = lost(runs["plain"], runs["ours"])
        for name, text in missing.items():
            print(f"\n== passes with Keras's models only: {name}\n{text}")
        return bool(missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
