"""The gallery's pictures: all there, all shown, and small."""

import inspect
import re
from pathlib import Path

from keras_introspect import plots

DOCS = Path(__file__).parent.parent / "docs"


def test_every_picture_is_shown_and_small() -> None:
    shown = re.findall(r"!\[[^\]]{5,}\]\((images/gallery/[^)]+)\)", (DOCS / "gallery.md").read_text("utf-8"))
    made = {path.relative_to(DOCS).as_posix(): path.stat().st_size for path in (DOCS / "images/gallery").iterdir()}
    assert sorted(shown) == sorted(made)
    assert max(made.values()) < 150e3
    assert sum(made.values()) < 2e6


def test_the_table_of_functions_says_what_each_takes_and_returns() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| `(\w+)` \| (.+?) \|$", (DOCS / "gallery.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(name for name, *_ in rows) == sorted(plots.__all__)
    for name, takes, returns, question in rows:
        signature = inspect.signature(getattr(plots, name))
        first = next(iter(signature.parameters.values()))
        assert signature.return_annotation.__name__ == returns, name
        assert ("ax" in signature.parameters) == (returns == "Axes"), name  # an axes-level function takes an axes
        assert ("figsize" in signature.parameters) == (returns == "Figure"), name
        assert ("view" in takes) == ("Series" in str(first.annotation)), name
        assert ("recording" in takes) == ("Recording" in str(first.annotation)), name
        assert ("one tensor" in takes) == (".one(" in inspect.getsource(getattr(plots, name))), name
        assert ("layers" in signature.parameters) == (name != "training_curves"), name
        assert "iterations" in signature.parameters, name
        assert question
