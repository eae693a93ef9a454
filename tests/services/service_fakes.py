"""Doubles of the packet plane's maps and of a VPC's stack; connections end in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from juneau.model.cluster import ClusterView, Subnet, Vpc
from juneau.model.ids import Mac, Protocol, ServiceSpec, TenantId, Vip, VirtualAddr

MAC = Mac("0a:00:00:00:00:03")
POD = ("10.80.0.10", 40000)


def spec(port: int = 8080, proto: Protocol = Protocol.TCP, **changes: Any) -> ServiceSpec:
    fields = {
        "service_id": 1000,
        "tenant": TenantId(1, 100),
        "addr": VirtualAddr(IPv4Address(changes.pop("ip", "10.80.0.3")), port, proto),
        "service_mac": MAC,
    }
    return ServiceSpec(**(fields | changes))


class FakeMaps:
    """Remembers every step; a step named in `fail` raises."""

    def __init__(self) -> None:
        self.services: set[ServiceSpec] = set()
        self.vips: set[Vip] = set()
        self.steps: list[str] = []
        self.fail: set[str] = set()

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.fail:
            raise OSError(28, f"{name}: no space left")

    def bind_service(self, spec: ServiceSpec) -> None:
        self._step("bind_service")
        self.services.add(spec)

    def unbind_service(self, spec: ServiceSpec) -> None:
        self._step("unbind_service")
        self.services.remove(spec)

    def add_vip(self, vip: Vip) -> None:
        self._step("add_vip")
        self.vips.add(vip)

    def remove_vip(self, vip: Vip) -> None:
        self._step("remove_vip")
        self.vips.remove(vip)


class FakeTransport(asyncio.Transport):
    """The service's end of a connection."""

    def __init__(self, extra: dict[str, object], protocol: asyncio.Protocol, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "tcp_progress": 0} | extra)
        self.protocol, self.sent, self.state = protocol, bytearray(), "open"
        self.ended = asyncio.Event()

    def write(self, data: Any) -> None:
        self.sent += data

    def receive(self, data: bytes) -> None:
        self._extra["tcp_progress"] += len(data)
        self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self.state != "open"

    def close(self) -> None:
        self._end("closed", None)

    def abort(self) -> None:
        self._end("reset", None)

    def reset_by_peer(self) -> None:
        self._end("peer reset", ConnectionResetError(104, "reset by peer"))

    def get_write_buffer_size(self) -> int:
        return 0

    def _end(self, state: str, error: Exception | None) -> None:
        if self.state == "open":
            self.state = state
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)
            self.ended.set()


class FakeServer:
    def __init__(
        self, stack: FakeStack, where: tuple[str, int], factory: Callable[[], Any], extra: Any
    ) -> None:
        self.stack, self.where, self.factory, self.extra = stack, where, factory, extra
        self.transports: list[FakeTransport] = []
        self.sockets = (where,)

    def is_serving(self) -> bool:
        return self.stack.servers.get(self.where) is self

    def close(self) -> None:
        self.stack.steps.append("close_server")
        if self.is_serving():
            del self.stack.servers[self.where]

    def abort_clients(self) -> None:
        for transport in self.transports:
            transport.abort()

    async def wait_closed(self) -> None:
        return


class FakeDatagrams(asyncio.DatagramTransport):
    def __init__(self, stack: FakeStack, where: tuple[str, int], extra: dict[str, object]) -> None:
        super().__init__(extra)
        self.stack, self.where = stack, where
        self.sent: list[tuple[bytes, tuple[str, int]]] = []

    def sendto(self, data: Any, addr: Any = None) -> None:
        self.sent.append((bytes(data), addr))

    def close(self) -> None:
        self.stack.endpoints.pop(self.where, None)


class FakeStack:
    """The part of AsyncStack that the registry uses, and `connect` and `datagram` to play the Pod."""

    def __init__(self) -> None:
        self.addresses: set[int] = set()
        self.servers: dict[tuple[str, int], FakeServer] = {}
        self.asked: dict[tuple[str, int], dict[str, Any]] = {}
        """What else `create_server` was given."""
        self.endpoints: dict[tuple[str, int], tuple[FakeDatagrams, Any]] = {}
        self.steps: list[str] = []
        self.fail: set[str] = set()
        self.pause: asyncio.Event | None = None

    def add_address(self, ip: int) -> None:
        self.steps.append("add_address")
        self.addresses.add(ip)

    def remove_address(self, ip: int) -> None:
        self.steps.append("remove_address")
        self.addresses.remove(ip)

    async def create_server(
        self, factory: Any, host: str, port: int, *, extra: Any = None, **options: Any
    ) -> FakeServer:
        await self._step("create_server")
        self.asked[host, port] = options
        self.servers[host, port] = server = FakeServer(self, (host, port), factory, dict(extra or {}))
        return server

    async def create_datagram_endpoint(self, factory: Any, local: Any, *, extra: Any = None, **_: Any) -> Any:
        await self._step("create_datagram_endpoint")
        transport, protocol = FakeDatagrams(self, local, dict(extra or {})), factory()
        self.endpoints[local] = transport, protocol
        protocol.connection_made(transport)
        return transport, protocol

    async def _step(self, name: str) -> None:
        self.steps.append(name)
        if self.pause is not None:
            await self.pause.wait()
        if name in self.fail:
            raise OSError(98, f"{name}: address in use")

    def connect(
        self, port: int = 8080, *, ip: str = "10.80.0.3", peer: tuple[str, int] = POD
    ) -> FakeTransport:
        server = self.servers[ip, port]
        protocol = server.factory()
        transport = FakeTransport(server.extra, protocol, peer)
        server.transports.append(transport)
        protocol.connection_made(transport)
        return transport

    def datagram(
        self, data: bytes, port: int, *, ip: str = "10.80.0.3", peer: tuple[str, int] = POD
    ) -> FakeDatagrams:
        transport, protocol = self.endpoints[ip, port]
        protocol.datagram_received(data, peer)
        return transport


async def settle(turns: int = 20) -> None:
    """Let everything that is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)


def subnet(name: str, vpc: str, vni: int, cidr: str = "10.80.0.0/24", *, dns: bool = True) -> Subnet:
    net = IPv4Network(cidr)
    return Subnet(
        name=name,
        vpc=vpc,
        vni=vni,
        cidr=net,
        gateway=net[1],
        gateway_mac=Mac("0a:00:00:00:00:01"),
        dns=net[2] if dns else None,
        dns_mac=Mac("0a:00:00:00:00:02") if dns else None,
    )


def view(*subnets: Subnet, **fields: Any) -> ClusterView:
    vpcs = sorted({s.vpc for s in subnets})
    return ClusterView(
        vpcs={name: Vpc(name, i + 1, consume=True) for i, name in enumerate(vpcs)},
        subnets={s.name: s for s in subnets},
        **fields,
    )
