"""Virtual time: nothing happens until a test says so, and then in one reproducible order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from juneau.netstack.types import Micros


class Timer:
    """A pending call. Compares by (when, order of scheduling)."""

    __slots__ = ("_order", "callback", "when")

    def __init__(self, when: Micros, order: int, callback: Callable[[], object]) -> None:
        self.when, self._order = when, order
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self._order) < (other.when, other._order)

    def cancel(self) -> None:
        self.callback = None

    @property
    def cancelled(self) -> bool:
        return self.callback is None


class VirtualClock:
    """Time in microseconds that moves only through `advance`, `run_until` and `step`.

    Calls due at the same instant run in the order they were scheduled.
    """

    def __init__(self, now: Micros = 0) -> None:
        self.now = now
        self._timers: list[Timer] = []
        self._order = count()

    def call_at(self, when: Micros, callback: Callable[[], object]) -> Timer:
        """Run `callback` at `when`; a time in the past means now, after what is due already."""
        timer = Timer(max(when, self.now), next(self._order), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, delay: Micros, callback: Callable[[], object]) -> Timer:
        return self.call_at(self.now + delay, callback)

    def next_deadline(self) -> Micros | None:
        """When the next call is due; None: nothing is pending."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].when if self._timers else None

    def step(self, until: Micros | None = None) -> bool:
        """Move to the next deadline and run that one call; False if none is due by `until`."""
        deadline = self.next_deadline()
        if deadline is None or (until is not None and deadline > until):
            return False
        timer = heapq.heappop(self._timers)
        callback, timer.callback = timer.callback, None
        self.now = max(self.now, timer.when)
        assert callback is not None  # next_deadline has dropped cancelled ones
        callback()
        return True

    def run_until(self, when: Micros) -> None:
        """Run everything due up to and including `when`, then stand at `when`."""
        while self.step(when):
            pass
        self.now = max(self.now, when)

    def advance(self, duration: Micros) -> None:
        self.run_until(self.now + duration)
