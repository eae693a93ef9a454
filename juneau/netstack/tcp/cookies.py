"""SYN cookies: a half-open connection kept in the SYN-ACK instead of in memory (RFC 4987 3.6).

The ISN holds 5 bits of a minute-like clock, 3 bits naming an MSS and 24 bits of a keyed hash. What does not
fit there travels in the low bits of our timestamp, which the peer echoes.
"""

from __future__ import annotations

import struct
from hashlib import blake2s
from typing import Final

from juneau.netstack.types import SECOND, FourTuple, Micros

TICK: Final[Micros] = 64 * SECOND
MAX_AGE: Final = 2
"""Ticks; a handshake that takes longer is not one."""
LIFETIME: Final[Micros] = (MAX_AGE + 1) * TICK
MSS_TABLE: Final = (216, 536, 1024, 1220, 1360, 1410, 1460, 8960)
"""What pods' links give, and the usual rest: the largest that is not above the peer's is used."""
_INPUT: Final = struct.Struct("!IHIHIIB")
OPTION_BITS: Final = 6
_OPTION_MASK: Final = (1 << OPTION_BITS) - 1
_NO_WSCALE: Final = 15


class SynCookies:
    __slots__ = ("_key",)

    def __init__(self, secret: bytes) -> None:
        self._key = blake2s(secret, person=b"cookie").digest()

    def _hash(self, flow: FourTuple, irs: int, tick: int, index: int) -> int:
        data = _INPUT.pack(*flow, irs, tick & 0xFFFF_FFFF, index)
        return int.from_bytes(blake2s(data, digest_size=3, key=self._key).digest(), "big")

    def make(self, flow: FourTuple, irs: int, mss: int, now: Micros) -> int:
        tick = now // TICK
        index = max((i for i, value in enumerate(MSS_TABLE) if value <= mss), default=0)
        return (tick & 31) << 27 | index << 24 | self._hash(flow, irs, tick, index)

    def check(self, flow: FourTuple, irs: int, cookie: int, now: Micros) -> int | None:
        """The MSS of a cookie that is ours and fresh."""
        age = (now // TICK - (cookie >> 27)) & 31
        index = cookie >> 24 & 7
        if age > MAX_AGE or self._hash(flow, irs, now // TICK - age, index) != cookie & 0xFF_FFFF:
            return None
        return MSS_TABLE[index]


def pack_options(ts_val: int, wscale: int | None, sack: bool, ecn: bool) -> int:
    """Our timestamp, set back by less than 64 ms, with what the peer offered in its low bits."""
    bits = (_NO_WSCALE if wscale is None else wscale) | sack << 4 | ecn << 5
    return (ts_val - ((ts_val - bits) & _OPTION_MASK)) & 0xFFFF_FFFF


def unpack_options(ts_ecr: int) -> tuple[int | None, bool, bool]:
    wscale = ts_ecr & 15
    return None if wscale == _NO_WSCALE else wscale, bool(ts_ecr & 16), bool(ts_ecr & 32)
