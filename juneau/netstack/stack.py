"""One tenant's TCP/IP stack, sans-IO: IPv4 in, IPv4 out, events for the application.

Here packets are judged by IPv4's rules and handed on; TCP, UDP, ICMP and reassembly decide the
rest. The driver calls `receive` for each packet and then, once per batch, `take_events`,
`take_packets` and `next_timeout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from juneau.netstack.counters import Counters
from juneau.netstack.events import Event
from juneau.netstack.limits import Limits
from juneau.netstack.types import Buffer, Endpoint, Link, Micros, Path, Rng, TxPacket
from juneau.netstack.wire import ipv4

if TYPE_CHECKING:
    from juneau.netstack.tcp import TcpConnection, TcpListener, TcpOptions


class Stack:
    def __init__(
        self,
        *,
        link: Link = Link(),  # noqa: B008 (frozen)
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        tcp: TcpOptions | None = None,
        rng: Rng,
        secret: bytes,
    ) -> None:
        """`secret` keys ISNs and SYN cookies (RFC 6528): 16 random bytes or more."""
        from juneau.netstack.tcp import TcpLayer, TcpOptions

        self.link = link
        self.limits = limits
        self.counters = Counters()
        self.addresses: set[int] = set()
        self._events: list[Event] = []
        self.tcp = TcpLayer(link, limits, tcp or TcpOptions(), rng, secret, self.counters, self._events)

    def add_address(self, ip: int) -> None:
        self.addresses.add(ip)

    def remove_address(self, ip: int, now: Micros) -> None:
        """Abort what runs on `ip`: connections, listeners and sockets."""
        self.addresses.discard(ip)
        self.tcp.remove_address(ip, now)

    def receive(self, packet: Buffer, path: Path, now: Micros, *, csum_ok: bool = False) -> None:
        """Take one IPv4 packet, whose buffer the stack may keep; never raises for any bytes.

        `csum_ok`: the link vouches for the L4 checksum.
        """
        header, payload = ipv4.parse(packet)
        if header.dst in self.addresses and header.proto == ipv4.PROTO_TCP:
            self.tcp.receive(header, payload, path, now, csum_ok=csum_ok)

    def handle_timeout(self, now: Micros) -> None:
        self.tcp.handle_timeout(now)

    def next_timeout(self) -> Micros | None:
        """When `handle_timeout` or `take_packets` is due; None if only a packet can change anything."""
        return self.tcp.next_timeout()

    def take_packets(self, now: Micros, budget: int = 64) -> list[TxPacket]:
        return self.tcp.take_packets(now, budget)

    def take_events(self) -> list[Event]:
        events = self._events[:]
        self._events.clear()
        return events

    def tcp_listen(self, local: Endpoint, *, backlog: int = 128, user: object = None) -> TcpListener:
        """Raises Misuse if the endpoint is taken; ip 0 stands for every address of the stack."""
        return self.tcp.listen(local, backlog=backlog, user=user)

    def tcp_connect(
        self, remote: Endpoint, *, local: Endpoint, path: Path, now: Micros, user: object = None
    ) -> TcpConnection:
        """Start an active open. `local.port` 0: an ephemeral one, Refused if none is left."""
        return self.tcp.connect(remote, local=local, path=path, now=now, user=user)
