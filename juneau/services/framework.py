"""A service is one class; the host binds it in every Subnet it applies to, and keeps it so.

    class Hello(VirtualService):
        name = "hello"
        tcp_ports = (8080,)

        async def handle_tcp(self, reader, writer): ...

That is all of it: address, MAC, ARP, map entries, limits, counters, shutdown and the coming and
going of Subnets are the host's.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from ssl import SSLContext
from typing import Any, Final

from juneau.model.cluster import ClusterView, Subnet, Vpc
from juneau.model.ids import Mac, Protocol
from juneau.services.datagrams import PacketHandler, PacketRequest, Responder
from juneau.services.limits import TcpLimits, UdpLimits
from juneau.services.metrics import Metrics
from juneau.services.streams import StreamHandler

FIRST_FOREIGN_ID: Final = 1000
"""Ids below are this repository's: `juneau.model.ids.ServiceId`."""

DNS_OFFSET: Final = 2
FIRST_FREE_OFFSET: Final = 3


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of a service, and what answers there: a handler, or a protocol factory."""

    proto: Protocol
    port: int
    handle: StreamHandler | PacketHandler | None = None
    protocol_factory: Callable[[], asyncio.BaseProtocol] | None = None
    """For foreign servers: what they would give to `loop.create_server`."""
    ssl: SSLContext | None = None
    """TCP only: TLS from the first byte."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What the host gives a service before it starts."""

    view: Callable[[], ClusterView]
    """The newest view. Do not keep what it returns."""
    metrics: Metrics


def reserved_address(subnet: Subnet, offset: int) -> IPv4Address | None:
    """Host number `offset` of `subnet`; None if that is no host address there."""
    if not 0 < offset < subnet.cidr.num_addresses - 1:
        return None
    ip = subnet.cidr.network_address + offset
    return None if ip == subnet.gateway else ip


def service_mac(vpc: str, subnet: str, offset: int) -> Mac:
    """Locally administered, and the same on every node and after every restart.

    It begins with 0a: never the 02:4a of the stamps between kernel and stack.
    """
    digest = hashlib.blake2b(f"{vpc}\0{subnet}\0{offset}".encode(), digest_size=5).digest()
    return Mac(b"\x0a" + digest)


def foreign_service_id(name: str) -> int:
    return FIRST_FOREIGN_ID + zlib.crc32(name.encode()) % 2**24


class VirtualService:
    """Base of every service. Override what differs; the defaults are a service at `.3` in every Subnet."""

    name: str = ""
    """Unique, short, lower case: a label of metrics and log lines. Empty: the class name in lower case."""
    service_id: int = 0
    """What the kernel's map records. 0: derived from the name, from 1000 up."""
    offset: int = FIRST_FREE_OFFSET
    """The host number inside each Subnet. Services may share one; their ports then must differ."""
    tcp_ports: tuple[int, ...] = ()
    udp_ports: tuple[int, ...] = ()
    tcp_limits: TcpLimits = TcpLimits()
    udp_limits: UdpLimits = UdpLimits()
    udp_unordered: bool = False
    """Answers to one client may overtake each other: where their order means nothing, they cost less."""
    stream_limit: int = 2**16
    """The StreamReader's `limit`, bytes."""

    context: ServiceContext

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()
        if not cls.service_id:
            cls.service_id = foreign_service_id(cls.name)

    @property
    def view(self) -> ClusterView:
        return self.context.view()

    def applies_to(self, subnet: Subnet, vpc: Vpc) -> bool:
        return True

    def address(self, subnet: Subnet) -> IPv4Address | None:
        """The VIP in `subnet`; None: not to be had there."""
        return reserved_address(subnet, self.offset)

    def mac(self, subnet: Subnet, ip: IPv4Address) -> Mac:
        return service_mac(subnet.vpc, subnet.name, int(ip) - int(subnet.cidr.network_address))

    def listeners(self) -> tuple[Listener, ...]:
        tcp = tuple(Listener(Protocol.TCP, port, self.handle_tcp) for port in self.tcp_ports)
        return tcp + tuple(Listener(Protocol.UDP, port, self.handle_udp) for port in self.udp_ports)

    async def start(self) -> None:
        """Once, before the first binding. Raising keeps the service down until the next update."""

    async def stop(self) -> None:
        """Once, after the last binding is gone."""

    async def handle_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError(f"service {self.name}: no handle_tcp for its tcp_ports")

    def handle_udp(self, request: PacketRequest, responder: Responder) -> Awaitable[None] | bytes | None:
        """May be `async`; a plain one must be quick, and may return the answer."""
        raise NotImplementedError(f"service {self.name}: no handle_udp for its udp_ports")


class FunctionService(VirtualService):
    """A lone handler with ports around it: what `juneau serve FILE:handle --tcp 8080` runs."""

    def __init__(
        self,
        handle: Callable[..., Any],
        *,
        name: str = "",
        tcp_ports: tuple[int, ...] = (),
        udp_ports: tuple[int, ...] = (),
        offset: int = FIRST_FREE_OFFSET,
    ) -> None:
        self.name = name or getattr(handle, "__name__", "handle")
        self.service_id = foreign_service_id(self.name)
        self.tcp_ports, self.udp_ports, self.offset = tcp_ports, udp_ports, offset
        self._handle = handle

    async def handle_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._handle(reader, writer)

    def handle_udp(self, request: PacketRequest, responder: Responder) -> Awaitable[None] | None:
        result: Awaitable[None] | None = self._handle(request, responder)
        return result
