"""Build and take apart raw IPv4 packets with keyword arguments in the RFCs' words.

Written without juneau.netstack.wire, so that each checks the other. Lengths and checksums are right
unless a test passes its own. Addresses are dotted quads or integers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from juneau.netstack.types import Buffer, TxPacket, parse_ip

ICMP: Final = 1
TCP: Final = 6
UDP: Final = 17

FLAG_LETTERS: Final = "FSRPAUEC"
"""Bit 0 up: FIN SYN RST PSH ACK URG ECE CWR (RFC 9293 3.1, RFC 3168)."""
_LETTER_BIT: Final = {letter: 1 << bit for bit, letter in enumerate(FLAG_LETTERS)} | {".": 0x10, "W": 0x80}
AE_BIT: Final = 0x100

Address: TypeAlias = str | int


def address(value: Address) -> int:
    return parse_ip(value) if isinstance(value, str) else value


def flag_bits(flags: str | int) -> int:
    """`"SA"`, `"S."` and 0x12 are the same; W is packetdrill's letter for CWR."""
    if isinstance(flags, int):
        return flags
    bits = 0
    for letter in flags:
        bits |= _LETTER_BIT[letter]
    return bits


def flag_text(bits: int) -> str:
    return "".join(letter for bit, letter in enumerate(FLAG_LETTERS) if bits >> bit & 1)


def internet_checksum(data: bytes) -> int:
    """RFC 1071, the plain way: sum of 16-bit words with the carries folded in."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def pseudo_header(src: Address, dst: Address, proto: int, length: int) -> bytes:
    return struct.pack("!IIBBH", address(src), address(dst), 0, proto, length)


# --- IPv4 ---


def ipv4(
    payload: bytes = b"",
    *,
    src: Address = "10.0.0.2",
    dst: Address = "10.0.0.1",
    proto: int = TCP,
    ttl: int = 64,
    tos: int = 0,
    ident: int = 0,
    df: bool = True,
    mf: bool = False,
    frag_offset: int = 0,
    options: bytes = b"",
    version: int = 4,
    ihl: int | None = None,
    total_length: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """`frag_offset` in bytes, `ihl` in 32-bit words as on the wire."""
    options += b"\0" * (-len(options) % 4)
    words = 5 + len(options) // 4 if ihl is None else ihl
    length = 20 + len(options) + len(payload) if total_length is None else total_length
    fragment = (0x4000 if df else 0) | (0x2000 if mf else 0) | frag_offset // 8
    fields = (version << 4 | words, tos, length, ident, fragment, ttl, proto)
    ends = (address(src), address(dst))
    head = struct.pack("!BBHHHBBHII", *fields, 0, *ends) + options
    value = internet_checksum(head) if checksum is None else checksum
    return struct.pack("!BBHHHBBHII", *fields, value, *ends) + options + payload


def fragments(packet: bytes, size: int) -> list[bytes]:
    """Cut an IPv4 packet without options into fragments of `size` payload bytes (a multiple of 8)."""
    ip, payload = Ipv4.decode(packet), packet[20:]
    return [
        ipv4(
            payload[start : start + size],
            src=ip.src,
            dst=ip.dst,
            proto=ip.proto,
            ttl=ip.ttl,
            ident=ip.ident,
            df=False,
            mf=start + size < len(payload),
            frag_offset=start,
        )
        for start in range(0, len(payload), size)
    ]


# --- TCP options ---

NOP: Final = b"\x01"
EOL: Final = b"\x00"
SACK_OK: Final = b"\x04\x02"


def mss(value: int) -> bytes:
    return struct.pack("!BBH", 2, 4, value)


def wscale(shift: int) -> bytes:
    return bytes((3, 3, shift))


def timestamps(val: int, ecr: int) -> bytes:
    return struct.pack("!BBII", 8, 10, val, ecr)


def sack(*blocks: tuple[int, int]) -> bytes:
    return bytes((5, 2 + 8 * len(blocks))) + b"".join(struct.pack("!II", *block) for block in blocks)


# --- L4 ---


def tcp(
    payload: bytes = b"",
    *,
    src: Address = "10.0.0.2",
    dst: Address = "10.0.0.1",
    sport: int = 40_000,
    dport: int = 80,
    seq: int = 0,
    ack: int = 0,
    flags: str | int = "A",
    wnd: int = 65_535,
    urg: int = 0,
    options: bytes = b"",
    data_offset: int | None = None,
    checksum: int | None = None,
    ttl: int = 64,
    tos: int = 0,
) -> bytes:
    """A whole IPv4 packet with a TCP segment. `data_offset` in 32-bit words as on the wire."""
    segment_bytes = tcp_segment(
        payload, src=src, dst=dst, sport=sport, dport=dport, seq=seq, ack=ack, flags=flags, wnd=wnd,
        urg=urg, options=options, data_offset=data_offset, checksum=checksum,
    )  # fmt: skip
    return ipv4(segment_bytes, src=src, dst=dst, proto=TCP, ttl=ttl, tos=tos)


def tcp_segment(
    payload: bytes = b"",
    *,
    src: Address,
    dst: Address,
    sport: int,
    dport: int,
    seq: int = 0,
    ack: int = 0,
    flags: str | int = "A",
    wnd: int = 65_535,
    urg: int = 0,
    options: bytes = b"",
    data_offset: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """A TCP header and its payload; the addresses serve the checksum only."""
    options += EOL * (-len(options) % 4)
    words = 5 + len(options) // 4 if data_offset is None else data_offset
    bits = flag_bits(flags)
    start = struct.pack(
        "!HHIIHH", sport, dport, seq % 2**32, ack % 2**32, words << 12 | bits & 0x1FF, min(wnd, 65_535)
    )
    tail = struct.pack("!H", urg) + options + payload
    if checksum is None:
        length = len(start) + 2 + len(tail)
        checksum = internet_checksum(pseudo_header(src, dst, TCP, length) + start + b"\0\0" + tail)
    return start + struct.pack("!H", checksum) + tail


def udp(
    payload: bytes = b"",
    *,
    src: Address = "10.0.0.2",
    dst: Address = "10.0.0.1",
    sport: int = 40_000,
    dport: int = 53,
    length: int | None = None,
    checksum: int | None = None,
    ttl: int = 64,
    tos: int = 0,
) -> bytes:
    """A whole IPv4 packet with a UDP datagram. `checksum=0` means none (RFC 768)."""
    size = 8 + len(payload) if length is None else length
    start = struct.pack("!HHH", sport, dport, size)
    if checksum is None:
        pseudo = pseudo_header(src, dst, UDP, 8 + len(payload))
        checksum = internet_checksum(pseudo + start + b"\0\0" + payload) or 0xFFFF
    return ipv4(start + struct.pack("!H", checksum) + payload, src=src, dst=dst, proto=UDP, ttl=ttl, tos=tos)


def icmp(
    payload: bytes = b"",
    *,
    src: Address = "10.0.0.2",
    dst: Address = "10.0.0.1",
    type: int = 8,
    code: int = 0,
    rest: int = 0,
    checksum: int | None = None,
    ttl: int = 64,
    tos: int = 0,
) -> bytes:
    """A whole IPv4 packet with an ICMP message; `rest` is the second 32-bit word."""
    body = struct.pack("!I", rest) + payload
    if checksum is None:
        checksum = internet_checksum(bytes((type, code, 0, 0)) + body)
    message = struct.pack("!BBH", type, code, checksum) + body
    return ipv4(message, src=src, dst=dst, proto=ICMP, ttl=ttl, tos=tos)


def echo(payload: bytes = b"", *, ident: int = 1, seq: int = 1, **ip: str | int) -> bytes:
    return icmp(payload, type=8, rest=ident << 16 | seq, **ip)  # type: ignore[arg-type]


# --- taking apart ---


@dataclass(frozen=True, slots=True)
class Ipv4:
    src: int
    dst: int
    proto: int
    ttl: int
    tos: int
    ident: int
    df: bool
    mf: bool
    frag_offset: int
    total_length: int
    header_length: int
    checksum_ok: bool

    @property
    def ecn(self) -> int:
        return self.tos & 3

    @classmethod
    def decode(cls, packet: bytes) -> Ipv4:
        """Raises ValueError where the bytes are no IPv4 packet."""
        if len(packet) < 20 or packet[0] >> 4 != 4:
            raise ValueError(f"not an IPv4 packet: {packet[:20].hex()}")
        head, tos, length, ident, fragment, ttl, proto, _, src, dst = struct.unpack_from(
            "!BBHHHBBHII", packet
        )
        size = (head & 15) * 4
        if size < 20 or not size <= length <= len(packet):
            raise ValueError(f"ipv4 lengths: header {size}, total {length}, packet {len(packet)}")
        return cls(
            src, dst, proto, ttl, tos, ident, bool(fragment & 0x4000), bool(fragment & 0x2000),
            (fragment & 0x1FFF) * 8, length, size, internet_checksum(packet[:size]) == 0,
        )  # fmt: skip


class Option(NamedTuple):
    """One TCP option: its kind and the bytes after kind and length."""

    kind: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Tcp:
    sport: int
    dport: int
    seq: int
    ack: int
    flags: int
    wnd: int
    urg: int
    options: tuple[Option, ...]
    payload: bytes
    checksum: int
    """As on the wire."""

    @property
    def flag_text(self) -> str:
        return flag_text(self.flags)

    def option(self, kind: int) -> bytes | None:
        return next((value for found, value in self.options if found == kind), None)

    @property
    def mss(self) -> int | None:
        value = self.option(2)
        return None if value is None else int.from_bytes(value, "big")

    @property
    def wscale(self) -> int | None:
        value = self.option(3)
        return None if value is None else value[0]

    @property
    def sack_ok(self) -> bool:
        return self.option(4) is not None

    @property
    def timestamps(self) -> tuple[int, int] | None:
        value = self.option(8)
        return None if value is None else (int.from_bytes(value[:4], "big"), int.from_bytes(value[4:], "big"))

    @property
    def sack(self) -> tuple[tuple[int, int], ...]:
        value = self.option(5) or b""
        words = struct.unpack(f"!{len(value) // 4}I", value)
        return tuple(zip(words[::2], words[1::2], strict=True))

    @classmethod
    def decode(cls, segment_bytes: bytes) -> Tcp:
        if len(segment_bytes) < 20:
            raise ValueError(f"tcp header: got {len(segment_bytes)} bytes, allowed 20..")
        sport, dport, seq, ack, offset_flags, wnd, checksum, urg = struct.unpack_from(
            "!HHIIHHHH", segment_bytes
        )
        size = (offset_flags >> 12) * 4
        if not 20 <= size <= len(segment_bytes):
            raise ValueError(f"tcp data offset: got {size} bytes, allowed 20..{len(segment_bytes)}")
        options = decode_options(segment_bytes[20:size])
        payload = segment_bytes[size:]
        return cls(sport, dport, seq, ack, offset_flags & 0x1FF, wnd, urg, options, payload, checksum)


def decode_options(data: bytes) -> tuple[Option, ...]:
    """Every option in order, NOPs and the first EOL included."""
    found, at = [], 0
    while at < len(data):
        kind = data[at]
        if kind < 2:
            found.append(Option(kind, b""))
            at += 1
            continue
        size = data[at + 1] if at + 1 < len(data) else 0
        if size < 2 or at + size > len(data):
            raise ValueError(f"tcp option {kind}: length {size}, {len(data) - at} bytes left")
        found.append(Option(kind, data[at + 2 : at + size]))
        at += size
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Udp:
    sport: int
    dport: int
    length: int
    checksum: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Icmp:
    type: int
    code: int
    rest: int
    payload: bytes
    checksum_ok: bool


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet taken apart. One of `tcp`, `udp`, `icmp` is set unless it is a later fragment."""

    raw: bytes
    ip: Ipv4
    tcp: Tcp | None = None
    udp: Udp | None = None
    icmp: Icmp | None = None
    l4_checksum_ok: bool = True


def decode(packet: Buffer) -> Packet:
    """Raises ValueError for anything malformed; wrong checksums are told, not raised."""
    raw = bytes(packet)
    ip = Ipv4.decode(raw)
    body = raw[ip.header_length : ip.total_length]
    if ip.frag_offset or ip.mf:
        return Packet(raw, ip)
    if ip.proto == TCP:
        return Packet(raw, ip, tcp=Tcp.decode(body), l4_checksum_ok=_l4_ok(ip, body))
    if ip.proto == UDP and len(body) >= 8:
        sport, dport, length, checksum = struct.unpack_from("!HHHH", body)
        ok = checksum == 0 or _l4_ok(ip, body)
        return Packet(raw, ip, udp=Udp(sport, dport, length, checksum, body[8:]), l4_checksum_ok=ok)
    if ip.proto == ICMP and len(body) >= 8:
        ok = internet_checksum(body) == 0
        rest = int.from_bytes(body[4:8], "big")
        return Packet(raw, ip, icmp=Icmp(body[0], body[1], rest, body[8:], ok), l4_checksum_ok=ok)
    return Packet(raw, ip)


def _l4_ok(ip: Ipv4, body: bytes) -> bool:
    return internet_checksum(pseudo_header(ip.src, ip.dst, ip.proto, len(body)) + body) == 0


# --- what a network card does for a stack ---


def complete_checksum(packet: bytes, tx: TxPacket | None) -> bytes:
    """Fill in the L4 checksum of a packet that `tx` says is partial."""
    if tx is None or not tx.csum_start:
        return packet
    value = internet_checksum(packet[tx.csum_start :])
    at = tx.csum_start + tx.csum_offset
    return packet[:at] + value.to_bytes(2, "big") + packet[at + 2 :]


def segment(tx: TxPacket) -> list[TxPacket]:
    """Cut a superframe into complete packets of `gso_size` payload bytes, as TSO does.

    PSH and FIN stay with the last piece, CWR with the first; the IPv4 ident counts up.
    """
    whole = decode(tx.to_bytes())
    assert whole.tcp is not None, "only TCP has superframes"
    payload, ip, head = whole.tcp.payload, whole.ip, whole.tcp
    option_bytes = tx.header[ip.header_length + 20 :]
    pieces = []
    for number, start in enumerate(range(0, max(1, len(payload)), tx.gso_size)):
        flags = head.flags
        if start + tx.gso_size < len(payload):
            flags &= ~flag_bits("FP")
        if start:
            flags &= ~flag_bits("C")
        body = tcp_segment(
            payload[start : start + tx.gso_size], src=ip.src, dst=ip.dst, sport=head.sport, dport=head.dport,
            seq=head.seq + start, ack=head.ack, flags=flags, wnd=head.wnd, urg=head.urg, options=option_bytes,
        )  # fmt: skip
        raw = ipv4(
            body, src=ip.src, dst=ip.dst, ttl=ip.ttl, tos=ip.tos, df=ip.df, ident=(ip.ident + number) % 65_536
        )
        pieces.append(TxPacket(tx.path, raw))
    return pieces


def to_wire(tx: TxPacket) -> list[bytes]:
    """The complete packets that a network card would put on the wire for `tx`."""
    if tx.gso_size:
        return [piece.to_bytes() for piece in segment(tx)]
    return [complete_checksum(tx.to_bytes(), tx)]
