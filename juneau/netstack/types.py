"""The values that cross the stack's edge.

Time is integer microseconds, passed in as `now`; addresses are 32-bit integers in host order.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

Micros: TypeAlias = int
MILLISECOND: Final[Micros] = 1_000
SECOND: Final[Micros] = 1_000_000

Buffer: TypeAlias = bytes | memoryview
Path: TypeAlias = Hashable
"""The way back to whoever sent a packet. Opaque: the stack hands it out as it came in."""


class Rng(Protocol):
    """What the stack needs of `random.Random` or `random.SystemRandom`."""

    def getrandbits(self, k: int, /) -> int: ...


class Endpoint(NamedTuple):
    ip: int
    port: int

    def __str__(self) -> str:
        return f"{format_ip(self.ip)}:{self.port}"


class FourTuple(NamedTuple):
    """A connection's name inside one stack, local end first."""

    local_ip: int
    local_port: int
    remote_ip: int
    remote_port: int


@dataclass(frozen=True, slots=True)
class Link:
    """What the link under a stack can do. A link that lacks offload makes the stack do the work."""

    mtu: int = 1450
    """Largest IPv4 packet, bytes. TCP's MSS and UDP's limit follow from it."""
    checksum_offload: bool = False
    """The link completes L4 checksums of packets whose `csum_start` is not 0."""
    tso: bool = False
    """The link takes superframes and cuts them by `gso_size`. Needs `checksum_offload`."""
    max_superframe: int = 65_535
    """Largest IPv4 packet handed to a `tso` link, bytes."""
    uso: bool = False
    """The link cuts UDP superframes by `gso_size`, as UDP_SEGMENT does. Needs `checksum_offload`."""


class TxPacket(NamedTuple):
    """One IPv4 packet to send.

    `header` is IPv4 plus L4 header with a complete IPv4 header checksum. `csum_start` != 0: the L4
    checksum field holds the pseudo-header sum only, to be completed from offset `csum_start` (bytes
    from the start of `header`) into `csum_start + csum_offset`; 0: the checksum is complete.
    `gso_size` != 0: a superframe, to be cut into segments of that many payload bytes.
    `payload` are views of immutable bytes: they stay valid as long as the packet is kept.
    """

    path: Path
    header: bytes
    payload: tuple[Buffer, ...] = ()
    gso_size: int = 0
    csum_start: int = 0
    csum_offset: int = 0

    def to_bytes(self) -> bytes:
        """The packet in one piece; checksums are as the fields above say."""
        return b"".join((self.header, *self.payload))


class CloseReason(Enum):
    """Why a connection ended."""

    NORMAL = "normal"
    RESET = "reset"
    """The peer sent RST."""
    REFUSED = "refused"
    """RST in answer to our SYN."""
    TIMEOUT = "timeout"
    """Retransmission, keepalive or user timeout gave up."""
    UNREACHABLE = "unreachable"
    ABORTED = "aborted"
    """This side called abort, or a limit did."""


class Misuse(Exception):
    """The caller's fault."""


class Refused(Exception):
    """A limit's doing; counted under `reason`."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class Malformed(ValueError):
    """The peer's fault: `field` had `got`, outside `low`..`high`. Formatted only when printed."""

    def __init__(self, field: str, got: int, *, low: int | None = None, high: int | None = None) -> None:
        super().__init__(field, got, low, high)
        self.field, self.got, self.low, self.high = field, got, low, high

    def __str__(self) -> str:
        low = "" if self.low is None else self.low
        high = "" if self.high is None else self.high
        return f"{self.field}: got {self.got}, allowed {low}..{high}"


def format_ip(ip: int) -> str:
    return ".".join(map(str, ip.to_bytes(4, "big")))


def parse_ip(text: str) -> int:
    """Raises Misuse for anything but a dotted quad."""
    parts = text.split(".")
    if len(parts) != 4 or not all(
        p.isascii() and p.isdigit() and len(p) <= 3 and int(p) < 256 for p in parts
    ):
        raise Misuse(f"{text!r} is not an IPv4 address (four numbers 0..255 with dots)")
    return int.from_bytes(bytes(map(int, parts)), "big")
