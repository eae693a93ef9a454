"""The UDP header (RFC 768)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed
from juneau.netstack.wire import ipv4

HEADER: Final = struct.Struct("!HHHH")
HEADER_BYTES: Final = 8
MAX_PAYLOAD: Final = 65_535 - 20 - HEADER_BYTES
CHECKSUM_OFFSET: Final = 6

_PACKET_HEADER: Final = struct.Struct("!BBHHHBBHIIHHHH")


class UdpHeader(NamedTuple):
    src_port: int
    dst_port: int
    length: int
    """Header and payload, bytes."""
    checksum: int
    """0: the sender computed none."""


def parse(data: Buffer) -> tuple[UdpHeader, memoryview]:
    """Split a datagram; the payload is a view of `data`. Raises Malformed; the checksum is the caller's."""
    header = UdpHeader._make(unpack(data))
    return header, memoryview(data)[HEADER_BYTES : header.length]


def unpack(data: Buffer) -> tuple[int, int, int, int]:
    """The fields of UdpHeader without one: this is done for every datagram. Raises Malformed."""
    if len(data) < HEADER_BYTES:
        raise Malformed("udp.header", len(data), low=HEADER_BYTES)
    src_port, dst_port, length, checksum = HEADER.unpack_from(data)
    if not HEADER_BYTES <= length <= len(data):
        raise Malformed("udp.length", length, low=HEADER_BYTES, high=len(data))
    return src_port, dst_port, length, checksum


def build_header(src_port: int, dst_port: int, payload_bytes: int, checksum: int) -> bytes:
    return HEADER.pack(src_port, dst_port, HEADER_BYTES + payload_bytes, checksum)


def build_offloaded(
    src: int, dst: int, src_port: int, dst_port: int, payload_bytes: int, ident: int
) -> bytes:
    """IPv4 and UDP header at once; the link completes the UDP checksum from the pseudo-header sum."""
    size = HEADER_BYTES + payload_bytes
    total_length = ipv4.HEADER_BYTES + size
    common = src + dst + ipv4.PROTO_UDP  # what the two sums share; 2**16 is 1 modulo 0xffff
    return _PACKET_HEADER.pack(
        0x45,
        0,
        total_length,
        ident,
        0,
        ipv4.DEFAULT_TTL,
        ipv4.PROTO_UDP,
        -(0x4500 + total_length + ident + (ipv4.DEFAULT_TTL << 8) + common) % 0xFFFF,
        src,
        dst,
        src_port,
        dst_port,
        size,
        (common + size) % 0xFFFF or 0xFFFF,
    )
