"""A script as values: what `parser` makes and `runtime` runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from juneau.netstack.types import Micros


class ScriptError(ValueError):
    """The script is wrong, not the stack: `path:line: what`."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line, self.message = line, message


class When(Enum):
    ABSOLUTE = "absolute"
    RELATIVE = "relative"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Time:
    """When an event is due. `end` is set for ranges only."""

    when: When
    at: Micros = 0
    end: Micros | None = None


# --- expressions in system calls ---


class Anything:
    """`...`"""

    def __repr__(self) -> str:
        return "..."


ANYTHING = Anything()


@dataclass(frozen=True, slots=True)
class Name:
    """A symbol such as SOL_SOCKET; its number depends on the platform."""

    text: str


@dataclass(frozen=True, slots=True)
class Or:
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Struct:
    """`{fd=3, events=POLLIN}`: fields by name; those without one are `0`, `1`, …"""

    fields: dict[str, Expr]

    def get(self, name: str) -> Expr:
        return self.fields.get(name, ANYTHING)


@dataclass(frozen=True, slots=True)
class Array:
    items: tuple[Expr, ...]


Expr: TypeAlias = Anything | int | str | Name | Or | Struct | Array
"""`str` is a quoted string; a bare word is a Name."""


# --- events ---


@dataclass(frozen=True, slots=True)
class IpInfo:
    """What brackets before a packet ask of the IP header; None: not checked, and 0 or 255 when sent."""

    ecn: int | None = None
    ect01: bool = False
    """Either ECT(0) or ECT(1) will do."""
    tos: int | None = None
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class TcpOption:
    """One option; what `values` holds depends on `name`: mss, wscale, sackOK, TS, sack, nop, eol, md5, FO…"""

    name: str
    values: tuple[int, ...] = ()
    blob: bytes = b""


@dataclass(frozen=True, slots=True)
class TcpSpec:
    flags: str
    """Letters of the script: S F R P U E C W A and `.` for ACK; "" for `-`."""
    seq: int | None
    """None: `...`, any."""
    size: int
    ack: int | None = None
    win: int | None = None
    """Not checked when None; 0 when sent."""
    urg: int = 0
    options: tuple[TcpOption, ...] | None = ()
    """None: `<...>`, not checked."""
    src_port: int = 0
    dst_port: int = 0


@dataclass(frozen=True, slots=True)
class UdpSpec:
    size: int
    src_port: int = 0
    dst_port: int = 0


@dataclass(frozen=True, slots=True)
class IcmpSpec:
    type: str
    code: str = ""
    mtu: int = 0
    seq: int | None = None
    """Sequence number and payload size of the TCP header echoed inside."""
    size: int = 0
    udp_size: int | None = None
    """Size of the UDP datagram echoed inside."""
    echo_id: int = 0


@dataclass(frozen=True, slots=True)
class PacketEvent:
    inbound: bool
    body: TcpSpec | UdpSpec | IcmpSpec
    ip: IpInfo = IpInfo()


@dataclass(frozen=True, slots=True)
class SyscallEvent:
    name: str
    args: tuple[Expr, ...]
    result: Expr
    errno: str = ""
    ends: Micros | None = None
    """Set for a blocking call: when it must return, on the time scale of the event."""


@dataclass(frozen=True, slots=True)
class CommandEvent:
    text: str


@dataclass(frozen=True, slots=True)
class CodeEvent:
    text: str


Action: TypeAlias = PacketEvent | SyscallEvent | CommandEvent | CodeEvent


@dataclass(frozen=True, slots=True)
class Event:
    line: int
    time: Time
    action: Action
    source: str = ""
    """The line as written, for reports."""


@dataclass(frozen=True, slots=True)
class Script:
    options: dict[str, str] = field(default_factory=dict)
    init: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    cleanup: tuple[str, ...] = ()
