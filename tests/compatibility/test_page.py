"""The page says what the tests hold."""

from compatibility import page


def test_the_page_is_current() -> None:
    written = page.PAGE.read_text()
    assert written == page.render(), "docs/compatibility.md is stale: run python tests/compatibility/page.py"
