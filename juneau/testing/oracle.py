"""Scapy as a second opinion on packets. Only here is scapy imported, and only when used."""

from __future__ import annotations

from typing import Any

from juneau.netstack.types import TxPacket
from juneau.testing.packets import to_wire


def _inet() -> Any:
    try:
        from scapy.layers import inet
    except ImportError as missing:
        raise ImportError("scapy is not installed (pip install 'juneau[test]')") from missing
    return inet


def dissect(packet: bytes) -> Any:
    """Scapy's IP layer for raw bytes."""
    return _inet().IP(packet)


def rebuilt(packet: bytes) -> bytes:
    """The packet with lengths and checksums as scapy computes them: equal to `packet` if those are right."""
    inet = _inet()
    seen = inet.IP(packet)
    del seen.len, seen.chksum
    for layer in (inet.TCP, inet.UDP, inet.ICMP):
        if layer in seen:
            del seen[layer].chksum
    return bytes(seen)


def check(packet: bytes | TxPacket) -> None:
    """AssertionError if scapy would have written lengths or checksums differently."""
    for raw in to_wire(packet) if isinstance(packet, TxPacket) else [packet]:
        again = rebuilt(raw)
        assert again == raw, f"scapy differs:\n  ours  {raw.hex()}\n  scapy {again.hex()}"
