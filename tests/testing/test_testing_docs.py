"""The examples of docs/testing.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number: int):
    exec(compile(BLOCKS[number], f"{PAGE.name} example {number + 1}", "exec"), {"__name__": "example"})


def test_the_page_has_its_examples():
    assert len(BLOCKS) == 5
