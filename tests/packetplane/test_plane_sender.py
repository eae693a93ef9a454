"""Frames as the sender writes them, and what becomes of errors."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

import pytest

from juneau.model.ids import Mac, TenantId
from juneau.netstack.types import Buffer, TxPacket
from juneau.netstack.wire import vnet
from juneau.packetplane import Nic, PlaneSettings, ReturnPath
from juneau.packetplane.sender import Sender

POD, SERVICE = Mac("02:00:00:00:00:0a"), Mac("02:00:00:00:00:03")
HEADER = bytes(12) + bytes([10, 80, 0, 3]) + bytes([10, 80, 0, 10]) + bytes(20)
ETHER = POD + SERVICE + b"\x08\0"


class Wire(Sender):
    """A sender whose sockets keep what they are given, or fail."""

    def __init__(self, error: int = 0, **settings: Any) -> None:
        self.counters: Counter[str] = Counter()
        self.asked: list[bytes] = []
        self.frames: list[bytes] = []
        self.error = error
        super().__init__(PlaneSettings(**settings), self.counters, self._mac)

    def _mac(self, path: ReturnPath, source: bytes) -> bytes:
        self.asked.append(source)
        return SERVICE

    def _open(self, path: ReturnPath) -> Any:
        return _Link(self)


class _Link:
    """In place of a packet socket."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, frame: bytes) -> None:
        if self._wire.error:
            raise OSError(self._wire.error, "")
        self._wire.frames.append(frame)

    def sendmsg(self, buffers: Sequence[Buffer]) -> None:
        self.send(b"".join(buffers))


@pytest.fixture
def path() -> ReturnPath:
    return ReturnPath(Nic(5, "veth5", TenantId(7, 1), IPv4Address("10.80.0.10"), POD))


def test_a_superframe_describes_itself(path: ReturnPath) -> None:
    wire = Wire()
    wire.send([TxPacket(path, HEADER, (b"ab", memoryview(b"cd")), 1_398, 20, 16)])
    described = vnet.HEADER.pack(vnet.F_NEEDS_CSUM, vnet.GSO_TCPV4, 14 + len(HEADER), 1_398, 34, 16)
    assert wire.frames == [described + ETHER + HEADER + b"abcd"]


def test_a_superframe_of_datagrams(path: ReturnPath) -> None:
    wire = Wire()
    wire.send([TxPacket(path, HEADER[:28], (b"ab", b"cd"), 2, 20, 6)])
    described = vnet.HEADER.pack(vnet.F_NEEDS_CSUM, vnet.GSO_UDP_L4, 14 + 28, 2, 34, 6)
    assert wire.frames == [described + ETHER + HEADER[:28] + b"abcd"]


def test_a_partial_checksum_without_segmentation(path: ReturnPath) -> None:
    wire = Wire()
    wire.send([TxPacket(path, HEADER, (), 0, 20, 6)])
    assert wire.frames[0][:10] == vnet.HEADER.pack(vnet.F_NEEDS_CSUM, 0, 54, 0, 34, 6)


def test_a_complete_packet_asks_for_nothing(path: ReturnPath) -> None:
    wire = Wire()
    wire.send([TxPacket(path, HEADER, (b"x",))])
    assert wire.frames == [bytes(10) + ETHER + HEADER + b"x"]


def test_without_offload_there_is_no_vnet_header(path: ReturnPath) -> None:
    wire = Wire(offload=False)
    wire.send([TxPacket(path, HEADER, (b"x",))])
    assert wire.frames == [ETHER + HEADER + b"x"]


def test_macs_are_asked_for_once_per_path_and_source(path: ReturnPath) -> None:
    wire = Wire()
    wire.send([TxPacket(path, HEADER)] * 3)
    assert wire.asked == [bytes([10, 80, 0, 3])]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errno.EAGAIN, "tx.would_block"),
        (errno.ENOBUFS, "tx.no_buffers"),
        (errno.EMSGSIZE, "tx.too_big"),
        (errno.ENETDOWN, "tx.link_down"),
        (errno.ENXIO, "tx.no_device"),
        (errno.EBADF, "tx.error"),
    ],
)
def test_errors_are_counted_and_the_rest_is_tried(path: ReturnPath, error: int, reason: str) -> None:
    wire = Wire(error)
    wire.send([TxPacket(path, HEADER)] * 2)
    assert wire.counters == {reason: 2}


def test_a_tap_sees_drops_and_nothing_else(path: ReturnPath) -> None:
    seen: list[tuple[str, bytes, str | None]] = []
    for wire in (Wire(), Wire(errno.EMSGSIZE)):
        wire.tap = lambda way, pieces, where, now, why: seen.append((way, b"".join(pieces), why))
        wire.send([TxPacket(path, HEADER, (b"x",))])
    assert seen == [("out", HEADER + b"x", "tx.too_big")]


def test_a_dead_path_and_a_foreign_one_are_no_paths(path: ReturnPath) -> None:
    wire = Wire()
    wire.forget([path])
    wire.send([TxPacket(path, HEADER), TxPacket(("not", "ours"), HEADER)])
    assert (wire.counters, wire.frames) == ({"tx.no_path": 2}, [])
