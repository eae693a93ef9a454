"""Threads that take turns with the loop: one runs at a time, and hands over only where it would block.

So blocking clients (smtplib, http.client, `time.sleep`) meet the same network in the same order each
time. A thread that blocks on something else, such as a kernel socket, would stop the network; it is
given `PATIENCE` real seconds and then reported.
"""

from __future__ import annotations

import _thread
import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from juneau.netstack.types import SECOND, Micros

if TYPE_CHECKING:
    from juneau.testing.clock import Timer
    from juneau.testing.network.network import Network

PATIENCE: Final = 30.0
"""Real seconds."""


class Killed(BaseException):
    """Raised in a thread that the end of the network found waiting."""


class _Fiber:
    """One thread's turn-taking. `ready` None: it may go on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: Callable[[], bool] | None = None
        self.deadline: Micros | None = None
        self.waits_for = ""
        self.done = False
        self.killed = False
        self._go = _thread.allocate_lock()
        self._back = _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()

    def turn(self) -> None:
        """Let it run until it blocks or ends. Called by the loop's thread."""
        self._go.release()
        if not self._back.acquire(timeout=PATIENCE):
            raise RuntimeError(
                f"thread {self.name} blocks on something outside the network for {PATIENCE:.0f} s"
                " (a kernel socket, a process, a lock that the loop's thread holds?)"
            )

    def can_go_on(self, now: Micros) -> bool:
        due = self.deadline is not None and self.deadline <= now
        return self.ready is None or due or self.ready()

    def hand_over(self) -> None:
        self._back.release()

    def wait_for_turn(self) -> None:
        self._go.acquire()
        if self.killed:
            raise Killed


_here = threading.local()


class Threads:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._fibers: list[_Fiber] = []
        self._of_thread: WeakKeyDictionary[threading.Thread, _Fiber] = WeakKeyDictionary()
        self.starting = False
        """While `Thread.start` waits for the new thread."""

    def takes_turns(self) -> bool:
        """Whether the calling thread is one of this network's."""
        fiber = getattr(_here, "fiber", None)
        return fiber is not None and fiber in self._fibers

    # Starting

    def start(self, thread: threading.Thread) -> None:
        """Start `thread` so that it runs when the loop lets it."""
        fiber = _Fiber(thread.name)
        context = contextvars.copy_context()
        body = thread.run
        thread.run = lambda: self._run(fiber, context, body)  # type: ignore[method-assign]
        self._fibers.append(fiber)
        self._of_thread[thread] = fiber
        self.starting = True
        try:
            REAL_START(thread)
        finally:
            self.starting = False

    def spawn(self, call: Callable[..., object], *args: Any) -> None:
        """Run `call` on a thread of its own."""
        thread = threading.Thread(target=call, args=args, daemon=True, name=f"executor of {call.__name__}")
        self.start(thread)

    def _run(self, fiber: _Fiber, context: contextvars.Context, body: Callable[[], object]) -> None:
        _here.fiber = fiber
        try:
            fiber.wait_for_turn()
            context.run(body)
        except Killed:
            pass
        finally:
            fiber.done = True
            fiber.hand_over()

    # Turns

    def run_ready(self) -> bool:
        """Give each thread that can go on its turn; whether any did."""
        ready = [fiber for fiber in self._fibers if fiber.can_go_on(self._network.clock.now)]
        for fiber in ready:
            fiber.turn()
        if ready:
            self._fibers = [fiber for fiber in self._fibers if not fiber.done]
        return bool(ready)

    def parked(self) -> list[str]:
        return [f"thread {fiber.name} waits for {fiber.waits_for}" for fiber in self._fibers if fiber.ready]

    # Blocking

    def block(self, ready: Callable[[], bool], timeout: float | None, what: str = "") -> bool:
        """Wait until `ready()`; False after `timeout` virtual seconds.

        On a thread: others go on meanwhile. With the loop at rest: runs it. Inside the loop: stalls it;
        packets, the stacks' timers and threads go on, and RuntimeError if that cannot help.
        """
        if ready():
            return True
        fiber: _Fiber | None = getattr(_here, "fiber", None)
        loop = self._network.loop
        clock = self._network.clock
        deadline = None if timeout is None else clock.now + max(1, round(timeout * SECOND))
        alarm: Timer | None = None if deadline is None else clock.call_at(deadline, lambda: None)
        try:
            if fiber is None and (loop.is_running() or loop.is_closed()):
                self._stall(ready, deadline)
            elif fiber is None:
                self._network.drive(lambda: ready() or (deadline is not None and clock.now >= deadline))
            else:
                fiber.ready, fiber.deadline, fiber.waits_for = ready, deadline, what
                fiber.hand_over()
                fiber.wait_for_turn()
                fiber.ready = fiber.deadline = None
        finally:
            if alarm is not None:
                alarm.cancel()
        if deadline is None and fiber is None and not ready():
            raise RuntimeError(
                f"blocking wait for {what or 'the network'} in the loop's own thread: nothing can arrive any"
                " more before the loop turns (await it, or use asyncio.to_thread)"
            )
        return ready()

    def _stall(self, ready: Callable[[], bool], deadline: Micros | None) -> None:
        """Let all but the loop go on."""
        with self._network.stall() as step:
            while not ready():
                if self.run_ready():
                    continue
                if not step(deadline):
                    break

    def join(self, thread: threading.Thread, timeout: float | None) -> bool:
        """Wait for one of ours; False: it is not ours."""
        fiber = self._of_thread.get(thread)
        if fiber is None:
            return False
        if self.block(lambda: fiber.done, timeout, f"thread {thread.name}"):
            self._of_thread.pop(thread, None)
            REAL_JOIN(thread, PATIENCE)
        return True

    def is_done(self, thread: threading.Thread) -> bool:
        fiber = self._of_thread.get(thread)
        return fiber is not None and fiber.done

    def kill(self) -> None:
        """End every thread that waits, at the end of the network."""
        for fiber in self._fibers:
            fiber.killed = True
            while not fiber.done:
                fiber.turn()
        self._fibers.clear()


REAL_START: Final = threading.Thread.start
REAL_JOIN: Final = threading.Thread.join
