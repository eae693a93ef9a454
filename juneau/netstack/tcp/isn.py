"""Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 5.4) nobody can guess."""

from __future__ import annotations

import struct
from hashlib import blake2s
from typing import Final

from juneau.netstack.types import FourTuple, Micros

_FLOW: Final = struct.Struct("!IHIH")
_WORDS: Final = struct.Struct("!II")


class IsnGenerator:
    __slots__ = ("_key",)

    def __init__(self, secret: bytes) -> None:
        self._key = blake2s(secret, person=b"isn").digest()

    def words(self, flow: FourTuple) -> tuple[int, int]:
        """F(flow, secret) of RFC 6528, and as many bits again for the timestamp offset."""
        digest = blake2s(_FLOW.pack(*flow), digest_size=8, key=self._key).digest()
        return _WORDS.unpack(digest)

    def generate(self, flow: FourTuple, now: Micros) -> tuple[int, int]:
        """ISN = M + F with M a clock of 4 us ticks; and the offset of the timestamp clock."""
        f, ts_offset = self.words(flow)
        return (now // 4 + f) & 0xFFFF_FFFF, ts_offset
