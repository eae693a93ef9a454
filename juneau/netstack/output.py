"""Packets that ICMP and UDP want to send: headers, fragmentation, and a queue with a limit.

TCP has no queue here. It is asked for packets when there is room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, TypeAlias

from juneau.netstack.counters import Counters
from juneau.netstack.limits import Limits
from juneau.netstack.tap import Tap, complete_pieces
from juneau.netstack.types import Buffer, Link, Micros, Path, Rng, TxPacket
from juneau.netstack.wire import ipv4, udp

MAX_BUNDLE: Final = 64
"""Datagrams in a superframe; UDP_MAX_SEGMENTS of the oldest kernels that cut them."""
DATAGRAM_HEADERS: Final = ipv4.HEADER_BYTES + udp.HEADER_BYTES

Flow: TypeAlias = tuple[Path, int, int, int, int]
"""Path, source and destination address, source and destination port; its maker has checked them."""


class _Bundle:
    """Datagrams of one flow that leave as one superframe, in one system call.

    All are as long as the first; only the last may be shorter. If it is `mixed` they are of any length,
    and it will be cut into some that are not.
    """

    __slots__ = ("flow", "gso_size", "mixed", "payloads", "room")

    def __init__(self, flow: Flow, payloads: list[bytes], room: int, mixed: bool = False) -> None:
        self.flow = flow
        self.gso_size = len(payloads[0])
        self.payloads = payloads
        self.room = room
        """Bytes."""
        self.mixed = mixed


class Output:
    def __init__(self, link: Link, limits: Limits, counters: Counters, rng: Rng) -> None:
        self._link = link
        self._most_packets = limits.output_packets
        self._most_bytes = limits.output_bytes
        self._counters = counters
        self.queue: deque[TxPacket | _Bundle] = deque()
        self._open: dict[Flow, _Bundle] = {}
        """In the queue, and may still grow."""
        self._datagrams = 0
        """In the queue, each of a bundle counted."""
        self._ident = rng.getrandbits(16)
        self.queued_bytes = 0
        self.tap: Tap | None = None
        self.now: Micros = 0
        """The latest time the stack was told; only captures of drops read it."""

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
        ident = self._take_idents(1)
        size = len(header) + len(payload)
        if size <= self._link.mtu - ipv4.HEADER_BYTES:
            head = ipv4.build_header(src, dst, proto, size, ident=ident, tos=tos) + header
            packet = TxPacket(path, head, (payload,) if payload else ())
            self._enqueue([packet])
        else:
            self._enqueue(self._fragments(path, src, dst, proto, ident, tos, header, payload))

    def send_datagram(self, flow: Flow, payload: bytes, unordered: bool = False) -> None:
        """Queue a UDP datagram that fits the MTU, its checksum left to the link; dropped over the limit.

        With `Link.uso` it may join one of its flow that is waiting already; `unordered`: of any length.
        """
        size = len(payload)
        if (
            self._datagrams >= self._most_packets
            or self.queued_bytes + DATAGRAM_HEADERS + size > self._most_bytes
        ):
            self._drop([self._seal(_Bundle(flow, [payload], 0))])
            return
        self._datagrams += 1
        bundle = self._open.get(flow)
        if (
            bundle is not None
            and 0 < size <= bundle.room
            and (size <= bundle.gso_size or unordered)
            and bundle.mixed is unordered
        ):
            bundle.payloads.append(payload)
            bundle.room -= size
            # mixed: how many headers there will be is not yet known
            self.queued_bytes += size + DATAGRAM_HEADERS if unordered else size
            if len(bundle.payloads) == MAX_BUNDLE or (size < bundle.gso_size and not unordered):
                del self._open[flow]
            return
        room = self._link.max_superframe - DATAGRAM_HEADERS - size
        bundle = _Bundle(flow, [payload], room, unordered)
        self.queue.append(bundle)
        self.queued_bytes += DATAGRAM_HEADERS + size
        if self._link.uso and self.tap is None and size:  # captures shall show datagrams
            self._open[flow] = bundle
        else:
            self._open.pop(flow, None)

    def _seal(self, bundle: _Bundle) -> TxPacket:
        path, src, dst, src_port, dst_port = bundle.flow
        payloads = bundle.payloads
        size = bundle.gso_size if len(payloads) == 1 else sum(map(len, payloads))
        ident = self._take_idents(len(payloads))
        header = udp.build_offloaded(src, dst, src_port, dst_port, size, ident)
        gso_size = bundle.gso_size if len(payloads) > 1 else 0
        return TxPacket(
            path, header, tuple(payloads) if size else (), gso_size, ipv4.HEADER_BYTES, udp.CHECKSUM_OFFSET
        )

    def _cut(self, mixed: _Bundle) -> list[_Bundle]:
        """No more than there are lengths: the longest together, ended by the shortest of all, and so on."""
        payloads = sorted(mixed.payloads, key=len)
        sizes = [*map(len, payloads)]
        first, end = 0, len(sizes)
        bundles = []
        while first < end:
            start = bisect_left(sizes, sizes[end - 1], first, end)
            pieces, end = payloads[start:end], start
            if first < end:
                pieces.append(payloads[first])
                first += 1
            bundles.append(_Bundle(mixed.flow, pieces, 0))
        self.queued_bytes -= DATAGRAM_HEADERS * (len(sizes) - len(bundles))
        return bundles

    def _take_idents(self, count: int) -> int:
        """The first of `count` in a row: non-atomic datagrams differ (RFC 6864 4.2)."""
        ident = (self._ident + 1) & 0xFFFF
        self._ident = (self._ident + count) & 0xFFFF
        return ident

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
        if self._datagrams + len(packets) > self._most_packets or self.queued_bytes + size > self._most_bytes:
            self._drop(packets)
            return
        self.queue.extend(packets)
        self._datagrams += len(packets)
        self.queued_bytes += size

    def _drop(self, packets: list[TxPacket]) -> None:
        self._counters.add("ip.output_full")  # not drop: that would blame the packet being received
        if self.tap is not None:
            for packet in packets:
                self.tap("out", complete_pieces(packet), packet.path, self.now, "ip.output_full")

    def take(self, count: int) -> list[TxPacket]:
        queue = self.queue
        packets: list[TxPacket] = []
        while queue and len(packets) < count:
            entry = queue.popleft()
            if not isinstance(entry, _Bundle):
                packets.append(entry)
            elif entry.mixed and len(entry.payloads) > 1:
                queue.extendleft(reversed(self._cut(entry)))
            else:
                packets.append(self._seal(entry))
        self._open.clear()
        self.queued_bytes -= sum(map(packet_bytes, packets))
        self._datagrams -= sum(len(packet.payload) or 1 for packet in packets)
        return packets


def packet_bytes(packet: TxPacket) -> int:
    return len(packet.header) + sum(map(len, packet.payload))
