"""One tenant's TCP/IP stack, sans-IO: IPv4 in, IPv4 out, events for the application.

Here packets are judged by IPv4's rules and handed on; TCP, UDP, ICMP and reassembly decide the
rest. The driver calls `receive` for each packet and then, once per batch, `take_events`,
`take_packets` and `next_timeout`.
"""

from __future__ import annotations

from typing import Final, Protocol

from juneau.netstack.counters import Counters
from juneau.netstack.events import Event
from juneau.netstack.icmp import IcmpLayer
from juneau.netstack.limits import Limits
from juneau.netstack.output import Output
from juneau.netstack.reassembly import Reassembler
from juneau.netstack.tap import Tap, complete_pieces
from juneau.netstack.tcp import TcpConnection, TcpLayer, TcpListener, TcpOptions
from juneau.netstack.types import Buffer, Endpoint, Link, Malformed, Micros, Misuse, Path, Rng, TxPacket
from juneau.netstack.udp import UdpLayer, UdpSocket
from juneau.netstack.wire import icmp, ipv4
from juneau.netstack.wire.ipv4 import FRAGMENT_MASK, HEADER_BYTES, PROTO_ICMP, PROTO_TCP, PROTO_UDP

MIN_MTU: Final = 68
"""RFC 791: every link carries this much."""
MAX_PADDING: Final = 64
"""Ethernet pads by up to 46 bytes. A buffer with more behind its packet is copied, not kept."""

_unpack_header = ipv4.HEADER.unpack_from
_make_header = ipv4.Ipv4Header._make


class Receive(Protocol):
    def __call__(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None: ...


class Stack:
    def __init__(
        self,
        *,
        link: Link = Link(),  # noqa: B008 (frozen)
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        tcp: TcpOptions = TcpOptions(),  # noqa: B008 (frozen)
        rng: Rng,
        secret: bytes,
    ) -> None:
        """`secret` keys ISNs and SYN cookies (RFC 6528): 16 random bytes or more."""
        if not MIN_MTU <= link.mtu <= ipv4.MAX_TOTAL_LENGTH:
            raise Misuse(f"stack: mtu {link.mtu}, allowed {MIN_MTU}..{ipv4.MAX_TOTAL_LENGTH}")
        self.link = link
        self.limits = limits
        self.counters = Counters()
        self.addresses: set[int] = set()
        """Read it; change it by `add_address` and `remove_address`."""
        self.events: list[Event] = []
        """What the application has yet to hear. Take them by `take_events`, or some and clear the rest."""
        self._output = Output(link, limits, self.counters, rng)
        self._reassembler = Reassembler(limits, self.counters)
        self.tcp = TcpLayer(link, limits, tcp, rng, secret, self.counters, self.events)
        self._udp = UdpLayer(link, limits, self.counters, self.events, self._output, self.addresses, rng)
        self._icmp = IcmpLayer(limits, self.counters, self._output, self.tcp, self._udp)
        self._tap: Tap | None = None
        self.receive: Receive = self._receive
        """Take one IPv4 packet, whose buffer the stack may keep; never raises for any bytes.

        `csum_ok`: the link vouches for the L4 checksum (not for IPv4's or ICMP's).
        """
        self._odd_to_output = True
        self.loopback = False
        """The link brings back what the stack sends to itself: it may come from here or from 127/8."""

    # Addresses

    def add_address(self, ip: int) -> None:
        if is_martian(ip) and not (self.loopback and ip >> 24 == 127):
            raise Misuse(f"add address {ip:#010x}: not a unicast address")
        self.addresses.add(ip)

    def remove_address(self, ip: int, now: Micros) -> None:
        """Abort what runs on `ip`: connections, listeners and sockets."""
        self.addresses.discard(ip)
        self._reassembler.remove_address(ip)
        self._udp.remove_address(ip)
        self.tcp.remove_address(ip, now)

    # Packets in

    def _receive(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None:
        """The fast path: a whole packet for us, without options, in one look at the header."""
        self.counters.values["ip.received"] += 1
        size = len(packet)
        if size >= HEADER_BYTES:
            fields = _unpack_header(packet)
            version_ihl, tos, total_length, _, flags_offset, ttl, proto, _, src, dst = fields
            if (
                version_ihl == 0x45
                and dst in self.addresses
                and not flags_offset & FRAGMENT_MASK
                and HEADER_BYTES <= total_length <= size
                and not (sum(fields) + 255 * (version_ihl + ttl)) % 0xFFFF  # both are high bytes
                and 0x0100_0000 <= src < 0xE000_0000  # not is_martian(src)
                and src >> 24 != 127
                and src not in self.addresses
            ):
                if size - total_length > MAX_PADDING:
                    packet = bytes(packet[:total_length])  # whoever queues a view must not pin the rest
                payload = memoryview(packet)[HEADER_BYTES:total_length]
                if proto == PROTO_TCP:
                    self.tcp.receive(src, dst, tos, payload, path, now, csum_ok)
                elif proto != PROTO_UDP:
                    self._deliver(_make_header(fields), payload, packet, path, now, csum_ok=csum_ok)
                elif not self._udp.receive(src, dst, payload, path, now, csum_ok):
                    self._refuse(icmp.CODE_PORT, _make_header(fields), packet, path, now)
                return
        self._receive_slowly(packet, path, now, csum_ok)

    def _receive_slowly(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool) -> None:
        """Options, fragments and refusals, every check with its own counter (RFC 1122 3.2.1)."""
        try:
            header, payload = ipv4.parse(packet)
        except Malformed as err:
            self.counters.malformed(err)
            return
        if len(packet) - header.total_length > MAX_PADDING:
            packet = bytes(packet[: header.total_length])
            payload = memoryview(packet)[header.header_bytes :]
        if header.dst not in self.addresses:
            self.counters.drop("ip.not_ours")
        elif not self._source_ok(header.src):
            self.counters.drop("ip.martian_source")
        elif header.is_fragment:
            # What was offloaded was whole: nobody vouches for the sum of fragments.
            whole = self._reassembler.receive(header, payload, packet, path, now)
            if whole is not None:
                self._deliver(*ipv4.parse(whole), whole, path, now, csum_ok=False)
        else:
            self._deliver(header, payload, packet, path, now, csum_ok=csum_ok)

    def _source_ok(self, src: int) -> bool:
        """RFC 1122 3.2.1.3: a unicast address, and not ours unless the link loops back."""
        if is_martian(src):
            return self.loopback and src >> 24 == 127
        return self.loopback or src not in self.addresses

    def _deliver(
        self,
        header: ipv4.Ipv4Header,
        payload: memoryview,
        packet: Buffer,
        path: Path,
        now: Micros,
        *,
        csum_ok: bool,
    ) -> None:
        if header.proto == PROTO_TCP:
            self.tcp.receive(header.src, header.dst, header.tos, payload, path, now, csum_ok)
        elif header.proto == PROTO_UDP:
            if not self._udp.receive(header.src, header.dst, payload, path, now, csum_ok):
                self._refuse(icmp.CODE_PORT, header, packet, path, now)
        elif header.proto == PROTO_ICMP:
            self._icmp.receive(header, payload, path, now)
        else:
            self.counters.drop("ip.unknown_protocol")
            self._refuse(icmp.CODE_PROTOCOL, header, packet, path, now)

    def _refuse(self, code: int, header: ipv4.Ipv4Header, packet: Buffer, path: Path, now: Micros) -> None:
        self._icmp.send_error(icmp.UNREACHABLE, code, header, packet, path, now)

    # Time

    def handle_timeout(self, now: Micros) -> None:
        self._output.now = now
        for header, packet, path in self._reassembler.expire(now):
            self._icmp.send_error(icmp.TIME_EXCEEDED, icmp.CODE_REASSEMBLY, header, packet, path, now)
        self.tcp.handle_timeout(now)

    def next_timeout(self) -> Micros | None:
        """When `handle_timeout` or `take_packets` is due, maybe in the past; None: only input matters."""
        if self.wants_output:
            return self._output.now
        due = [t for t in (self._reassembler.next_timeout(), self.tcp.next_timeout()) if t is not None]
        return min(due, default=None)

    def quiet_until(self, at: Micros) -> bool:
        """Whether nothing is due before `at`, as far as a glance can tell: a timer set for then may stay."""
        return not self._output.queue and not self._reassembler.datagrams and self.tcp.quiet_until(at)

    # Packets and events out

    @property
    def wants_output(self) -> bool:
        """Whether `take_packets` would find something."""
        return bool(self._output.queue) or self.tcp.wants_output

    @property
    def in_hurry(self) -> bool:
        """`take_packets` should not wait for what the application says to the events: ACKs of bulk data
        are due, and they are the peer's clock."""
        return self.tcp.hurry

    def take_packets(self, now: Micros, budget: int = 64) -> list[TxPacket]:
        """Up to `budget` packets: half for ICMP and UDP, half for TCP, what one leaves goes to the other."""
        self._output.now = now
        if not self._output.queue:
            packets = self.tcp.take_packets(now, budget)
        else:
            share = budget - budget // 2 if self._odd_to_output else budget // 2
            self._odd_to_output = not self._odd_to_output
            packets = self._output.take(share)
            packets += self.tcp.take_packets(now, budget - len(packets))
            packets += self._output.take(budget - len(packets))
        self.counters.add("ip.sent", len(packets))
        if self._tap is not None:
            for packet in packets:
                self._tap("out", complete_pieces(packet), packet.path, now, None)
        return packets

    def take_events(self) -> list[Event]:
        events = self.events[:]
        self.events.clear()
        return events

    # For applications

    def tcp_listen(self, local: Endpoint, *, backlog: int = 128, user: object = None) -> TcpListener:
        """Raises Misuse if the endpoint is taken; ip 0 stands for every address of the stack."""
        return self.tcp.listen(local, backlog=backlog, user=user)

    def tcp_connect(
        self, remote: Endpoint, *, local: Endpoint, path: Path, now: Micros, user: object = None
    ) -> TcpConnection:
        """Start an active open. `local.port` 0: an ephemeral one, Refused if none is left."""
        return self.tcp.connect(remote, local=local, path=path, now=now, user=user)

    def udp_bind(self, local: Endpoint, *, user: object = None) -> UdpSocket:
        """ip 0: every address of the stack; port 0: an ephemeral one. Misuse if taken, Refused by a limit."""
        return self._udp.bind(local, user)

    # Captures

    @property
    def tap(self) -> Tap | None:
        """Sees each packet that comes in (with the reason, if it was dropped), goes out, or is
        dropped on the way out. Costs nothing while None."""
        return self._tap

    @tap.setter
    def tap(self, tap: Tap | None) -> None:
        self._tap = self._output.tap = tap
        self.receive = self._receive if tap is None else self._receive_tapped

    def _receive_tapped(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None:
        self._output.now = now
        self.counters.forget_drop()
        self._receive(packet, path, now, csum_ok)
        if self._tap is not None:
            self._tap("in", (packet,), path, now, self.counters.last_drop)


def is_martian(ip: int) -> bool:
    """No unicast source: this network, loopback, multicast, reserved, broadcast (RFC 1122 3.2.1.3)."""
    return not 0x0100_0000 <= ip < 0xE000_0000 or ip >> 24 == 127
