"""ICMP as a host does it (RFC 792, RFC 1122 3.2.2): echo, errors out at a bounded rate, errors in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from juneau.netstack.counters import Counters
from juneau.netstack.limits import Limits
from juneau.netstack.output import Output
from juneau.netstack.ratelimit import RateLimit
from juneau.netstack.types import Buffer, FourTuple, Malformed, Micros, Path
from juneau.netstack.udp import UdpLayer
from juneau.netstack.wire import icmp as wire
from juneau.netstack.wire.ipv4 import HEADER_BYTES, PROTO_ICMP, PROTO_TCP, PROTO_UDP, Ipv4Header

if TYPE_CHECKING:
    from juneau.netstack.tcp import TcpLayer

_MAX_QUOTE = wire.MAX_ERROR_PACKET - HEADER_BYTES - wire.HEADER_BYTES


class IcmpLayer:
    def __init__(
        self, limits: Limits, counters: Counters, output: Output, tcp: TcpLayer, udp: UdpLayer
    ) -> None:
        self._counters = counters
        self._output = output
        self._tcp = tcp
        self._udp = udp
        self._errors = RateLimit(limits.icmp_errors_per_second, limits.icmp_errors_burst, limits.icmp_paths)
        self._echoes = RateLimit(limits.echo_replies_per_second, limits.echo_replies_burst, limits.icmp_paths)

    def receive(self, ip: Ipv4Header, data: memoryview, path: Path, now: Micros) -> None:
        try:
            message = wire.parse(data)
            if message.type == wire.ECHO_REQUEST:
                self._answer_echo(ip, message, path, now)
            elif kind := wire.error_kind(message):
                self._on_error(ip, wire.parse_error(kind, message), now)
            else:  # RFC 6633 for source quench; a stack without routes has nothing to redirect
                self._counters.drop("icmp.ignored")
        except Malformed as err:
            self._counters.malformed(err)

    def _answer_echo(self, ip: Ipv4Header, message: wire.IcmpMessage, path: Path, now: Micros) -> None:
        if not self._echoes.allow(path, now):
            self._counters.drop("icmp.echo_rate_limited")
            return
        self._counters.add("icmp.echo_replies")
        header = wire.build(wire.ECHO_REPLY, 0, message.rest, (message.payload,))
        tos = ip.tos & ~3  # the request's TOS (RFC 1122 3.2.1.6), not its ECN mark
        self._output.send(path, ip.dst, ip.src, PROTO_ICMP, header, message.payload, tos=tos)

    def _on_error(self, ip: Ipv4Header, error: wire.IcmpError, now: Micros) -> None:
        """Hand an error to the transport it quotes, which judges it further (RFC 5927)."""
        if error.src != ip.dst:
            self._counters.drop("icmp.not_our_packet")
            return
        self._counters.add(f"icmp.in_{error.kind.value}")
        if error.proto == PROTO_TCP:
            flow = FourTuple(error.src, error.src_port, error.dst, error.dst_port)
            self._tcp.receive_icmp_error(flow, error.kind, error.mtu, error.seq, now)
        elif error.proto == PROTO_UDP:
            self._udp.receive_icmp_error(error)
        else:
            self._counters.drop("icmp.not_our_packet")

    def send_error(
        self, kind: int, code: int, ip: Ipv4Header, packet: Buffer, path: Path, now: Micros
    ) -> None:
        """Answer `packet` with an error, unless RFC 1122 3.2.2 or the rate forbids it.

        The caller has seen to it that source and destination are unicast and that `packet` is
        no later fragment.
        """
        if _is_icmp_error(ip, packet):
            self._counters.add("icmp.error_about_error")
        elif not self._errors.allow(path, now):
            self._counters.add("icmp.error_rate_limited")
        else:
            self._counters.add("icmp.errors_sent")
            quote = bytes(packet[: min(ip.total_length, _MAX_QUOTE)])
            header = wire.build(kind, code, 0, (quote,))
            self._output.send(path, ip.dst, ip.src, PROTO_ICMP, header, quote)


def _is_icmp_error(ip: Ipv4Header, packet: Buffer) -> bool:
    """A message too short to tell counts as one."""
    at = ip.header_bytes
    return ip.proto == PROTO_ICMP and (len(packet) <= at or packet[at] in wire.ERROR_TYPES)
