"""Packets that ICMP and UDP want to send: headers, fragmentation, and a queue with a limit.

TCP has no queue here. It is asked for packets when there is room.
"""

from __future__ import annotations

from collections import deque

from juneau.netstack.counters import Counters
from juneau.netstack.limits import Limits
from juneau.netstack.tap import Tap, complete_pieces
from juneau.netstack.types import Buffer, Link, Micros, Path, Rng, TxPacket
from juneau.netstack.wire import ipv4


class Output:
    def __init__(self, link: Link, limits: Limits, counters: Counters, rng: Rng) -> None:
        self._link = link
        self._limits = limits
        self._counters = counters
        self._queue: deque[TxPacket] = deque()
        self._ident = rng.getrandbits(16)
        self.queued_bytes = 0
        self.tap: Tap | None = None
        self.now: Micros = 0
        """The latest time the stack was told; only captures of drops read it."""

    def __len__(self) -> int:
        return len(self._queue)

    def send(
        self,
        path: Path,
        src: int,
        dst: int,
        proto: int,
        header: bytes,
        payload: Buffer = b"",
        *,
        tos: int = 0,
    ) -> None:
        """Queue one datagram, in fragments if it is above the MTU; over the limit it is dropped.

        `header` is L4's, its checksum complete.
        """
        ident = self.next_ident()
        size = len(header) + len(payload)
        if size <= self._link.mtu - ipv4.HEADER_BYTES:
            head = ipv4.build_header(src, dst, proto, size, ident=ident, tos=tos) + header
            packet = TxPacket(path, head, (payload,) if payload else ())
            self.push(packet, ipv4.HEADER_BYTES + size)
        else:
            self._enqueue(self._fragments(path, src, dst, proto, ident, tos, header, payload))

    def next_ident(self) -> int:
        """Non-atomic datagrams differ (RFC 6864 4.2)."""
        self._ident = ident = (self._ident + 1) & 0xFFFF
        return ident

    def push(self, packet: TxPacket, size: int) -> None:
        """Queue one finished packet of `size` bytes; over the limit it is dropped."""
        if (
            len(self._queue) >= self._limits.output_packets
            or self.queued_bytes + size > self._limits.output_bytes
        ):
            self._drop([packet])
            return
        self._queue.append(packet)
        self.queued_bytes += size

    def _fragments(
        self,
        path: Path,
        src: int,
        dst: int,
        proto: int,
        ident: int,
        tos: int,
        header: bytes,
        payload: Buffer,
    ) -> list[TxPacket]:
        room = (self._link.mtu - ipv4.HEADER_BYTES) & ~7
        view = memoryview(payload)
        size = len(header) + len(view)
        packets = []
        for start in range(0, size, room):
            end = min(start + room, size)
            flags_offset = start >> 3 | (ipv4.FLAG_MF if end < size else 0)
            head = ipv4.build_header(
                src, dst, proto, end - start, ident=ident, tos=tos, flags_offset=flags_offset
            )
            piece = view[max(0, start - len(header)) : end - len(header)]
            packets.append(TxPacket(path, head if start else head + header, (piece,)))
        return packets

    def _enqueue(self, packets: list[TxPacket]) -> None:
        """All fragments or none: half a datagram is of use to nobody."""
        size = sum(map(packet_bytes, packets))
        if (
            len(self._queue) + len(packets) > self._limits.output_packets
            or self.queued_bytes + size > self._limits.output_bytes
        ):
            self._drop(packets)
            return
        self._queue.extend(packets)
        self.queued_bytes += size

    def _drop(self, packets: list[TxPacket]) -> None:
        self._counters.add("ip.output_full")  # not drop: that would blame the packet being received
        if self.tap is not None:
            for packet in packets:
                self.tap("out", complete_pieces(packet), packet.path, self.now, "ip.output_full")

    def take(self, count: int) -> list[TxPacket]:
        if len(self._queue) <= count:
            packets = list(self._queue)
            self._queue.clear()
            self.queued_bytes = 0
            return packets
        packets = [self._queue.popleft() for _ in range(count)]
        self.queued_bytes -= sum(map(packet_bytes, packets))
        return packets


def packet_bytes(packet: TxPacket) -> int:
    return len(packet.header) + sum(map(len, packet.payload))
