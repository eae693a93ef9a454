"""The UDP header (RFC 768)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed

HEADER: Final = struct.Struct("!HHHH")
HEADER_BYTES: Final = 8
MAX_PAYLOAD: Final = 65_535 - 20 - HEADER_BYTES
CHECKSUM_OFFSET: Final = 6


class UdpHeader(NamedTuple):
    src_port: int
    dst_port: int
    length: int
    """Header and payload, bytes."""
    checksum: int
    """0: the sender computed none."""


def parse(data: Buffer) -> tuple[UdpHeader, memoryview]:
    """Split a datagram; the payload is a view of `data`. Raises Malformed; the checksum is the caller's."""
    if len(data) < HEADER_BYTES:
        raise Malformed("udp.header", len(data), low=HEADER_BYTES)
    header = UdpHeader._make(HEADER.unpack_from(data))
    if not HEADER_BYTES <= header.length <= len(data):
        raise Malformed("udp.length", header.length, low=HEADER_BYTES, high=len(data))
    return header, memoryview(data)[HEADER_BYTES : header.length]


def build_header(src_port: int, dst_port: int, payload_bytes: int, checksum: int) -> bytes:
    return HEADER.pack(src_port, dst_port, HEADER_BYTES + payload_bytes, checksum)
