"""The Internet checksum (RFC 1071), as arithmetic modulo 0xffff on one large integer.

A sum is a number 0..0xffff in one's complement, where 0 only stands for "all bytes are zero".
Sums of adjacent pieces add up with `fold` when every piece but the last has an even length.
"""

from __future__ import annotations

from collections.abc import Iterable

from juneau.netstack.types import Buffer


def fold(total: int) -> int:
    """Bring a sum of sums back to 0..0xffff."""
    return total % 0xFFFF or (0xFFFF if total else 0)


def ones_sum(data: Buffer) -> int:
    total = int.from_bytes(data, "big")
    if len(data) & 1:
        total <<= 8
    return total % 0xFFFF or (0xFFFF if total else 0)


def ones_sum_of(pieces: Iterable[Buffer]) -> int:
    """Sum of the concatenation, without joining; pieces may have odd lengths (RFC 1071 2(B))."""
    total, odd = 0, False
    for piece in pieces:
        part = ones_sum(piece)
        total += part << 8 if odd else part
        odd ^= bool(len(piece) & 1)
    return fold(total)


def checksum(data: Buffer) -> int:
    """What goes into the checksum field, or 0 if `data` holds its own correct checksum."""
    return 0xFFFF - ones_sum(data)


def pseudo_sum(src: int, dst: int, proto: int, length: int) -> int:
    """Sum of the TCP and UDP pseudo-header; `length` is L4 header plus payload, bytes."""
    return (src + dst + proto + length) % 0xFFFF or 0xFFFF
