"""The 10 bytes before each frame on a TAP or AF_PACKET socket (struct virtio_net_hdr, linux/virtio_net.h)."""

from __future__ import annotations

from struct import Struct
from typing import Final

HEADER_BYTES: Final = 10
NEEDS_CSUM: Final = 1
"""The L4 checksum holds the pseudo-header sum; nobody has to verify it."""
DATA_VALID: Final = 2
"""The sender's kernel vouches for the checksum."""

GSO_NONE: Final = 0
GSO_TCPV4: Final = 1
GSO_UDP_L4: Final = 5
GSO_ECN: Final = 0x80
"""Flag beside the type: CWR is set, for the first segment only."""

# flags, gso_type, hdr_len, gso_size, csum_start, csum_offset: host order
_HEADER: Final = Struct("=BBHHHH")
PLAIN: Final = bytes(HEADER_BYTES)


def build(header_bytes: int, gso_size: int, csum_start: int, csum_offset: int) -> bytes:
    """For a TCP or UDP packet; offsets count from the start of the Ethernet header."""
    kind = GSO_TCPV4 if gso_size else GSO_NONE
    return _HEADER.pack(NEEDS_CSUM, kind, header_bytes, gso_size, csum_start, csum_offset)


def gso_size(frame: bytes) -> int:
    """Of a frame at least HEADER_BYTES long."""
    size: int = _HEADER.unpack_from(frame)[3]
    return size
