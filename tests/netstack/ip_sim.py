"""A stack with one address under a test's own clock."""

from __future__ import annotations

import random

from juneau.netstack.limits import Limits
from juneau.netstack.stack import Stack
from juneau.netstack.types import SECOND, Link, Micros, parse_ip

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"
ME, PEER = parse_ip(SERVER), parse_ip(CLIENT)


class Sim:
    def __init__(self, *, link: Link | None = None, limits: Limits | None = None) -> None:
        self.stack = Stack(
            link=link or Link(), limits=limits or Limits(), rng=random.Random(1), secret=bytes(16)
        )
        self.stack.add_address(ME)
        self.now: Micros = 1_000 * SECOND

    def receive(self, packet: bytes, path: str = "pod-a", **kw: bool) -> list[bytes]:
        """Hand in a packet; all that the stack sends at once."""
        self.stack.receive(packet, path, self.now, **kw)
        return self.sent()

    def sent(self) -> list[bytes]:
        packets: list[bytes] = []
        while batch := self.stack.take_packets(self.now):
            packets += [packet.to_bytes() for packet in batch]
        return packets

    def advance(self, duration: Micros) -> list[bytes]:
        """Fire every timer due within `duration`, in order; all that the stack sent."""
        end, packets = self.now + duration, self.sent()
        while (due := self.stack.next_timeout()) is not None and due <= end:
            self.now = max(self.now, due)
            self.stack.handle_timeout(self.now)
            packets += self.sent()
        self.now = end
        return packets

    def drops(self) -> dict[str, int]:
        """Every counter but those of ordinary traffic."""
        usual = {"ip.received", "ip.sent", "ip.fragments", "ip.reassembled", "udp.received", "udp.sent"}
        return {k: v for k, v in self.stack.counters.snapshot().items() if k not in usual}
