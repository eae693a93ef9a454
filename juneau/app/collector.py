"""When Python looks for cycles, and gives memory back: seldom, and never among what the start made.

A collection stops every tenant, the oldest generation's for 100 ms with ten thousand connections. Nothing
here leans on it: what a connection leaves behind goes by reference counts, unless its handler tied a knot.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_YOUNG: Final = 5_000
"""New containers before the young are looked through, 0.2 ms. Python's 700 come with a dozen connections."""
_MIDDLE: Final = 20
_OLD: Final = 50

MANY: Final = 1_000
"""Connections that have gone before it is worth looking what they left: up to 6 MiB."""
BUSY: Final = 100
"""Connections gone since the last look: let them go first."""
FALLEN: Final = 4 / 5
"""Of the memory blocks in use before, at most so many are left where there is something to give back."""
FIRST_LOOK_S: Final = 1.0
LAST_LOOK_S: Final = 32.0
"""Each look after which something was given back is followed by one twice as late, for the stragglers."""
_ANSWERED_S: Final = 0.1


@contextmanager
def seldom() -> Iterator[None]:
    """Enter it when the start is over."""
    before = gc.get_threshold()
    give_back()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def give_back() -> None:
    """Return to the kernel what is free.

    Python frees memory by arenas of 1 MiB, and most are held by a few objects on free lists that only a
    full collection empties. glibc keeps what was freed below something else; 50 MiB once BPF is loaded.
    """
    gc.collect()
    if _malloc_trim is not None:
        _malloc_trim(0)


def after_answer(loop: asyncio.AbstractEventLoop) -> None:
    """aiohttp leaves an answer, which may be megabytes, in a cycle: the young are looked through then."""
    loop.call_later(_ANSWERED_S, gc.collect, 0)


class Slack:
    """What many connections leave behind, given back once they have gone; no timer runs until then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._gone = 0  # since the last look
        self._before = 0  # memory blocks in use
        self._wait_s = FIRST_LOOK_S
        self._timer: asyncio.TimerHandle | None = None

    def gone(self) -> None:
        """A connection has."""
        self._gone += 1
        if self._gone >= MANY and self._timer is None:
            self._before, self._wait_s = sys.getallocatedblocks(), FIRST_LOOK_S
            self._look_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._wait_s, self._look)

    def _look(self) -> None:
        gone, self._gone = self._gone, 0
        self._timer = None
        if gone >= BUSY:
            self._wait_s = FIRST_LOOK_S
        elif sys.getallocatedblocks() > FALLEN * self._before:
            return
        else:
            if gone or self._wait_s == FIRST_LOOK_S:
                give_back()
            self._wait_s *= 2
        if self._wait_s <= LAST_LOOK_S:
            self._look_later()


_malloc_trim: Final[Any] = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
