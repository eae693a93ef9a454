"""When to call whom: a heap that is told of earlier deadlines only.

A deadline that moves later, as a retransmission timeout does with every ACK, costs nothing: the entry
fires early, finds nothing due, and is replaced by one at the deadline of that moment.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from juneau.netstack.types import Micros

NEVER: Final[Micros] = (1 << 62) - 1
_TIDY_AT: Final = 256


class Timed(Protocol):
    heap_at: Micros
    """The entry that counts; others of the same object are stale."""

    def deadline(self) -> Micros: ...
    def handle_timeout(self, now: Micros) -> None: ...


class TimerHeap:
    __slots__ = ("_heap", "_serial", "_tidy_at")

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Timed]] = []
        self._serial = 0
        self._tidy_at = _TIDY_AT

    def arm(self, timed: Timed, at: Micros) -> None:
        """`at` is earlier than `timed.heap_at`."""
        timed.heap_at = at
        self._serial += 1
        heappush(self._heap, (at, self._serial, timed))
        if len(self._heap) >= self._tidy_at:
            self._tidy()

    def _tidy(self) -> None:
        """Drop what will not fire, so that the heap is bounded by what lives."""
        heap, old = self._heap, self._heap[:]
        heap.clear()
        for entry in old:
            at, _, timed = entry
            if timed.heap_at == at:
                if timed.deadline() != NEVER:
                    heap.append(entry)
                else:
                    timed.heap_at = NEVER  # or its next deadline, being later, would not be told
        heapify(heap)
        self._tidy_at = max(_TIDY_AT, 2 * len(heap))

    def bound(self) -> Micros:
        """No deadline is earlier: what `next` would say, or less."""
        return self._heap[0][0] if self._heap else NEVER

    def next(self) -> Micros:
        """Never later than the earliest deadline; NEVER if there is none."""
        heap = self._heap
        while heap:
            at, _, timed = heap[0]
            if timed.heap_at == at:
                if timed.deadline() != NEVER:
                    return at
                timed.heap_at = NEVER
            heappop(heap)
        return NEVER

    def expire(self, now: Micros) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, timed = heappop(heap)
            if timed.heap_at != at:
                continue
            timed.heap_at = NEVER
            due = timed.deadline()
            if due <= now:
                timed.handle_timeout(now)
            elif due != NEVER:
                self.arm(timed, due)

    def __len__(self) -> int:
        return len(self._heap)
