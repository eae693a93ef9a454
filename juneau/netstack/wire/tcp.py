"""The TCP header and its options (RFC 9293 3.1, RFC 7323, RFC 2018): bytes to values and back."""

from __future__ import annotations

import struct
from typing import Final, Literal, NamedTuple

from juneau.netstack.types import Buffer, Malformed
from juneau.netstack.wire.checksum import fold, ones_sum

HEADER_BYTES: Final = 20
CHECKSUM_OFFSET: Final = 16
MAX_OPTION_BYTES: Final = 40
MAX_WSCALE: Final = 14
"""RFC 7323 2.3: a larger shift is read as 14."""

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10
URG: Final = 0x20
ECE: Final = 0x40
CWR: Final = 0x80
FLAGS_MASK: Final = 0x1FF

HEADER: Final = struct.Struct("!HHIIHHHH")
TIMESTAMP_LAYOUT: Final = 0x0101_080A
"""NOP NOP and the start of a timestamp option: RFC 7323 appendix A's layout, which everybody sends."""
TIMESTAMP_WORDS: Final = struct.Struct("!III")
_EDGES: Final = [struct.Struct(f"!{2 * blocks}I") for blocks in range(32)]
_SACK_OPTION: Final = [struct.Struct(f"!BBBB{2 * blocks}I") for blocks in range(5)]
"""By the number of SACK blocks."""
_TIMESTAMP: Final = struct.Struct("!II")
_LINUX_SYN: Final = struct.Struct("!HHIIIHBB")
"""MSS, SACK permitted, timestamps, NOP, window scale: a SYN's options as Linux sends them."""
_NEW: Final = tuple.__new__

_EOL, _NOP, _MSS, _WSCALE, _SACK_OK, _SACK, _TS = 0, 1, 2, 3, 4, 5, 8

SackBlock = tuple[int, int]
"""Left edge and right edge (the byte after the last), 32 bits each."""


class TcpHeader(NamedTuple):
    src_port: int
    dst_port: int
    seq: int
    ack: int
    offset_flags: int
    """Data offset (4 bits), reserved (3), and nine flags."""
    window: int
    checksum: int
    urgent: int

    @property
    def header_bytes(self) -> int:
        return (self.offset_flags >> 12) * 4

    @property
    def flags(self) -> int:
        return self.offset_flags & FLAGS_MASK


class Options(NamedTuple):
    """None and () stand for an option that is absent, or whose length was wrong."""

    mss: int | None = None
    wscale: int | None = None
    sack_ok: bool = False
    timestamps: tuple[int, int] | None = None
    """TSval, TSecr."""
    sack: tuple[SackBlock, ...] = ()


NO_OPTIONS: Final = Options()


def parse(data: Buffer) -> tuple[TcpHeader, memoryview, memoryview]:
    """Split a segment into header, options and payload, views of `data`. The checksum is not judged."""
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise Malformed("tcp.header", len(view), low=HEADER_BYTES)
    header = TcpHeader._make(HEADER.unpack_from(view))
    size = header.header_bytes
    if not HEADER_BYTES <= size <= len(view):
        raise Malformed("tcp.data_offset", size, low=HEADER_BYTES, high=len(view))
    return header, view[HEADER_BYTES:size], view[size:]


def parse_options(data: Buffer) -> Options:
    """Never raises: an option that does not fit ends the reading (RFC 9293 MUST-7 asks for survival)."""
    if len(data) == _LINUX_SYN.size:
        mss_is, mss, sack_and_ts, ts_val, ts_ecr, scale_is, three, shift = _LINUX_SYN.unpack(data)
        if mss_is == 0x0204 and sack_and_ts == 0x0402_080A and scale_is == 0x0103 and three == 3:
            return _NEW(Options, (mss, min(shift, MAX_WSCALE), True, (ts_val, ts_ecr), ()))
    return _parse_any(data)


def _parse_any(data: Buffer) -> Options:
    mss: int | None = None
    wscale: int | None = None
    sack_ok = False
    timestamps: tuple[int, int] | None = None
    sack: tuple[SackBlock, ...] = ()
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        if kind == _EOL:
            break
        if kind == _NOP:
            at += 1
            continue
        if at + 1 >= end:
            break
        size = data[at + 1]
        if size < 2 or at + size > end:
            break
        if kind == _TS and size == 10:
            timestamps = _TIMESTAMP.unpack_from(data, at + 2)
        elif kind == _SACK and size >= 10 and size % 8 == 2:
            words = _EDGES[size >> 3].unpack_from(data, at + 2)
            sack = tuple(zip(words[::2], words[1::2], strict=True))
        elif kind == _MSS and size == 4:
            mss = data[at + 2] << 8 | data[at + 3]
        elif kind == _WSCALE and size == 3:
            wscale = min(data[at + 2], MAX_WSCALE)
        elif kind == _SACK_OK and size == 2:
            sack_ok = True
        at += size
    return Options(mss, wscale, sack_ok, timestamps, sack)


OptionStyle = Literal["linux", "freebsd"]


def build_syn_options(options: Options, style: OptionStyle = "linux") -> bytes:
    """The options of a SYN, padded to 32-bit words, in the order that system sends them."""
    mss, wscale, sack_ok, timestamps, _ = options
    if style == "linux" and mss is not None and wscale is not None and sack_ok and timestamps is not None:
        return _LINUX_SYN.pack(0x0204, mss, 0x0402_080A, *timestamps, 0x0103, 3, wscale)
    return _build_any(options, style)


def _build_any(options: Options, style: OptionStyle) -> bytes:
    mss, wscale = options.mss, options.wscale
    out = b"" if mss is None else struct.pack("!BBH", _MSS, 4, mss)
    timestamps = b"" if options.timestamps is None else b"\x08\x0a" + _TIMESTAMP.pack(*options.timestamps)
    scale = b"" if wscale is None else bytes((_NOP, _WSCALE, 3, wscale))
    sack_ok = b"\x04\x02" if options.sack_ok else b""
    if style == "freebsd":
        out += scale + sack_ok + (timestamps if sack_ok or not timestamps else b"\1\1" + timestamps)
        return out + b"\0" * (-len(out) % 4)
    if timestamps:
        return out + (sack_ok or b"\1\1") + timestamps + scale
    return out + (b"\1\1" + sack_ok if sack_ok else b"") + scale


def build_sack(blocks: tuple[SackBlock, ...]) -> bytes:
    """NOP NOP and a SACK option: 4 + 8n bytes."""
    words = [edge for block in blocks for edge in block]
    return _SACK_OPTION[len(blocks)].pack(_NOP, _NOP, _SACK, 2 + 4 * len(words), *words)


def build_timestamps(val: int, ecr: int) -> bytes:
    return TIMESTAMP_WORDS.pack(TIMESTAMP_LAYOUT, val, ecr)


def build(
    src_port: int,
    dst_port: int,
    *,
    seq: int,
    ack: int,
    flags: int,
    window: int,
    options: bytes = b"",
    urgent: int = 0,
    pseudo: int = 0,
    payload: Buffer = b"",
) -> bytes:
    """Header and options with the checksum over `payload` too, which the caller appends.

    `pseudo` is the pseudo-header's sum; `options` must fill 32-bit words.
    """
    offset_flags = (HEADER_BYTES + len(options)) << 10 | flags
    bare = HEADER.pack(src_port, dst_port, seq, ack, offset_flags, window, 0, urgent)
    total = pseudo + ones_sum(bare) + ones_sum(options) + ones_sum(payload)
    value = 0xFFFF - fold(total)
    return HEADER.pack(src_port, dst_port, seq, ack, offset_flags, window, value, urgent) + options
