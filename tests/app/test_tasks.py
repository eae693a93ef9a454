"""What cancellation must not lose."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from juneau.app.tasks import TaskExit, attempt, contain_exits, finish, in_worker


async def test_finish_returns_and_tells():
    told: list[int] = []
    assert await finish(asyncio.sleep(0, 7), told.append) == 7
    assert told == [7]


async def test_a_cancelled_step_is_finished_first():
    gate, told = asyncio.Event(), []

    async def step() -> str:
        await gate.wait()
        return "done"

    task = asyncio.create_task(finish(step(), told.append))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done(), "the step is still waited for"
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["done"]


async def test_a_cancelled_worker_is_waited_for():
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(10)
        ended.set()

    task = asyncio.create_task(in_worker(work))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    asyncio.get_running_loop().call_soon(gate.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_finish_raises_what_the_step_raised():
    async def step() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await finish(step())


async def test_attempt_logs_and_goes_on(caplog: pytest.LogCaptureFixture):
    async def step() -> None:
        raise ValueError("no")

    await attempt("stop it", step())
    assert [r.getMessage() for r in caplog.records] == ["stop it"]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_that_exits_ends_itself_only(loop_factory, error):
    async def leave(when: float) -> None:
        try:
            await asyncio.sleep(when)
        finally:
            raise error

    async def main() -> str:
        contain_exits(asyncio.get_running_loop())
        late = asyncio.create_task(leave(60))
        for task in (asyncio.create_task(leave(0)), late):
            await asyncio.sleep(0.01)
            with pytest.raises(TaskExit, match=type(error).__name__):
                await task
            late.cancel()
        unstarted = asyncio.create_task(leave(0))
        unstarted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unstarted
        return await asyncio.create_task(asyncio.sleep(0, "fine"))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(main()) == "fine"
