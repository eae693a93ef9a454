"""Steps of long operations: told as they begin, gone through when one fails, finished when cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str], None]
"""Called with a short line, lower case, at each step; "" when nothing goes on any more."""

_T = TypeVar("_T")


def silent(_: str) -> None:
    pass


async def attempt(what: str, step: Awaitable[object]) -> None:
    """For tear-downs: a step that fails is logged and must not stop the next."""
    try:
        await step
    except Exception:
        log.exception("%s", what)


async def finish(step: Awaitable[_T], then: Callable[[_T], object] = lambda _: None) -> _T:
    """Wait for `step` even if cancelled meanwhile; `then` gets its result either way, so nothing is lost."""
    future = asyncio.ensure_future(step)
    try:
        result = await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled() and future.exception() is None:
            then(future.result())
        raise
    then(result)
    return result


async def in_worker(work: Callable[[], _T]) -> _T:
    """Run blocking `work` in a thread; half-made things are never left to a thread nobody waits for."""
    return await finish(asyncio.get_running_loop().run_in_executor(None, work))
