"""The IPv4 header (RFC 791). Reassembly and policy live elsewhere."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed
from juneau.netstack.wire.checksum import checksum

HEADER_BYTES: Final = 20
MAX_TOTAL_LENGTH: Final = 65_535
DEFAULT_TTL: Final = 64
"""RFC 1700; Linux's value too."""

PROTO_ICMP: Final = 1
PROTO_TCP: Final = 6
PROTO_UDP: Final = 17

FLAG_DF: Final = 0x4000
FLAG_MF: Final = 0x2000
OFFSET_MASK: Final = 0x1FFF
FRAGMENT_MASK: Final = FLAG_MF | OFFSET_MASK
"""`flags_offset & FRAGMENT_MASK` is 0 for a whole datagram."""

HEADER: Final = struct.Struct("!BBHHHBBHII")


class Ipv4Header(NamedTuple):
    """The fixed 20 bytes as they are on the wire; the rest are views of its fields."""

    version_ihl: int
    tos: int
    total_length: int
    ident: int
    flags_offset: int
    ttl: int
    proto: int
    checksum: int
    src: int
    dst: int

    @property
    def version(self) -> int:
        return self.version_ihl >> 4

    @property
    def ihl(self) -> int:
        """Header length in 32-bit words."""
        return self.version_ihl & 0xF

    @property
    def header_bytes(self) -> int:
        return (self.version_ihl & 0xF) * 4

    @property
    def dscp(self) -> int:
        return self.tos >> 2

    @property
    def ecn(self) -> int:
        return self.tos & 3

    @property
    def df(self) -> bool:
        return bool(self.flags_offset & FLAG_DF)

    @property
    def mf(self) -> bool:
        return bool(self.flags_offset & FLAG_MF)

    @property
    def frag_offset(self) -> int:
        """Where this fragment's payload starts in the datagram, bytes."""
        return (self.flags_offset & OFFSET_MASK) * 8

    @property
    def is_fragment(self) -> bool:
        return bool(self.flags_offset & FRAGMENT_MASK)


def parse_header(data: Buffer) -> Ipv4Header:
    """The header alone, options unread; lengths inside `data` are proven, the checksum is not.

    `total_length` may be less than `len(data)`: links pad short frames.
    """
    if len(data) < HEADER_BYTES:
        raise Malformed("ip.header", len(data), low=HEADER_BYTES)
    header = Ipv4Header._make(HEADER.unpack_from(data))
    if header.version != 4:
        raise Malformed("ip.version", header.version, low=4, high=4)
    if not HEADER_BYTES <= header.header_bytes <= len(data):
        raise Malformed("ip.ihl", header.header_bytes, low=HEADER_BYTES, high=len(data))
    if not header.header_bytes <= header.total_length <= len(data):
        raise Malformed("ip.total_length", header.total_length, low=header.header_bytes, high=len(data))
    return header


def parse(data: Buffer) -> tuple[Ipv4Header, memoryview]:
    """Split a packet; the payload is a view of `data`, without padding and options.

    Raises Malformed, `ip.checksum` included.
    """
    header = parse_header(data)
    view = memoryview(data)
    if bad := checksum(view[: header.header_bytes]):
        raise Malformed("ip.checksum", bad, low=0, high=0)
    return header, view[header.header_bytes : header.total_length]


def build_header(
    src: int,
    dst: int,
    proto: int,
    payload_bytes: int,
    *,
    ident: int = 0,
    ttl: int = DEFAULT_TTL,
    tos: int = 0,
    flags_offset: int = 0,
) -> bytes:
    """20 bytes with a complete checksum. `tos` is dscp << 2 | ecn, `flags_offset` as on the wire.

    An ident of 0 is right only with DF set (RFC 6864 4.1).
    """
    total_length = HEADER_BYTES + payload_bytes
    ttl_proto = ttl << 8 | proto
    total = 0x4500 + tos + total_length + ident + flags_offset + ttl_proto + src + dst
    # src and dst are summed whole: 2**16 is 1 modulo 0xffff. The total is never 0.
    return HEADER.pack(0x45, tos, total_length, ident, flags_offset, ttl, proto, -total % 0xFFFF, src, dst)
