"""The hook at the stack's edge through which captures see packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from juneau.netstack.types import Buffer, Micros, Path, TxPacket
from juneau.netstack.wire.checksum import ones_sum_of

Direction: TypeAlias = Literal["in", "out"]
Tap: TypeAlias = Callable[[Direction, tuple[Buffer, ...], Path, Micros, str | None], None]
"""Called with the pieces of an IPv4 packet; the last argument is the drop reason, None if it lived."""


def complete_pieces(packet: TxPacket) -> tuple[Buffer, ...]:
    """The packet with the checksum that the link would fill in (RFC 1071 over L4 and the partial sum)."""
    start, header = packet.csum_start, packet.header
    if not start:
        return (header, *packet.payload)
    field = start + packet.csum_offset
    # A computed 0 is sent as 0xffff: UDP demands it (RFC 768), TCP does not mind.
    value = 0xFFFF - ones_sum_of((header[start:], *packet.payload)) or 0xFFFF
    return (header[:field] + value.to_bytes(2, "big") + header[field + 2 :], *packet.payload)
