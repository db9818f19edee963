"""`report`: all of a run in one file."""

import base64
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from keras_introspect import plots
from keras_introspect.atomic import check_folder, write_atomically
from keras_introspect.diagnosis import diagnose
from keras_introspect.errors import as_names, unknown_name
from keras_introspect.plots._data import check_recording
from keras_introspect.recording import Recording
from keras_introspect.reporting import facts, table
from keras_introspect.reporting.boards import NAMES, Board, available_boards
from keras_introspect.reporting.pictures import Picture, no_search_for_garbage, picture

_MOST_NAMED = 6  # findings on the first screen


def report(
    recording: Recording,
    path: str | os.PathLike[str],
    title: str | None = None,
    boards: Iterable[str] | None = None,
) -> Path:
    """Writes all of a run into one HTML file, to be opened, mailed or kept: it needs no network and no other file.

    What is wrong comes first, with its evidence and what to try; then the dashboard; the boards; a table of every
    tensor that can be sorted and searched; what was not observed, and why; how the run was configured.

    Args:
        recording: what was observed.
        path: the file, such as `"run.html"`; written whole or not at all, over one that is there.
        title: heading; by default the model's name.
        boards: which boards to draw, of `"training_curves"`, `"activity_board"`, `"unit_activity"`,
            `"distribution_board"`, `"update_board"`, `"phase_gap"`; by default each that the recording has the data
            for. `()` draws none: boards of a deep model take some seconds each.

    Returns:
        The path written.

    Raises:
        ImportError: Jinja2 is not installed (`pip install "keras-introspect[report]"`).
        ValueError: no Recording, an empty one, an unknown board, or a path that ends otherwise than in `.html`.
        OSError: the file cannot be written.

    Example:

    >>> import tempfile
    >>> recording = Recording()
    >>> for epoch in range(2):
    ...     recording.add_logs(epoch, {"loss": 1 / (epoch + 1)})
    ...     recording.add_epoch("gradients", epoch, ["a/kernel", "b/kernel"], [(2, 3), (3, 1)], {"rms": [0.1, 0.2]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report(recording, Path(folder) / "run.html")
    ...     path.read_text("utf-8")[:15]
    '<!DOCTYPE html>'
    """
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"report() was given {os.fspath(path)!r}; it writes HTML: expected a path such as 'run.html'.")
    check_folder(path)  # found out before the boards are drawn
    page = render(recording, title, boards)  # before the file is touched
    write_atomically(path, page.encode("utf-8"))
    return Path(path)


def render(
    recording: Recording,
    title: str | None = None,
    chosen: Iterable[str] | None = None,
    refresh: int | None = None,
) -> str:
    """The page of `report`.

    Args:
        recording: see `report`.
        title: see `report`.
        chosen: see `boards` of `report`.
        refresh: seconds after which a browser that shows the page reads it anew.
    """
    environment = _environment()
    check_recording(recording, "report")
    wanted = NAMES if chosen is None else _checked(chosen)
    found = diagnose(recording)
    shown = table.columns(recording)
    script, style = _asset("report.js"), _asset("report.css")
    points = sum(len(series.names) * len(series.epochs) for series in recording.values())
    return str(
        environment.get_template("report.html.j2").render(
            title=title or str(recording.metadata.get("model") or "A training run"),
            refresh=refresh,
            script=script,
            style=style,
            script_hash=_hash(script),
            style_hash=_hash(style),
            headline=facts.headline(recording),
            logs=facts.last_logs(recording),
            found=found,
            findings=[(finding, table.rows_of(recording, finding)) for finding in found],
            most_named=_MOST_NAMED,
            bad=found.count("error"),
            dashboard=_picture(lambda: plots.dashboard(recording), points),
            boards=[_drawn(board) for board in available_boards(recording) if board.picture in wanted],
            columns=shown,
            rows=table.rows(recording, found, shown),
            views=[view for view, series in recording.items() if view != "metrics" and len(series.epochs)],
            unobserved=recording.unobserved,
            configuration=facts.configuration(recording),
            collectors=list(facts.collectors(recording)),
            written=time.strftime("%Y-%m-%d %H:%M %Z").strip(),
        )
    )


def check_jinja2() -> None:
    """Raises ImportError, saying how to install it, where Jinja2 is not installed."""
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'The report needs Jinja2, which is not installed: pip install "keras-introspect[report]"'
        ) from error


def _environment() -> Any:
    check_jinja2()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,  # names of layers are the user's, and a recording may come from elsewhere
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    return environment


def _breakable(name: str) -> Any:
    """The name, escaped, with places where a line may break that are no part of it when it is copied."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([/_.:])(?=.)", r"\1<wbr>", str(escape(name))))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    """As the Content-Security-Policy wants it: the browser runs this script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _checked(chosen: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(as_names(chosen, "boards="))
    for name in wanted:
        if name not in NAMES:
            raise unknown_name("board of report()", name, NAMES)
    return wanted


def _picture(draw: Callable[[], Figure], points: int) -> Picture:
    with no_search_for_garbage():
        return picture(draw(), points)


def _drawn(board: Board) -> dict[str, Any]:
    """A board with its picture, or with the reason why it could not be drawn."""
    try:
        return {"board": board, "picture": _picture(board.draw, board.points), "fault": ""}
    except ValueError as error:  # what a board says when the data are not as it needs them
        return {"board": board, "picture": None, "fault": str(error)}
