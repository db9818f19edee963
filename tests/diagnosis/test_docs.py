"""docs/diagnosis.md names every kind, its rule and every threshold with the value that it has."""

import inspect
from pathlib import Path

import pytest

from keras_introspect.diagnosis import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text("utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_the_page_names_kind_rule_and_thresholds(rule):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{rule.kind}` | ")]
    assert f"| `{rule.__name__}` |" in row
    arguments = inspect.signature(rule).parameters if "__init__" in vars(rule) else {}
    assert row.count("=") >= len(arguments)
    for name, parameter in arguments.items():
        assert f"`{name}={parameter.default}`" in row


def test_the_page_names_no_other_kind():
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 5]
    assert rows == [rule.kind for rule in RULES]
