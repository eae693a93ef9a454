"""How a long operation tells what it is doing, and goes on when a step of it fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str], None]
"""Called with a short line, lower case, at each step; "" when nothing goes on any more."""


def silent(_: str) -> None:
    pass


async def attempt(what: str, step: Awaitable[object]) -> None:
    """For tear-downs: a step that fails is logged and must not stop the next."""
    try:
        await step
    except Exception:
        log.exception("%s", what)
