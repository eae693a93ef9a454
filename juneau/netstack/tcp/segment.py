"""A received segment on its way through the steps of RFC 9293 section 3.10.7."""

from __future__ import annotations

from juneau.netstack.types import Path
from juneau.netstack.wire.tcp import FIN, NO_OPTIONS, SYN, SackBlock


class Segment:
    """Numbers as on the wire, until a connection extends `seq` and `ack` (see `seq`)."""

    __slots__ = (
        "ack",
        "ecn",
        "flags",
        "options",
        "path",
        "payload",
        "sack",
        "seq",
        "ts_ecr",
        "ts_val",
        "urgent",
        "window",
    )

    def __init__(
        self, seq: int, ack: int, flags: int, window: int, payload: memoryview, path: Path, ecn: int
    ) -> None:
        self.seq = seq
        self.ack = ack
        self.flags = flags
        self.window = window
        """Not scaled."""
        self.payload = payload
        self.path = path
        self.ecn = ecn
        self.ts_val = -1
        """-1: no timestamp option."""
        self.ts_ecr = 0
        self.sack: tuple[SackBlock, ...] = ()
        self.urgent = 0
        self.options = NO_OPTIONS
        """All of them, parsed, if there were others than a timestamp."""

    @property
    def length(self) -> int:
        """SEG.LEN: SYN and FIN count."""
        return len(self.payload) + (self.flags & FIN) + ((self.flags & SYN) >> 1)
