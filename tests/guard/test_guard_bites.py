"""Each bound can fail: what it is there to find is put into the product, and found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from guard_allocations import Allocations
from guard_counts import measure
from guard_work import WORK
from test_guard import exceeded

from juneau.netstack.aio import AsyncStack
from juneau.netstack.types import TxPacket
from juneau.packetplane.dispatcher import Dispatcher
from juneau.packetplane.sender import Sender
from juneau.services.framework import foreign_service_id

Spoil: TypeAlias = Callable[[pytest.MonkeyPatch], None]

_left: list[object] = []


def in_settle(action: Callable[[AsyncStack], object]) -> Spoil:
    """`action` once more per batch."""
    settle = AsyncStack.settle

    def spoilt(self: AsyncStack) -> None:
        settle(self)
        action(self)

    return lambda patch: patch.setattr(AsyncStack, "settle", spoilt)


def reads_twice(patch: pytest.MonkeyPatch) -> None:
    read_batch = Dispatcher.read_batch

    def spoilt(self: Dispatcher, read: Any, budget: int) -> int:
        return read_batch(self, read, budget) + read_batch(self, read, budget)

    patch.setattr(Dispatcher, "read_batch", spoilt)


def sends_twice(patch: pytest.MonkeyPatch) -> None:
    send = Sender.send

    def spoilt(self: Sender, packets: list[TxPacket]) -> None:
        send(self, packets)
        send(self, packets)

    patch.setattr(Sender, "send", spoilt)


def copies_what_it_reads(patch: pytest.MonkeyPatch) -> None:
    read_batch = Dispatcher.read_batch

    def spoilt(self: Dispatcher, read: Any, budget: int) -> int:
        return read_batch(
            self, lambda: None if (frame := read()) is None else b"".join((b"", frame, b"")), budget
        )

    patch.setattr(Dispatcher, "read_batch", spoilt)


def copies_what_it_sends(patch: pytest.MonkeyPatch) -> None:
    send = Sender.send

    def spoilt(self: Sender, packets: list[TxPacket]) -> None:
        send(self, [packet._replace(payload=(b"".join((*packet.payload, b"")),)) for packet in packets])

    patch.setattr(Sender, "send", spoilt)


def do_nothing() -> None: ...


def calls_us(_: AsyncStack) -> None:
    for _ in range(20):
        foreign_service_id("x")  # calls two of C's


SPOILT = {
    "empty reads": ("1-byte round trip", "empty", reads_twice),
    "reads": ("1-byte round trip", "reads", reads_twice),
    "an ACK sent twice": ("superframe up, streams", "sends", sends_twice),
    "a datagram sent twice": ("datagram echo", "sends", sends_twice),
    "a callback": ("superframe up, Protocol", "callbacks", in_settle(lambda s: s.loop.call_soon(do_nothing))),
    "a timer": (
        "1-byte round trip",
        "timers",
        in_settle(lambda s: s.loop.call_later(9, do_nothing).cancel()),
    ),
    "calls": ("DNS hot answer", "calls", in_settle(calls_us)),
    "C calls": (
        "DNS hot answer",
        "c_calls",
        in_settle(calls_us),
    ),
    "objects": ("datagram echo", "blocks", in_settle(lambda _: [object() for _ in range(50)])),
    "a leak": ("datagram echo", "kept", in_settle(lambda _: _left.append(object()))),
    "a copy of what came": ("superframe up, Protocol", "copies", copies_what_it_reads),
    "a copy for streams": ("superframe up, streams", "copies", copies_what_it_reads),
    "a copy of what goes": ("superframe down, streams", "copies", copies_what_it_sends),
}


@pytest.mark.parametrize("what", SPOILT)
def test_is_found(what: str, allocations: Allocations, monkeypatch: pytest.MonkeyPatch) -> None:
    name, field, spoil = SPOILT[what]
    spoil(monkeypatch)
    found = exceeded(name, measure(WORK[name], "uvloop", allocations))
    _left.clear()
    assert field in found, f"{found} is all that was found"
