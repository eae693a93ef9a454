"""How a long operation tells what it is doing, whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Called with a short line, lower case, at each step."""


def silent(_: str) -> None:
    pass
