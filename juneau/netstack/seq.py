"""Sequence numbers modulo 2**32 (RFC 9293 section 3.4), and how the stack avoids meeting the wrap.

Inside a connection sequence numbers are *extended*: plain integers that start at the ISN and never
wrap, so that `<`, `min` and subtraction mean what they say. A 32-bit number from the wire is extended
next to one that is known to be within 2**31 of it, and wrapped again on the way out.
"""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFF_FFFF
HALF: Final = 0x8000_0000


def wrap(seq: int) -> int:
    """The 32 bits that go on the wire."""
    return seq & MASK


def diff(a: int, b: int) -> int:
    """How far `a` is ahead of `b`, -2**31..2**31-1; either may be extended or not."""
    return ((a - b + HALF) & MASK) - HALF


def extend(seq: int, near: int) -> int:
    """The extended number with the low 32 bits of `seq` that is nearest to `near`."""
    return near + ((seq - near + HALF) & MASK) - HALF


def lt(a: int, b: int) -> bool:
    return ((a - b) & MASK) >= HALF


def le(a: int, b: int) -> bool:
    return ((b - a) & MASK) < HALF
