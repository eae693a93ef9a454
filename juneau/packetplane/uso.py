"""UDP superframes (UDP_SEGMENT, as QUIC senders use) back to datagrams: one read from the TAP for all."""

from __future__ import annotations

from struct import Struct
from typing import Final

from juneau.netstack.wire.checksum import checksum

MAX_SEGMENTS: Final = 128
"""UDP_MAX_SEGMENTS, linux/udp.h. A Pod that writes frames itself must not make us work for more."""

_UDP_HEADER: Final = 8
_LENGTHS: Final = Struct("!HH")  # total_length, ident
_U16: Final = Struct("!H")


def split(packet: memoryview, size: int) -> list[bytes] | None:
    """IPv4 packets of up to `size` payload bytes each; None: not something the kernel would have made.

    L4 checksums are not filled in (the frame said that nobody has to verify them); IPv4's are.
    """
    header = (packet[0] & 0x0F) * 4
    payload = packet[header + _UDP_HEADER : int.from_bytes(packet[2:4], "big")]
    if header < 20 or not size or not 0 < len(payload) <= size * MAX_SEGMENTS:
        return None
    head = bytearray(packet[: header + _UDP_HEADER])
    ident = int.from_bytes(head[4:6], "big")
    pieces = range(0, len(payload), size)
    return [_piece(head, header, payload[at : at + size], ident + n) for n, at in enumerate(pieces)]


def _piece(head: bytearray, header: int, payload: memoryview, ident: int) -> bytes:
    _LENGTHS.pack_into(head, 2, len(head) + len(payload), ident & 0xFFFF)
    head[10:12] = b"\0\0"
    _U16.pack_into(head, 10, checksum(bytes(head[:header])))
    _U16.pack_into(head, header + 4, _UDP_HEADER + len(payload))
    return b"".join((head, payload))
