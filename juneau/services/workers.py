"""Bounded concurrency for asynchronous datagram handlers: at most so many run, so many wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from juneau.services.limits import STOP_GRACE_S


class Job(NamedTuple):
    work: Awaitable[object]
    failed: Callable[[BaseException], None]


class WorkerQueue:
    """Workers start when there is work and end with it; an idle queue costs nothing."""

    def __init__(self, *, workers: int, depth: int, timeout_s: float) -> None:
        self._limit, self._depth, self._timeout_s = workers, depth, timeout_s
        self._waiting: deque[Job] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    def submit(self, job: Job) -> bool:
        """Run `job` soon; False, and it is closed unrun, if the queue is full. Never blocks."""
        if len(self._workers) < self._limit:
            worker = asyncio.get_running_loop().create_task(self._run(job))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
            return True
        if len(self._waiting) < self._depth:
            self._waiting.append(job)
            return True
        _discard(job)
        return False

    async def close(self) -> None:
        while self._waiting:
            _discard(self._waiting.popleft())
        await cancel_and_wait(self._workers)

    async def _run(self, job: Job) -> None:
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await job.work
            except asyncio.CancelledError as error:
                if _being_cancelled():
                    raise
                job.failed(error)  # the handler's own; the worker goes on
            except BaseException as error:  # noqa: BLE001 - isolation: any handler's any error
                job.failed(error)
            if not self._waiting:
                return
            job = self._waiting.popleft()


async def cancel_and_wait(tasks: set[asyncio.Task[None]]) -> int:
    """Cancel all but the caller; return how many would not end in time."""
    others = {task for task in tasks if task is not asyncio.current_task()}
    for task in others:
        task.cancel()
    if not others:
        return 0
    _, stubborn = await asyncio.wait(others, timeout=STOP_GRACE_S)
    return len(stubborn)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _discard(job: Job) -> None:
    """A coroutine dropped without this warns that it was never awaited."""
    close = getattr(job.work, "close", None) or getattr(job.work, "cancel", None)
    if close is not None:
        close()
