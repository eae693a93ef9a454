"""Runs a workload twice: once to count events and calls, once to count allocations; the same each time."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from guard_allocations import Allocated, Allocations
from guard_rig import LOOPS, Clock, Rig
from guard_work import Exchanges, Work

import juneau

OURS: Final = str(Path(juneau.__file__).parent)


class Counts(NamedTuple):
    """Per superframe or packet."""

    reads: float
    """Of the queue."""
    empty: float
    """Those that found none."""
    sends: float
    callbacks: float
    """`call_soon`, but for the reader's own."""
    timers: float
    """`call_later` and `call_at`."""
    calls: float
    """Of Python functions in juneau."""
    c_calls: float
    """Of C functions, from those."""
    blocks: float
    """Of memory, asked for."""
    copies: float
    """Bytes of blocks of 16 KiB and more, as a multiple of the payload."""
    kept: float
    """Blocks that a unit leaves behind."""


def measure(make: Callable[[], Work], loop: str, allocations: Allocations) -> Counts:
    plain, counting = LOOPS[loop]
    events = Events()
    run(counting, make, events)
    blocks = Blocks(allocations, events.turns)
    with allocations.hooked():
        run(plain, make, blocks)
    work = make()
    per = work.units * work.share
    found = [events.found[name] / per for name in _EVENTS]
    found += [blocks.blocks / per, blocks.large / (per * work.payload), max(0, blocks.kept) / work.units]
    return Counts(*(round(value, 2) for value in found))


class Pass:
    """What is done around the exchanges of one run."""

    async def exchange(self, rig: Rig, counted: bool) -> None:
        raise NotImplementedError

    async def before(self, rig: Rig) -> None: ...
    async def after(self, rig: Rig) -> None: ...


def run(loop: type[Any], make: Callable[[], Work], what: Pass) -> None:
    clock = Clock()
    gc.collect()
    gc.disable()  # when it runs depends on what ran before
    try:
        with clock.patched(), asyncio.Runner(loop_factory=lambda: loop(clock)) as runner:
            runner.run(_run(make(), what))
    finally:
        gc.enable()


async def _run(work: Work, what: Pass) -> None:
    async with Rig(work.service()) as rig:
        await _play(rig, work.start(), what, counted=False)
        for _ in range(work.warm_up):
            await _play(rig, work.unit(), what, counted=False)
        await what.before(rig)
        for _ in range(work.units):
            await _play(rig, work.unit(), what, counted=True)
        await what.after(rig)
        drops = {name: n for name, n in rig.counters.items() if name not in ("rx.frames", "rx.batches")}
        assert not drops, drops


async def _play(rig: Rig, exchanges: Exchanges, what: Pass, *, counted: bool) -> None:
    try:
        frames = next(exchanges)
        while True:
            rig.begin(frames)
            await what.exchange(rig, counted)
            frames = exchanges.send(rig.socket.take())
    except StopIteration:
        pass


_EVENTS: Final = ("reads", "empty", "sends", "callbacks", "timers", "calls", "c_calls")


class Events(Pass):
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.turns: list[int] = []
        """Of each exchange, for the run that cannot see whether anything is left to do."""
        self._ours: dict[object, bool] = {}

    async def exchange(self, rig: Rig, counted: bool) -> None:
        loop = rig.loop
        soon, timers = loop.soon, loop.timers
        if counted:
            sys.setprofile(self._on_event)
        try:
            await rig.run()
        finally:
            sys.setprofile(None)
        self.turns.append(rig.turns)
        if counted:
            self.found["reads"] += rig.queue.taken + rig.queue.empty
            self.found["empty"] += rig.queue.empty
            self.found["sends"] += rig.socket.sends
            self.found["callbacks"] += loop.soon - soon - rig.turns - rig.fires
            self.found["timers"] += loop.timers - timers

    def _on_event(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and self._is_ours(frame):
            self.found["calls"] += 1
        elif event == "c_call" and self._is_ours(frame):
            self.found["c_calls"] += 1

    def _is_ours(self, frame: FrameType) -> bool:
        code = frame.f_code
        if code not in self._ours:
            self._ours[code] = code.co_filename.startswith(OURS)
        return self._ours[code]


class Blocks(Pass):
    def __init__(self, allocations: Allocations, turns: list[int]) -> None:
        self._allocations = allocations
        self._turns = iter(turns)
        self._of_none = self._of_turn = self._of_fire = 0
        self._kept_before = 0
        self.blocks = self.large = self.kept = 0

    async def exchange(self, rig: Rig, counted: bool) -> None:
        turns = next(self._turns)
        if not counted:
            await rig.run_again(turns)
            return
        found = await self._count(rig, turns)
        own = self._of_none + self._of_turn * rig.turns + self._of_fire * rig.fires
        self.blocks += found.blocks - own
        self.large += found.large_bytes

    async def _count(self, rig: Rig, turns: int) -> Allocated:
        self._allocations.start()
        await rig.run_again(turns)
        return self._allocations.stop()

    async def before(self, rig: Rig) -> None:
        """What the rig itself asks for: for nothing, for a turn of the loop, for a reader told."""
        self._of_none = await self._own(rig, 0)
        self._of_turn = await self._own(rig, 1) - self._of_none
        reader = rig.loop.readers[rig.queue.fds[0]]
        rig.loop.readers[rig.queue.fds[0]] = rig.queue.frames.clear, ()
        self._of_fire = await self._own(rig, 1, b"") - self._of_turn - self._of_none
        rig.loop.readers[rig.queue.fds[0]] = reader
        self._kept_before = sys.getallocatedblocks()

    async def _own(self, rig: Rig, turns: int, *frames: bytes) -> int:
        found = []
        for _ in range(5):
            rig.queue.frames.extend(frames)
            found.append((await self._count(rig, turns)).blocks)
        return min(found)

    async def after(self, rig: Rig) -> None:
        self.kept = sys.getallocatedblocks() - self._kept_before
