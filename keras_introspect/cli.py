"""The command line: `python -m keras_introspect`.

`show` needs NumPy alone and the pictures matplotlib too; TensorFlow is imported by `demo` only, when it runs.
A command is a function of the parsed arguments that returns the exit code, and an entry in `_parser`, or, of those that
make files of a saved recording, in `keras_introspect.cli_files`.
"""

import argparse
import math
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from keras_introspect import demo, requirements
from keras_introspect.cli_files import FAILED, INTERRUPTED, MISUSED, OK, PROG, Failure, add_commands, draw, load
from keras_introspect.diagnosis import Diagnosis, diagnose
from keras_introspect.recording import Recording

_MOST_FINDINGS = 10
_MOST_UNOBSERVED = 5


class _Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that reports a mistake in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISUSED, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the arguments after the program's name; those of the process where left out.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong arguments or something missing, 130 interrupted by Ctrl-C.

    Raises:
        SystemExit: as argparse does: code 0 after `--help`, 2 after wrong arguments.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return MISUSED
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except Failure as failure:
        message = " ".join(str(failure).split())
        print(f"{PROG} {arguments.command}: error: {message}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `… | head` has read enough; without this Python complains once more as it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROG,
        description="See what happens inside a Keras model while it trains.",
        epilog=(
            "examples:\n"
            f"  {PROG} demo                  train a small network and draw its dashboard\n"
            f"  {PROG} show run.npz          what is wrong in a saved recording\n"
            f"  {PROG} report run.npz        all of it as one HTML page\n"
            f"  {PROG} plot run.npz          its dashboard as a picture\n"
            f"  {PROG} compare a.npz b.npz   two recordings in the same axes\n"
            f"  {PROG} export run.npz        its numbers as a table\n\n"
            "exit codes: 0 done, 1 failed, 2 wrong arguments or something missing, 130 interrupted\n"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, run: Any, summary: str, examples: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run)
        return sub

    sub = command(
        "demo",
        _demo,
        "train a small network on handwritten digits with all collectors, and draw what happened inside",
        f"  {PROG} demo\n  {PROG} demo --scenario dying-relu --out sick_run\n",
    )
    sub.add_argument(
        "--out",
        metavar="DIR",
        default="keras_introspect_demo",
        help="where dashboard.png, run.npz and model.keras go, over any that are there (default: %(default)s)",
    )
    sub.add_argument("--epochs", metavar="N", type=_at_least(1), default=10, help="default: %(default)s")
    about = "; ".join(f"{name}: {scenario.about}" for name, scenario in demo.SCENARIOS.items()).replace("%", "%%")
    sub.add_argument("--scenario", choices=list(demo.SCENARIOS), default="healthy", help=f"{about} (default: healthy)")
    sub.add_argument(
        "--seed", metavar="N", type=_at_least(0), default=0, help="of weights, dropout and batches (default: 0)"
    )

    sub = command(
        "show",
        _show,
        "print what is wrong in a saved recording; needs no TensorFlow",
        f"  {PROG} show run.npz\n  {PROG} show run.npz --limit 3\n",
    )
    sub.add_argument(
        "file", metavar="FILE", help="written by Recording.save, such as run.npz, or a model that carries one"
    )
    sub.add_argument(
        "--limit",
        metavar="N",
        type=_at_least(0),
        default=_MOST_FINDINGS,
        help="at most so many findings (default: %(default)s)",
    )

    add_commands(command)
    return parser


def _at_least(minimum: int) -> Any:
    def whole_number(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {minimum}")
        return number

    return whole_number


# --- demo ---


def _demo(arguments: argparse.Namespace) -> int:
    out = _writable_directory(arguments.out)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else TensorFlow's start fills the screen
    try:
        digits = demo.load_digits()
        requirements.check()
        print("Loading TensorFlow …", flush=True)
        model = demo.build_model(arguments.scenario, arguments.seed)
    except ImportError as error:
        raise Failure(error) from error
    print(
        f"Training {model.count_params()} parameters on {len(digits.y)} images of handwritten digits, "
        f"scenario {arguments.scenario}: {demo.SCENARIOS[arguments.scenario].about}.",
        flush=True,
    )
    code = OK
    try:
        demo.train(model, digits, arguments.epochs, verbose=1 if sys.stdout.isatty() else 2)
    except KeyboardInterrupt:
        code = INTERRUPTED
        if not len(model.recording.epochs):
            raise Failure("interrupted before the first epoch ended: nothing was recorded", code) from None
        print("\nInterrupted; keeping what was recorded so far.", file=sys.stderr)

    recording = model.recording
    files = [
        ("run.npz", "the recording: keras_introspect.Recording.load", recording.save),
        ("dashboard.png", "look at this first: the whole run on one screen", lambda path: draw(recording, path)),
        ("model.keras", "the trained model, the recording within: keras.saving.load_model", model.save),
    ]
    for name, _, write in files:
        try:
            write(out / name)
        except OSError as error:
            raise Failure(f"cannot write {os.fspath(out / name)!r}: {error.strerror or error}", FAILED) from error
    print()
    print("\n".join(_summary(recording, _MOST_FINDINGS)))
    print()
    width = max(len(os.fspath(out / name)) for name, _, _ in files)
    for name, about, _ in files:
        print(f"{os.fspath(out / name):<{width}}  {about}")
    other = next(name for name in demo.SCENARIOS if name != arguments.scenario)
    print(f"\nFor comparison: {PROG} demo --scenario {other} --out {other.replace('-', '_')}")
    return code


def _writable_directory(given: str) -> Path:
    """The directory, made where it does not exist: found out before training, not after."""
    out = Path(given)
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = "it is no directory" if isinstance(error, FileExistsError) else error.strerror or error
        raise Failure(f"--out: cannot write into {given!r}: {reason}") from error
    return out


# --- show ---


def _show(arguments: argparse.Namespace) -> int:
    print("\n".join(_summary(load(arguments.file), arguments.limit)))
    return OK


# --- the table ---


def _summary(recording: Recording, limit: int) -> list[str]:
    """What a recording holds, and what is wrong in it: lines of text."""
    lines = [_headline(recording), *_logs(recording), ""]
    lines += _findings(diagnose(recording), limit)
    sizes = _sizes(recording)
    if sizes:
        lines += ["", "Root mean square in the last epoch, from the smallest to the largest tensor:", *sizes]
    else:
        lines += ["", 'No sizes of tensors were recorded: observe some with compile(…, collectors="default").']
    if recording.unobserved:
        lines += ["", "Not observed:"]
        shown = list(recording.unobserved.items())[:_MOST_UNOBSERVED]
        lines += [f"  {name}: {reason}" for name, reason in shown]
        if len(recording.unobserved) > len(shown):
            lines.append(f"  and {len(recording.unobserved) - len(shown)} more: see recording.unobserved")
    return lines


def _findings(found: Diagnosis, limit: int) -> list[str]:
    """The findings, worst first, with cause and remedy; then what was looked for."""
    lines = [f"{found.headline}{' (epochs are counted from 0):' if found and limit else '.'}"]
    for number, finding in enumerate(found[:limit], 1):
        lines.append(f"{number}. {finding}")
        for label, text in (("cause", finding.cause), ("try", finding.suggestion)):
            lines += textwrap.wrap(f"{label}: {text}", 110, initial_indent="   ", subsequent_indent="     ")
    if len(found) > limit:
        lines.append(f"and {len(found) - limit} more: see --limit.")
    lines += textwrap.wrap(f"Looked for: {', '.join(found.judged).replace('_', ' ') or 'nothing'}.", 110)
    if found.not_judged:
        lines.append("Not judged:")
        for reason, kinds in found.not_judged_because.items():
            lines += textwrap.wrap(
                f"{', '.join(kinds).replace('_', ' ')}: {reason}.", 110, initial_indent="  ", subsequent_indent="    "
            )
    return lines


def _headline(recording: Recording) -> str:
    about, epochs = recording.metadata, len(recording.epochs)
    parts = [f"Model {about['model']}" if "model" in about else "A model"]
    if "parameters" in about:
        parts.append(f"{about['parameters']} parameters")
    if about.get("optimizer"):
        parts.append(str(about["optimizer"]))
    return f"{', '.join(parts)}: {epochs} epoch{'' if epochs == 1 else 's'} recorded."


def _logs(recording: Recording) -> list[str]:
    last = [f"{key} {values[-1]:.4g}" for key, values in recording.logs.items() if len(values)]
    return [f"Last epoch: {', '.join(last)}."] if last else []


def _sizes(recording: Recording) -> list[str]:
    rows = []
    for view, series in recording.items():
        if "rms" not in series.statistics or not len(series.epochs):
            continue
        rms = series.epoch("rms")[-1]
        seen = np.flatnonzero(~np.isnan(rms))
        if len(seen):
            low, high = seen[np.argmin(rms[seen])], seen[np.argmax(rms[seen])]
            ends = [f"{_number(rms[i])} {series.names[i]}" for i in (low, high)]
            rows.append((view, str(len(series.names)), *ends))
    return _table([("view", "tensors", "smallest", "largest")], rows) if rows else []


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else str(value)


def _table(head: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell."""
    cells = [*head, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]
