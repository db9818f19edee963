"""The commands that make files of a saved recording: `report`, `plot`, `compare`, `export`.

A command is a function of the parsed arguments that returns the exit code, and an entry in `add_commands`. None
imports TensorFlow, but to read a TensorFlow checkpoint.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keras_introspect.atomic import check_folder, write_atomically
from keras_introspect.recording import Recording

PROG = "python -m keras_introspect"
OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

# What `plot` draws, and of which view by default; of "" the whole recording. Named here, so that `--help` needs no
# matplotlib.
PICTURES = {
    "dashboard": "",
    "training_curves": "",
    "activity_board": "layer_outputs",
    "distribution_board": "gradients",
    "histogram_ridges": "weights",
    "magnitude_distribution": "gradients",
    "norm": "gradients",
    "phase_gap": "",
    "scale_lines": "gradients",
    "scale_stack": "gradients",
    "unit_activity": "layer_outputs",
    "update_board": "",
    "value_distribution": "weights",
}
_OF_ONE_TENSOR = ("histogram_ridges", "magnitude_distribution", "unit_activity", "value_distribution")
_FILE = "an .npz file of Recording.save, or a .keras, .weights.h5 or checkpoint file that carries a recording"
_TABLES = (".csv", ".parquet")


class Failure(Exception):
    """What ends a command with one line on standard error."""

    def __init__(self, message: object, code: int = MISUSED) -> None:
        super().__init__(message)
        self.code = code


def load(file: str) -> Recording:
    """The recording in a file.

    Raises:
        Failure: there is none, or it cannot be read.
    """
    try:
        return Recording.load(file)
    except OSError as error:
        raise Failure(f"cannot read {file!r}: {error.strerror or error}") from error
    except (ValueError, ImportError) as error:
        raise Failure(error) from error


def add_commands(command: Callable[[str, Any, str, str], argparse.ArgumentParser]) -> None:
    """Adds the commands of this module.

    Args:
        command: adds one, of its name, its function, what it does and examples; returns its parser.
    """
    sub = command(
        "report",
        _report,
        "write all of a saved recording into one HTML page that needs no network; needs matplotlib and Jinja2",
        f"  {PROG} report run.npz\n  {PROG} report net.keras --out net.html --no-boards\n",
    )
    sub.add_argument("file", metavar="FILE", help=_FILE)
    sub.add_argument("--out", metavar="PAGE", help="default: the file's name with .html")
    sub.add_argument("--title", metavar="TEXT", help="heading (default: the model's name)")
    sub.add_argument(
        "--no-boards", action="store_true", help="without the boards, which take some seconds each for a deep model"
    )

    sub = command(
        "plot",
        _plot,
        "draw a picture of a saved recording; needs matplotlib, no TensorFlow",
        f"  {PROG} plot run.npz\n"
        f"  {PROG} plot run.npz --out dashboard.pdf\n"
        f"  {PROG} plot run.npz --picture scale_lines --view output_gradients\n"
        f"  {PROG} plot run.npz --picture value_distribution --layers conv1/kernel\n",
    )
    sub.add_argument("file", metavar="FILE", help=_FILE)
    sub.add_argument(
        "--picture",
        metavar="NAME",
        choices=list(PICTURES),
        default="dashboard",
        help=f"one of {', '.join(PICTURES)} (default: %(default)s)",
    )
    views = ", ".join(f"{view} for {name}" for name, view in PICTURES.items() if view in ("layer_outputs", "weights"))
    sub.add_argument("--view", help=f"what to draw it of, such as updates (default: {views}, else gradients)")
    sub.add_argument("--layers", metavar="NAME", nargs="+", help="names or globs of the tensors, such as 'conv*'")
    sub.add_argument(
        "--out",
        metavar="PICTURE",
        help="its ending chooses the format: png, pdf, svg (default: the picture's name with .png)",
    )

    sub = command(
        "compare",
        _compare,
        "draw two to five saved recordings into the same axes; needs matplotlib, no TensorFlow",
        f"  {PROG} compare healthy.npz sick.npz\n  {PROG} compare a.npz b.npz c.npz --out abc.png\n",
    )
    sub.add_argument("files", metavar="FILE", nargs="+", help=_FILE)
    sub.add_argument("--layers", metavar="NAME", nargs="+", help="names or globs of the tensors, such as 'conv*'")
    sub.add_argument("--out", metavar="PICTURE", default="comparison.png", help="default: %(default)s")

    sub = command(
        "export",
        _export,
        "write a saved recording as a table, a row a tensor and epoch; needs pandas, for Parquet pyarrow too",
        f"  {PROG} export run.npz\n"
        f"  {PROG} export run.npz --out run.parquet\n"
        f"  {PROG} export run.npz --steps --out - | head\n",
    )
    sub.add_argument("file", metavar="FILE", help=_FILE)
    sub.add_argument(
        "--out",
        metavar="TABLE",
        help="its ending chooses the format: csv, parquet; - prints CSV (default: the file's name with .csv)",
    )
    sub.add_argument("--steps", action="store_true", help="the values of single steps instead of those of epochs")


def draw(recording: Recording, path: str | os.PathLike[str], picture: str = "dashboard", **keywords: Any) -> None:
    """Draws a picture of a recording, or of one view of it, into a file."""
    from keras_introspect import plots

    view = keywords.pop("view", None) or PICTURES[picture]
    made = getattr(plots, picture)(recording[view] if view else recording, **keywords)
    getattr(made, "figure", made).savefig(path)  # of axes their figure


def _report(arguments: argparse.Namespace) -> int:
    recording = load(arguments.file)
    out = arguments.out or _beside(arguments.file, ".html")
    with _telling("report", arguments.file, out):
        from keras_introspect.reporting import report

        report(recording, out, arguments.title, () if arguments.no_boards else None)
    print(out)
    return OK


def _plot(arguments: argparse.Namespace) -> int:
    recording = load(arguments.file)
    picture, keywords = arguments.picture, {}
    out = arguments.out or f"{picture}.png"
    if arguments.layers:
        keywords["layers"] = arguments.layers
    if arguments.view:
        if not PICTURES[picture]:
            raise Failure(f"--view {arguments.view}: the {picture} is drawn of the whole recording; leave --view out")
        keywords["view"] = arguments.view
    if picture == "training_curves" and arguments.layers:
        raise Failure("--layers: the training_curves are of no layer; leave --layers out")
    with _telling("plot", arguments.file, out):
        if picture in _OF_ONE_TENSOR:
            _check_one(recording, picture, arguments.view or PICTURES[picture], arguments.layers)
        draw(recording, out, picture, **keywords)
    print(out)
    return OK


def _check_one(recording: Recording, picture: str, view: str, layers: list[str] | None) -> None:
    """Raises Failure if not one tensor is chosen."""
    series = recording[view]
    names = (series.sel(layers) if layers else series).names
    if len(names) > 1:
        shown = f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
        raise Failure(
            f"--picture {picture} draws one tensor, got {len(names)} of {view}: {shown}; choose one, as in "
            f"--layers {names[0]}"
        )


def _compare(arguments: argparse.Namespace) -> int:
    if not 2 <= len(arguments.files) <= 5:
        raise Failure(f"{len(arguments.files)} given; expected two to five recordings")
    names = [Path(file).name.split(".")[0] for file in arguments.files]
    if len(set(names)) < len(names):
        names = arguments.files
    if len(set(names)) < len(names):
        raise Failure("the same file is given twice")
    recordings = {name: load(file) for name, file in zip(names, arguments.files, strict=True)}
    with _telling("compare", ", ".join(arguments.files), arguments.out):
        from keras_introspect.plots import comparison

        comparison(recordings, layers=arguments.layers).savefig(arguments.out)
    print(arguments.out)
    return OK


def _export(arguments: argparse.Namespace) -> int:
    out = arguments.out or _beside(arguments.file, ".csv")
    ending = ".csv" if out == "-" else Path(out).suffix.lower()
    if ending not in _TABLES:
        raise Failure(f"--out {out!r}: expected a file that ends in {' or '.join(_TABLES)}, or - to print CSV")
    recording = load(arguments.file)
    with _telling("export", arguments.file, out):
        frame = recording.to_dataframe(steps=arguments.steps)
        if not len(frame):
            what = "steps: the collectors need per_step=True" if arguments.steps else "epochs"
            raise Failure(f"{arguments.file!r} holds no {what}", FAILED)
        if ending == ".parquet":
            buffer = io.BytesIO()
            frame.to_parquet(buffer, index=False)
            write_atomically(out, buffer.getvalue())
        elif out == "-":
            frame.to_csv(sys.stdout, index=False)
            return OK
        else:
            write_atomically(out, frame.to_csv(index=False).encode("utf-8"))
    print(out)
    return OK


def _beside(file: str, ending: str) -> str:
    """In the working folder, the file's name with another ending."""
    return Path(file).name.split(".")[0] + ending


@contextmanager
def _telling(what: str, file: str, out: str) -> Iterator[None]:
    """Tells in one line what went wrong: a package that is missing, a folder that is not there, data that lack."""
    try:
        check_folder(out)
        yield
    except ImportError as error:
        needs = {"export": "pandas and for Parquet pyarrow", "report": "matplotlib and Jinja2"}.get(what, "matplotlib")
        raise Failure(f"{what} needs {needs}: {error}") from error
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        verb = {"export": "write", "report": "write"}.get(what, "draw")
        raise Failure(f"cannot {verb} {file!r} to {out!r}: {getattr(error, 'strerror', None) or error}") from error
