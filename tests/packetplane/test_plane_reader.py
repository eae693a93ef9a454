"""When the loop stays awake for frames, and when it may sleep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from juneau.packetplane import reader as module
from juneau.packetplane.reader import TapReader
from juneau.packetplane.types import PlaneSettings

BUSY_POLL_US = 50


class Room:
    """A reader on a loop and a clock that the test moves; every batch takes one frame."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy_poll_us: int) -> None:
        self.now = 1_000_000
        self.last_bytes = 80
        self.soon: list[Callable[[], None]] = []
        self.fire: Callable[[], None] = lambda: None
        monkeypatch.setattr(module, "monotonic_us", lambda: self.now)
        settings = PlaneSettings(busy_poll_us=busy_poll_us)
        self.reader = TapReader(self, self, settings, Counter(), lambda _: None)  # type: ignore[arg-type]
        self.reader.start(self)  # type: ignore[arg-type]

    # a tap, a dispatcher and a loop
    fds = (7,)

    def reads(self) -> list[tuple[int, Any]]:
        return [(7, None)]

    def read_batch(self, read: object, budget: int) -> int:
        return 1

    def add_reader(self, fd: int, callback: Callable[..., None], *args: Any) -> None:
        self.fire = lambda: callback(*args)

    def remove_reader(self, fd: int) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def frame(self, after_us: int) -> None:
        self.now += after_us
        self.fire()

    def turns_until_asleep(self, us_each: int) -> int:
        turns = 0
        while self.soon:
            self.now += us_each
            self.soon.pop()()
            assert len(self.soon) <= 1
            turns += 1
            assert turns < 1_000
        return turns


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch, BUSY_POLL_US)


def test_it_sleeps_between_frames_that_are_far_apart(room: Room) -> None:
    for _ in range(5):
        room.frame(after_us=1_000)
        assert not room.soon


def test_it_waits_awake_for_the_next_of_a_close_sequence(room: Room) -> None:
    room.frame(after_us=1_000)
    room.frame(after_us=60)
    assert room.turns_until_asleep(us_each=2) == BUSY_POLL_US // 2


def test_each_frame_starts_the_wait_anew_and_there_is_one_wait(room: Room) -> None:
    room.frame(after_us=1_000)
    for _ in range(20):
        room.frame(after_us=40)
        assert len(room.soon) == 1
    assert room.turns_until_asleep(us_each=10) == 5


def test_superframes_gather_while_it_sleeps(room: Room) -> None:
    room.last_bytes = 65_000
    for _ in range(5):
        room.frame(after_us=10)
        assert not room.soon


def test_a_stopped_reader_does_not_keep_the_loop_awake(room: Room) -> None:
    room.frame(after_us=1_000)
    room.frame(after_us=10)
    room.reader.stop()
    assert room.turns_until_asleep(us_each=1) == 1


def test_zero_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(monkeypatch, busy_poll_us=0)
    for _ in range(5):
        room.frame(after_us=10)
        assert not room.soon
