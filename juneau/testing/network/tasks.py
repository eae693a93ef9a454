"""Tasks and futures with a hash that is the same in every run, and what a parked task waits for.

asyncio keeps tasks in sets (`asyncio.wait`, `TaskGroup`, `all_tasks`). By default their order there is
that of memory addresses, which no seed controls.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

SKIPPED = (os.path.dirname(asyncio.__file__) + os.sep, os.path.dirname(__file__) + os.sep)
"""Frames below these folders explain nothing to who reads "waits at"."""


class SimFuture(asyncio.Future[Any]):
    """`serial` counts the loop's futures and tasks in order of creation."""

    serial: int = 0

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class SimTask(asyncio.Task[Any]):
    serial: int = 0

    def __init__(self, coro: Any, *, serial: int, **kwargs: Any) -> None:
        self.serial = serial  # before asyncio puts the task into its set of all tasks
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


def describe(task: asyncio.Task[Any], owner: str) -> str:
    """One line: whose task it is, what it runs, where it waits and for what."""
    frames = list(_awaiting(task.get_coro()))
    where = next((f for f in reversed(frames) if not f[0].co_filename.startswith(SKIPPED)), None)
    name = getattr(task.get_coro(), "__qualname__", repr(task.get_coro()))
    line = f"{owner}: {task.get_name()} {name}()"
    if where is not None:
        code, number = where
        line += f" waits at {os.path.basename(code.co_filename)}:{number} in {code.co_name}"
        if frames[-1] is not where:
            line += f", within {frames[-1][0].co_qualname}"
    return line


def _awaiting(coro: Any) -> Iterator[tuple[CodeType, int]]:
    """The chain of suspended frames, outermost first."""
    while coro is not None:
        for kind in ("cr", "gi", "ag"):
            frame: FrameType | None = getattr(coro, f"{kind}_frame", None)
            if frame is not None:
                yield frame.f_code, frame.f_lineno
                coro = getattr(coro, f"{kind}_await", None) or getattr(coro, f"{kind}_yieldfrom", None)
                break
        else:
            return


TaskFactory = Callable[..., asyncio.Task[Any]]
