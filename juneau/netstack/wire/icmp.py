"""ICMP messages (RFC 792, 1191) and what an error says about the packet it quotes."""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed
from juneau.netstack.wire import ipv4
from juneau.netstack.wire.checksum import checksum, ones_sum_of

HEADER_BYTES: Final = 8
_HEADER: Final = struct.Struct("!BBHI")  # type, code, checksum, rest of header

ECHO_REPLY: Final = 0
UNREACHABLE: Final = 3
SOURCE_QUENCH: Final = 4
REDIRECT: Final = 5
ECHO_REQUEST: Final = 8
TIME_EXCEEDED: Final = 11
PARAMETER_PROBLEM: Final = 12

CODE_PROTOCOL: Final = 2
CODE_PORT: Final = 3
CODE_FRAG_NEEDED: Final = 4
CODE_REASSEMBLY: Final = 1
"""Of TIME_EXCEEDED: fragment reassembly time exceeded."""

ERROR_TYPES: Final = frozenset({UNREACHABLE, SOURCE_QUENCH, REDIRECT, TIME_EXCEEDED, PARAMETER_PROBLEM})
MAX_ERROR_PACKET: Final = 576
"""An error quotes as much as fits an IPv4 packet of this size (RFC 1812 4.3.2.3)."""
MIN_QUOTED_L4: Final = 8
"""What RFC 792 guarantees: enough for ports and a TCP sequence number."""


class IcmpErrorKind(Enum):
    """What an ICMP error means to a transport (RFC 1122 4.2.3.9 groups them as soft and hard)."""

    UNREACHABLE = "unreachable"
    """Net or host unreachable, source route failed: soft, it may pass."""
    PROTOCOL = "protocol"
    PORT = "port"
    FRAG_NEEDED = "frag_needed"
    PROHIBITED = "prohibited"
    """Administratively prohibited (codes 9, 10, 13)."""
    TTL = "ttl"
    REASSEMBLY = "reassembly"
    PARAMETER = "parameter"


_UNREACHABLE_KINDS: Final = {
    2: IcmpErrorKind.PROTOCOL,
    3: IcmpErrorKind.PORT,
    4: IcmpErrorKind.FRAG_NEEDED,
    9: IcmpErrorKind.PROHIBITED,
    10: IcmpErrorKind.PROHIBITED,
    13: IcmpErrorKind.PROHIBITED,
}


class IcmpMessage(NamedTuple):
    """`rest` is the second word: echo id and sequence, next-hop MTU, or unused."""

    type: int
    code: int
    rest: int
    payload: memoryview

    @property
    def ident(self) -> int:
        return self.rest >> 16

    @property
    def sequence(self) -> int:
        return self.rest & 0xFFFF


class IcmpError(NamedTuple):
    """An error together with the flow it quotes, as seen from the quoted packet's sender."""

    kind: IcmpErrorKind
    mtu: int
    """Of the next hop, for FRAG_NEEDED; 0 if the router predates RFC 1191."""
    proto: int
    src: int
    dst: int
    src_port: int
    dst_port: int
    seq: int
    """TCP's, or UDP's length and checksum."""


def parse(data: Buffer) -> IcmpMessage:
    """Raises Malformed, `icmp.checksum` included; the payload is a view of `data`."""
    if len(data) < HEADER_BYTES:
        raise Malformed("icmp.header", len(data), low=HEADER_BYTES)
    if bad := checksum(data):
        raise Malformed("icmp.checksum", bad, low=0, high=0)
    kind, code, _, rest = _HEADER.unpack_from(data)
    return IcmpMessage(kind, code, rest, memoryview(data)[HEADER_BYTES:])


def build(kind: int, code: int, rest: int, payload: tuple[Buffer, ...] = ()) -> bytes:
    """The ICMP header, with the checksum over `payload` too, which the caller appends."""
    bare = _HEADER.pack(kind, code, 0, rest)
    return _HEADER.pack(kind, code, 0xFFFF - ones_sum_of((bare, *payload)), rest)


def error_kind(message: IcmpMessage) -> IcmpErrorKind | None:
    """None for what says nothing about a path: queries, redirects, source quench (RFC 6633)."""
    match message.type:
        case 3:
            return _UNREACHABLE_KINDS.get(message.code, IcmpErrorKind.UNREACHABLE)
        case 11:
            return IcmpErrorKind.REASSEMBLY if message.code == CODE_REASSEMBLY else IcmpErrorKind.TTL
        case 12:
            return IcmpErrorKind.PARAMETER
    return None


def parse_error(kind: IcmpErrorKind, message: IcmpMessage) -> IcmpError:
    """Read the quoted packet, which may be cut after 8 bytes of L4. Raises Malformed.

    Ports are 0 for protocols other than TCP and UDP.
    """
    quoted = message.payload
    if len(quoted) < ipv4.HEADER_BYTES:
        raise Malformed("icmp.quoted", len(quoted), low=ipv4.HEADER_BYTES)
    header = ipv4.Ipv4Header._make(ipv4.HEADER.unpack_from(quoted))
    if header.version != 4 or header.header_bytes < ipv4.HEADER_BYTES or header.frag_offset:
        raise Malformed("icmp.quoted_header", header.version_ihl, low=0x45, high=0x4F)
    if len(quoted) < header.header_bytes + MIN_QUOTED_L4:
        raise Malformed("icmp.quoted", len(quoted), low=header.header_bytes + MIN_QUOTED_L4)
    src_port = dst_port = seq = 0
    if header.proto in (ipv4.PROTO_TCP, ipv4.PROTO_UDP):
        src_port, dst_port, seq = struct.unpack_from("!HHI", quoted, header.header_bytes)
    mtu = message.rest & 0xFFFF if kind is IcmpErrorKind.FRAG_NEEDED else 0
    return IcmpError(kind, mtu, header.proto, header.src, header.dst, src_port, dst_port, seq)
