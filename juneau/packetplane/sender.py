"""Packets from the stacks straight onto Pods' interfaces, one system call each.

A socket per interface, bound to it: naming the interface in every call costs CPython a look-up, 0.7 µs of 4.
Protocol 0, so that it receives nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from juneau.netstack.tap import Tap, complete_pieces
from juneau.netstack.types import Path, TxPacket
from juneau.netstack.wire import tcp, udp, vnet
from juneau.packetplane.types import PlaneSettings, ReturnPath

_ETHERNET_BYTES: Final = 14
_ETHERTYPE_IPV4: Final = b"\x08\x00"
_SOL_PACKET, _PACKET_VNET_HDR, _SO_SNDBUFFORCE = 263, 15, 32
_SOCKADDR_LL: Final = Struct("=HHiHBB8s")
_libc: Final = ctypes.CDLL(None, use_errno=True)
_REASONS: Final = {
    errno.EAGAIN: "tx.would_block",
    errno.ENOBUFS: "tx.no_buffers",
    errno.EMSGSIZE: "tx.too_big",
    errno.ENETDOWN: "tx.link_down",
    errno.ENXIO: "tx.no_device",
    errno.ENODEV: "tx.no_device",
}

_GSO_BY_CHECKSUM: Final = {tcp.CHECKSUM_OFFSET: vnet.GSO_TCPV4, udp.CHECKSUM_OFFSET: vnet.GSO_UDP_L4}
"""Where the checksum is in its header says whose it is."""

MacOf = Callable[[ReturnPath, bytes], bytes]
"""The Ethernet source for packets of a source IP (4 bytes) to a path."""


class Sender:
    """Counters, all drops: `tx.would_block` (`send_buffer_bytes` are on their way), `tx.no_buffers`,
    `tx.too_big`, `tx.link_down`, `tx.no_device`, `tx.no_path`, `tx.error`."""

    def __init__(self, settings: PlaneSettings, counters: Counter[str], mac_of: MacOf) -> None:
        self._settings = settings
        self._counters = counters
        self._mac_of = mac_of
        self._sockets: dict[ReturnPath, socket.socket] = {}
        self.tap: Tap | None = None
        """Sees dropped packets, once more, as `"out"`."""

    def send(self, packets: list[TxPacket]) -> None:
        """Never blocks, never raises."""
        sockets, offload = self._sockets, self._settings.offload
        for packet in packets:
            path, header, payload, gso_size, csum_start, csum_offset = packet
            try:
                link = sockets.get(path) or self._first(path)  # type: ignore[call-overload]
                if link is None:
                    self._drop(packet, "tx.no_path")
                    continue
                source = header[12:16]
                head = path.ether.get(source) or self._ether(path, source)  # type: ignore[attr-defined, arg-type]
                if offload:
                    head = _vnet_header(len(header), gso_size, csum_start, csum_offset) + head
                if gso_size:
                    link.sendmsg((head + header, *payload))
                else:  # to join what fits the MTU costs less than an iovec for each piece
                    link.send(b"".join((head, header, *payload)))
            except OSError as err:
                self._drop(packet, _REASONS.get(err.errno or 0, "tx.error"))

    def _drop(self, packet: TxPacket, reason: str) -> None:
        self._counters[reason] += 1
        if self.tap is not None:
            self.tap("out", complete_pieces(packet), packet.path, time.monotonic_ns() // 1_000, reason)

    def _ether(self, path: ReturnPath, source: bytes) -> bytes:
        ether = path.nic.mac + self._mac_of(path, source) + _ETHERTYPE_IPV4
        path.ether[source] = ether
        return ether

    def _first(self, path: Path) -> socket.socket | None:
        """To a Pod that has not been sent to. None: the way leads nowhere (any more). Raises OSError."""
        return self._open(path) if isinstance(path, ReturnPath) and path.alive else None

    def _open(self, path: ReturnPath) -> socket.socket:
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            link.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, self._settings.send_buffer_bytes)
            if self._settings.offload:
                link.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
            _bind(link, path.ifindex)
        except OSError:
            link.close()
            raise
        self._sockets[path] = link
        return link

    def forget(self, paths: list[ReturnPath]) -> None:
        """Close what belonged to NICs that are gone. On the sending thread: closed numbers get used again."""
        for path in paths:
            path.alive = False
            if (link := self._sockets.pop(path, None)) is not None:
                link.close()

    def close(self) -> None:
        self.forget(list(self._sockets))


def _bind(link: socket.socket, ifindex: int) -> None:
    """Python binds by name, and a name may by now be another Pod's interface. Raises OSError."""
    address = _SOCKADDR_LL.pack(socket.AF_PACKET, 0, ifindex, 0, 0, 0, bytes(8))
    if _libc.bind(link.fileno(), address, len(address)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@lru_cache(maxsize=256)
def _vnet_header(header_bytes: int, gso_size: int, csum_start: int, csum_offset: int) -> bytes:
    """Of few shapes: they follow from header lengths and MSS."""
    if not csum_start:
        return vnet.PLAIN
    return vnet.HEADER.pack(
        vnet.F_NEEDS_CSUM,
        _GSO_BY_CHECKSUM[csum_offset] if gso_size else vnet.GSO_NONE,
        _ETHERNET_BYTES + header_bytes,
        gso_size,
        _ETHERNET_BYTES + csum_start,
        csum_offset,
    )
