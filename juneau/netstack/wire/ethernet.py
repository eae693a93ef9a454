"""The Ethernet II header. No stack here speaks Ethernet; the packet plane does."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed

HEADER: Final = struct.Struct("!6s6sH")
HEADER_BYTES: Final = 14

TYPE_IPV4: Final = 0x0800
TYPE_ARP: Final = 0x0806
TYPE_VLAN: Final = 0x8100
TYPE_IPV6: Final = 0x86DD

BROADCAST: Final = b"\xff" * 6


class EthernetHeader(NamedTuple):
    dst: bytes
    src: bytes
    ethertype: int
    """Below 0x0600 it is an IEEE 802.3 length."""

    def build(self) -> bytes:
        return HEADER.pack(*self)


def parse(data: Buffer) -> tuple[EthernetHeader, memoryview]:
    """Split a frame; the payload is a view of `data`, padding included. Raises Malformed."""
    if len(data) < HEADER_BYTES:
        raise Malformed("ethernet.header", len(data), low=HEADER_BYTES)
    return EthernetHeader._make(HEADER.unpack_from(data)), memoryview(data)[HEADER_BYTES:]
