"""For mkdocs.yml: shows the examples of docstrings as code; Markdown would take `>>>` for quotations."""

import re
from typing import Any

import griffe

# From a prompt to the next empty line: what the doctests run, and what they expect.
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(griffe.Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
            obj.docstring.value = text.replace("Example:\n", "**Example:**\n")
