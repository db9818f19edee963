"""The gallery's pictures: all there, all shown, and small."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_every_picture_is_shown_and_small() -> None:
    shown = re.findall(r"!\[[^\]]{5,}\]\((images/gallery/[^)]+)\)", (DOCS / "gallery.md").read_text("utf-8"))
    made = {path.relative_to(DOCS).as_posix(): path.stat().st_size for path in (DOCS / "images/gallery").iterdir()}
    assert sorted(shown) == sorted(made)
    assert max(made.values()) < 150e3
    assert sum(made.values()) < 2e6
