"""Matchers that compose: `ip(tcp(flags="SA", ack=1), src="10.0.0.1")`.

An expected value is a plain value, a range, a set, a predicate, or ANY. A matcher equals the packets it
matches, so `assert sent == [ip(tcp(flags="A"))]` works; `check` says in words what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from juneau.netstack.types import TxPacket, format_ip
from juneau.testing import packets

Expected: TypeAlias = Any
"""Value, range, set or frozenset of values, predicate, or ANY."""

ANY: Final = object()


def agrees(expected: Expected, got: object) -> bool:
    if expected is ANY:
        return True
    if isinstance(expected, range | set | frozenset):
        return got in expected
    if callable(expected):
        return bool(cast(Callable[[object], object], expected)(got))
    return bool(expected == got)


@dataclass(frozen=True, eq=False)
class Layer:
    """Expectations about one header: the attributes of the decoded value, by name."""

    name: str
    fields: dict[str, Expected]
    inner: tuple[Layer, ...] = ()

    def differences(self, packet: packets.Packet) -> list[str]:
        """One line for each thing that is not as expected; empty: it matches."""
        header = packet.ip if self.name == "ip" else getattr(packet, self.name)
        if header is None:
            return [f"{self.name}: expected, but the packet has none"]
        found = [
            f"{self.name}.{name}: expected {_show(name, expected)}, got {_show(name, getattr(header, name))}"
            for name, expected in self.fields.items()
            if not agrees(expected, getattr(header, name))
        ]
        if not packet.ip.checksum_ok:
            found.append("ip.checksum: wrong")
        if not packet.l4_checksum_ok:
            found.append(f"{self.name}.checksum: wrong")
        for layer in self.inner:
            found += layer.differences(packet)
        return found

    def __eq__(self, other: object) -> bool:
        """Equal to raw bytes, a TxPacket or a decoded packet that it matches."""
        if not isinstance(other, bytes | memoryview | TxPacket | packets.Packet):
            return NotImplemented
        return not self.differences(as_packet(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [
            *map(repr, self.inner),
            *(f"{name}={_show(name, value)}" for name, value in self.fields.items()),
        ]
        return f"{self.name}({', '.join(parts)})"


def ip(*inner: Layer, src: Expected = ANY, dst: Expected = ANY, **fields: Expected) -> Layer:
    """`src` and `dst` as dotted quads or integers; other fields as in `packets.Ipv4`."""
    ends = {"src": _address(src), "dst": _address(dst)}
    return Layer("ip", {name: value for name, value in (ends | fields).items() if value is not ANY}, inner)


def tcp(*, flags: Expected = ANY, **fields: Expected) -> Layer:
    """`flags` in letters ("SA" or "S."); other fields as in `packets.Tcp`."""
    if isinstance(flags, str):
        flags = packets.flag_bits(flags)
    return Layer("tcp", fields if flags is ANY else {"flags": flags, **fields})


def udp(**fields: Expected) -> Layer:
    return Layer("udp", fields)


def icmp(**fields: Expected) -> Layer:
    return Layer("icmp", fields)


def as_packet(value: bytes | memoryview | TxPacket | packets.Packet) -> packets.Packet:
    """Partial checksums are completed first, as the link would."""
    if isinstance(value, packets.Packet):
        return value
    if isinstance(value, TxPacket):
        return packets.decode(packets.complete_checksum(value.to_bytes(), value))
    return packets.decode(value)


def check(sent: Iterable[bytes | TxPacket], expected: Sequence[Layer]) -> None:
    """Assert that exactly the expected packets were sent, in order; the message shows what differs."""
    got = [as_packet(packet) for packet in sent]
    lines = [
        f"packet {number}: {difference}"
        for number, (packet, layer) in enumerate(zip(got, expected, strict=False))
        for difference in layer.differences(packet)
    ]
    lines += [f"unexpected packet: {describe(packet)}" for packet in got[len(expected) :]]
    lines += [f"missing packet: {layer!r}" for layer in expected[len(got) :]]
    assert not lines, "\n".join(lines)


def describe(packet: bytes | TxPacket | packets.Packet) -> str:
    """One line for people."""
    seen = as_packet(packet)
    ends = f"{format_ip(seen.ip.src)} > {format_ip(seen.ip.dst)}"
    if seen.tcp is not None:
        segment = seen.tcp
        return (
            f"{ends} tcp {segment.sport} > {segment.dport} {segment.flag_text or '-'}"
            f" {segment.seq}:{(segment.seq + len(segment.payload)) % 2**32}({len(segment.payload)})"
            f" ack {segment.ack} win {segment.wnd}"
        )
    if seen.udp is not None:
        return f"{ends} udp {seen.udp.sport} > {seen.udp.dport} ({len(seen.udp.payload)})"
    if seen.icmp is not None:
        return f"{ends} icmp type {seen.icmp.type} code {seen.icmp.code} ({len(seen.icmp.payload)})"
    return (
        f"{ends} proto {seen.ip.proto} offset {seen.ip.frag_offset} ({len(seen.raw) - seen.ip.header_length})"
    )


def _address(value: Expected) -> Expected:
    return packets.address(value) if isinstance(value, str) else value


def _show(name: str, value: object) -> str:
    if name in ("src", "dst") and isinstance(value, int):
        return format_ip(value)
    if name == "flags" and isinstance(value, int):
        return packets.flag_text(value) or "-"
    return repr(value)
