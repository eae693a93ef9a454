"""An event loop whose time is virtual and whose order is the seed's.

Nothing ever waits for the real clock: with nothing to run, time jumps to the next timer or packet.
Callbacks of one host run in the order that asyncio documents; between hosts, which are different
machines, the seed decides. Where packets go is the business of `calls` and `host`.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import threading
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from juneau.netstack.types import SECOND, Micros
from juneau.testing.clock import Timer, VirtualClock
from juneau.testing.network.errors import Deadlock, Livelock, OutOfTime
from juneau.testing.network.tasks import SimFuture, SimTask, describe

if TYPE_CHECKING:
    from juneau.testing.network.host import Boot

CURRENT_BOOT: Final[contextvars.ContextVar[Boot | None]] = contextvars.ContextVar("juneau_boot", default=None)
"""Whose code is running: a host, from one start to its crash. Tasks and callbacks inherit it as they
inherit every context variable.
"""

TURNS_PER_INSTANT: Final = 100_000
"""Turns of the loop at one virtual instant before a program counts as spinning."""
GC_TURNS: Final = 20_000
"""The garbage collector runs every so many turns, so that finalizers run at the same point each time."""


class _Timer(asyncio.TimerHandle):
    __slots__ = ("entry",)

    entry: Timer


class VirtualLoop(asyncio.BaseEventLoop):
    """BaseEventLoop with a virtual clock in the selector's place."""

    _ready: deque[asyncio.Handle]
    _current_handle: asyncio.Handle | None
    _check_closed: Callable[[], None]

    def __init__(self, clock: VirtualClock, *, seed: int = 0) -> None:
        super().__init__()
        self.clock = clock
        self._clock_resolution = 1e-6
        self._order = Random(f"{seed}/order")
        self._serial = 0
        self._tasks: dict[asyncio.Task[Any], Boot | None] = {}
        self._task_number = 0
        self._turns = 0
        self._instant: Micros = -1
        self._instant_turns = 0
        self.deadline: Micros | None = None
        """Virtual time past which the loop raises OutOfTime; None: no end."""
        self.before_turn: Callable[[], bool] | None = None
        """Lets blocking threads run; True: they did, so look again before time moves."""
        self.until: Callable[[], bool] | None = None
        """Asked every turn; True stops the loop."""
        self.owner_thread: Callable[[], bool] = lambda: False
        """Whether the calling thread takes turns with this loop."""
        self.parked_threads: Callable[[], list[str]] = list

    # Time

    def time(self) -> float:
        """Virtual seconds since the network was made."""
        return self.clock.now / SECOND

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if when is None:
            raise TypeError("when cannot be None")
        self._check_closed()
        if self.get_debug():
            self._check_thread()
            self._check_callback(callback, "call_at")  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        if timer._source_traceback:  # type: ignore[attr-defined]
            del timer._source_traceback[-1]  # type: ignore[attr-defined]
        timer.entry = self.clock.call_at(self._micros(when), lambda: self._fire(timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _micros(self, when: float) -> Micros:
        """Round to the clock's microsecond, but what lies ahead never becomes now: a loop that sleeps
        until a deadline must get there."""
        if math.isinf(when):
            return 1 << 62
        micros = round(when * SECOND)
        if when > self.time():
            return max(micros, self.clock.now + 1)
        return micros

    def _fire(self, timer: _Timer) -> None:
        timer._scheduled = False  # type: ignore[attr-defined]
        boot = _boot_of(timer)
        if boot is None or boot.alive:
            self._ready.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, _Timer)
        handle.entry.cancel()

    # One turn

    def _run_once(self) -> None:
        self._turns += 1
        if self._turns % GC_TURNS == 0:
            gc.collect()
        self.clock.run_until(self.clock.now)
        threads_ran = self.before_turn is not None and self.before_turn()
        self._poll()
        if self.until is not None and self.until():
            self.stop()
        if not self._ready and not threads_ran and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        self._watch_for_spin()
        batch = self._interleave()
        for handle in batch:
            if not handle.cancelled():
                self._current_handle = handle
                handle._run()
        self._current_handle = None

    def _poll(self) -> None:
        """Make ready what waits for something other than time."""

    def _jump(self) -> None:
        """Move to the next timer or packet and do what is due there."""
        due = self.clock.next_deadline()
        if due is None or due >= 1 << 62:
            raise Deadlock(self.parked(), self.time())
        if self.deadline is not None and due > self.deadline:
            self.clock.now = self.deadline
            raise OutOfTime(self.parked(), self.time())
        self.clock.run_until(due)

    def _interleave(self) -> list[asyncio.Handle]:
        """This turn's callbacks: each host's in its own order, the hosts' merged at random."""
        batch = list(self._ready)
        self._ready.clear()
        if len(batch) < 2:
            return batch
        boots = [_boot_of(handle) for handle in batch]
        if boots.count(boots[0]) == len(boots):
            return batch
        queues: dict[Boot | None, deque[asyncio.Handle]] = {}
        for boot, handle in zip(boots, batch, strict=True):
            queues.setdefault(boot, deque()).append(handle)
        self._order.shuffle(boots)
        return [queues[boot].popleft() for boot in boots]

    def _watch_for_spin(self) -> None:
        if self.clock.now != self._instant:
            self._instant, self._instant_turns = self.clock.now, 0
        self._instant_turns += 1
        if self._instant_turns > TURNS_PER_INSTANT:
            self._instant_turns = 0
            raise Livelock(self.parked(), self.time(), TURNS_PER_INSTANT)

    def tasks(self, boot: Boot | None = None) -> list[asyncio.Task[Any]]:
        """Those that are not done, of one host or all, oldest first."""
        return [t for t, whose in self._tasks.items() if not t.done() and boot in (None, whose)]

    def parked(self) -> list[str]:
        """A line for each task that is not done, oldest first."""
        lines = [
            describe(task, "no host" if boot is None else boot.host.name)
            for task, boot in self._tasks.items()
            if not task.done()
        ]
        return lines + self.parked_threads()

    # Tasks

    def create_future(self) -> asyncio.Future[Any]:
        future = SimFuture(loop=self)
        self._serial += 1
        future.serial = self._serial
        return future

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None, **kwargs: Any
    ) -> asyncio.Task[Any]:
        self._check_closed()
        if name is None:  # asyncio's own counter goes on from loop to loop
            self._task_number += 1
            name = f"Task-{self._task_number}"
        factory = self.get_task_factory()
        task: Any
        if factory is not None:
            task = factory(self, coro, **({"context": context} if context is not None else {}), **kwargs)
            task.set_name(name)
        else:
            self._serial += 1
            task = SimTask(coro, loop=self, name=str(name), context=context, serial=self._serial, **kwargs)
            if task._source_traceback:
                del task._source_traceback[-1]
        self.adopt(task, context)
        return task  # type: ignore[no-any-return]

    def adopt(self, task: asyncio.Task[Any], context: contextvars.Context | None) -> None:
        """Note whose task this is, and keep it: a task that only its own future knows would otherwise
        vanish when the garbage collector comes by, and the host with it.
        """
        self._tasks[task] = CURRENT_BOOT.get() if context is None else context.get(CURRENT_BOOT)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    # What BaseEventLoop expects of a loop

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        at_home = self._thread_id in (None, threading.get_ident())  # type: ignore[attr-defined]
        if not at_home and not self.owner_thread():
            raise RuntimeError(
                "call_soon_threadsafe from a thread outside the network: its timing is nobody's seed"
                " (start threads while the network runs, and they take turns with the loop)"
            )
        self._check_closed()
        handle: asyncio.Handle = self._call_soon(callback, args, context)  # type: ignore[attr-defined]
        if handle._source_traceback:  # type: ignore[attr-defined]
            del handle._source_traceback[-1]  # type: ignore[attr-defined]
        return handle

    def _check_thread(self) -> None:
        """Debug mode's check; threads that take turns with the loop are as good as its own."""
        if not self.owner_thread():
            super()._check_thread()  # type: ignore[misc]

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def _process_events(self, event_list: object) -> None:
        """No selector, no events."""

    def run_forever(self) -> None:
        """As asyncio's, with the garbage collector at fixed points only."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            if collecting:
                gc.enable()


def _boot_of(handle: asyncio.Handle) -> Boot | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return context.get(CURRENT_BOOT)
