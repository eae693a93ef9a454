"""Packets and packetdrill's notation: bytes from a script line, a script line from a packet."""

from __future__ import annotations

from typing import Final

from juneau.testing import packets
from juneau.testing.packetdrill.model import TcpOption, TcpSpec

_ORDER: Final = (
    ("S", 0x02),
    ("F", 0x01),
    ("R", 0x04),
    ("P", 0x08),
    ("U", 0x20),
    ("E", 0x40),
    ("W", 0x80),
    ("A", 0x100),
)
_BITS: Final = dict(_ORDER) | {".": 0x10, "C": 0x80}
_CHECKED: Final = 0x1FF

PATTERN: Final = bytes(range(251))
"""The stream both ends send; its length is prime, so that lost or doubled blocks show."""


def stream(offset: int, size: int) -> bytes:
    """`size` bytes of the stream from `offset`, which may be negative (a keepalive's byte)."""
    start = offset % len(PATTERN)
    whole = PATTERN * (size // len(PATTERN) + 2)
    return whole[start : start + size]


def flag_bits(flags: str) -> int:
    """Digits are the ACE counter of accurate ECN: AE, CWR, ECE as bits 4, 2, 1."""
    bits = 0
    for letter in flags:
        if letter.isdigit():
            ace = int(letter)
            bits |= (ace & 4) << 6 | (ace & 2) << 6 | (ace & 1) << 6
        else:
            bits |= _BITS[letter]
    return bits


def flag_letters(bits: int) -> str:
    return "".join(letter for letter, bit in _ORDER if bits & bit) + ("." if bits & 0x10 else "") or "-"


def options_of(segment: packets.Tcp) -> tuple[TcpOption, ...]:
    """Read a segment's options into a script's words; unknown kinds keep their bytes."""
    found = []
    for kind, value in segment.options:
        name = _NAMES.get(kind)
        if name is None:
            found.append(TcpOption(f"kind{kind}", (), value))
        elif name in ("md5", "FO"):
            found.append(TcpOption(name, (), value))
        else:
            width = {"wscale": 1, "mss": 2}.get(name, 4)
            words = tuple(int.from_bytes(value[at : at + width], "big") for at in range(0, len(value), width))
            found.append(TcpOption(name, words))
    return tuple(found)


_NAMES: Final = {
    0: "eol",
    1: "nop",
    2: "mss",
    3: "wscale",
    4: "sackOK",
    5: "sack",
    8: "TS",
    19: "md5",
    34: "FO",
}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()} | {"FOEXP": 254}


def option_bytes(option: TcpOption) -> bytes:
    kind = _KINDS[option.name]
    if kind < 2:
        return bytes((kind,))
    width = {"wscale": 1, "mss": 2}.get(option.name, 4)
    body = b"".join(value.to_bytes(width, "big") for value in option.values)
    magic = b"\xf9\x89" if option.name == "FOEXP" else b""
    value = magic + option.blob + body
    return bytes((kind, 2 + len(value))) + value


def show_option(option: TcpOption) -> str:
    if option.name == "TS":
        return f"TS val {option.values[0]} ecr {option.values[1]}"
    if option.name == "sack":
        edges = option.values
        return " ".join(["sack", *(f"{a}:{b}" for a, b in zip(edges[::2], edges[1::2], strict=False))])
    return " ".join([option.name, *map(str, option.values), *([option.blob.hex()] if option.blob else [])])


def show_tcp(spec: TcpSpec, ecn: int | None = None) -> str:
    mark = {1: "[ect1] ", 2: "[ect0] ", 3: "[ce] "}.get(ecn or 0, "")
    seq = "..." if spec.seq is None else f"{spec.seq}:{(spec.seq + spec.size) % 2**32}"
    text = f"{mark}{spec.flags or '-'} {seq}({spec.size})"
    text += "" if spec.ack is None else f" ack {spec.ack}"
    text += "" if spec.win is None else f" win {spec.win}"
    text += f" urg {spec.urg}" if spec.urg else ""
    if spec.options is None:
        return text + " <...>"
    return text + (f" <{','.join(map(show_option, spec.options))}>" if spec.options else "")
