"""pcapng (draft-ietf-opsawg-pcapng) blocks: enough to write captures for Wireshark and to read
them back in tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed

LINKTYPE_ETHERNET: Final = 1
LINKTYPE_RAW: Final = 101
"""Starts with an IP header."""

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_STATISTICS: Final = 5
_ENHANCED_PACKET: Final = 6
_MAGIC: Final = 0x1A2B3C4D

_OPT_END: Final = 0
_OPT_COMMENT: Final = 1
_SHB_USERAPPL: Final = 4
_IF_NAME: Final = 2
_IF_DESCRIPTION: Final = 3
_IF_TSRESOL: Final = 9
_EPB_FLAGS: Final = 2
_ISB_IFRECV: Final = 4
_ISB_IFDROP: Final = 5

MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024
"""The reader refuses more; Wireshark's limit too."""

INBOUND: Final = 1
OUTBOUND: Final = 2


def section_header(application: str = "juneau") -> bytes:
    """Starts a file. Its length is left unspecified, so that packets can follow for ever."""
    body = struct.pack("<IHHq", _MAGIC, 1, 0, -1)
    return _block(_SECTION, body + _options([(_SHB_USERAPPL, application.encode())]))


def interface_description(
    name: str, *, linktype: int = LINKTYPE_RAW, tsresol: int = 6, description: str = ""
) -> bytes:
    """Interfaces are numbered from 0 in the order of their blocks. `tsresol` 6: µs, 9: ns."""
    body = struct.pack("<HHI", linktype, 0, 0)  # snap length 0: no limit
    options = [(_IF_NAME, name.encode()), (_IF_TSRESOL, bytes([tsresol]))]
    if description:
        options.append((_IF_DESCRIPTION, description.encode()))
    return _block(_INTERFACE, body + _options(options))


def enhanced_packet(
    interface: int,
    timestamp: int,
    pieces: Iterable[Buffer],
    *,
    direction: int = 0,
    comment: str | None = None,
) -> bytes:
    """One packet; `timestamp` in the interface's unit since 1970, `direction` INBOUND, OUTBOUND or 0."""
    data = b"".join(pieces)
    body = struct.pack("<IIIII", interface, timestamp >> 32, timestamp & 0xFFFF_FFFF, len(data), len(data))
    options = [(_EPB_FLAGS, struct.pack("<I", direction))] if direction else []
    if comment is not None:
        options.append((_OPT_COMMENT, comment.encode()))
    return _block(_ENHANCED_PACKET, body + _padded(data) + _options(options))


def interface_statistics(interface: int, timestamp: int, *, received: int, dropped: int) -> bytes:
    """How many packets came, and how many of these the file lacks because its reader was too slow."""
    body = struct.pack("<III", interface, timestamp >> 32, timestamp & 0xFFFF_FFFF)
    counts = [(_ISB_IFRECV, struct.pack("<Q", received)), (_ISB_IFDROP, struct.pack("<Q", dropped))]
    return _block(_STATISTICS, body + _options(counts))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _options(options: list[tuple[int, bytes]]) -> bytes:
    if not options:
        return b""
    packed = (struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options)
    return b"".join(packed) + struct.pack("<HH", _OPT_END, 0)


def _block(kind: int, body: bytes) -> bytes:
    total = 12 + len(body)
    return struct.pack("<II", kind, total) + body + struct.pack("<I", total)


# Reading


class BlockCutter:
    """Cuts a stream that may end anywhere into whole blocks, and counts what they say."""

    def __init__(self) -> None:
        self.packets = 0
        self.dropped = 0
        """What interfaces' statistics own up to."""
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The blocks that are whole by now. Raises Malformed for a length that no block has."""
        data = self._rest + data
        at = 0
        while at + 8 <= len(data):
            kind, total = struct.unpack_from("<II", data, at)
            if not 12 <= total <= MAX_BLOCK_BYTES or total % 4:
                raise Malformed("pcapng.length", total, low=12, high=MAX_BLOCK_BYTES)
            if at + total > len(data):
                break
            self.packets += kind == _ENHANCED_PACKET
            if kind == _STATISTICS:
                self.dropped += _count(_read_options(data[at + 20 : at + total - 4]), _ISB_IFDROP)
            at += total
        self._rest = data[at:]
        return data[:at]


class Statistics(NamedTuple):
    interface: str
    received: int
    dropped: int


def read_statistics(data: bytes) -> Iterator[Statistics]:
    """The interfaces' counts of a file, as `interface_statistics` wrote them. Raises Malformed."""
    interfaces: list[_Interface] = []
    for kind, body in _read_blocks(data):
        if kind == _INTERFACE:
            interfaces.append(_read_interface(body))
        elif kind == _STATISTICS:
            yield _read_statistics(body, interfaces)


class Packet(NamedTuple):
    interface: str
    timestamp: int
    """In the interface's unit."""
    data: bytes
    direction: int
    comment: str | None


@dataclass(frozen=True, slots=True)
class _Interface:
    name: str
    linktype: int


def read_packets(data: bytes) -> Iterator[Packet]:
    """The packets of a little-endian file with one section. Raises Malformed at the first bad block."""
    interfaces: list[_Interface] = []
    for index, (kind, body) in enumerate(_read_blocks(data)):
        if index == 0:
            _check_section(kind, body)
        elif kind == _INTERFACE:
            interfaces.append(_read_interface(body))
        elif kind == _ENHANCED_PACKET:
            yield _read_packet(body, interfaces)


def _read_blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        left = len(data) - at
        if left < 12:
            raise Malformed("pcapng.block", left, low=12)
        kind, total = struct.unpack_from("<II", data, at)
        if not 12 <= total <= min(left, MAX_BLOCK_BYTES) or total % 4:
            raise Malformed("pcapng.length", total, low=12, high=min(left, MAX_BLOCK_BYTES))
        (trailer,) = struct.unpack_from("<I", data, at + total - 4)
        if trailer != total:
            raise Malformed("pcapng.trailer", trailer, low=total, high=total)
        yield kind, data[at + 8 : at + total - 4]
        at += total


def _check_section(kind: int, body: bytes) -> None:
    if kind != _SECTION:
        raise Malformed("pcapng.section", kind, low=_SECTION, high=_SECTION)
    if len(body) < 16 or struct.unpack_from("<I", body)[0] != _MAGIC:
        raise Malformed("pcapng.byte_order", len(body))


def _read_interface(body: bytes) -> _Interface:
    if len(body) < 8:
        raise Malformed("pcapng.interface", len(body), low=8)
    options = _read_options(body[8:])
    return _Interface(_text(options.get(_IF_NAME, b"")), struct.unpack_from("<H", body)[0])


def _read_statistics(body: bytes, interfaces: list[_Interface]) -> Statistics:
    if len(body) < 12:
        raise Malformed("pcapng.statistics", len(body), low=12)
    (number,) = struct.unpack_from("<I", body)
    if number >= len(interfaces):
        raise Malformed("pcapng.interface_id", number, low=0, high=len(interfaces) - 1)
    options = _read_options(body[12:])
    return Statistics(interfaces[number].name, _count(options, _ISB_IFRECV), _count(options, _ISB_IFDROP))


def _count(options: dict[int, bytes], code: int) -> int:
    return int.from_bytes(options.get(code, b"")[:8], "little")


def _read_packet(body: bytes, interfaces: list[_Interface]) -> Packet:
    if len(body) < 20:
        raise Malformed("pcapng.packet", len(body), low=20)
    number, high, low, captured, _ = struct.unpack_from("<IIIII", body)
    if number >= len(interfaces):
        raise Malformed("pcapng.interface_id", number, low=0, high=len(interfaces) - 1)
    if captured > len(body) - 20:
        raise Malformed("pcapng.captured", captured, low=0, high=len(body) - 20)
    options = _read_options(body[20 + captured + -captured % 4 :])
    flags = options.get(_EPB_FLAGS, b"").ljust(4, b"\0")
    comment = options.get(_OPT_COMMENT)
    return Packet(
        interfaces[number].name,
        high << 32 | low,
        body[20 : 20 + captured],
        flags[0] & 3,
        None if comment is None else _text(comment),
    )


def _read_options(data: bytes) -> dict[int, bytes]:
    options: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from("<HH", data, at)
        if code == _OPT_END:
            break
        if at + 4 + size > len(data):
            raise Malformed("pcapng.option", size, low=0, high=len(data) - at - 4)
        options[code] = data[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
    return options


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
