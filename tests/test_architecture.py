"""Imports point downward only, NumPy's half knows no TensorFlow, and Keras's inside is touched in one room."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import keras_introspect

PACKAGE = "keras_introspect"
ROOT = Path(keras_introspect.__file__).parent

# A room (a module or sub-package of keras_introspect) imports only rooms below its own line.
LEVELS = [
    ["__main__"],
    ["cli"],
    ["cli_files"],
    ["demo"],
    ["measure"],
    ["model"],
    ["callbacks"],
    ["cost"],
    ["observer"],
    ["reading"],
    ["collectors"],
    ["saving"],
    ["state"],
    ["workers"],
    ["capture"],
    ["statistics"],
    ["reporting"],
    ["plots"],
    ["diagnosis"],
    ["recording"],
    ["merging"],
    ["sketch", "kept"],
    ["files"],
    ["npz"],
    ["naming"],
    ["errors"],
    ["atomic"],
    ["requirements"],
]
RANK = {room: rank for rank, rooms in enumerate(LEVELS) for room in rooms}
NUMPY_ONLY = {
    "",
    "atomic",
    "cli_files",
    "plots",
    "reporting",
    "diagnosis",
    "recording",
    "merging",
    "kept",
    "sketch",
    "files",
    "npz",
    "naming",
    "errors",
    "requirements",
}  # "" is keras_introspect/__init__.py, which all pass
# May import TensorFlow inside a function: names that load on first use, and the reader of TensorFlow's checkpoints.
TENSORFLOW_ON_DEMAND = {"", "files"}
TRAINING = {
    "model",
    "observer",
    "reading",
    "collectors",
    "saving",
    "state",
    "workers",
    "capture",
    "statistics",
}  # loads no matplotlib
KERAS_INSIDE = {"capture", "state"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, module: str, is_package: bool, lazily: bool = True) -> set[str]:
    """Full names of all that a module imports; not what stands under `if TYPE_CHECKING`, which never runs.

    Args:
        source: its text.
        module: its full name, against which relative imports are read.
        is_package: whether it is an `__init__.py`.
        lazily: count the imports inside functions too.
    """

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    yield from [other, *walk(other)]
            elif lazily or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield child
                yield from walk(child)

    names = set()
    for node in walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: None if is_package and node.level == 1 else is_package - node.level]
                base = ".".join([*above, base] if base else above)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def imports_of(module: str, lazily: bool = True) -> set[str]:
    path = modules()[module]
    return imported(path.read_text("utf-8"), module, path.name == "__init__.py", lazily)


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def room_of(name: str) -> str:
    """The room that a module, or a name in it, belongs to: `keras_introspect.plots.norm` → `plots`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (parts[1] in RANK or f"{PACKAGE}.{parts[1]}" in modules()) else ""


def room_members(room: str) -> list[str]:
    return [module for module in modules() if room_of(module) == room]


@pytest.mark.parametrize(
    ("source", "module", "is_package", "expected"),
    [
        ("import a.b, c", "p.m", False, {"a.b", "c"}),
        ("from a import b as d, c", "p.m", False, {"a.b", "a.c"}),
        ("from . import x", "p.m", False, {"p.x"}),
        ("from . import x", "p", True, {"p.x"}),
        ("from .n import x", "p.q.m", False, {"p.q.n.x"}),
        ("from .n import x", "p.q", True, {"p.q.n.x"}),
        ("from ..n import x", "p.q.m", False, {"p.n.x"}),
        ("from ..n import x", "p.q", True, {"p.n.x"}),
        ("def f():\n  import a", "p.m", False, {"a"}),
        ("class C:\n  try:\n    import a\n  except E:\n    import b", "p.m", False, {"a", "b"}),
        ("if TYPE_CHECKING:\n  import a\nelse:\n  import b", "p.m", False, {"b"}),
    ],
)
def test_reading_of_imports(source, module, is_package, expected):
    assert imported(source, module, is_package) == expected


def test_reading_of_imports_that_run_at_once():
    source = "import a\ndef f():\n  import b\nclass C:\n  import c\n  def g(self):\n    import d"
    assert imported(source, "p.m", False, lazily=False) == {"a", "c"}


def test_every_room_has_its_level():
    homeless = {room_of(module) for module in modules()} - {""} - set(RANK)
    assert not homeless, f"Give {sorted(homeless)} a line in LEVELS of {Path(__file__).name}."


@pytest.mark.parametrize("module", modules())
def test_imports_point_downward(module):
    room = room_of(module)
    if room not in RANK:
        return  # __init__.py gathers the public names of all rooms; a room without a level fails above
    own = [name for name in imports_of(module) if is_in(name, PACKAGE)]
    upward = [
        name
        for name in own
        if room_of(name) != room
        # The names gathered in __init__.py are for users and for the command line.
        and (RANK[room] > RANK["cli"] if not room_of(name) else RANK.get(room_of(name), 0) <= RANK[room])
    ]
    assert not upward, f"{module} imports {upward}, which are not below {room!r}."


@pytest.mark.parametrize("room", sorted(NUMPY_ONLY))
def test_numpys_half_knows_no_tensorflow(room):
    for module in room_members(room):
        names = imports_of(module, lazily=room not in TENSORFLOW_ON_DEMAND)
        heavy = [name for name in names if is_in(name, "tensorflow", "keras")]
        heavy += [name for name in names if is_in(name, PACKAGE) and room_of(name) not in NUMPY_ONLY]
        assert not heavy, f"{module} imports {heavy}; {sorted(NUMPY_ONLY)} load without TensorFlow."


@pytest.mark.parametrize("module", modules())
def test_only_one_room_knows_the_inside_of_keras(module):
    inside = [name for name in imports_of(module) if is_in(name, "keras.src", "tensorflow.python")]
    assert room_of(module) in KERAS_INSIDE or not inside, f"{module} imports {inside}; only {KERAS_INSIDE} may."


@pytest.mark.parametrize("room", sorted(TRAINING))
def test_training_loads_no_plots(room):
    for module in room_members(room):
        plots = [name for name in imports_of(module) if is_in(name, "matplotlib", f"{PACKAGE}.plots")]
        assert not plots, f"{module} imports {plots}."


def test_plots_and_recording_load_without_tensorflow():
    code = (
        "import sys, keras_introspect.plots, keras_introspect.recording\n"
        "print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
