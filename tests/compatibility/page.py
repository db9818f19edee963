"""Writes docs/compatibility.md from the tables that the tests run: `python tests/compatibility/page.py`."""

import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

ALL = "all"


def cell(construct: str, mode: str) -> str:
    from compatibility.checks import PLAIN_FAILS, partial_of
    from compatibility.modes import MIRRORED, MODES
    from compatibility.own_steps import CONSTRUCTS

    if (construct, mode) in PLAIN_FAILS:
        return f"plain Keras fails: {PLAIN_FAILS[construct, mode]}"
    partial = partial_of(CONSTRUCTS[construct], {**MODES, MIRRORED.name: MIRRORED}[mode])
    said = ALL if partial is None else f"partial: {partial}"
    repeatable = "" if CONSTRUCTS[construct].repeatable else " ²"
    return f"{said}{repeatable}" if is_quick(construct, mode) else f"{said}{repeatable} ¹"


def is_quick(construct: str, mode: str) -> bool:
    """Whether the cell is among the tests that run at every change."""
    from compatibility.test_constructs import QUICK_EAGERLY, SLOW
    from compatibility.test_modes import CARRIERS, QUICK

    if mode == "graph":
        return construct not in SLOW
    return (mode == "eager" and construct in QUICK_EAGERLY) or (construct == CARRIERS[0] and mode in QUICK)


def render() -> str:
    from compatibility.modes import MIRRORED, MODES
    from compatibility.own_steps import CONSTRUCTS
    from compatibility.replicas import NAMES
    from compatibility.test_modes import CARRIERS, CROSSINGS

    lines = [
        "# Compatibility",
        "",
        "Each cell is a test. The same model trains as plain Keras and with all five collectors: the weights and the",
        "optimizer's variables must be equal bit for bit (under XLA, to rounding). Every number of every series must",
        "equal what spies on a plain, eager Keras run saw.",
        "",
        "- **all**: every series of every layer and variable.",
        "- **partial**: what is missing is listed in `recording.unobserved`, with the reason that stands here.",
        "- **plain Keras fails**: a test holds that it does, so that we learn when it no longer does.",
        "",
        "¹ The test of the cell belongs to the whole matrix, `python -m pytest -m long tests/compatibility`, which",
        "takes an hour or two and is run now and then; the tests of the other cells run at",
        "every change.",
        "",
        "² Plain Keras, trained twice, does not come to the same bits either: the weights are compared to rounding.",
        "",
        "This page is written by `python tests/compatibility/page.py`; a test fails when it is stale.",
    ]
    group = None
    lines += ["", "## Models"]
    for name, construct in CONSTRUCTS.items():
        if construct.group != group:
            group = construct.group
            lines += ["", f"### {group}", "", "| model | graph | eager |", "|---|---|---|"]
        lines.append(f"| {construct.title} | {cell(name, 'graph')} | {cell(name, 'eager')} |")
    lines += ["", "## Training", ""]
    lines += ["The modes on three models: " + "; ".join(CONSTRUCTS[name].title for name in CARRIERS) + "."]
    group = None
    for name, mode in MODES.items():
        if mode.group != group:
            group = mode.group
            lines += ["", f"### {group}", "", "| mode | convolutional | LSTM | transformer |", "|---|---|---|---|"]
        cells = " | ".join(cell(carrier, name) for carrier in CARRIERS)
        lines.append(f"| {mode.title} | {cells} |")
    lines += ["", f"### {MIRRORED.group}", "", f"| model | {MIRRORED.title} |", "|---|---|"]
    lines += [f"| {CONSTRUCTS[name].title} | {cell(name, MIRRORED.name)} |" for name in NAMES]
    lines += ["", "### Crossings", "", "| model | mode | |", "|---|---|---|"]
    for construct, mode in CROSSINGS:
        lines.append(f"| {CONSTRUCTS[construct].title} | {MODES[mode].title} | {cell(construct, mode)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    PAGE.write_text(render())
