"""struct virtio_net_hdr as TAP (IFF_VNET_HDR) and AF_PACKET (PACKET_VNET_HDR) use it: 10 bytes,
little endian (virtio 1.2 section 5.1.6; host order on legacy interfaces, and hosts here are little endian).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed

HEADER: Final = struct.Struct("<BBHHHH")
HEADER_BYTES: Final = 10

F_NEEDS_CSUM: Final = 1
"""The L4 checksum field holds the pseudo-header sum; whoever puts it on a wire completes it."""
F_DATA_VALID: Final = 2
"""The L4 checksum has been verified."""

GSO_NONE: Final = 0
GSO_TCPV4: Final = 1
GSO_UDP: Final = 3
GSO_TCPV6: Final = 4
GSO_UDP_L4: Final = 5
GSO_ECN: Final = 0x80
"""A flag on the type: the superframe has CWR set."""


class VnetHeader(NamedTuple):
    flags: int = 0
    gso_type: int = GSO_NONE
    hdr_len: int = 0
    """Link, IP and L4 headers together, bytes; a hint."""
    gso_size: int = 0
    """L4 payload bytes of each segment."""
    csum_start: int = 0
    """From the start of the frame, link header included."""
    csum_offset: int = 0

    @property
    def csum_ok(self) -> bool:
        """The sender of the frame vouches for its L4 checksum."""
        return bool(self.flags & (F_NEEDS_CSUM | F_DATA_VALID))

    def build(self) -> bytes:
        return HEADER.pack(*self)


PLAIN: Final = VnetHeader().build()
"""Nothing offloaded."""


def parse(data: Buffer) -> tuple[VnetHeader, memoryview]:
    """Split a read; the frame is a view of `data`. The fields are the kernel's and not judged."""
    if len(data) < HEADER_BYTES:
        raise Malformed("vnet.header", len(data), low=HEADER_BYTES)
    return VnetHeader._make(HEADER.unpack_from(data)), memoryview(data)[HEADER_BYTES:]
