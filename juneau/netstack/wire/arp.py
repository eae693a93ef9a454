"""ARP for IPv4 over Ethernet (RFC 826)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from juneau.netstack.types import Buffer, Malformed

PACKET: Final = struct.Struct("!HHBBH6sI6sI")
PACKET_BYTES: Final = 28
_ETHERNET_IPV4: Final = (1, 0x0800, 6, 4)

REQUEST: Final = 1
REPLY: Final = 2


class ArpPacket(NamedTuple):
    oper: int
    sender_mac: bytes
    sender_ip: int
    target_mac: bytes
    target_ip: int

    def build(self) -> bytes:
        return PACKET.pack(*_ETHERNET_IPV4, *self)

    def answer(self, mac: bytes) -> ArpPacket:
        """The reply that says `target_ip` is at `mac`."""
        return ArpPacket(REPLY, mac, self.target_ip, self.sender_mac, self.sender_ip)


def parse(data: Buffer) -> ArpPacket:
    """Trailing bytes are padding. Raises Malformed, also for other hardware or protocols."""
    if len(data) < PACKET_BYTES:
        raise Malformed("arp.packet", len(data), low=PACKET_BYTES)
    fields = PACKET.unpack_from(data)
    for name, got, want in zip(("hrd", "pro", "hln", "pln"), fields, _ETHERNET_IPV4, strict=False):
        if got != want:
            raise Malformed(f"arp.{name}", got, low=want, high=want)
    return ArpPacket._make(fields[4:])
