"""Frames that a Pod's kernel would not send, as bytes."""

from __future__ import annotations

from ipaddress import IPv4Address
from struct import pack

from juneau.netstack.wire.checksum import checksum

BROADCAST = b"\xff" * 6


def ethernet(dst: bytes, src: bytes, kind: int, payload: bytes) -> bytes:
    return dst + src + kind.to_bytes(2, "big") + payload


def ipv4(src: str, dst: str, payload: bytes = b"", *, ttl: int = 64, proto: int = 17, **fields: int) -> bytes:
    """`fields`: `total` and `first` (version and IHL) to lie with, `fragment` for flags and offset."""
    total = fields.get("total", 20 + len(payload))
    head = pack(
        "!BBHHHBBH4s4s",
        fields.get("first", 0x45),
        0,
        total,
        0,
        fields.get("fragment", 0),
        ttl,
        proto,
        0,
        IPv4Address(src).packed,
        IPv4Address(dst).packed,
    )
    return head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + payload


def udp(payload: bytes = b"hello", *, dst_port: int = 9) -> bytes:
    return pack("!HHHH", 40_000, dst_port, 8 + len(payload), 0) + payload


def arp(operation: int, sender_mac: bytes, sender: str, target: str, **fields: int) -> bytes:
    return pack(
        "!HHBBH6s4s6s4s",
        fields.get("hardware", 1),
        0x0800,
        6,
        4,
        operation,
        sender_mac,
        IPv4Address(sender).packed,
        bytes(6),
        IPv4Address(target).packed,
    )
