"""Steps of long operations: told as they begin, gone through when one fails, finished when cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeAlias, TypeVar

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


class TaskExit(Exception):
    """A task asked for the end of the process, which is not its own."""


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """asyncio lets SystemExit and KeyboardInterrupt of any task end the loop, so one that a handler
    started would take every tenant down. From now on they are that task's own error."""

    def factory(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(_Contained(coro), loop=loop, **options)

    loop.set_task_factory(factory)  # type: ignore[arg-type]


class _Contained(Coroutine[Any, Any, _T]):
    """Not an `async def`: one that is cancelled before it starts would leave `coro` never awaited."""

    def __init__(self, coro: Coroutine[Any, Any, _T]) -> None:
        self._coro = coro
        self.__qualname__ = getattr(coro, "__qualname__", type(coro).__name__)

    def send(self, value: Any, /) -> Any:
        try:
            return self._coro.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise TaskExit(f"a task ended with {error!r}") from error

    def throw(self, *args: Any) -> Any:
        try:
            return self._coro.throw(*args)
        except (SystemExit, KeyboardInterrupt) as error:
            raise TaskExit(f"a task ended with {error!r}") from error

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, _T]:
        return self._coro.__await__()


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
