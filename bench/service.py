"""`bench.handler` at a VIP: what `juneau lab up --service` loads."""

from __future__ import annotations

from bench.handler import PROTOCOL_PORT, STREAMS_PORT, UDP_PORT, Handler, handle
from juneau.model.ids import Protocol
from juneau.services import VirtualService
from juneau.services.datagrams import PacketRequest, Responder
from juneau.services.framework import Listener
from juneau.services.limits import TcpLimits


class Bench(VirtualService):
    tcp_limits = TcpLimits(connections=20_000, connections_per_client=20_000, backlog=4_096)

    handle_tcp = staticmethod(handle)

    def handle_udp(self, request: PacketRequest, responder: Responder) -> None:
        responder.write_response(request.payload)

    def listeners(self) -> tuple[Listener, ...]:
        return (
            Listener(Protocol.TCP, STREAMS_PORT, self.handle_tcp),
            Listener(Protocol.TCP, PROTOCOL_PORT, protocol_factory=Handler),
            Listener(Protocol.UDP, UDP_PORT, self.handle_udp),
        )
