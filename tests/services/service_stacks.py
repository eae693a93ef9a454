"""A node without a kernel: real stacks for two VPCs, each with a Pod's stack at the other end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from service_fakes import FakeMaps, subnet, view

from juneau.model.ids import TenantId
from juneau.netstack.aio import AsyncStack, monotonic_us
from juneau.netstack.stack import Stack
from juneau.netstack.types import Link, TxPacket, parse_ip
from juneau.services import Registry, ServiceHost, VirtualService
from juneau.services.metrics import Labels

POD_IP = "10.80.0.10"


class Wire:
    """Two AsyncStacks back to back; what one sends arrives in the next turn of the loop."""

    def __init__(self, vpc: str, offload: bool) -> None:
        self.service, self.pod = (self._end(f"{vpc} {name}", offload) for name in ("service", "pod"))
        self.pod.add_address(parse_ip(POD_IP))

    def _end(self, name: str, offload: bool) -> AsyncStack:
        link = Link(checksum_offload=offload, tso=offload)
        stack = Stack(link=link, rng=random.Random(name), secret=name.encode().ljust(16)[:16])
        send = lambda packets: asyncio.get_running_loop().call_soon(self._arrive, name, packets)  # noqa: E731
        return AsyncStack(stack, send, name=name, route=lambda _: "wire")

    def _arrive(self, sender: str, packets: list[TxPacket]) -> None:
        end = self.pod if sender.endswith("service") else self.service
        for packet in packets:
            end.receive(packet.to_bytes(), "wire", monotonic_us(), bool(packet.csum_start))
        end.settle()


class Node:
    """Two VPCs with the same addresses, `a` and `b`, and a Pod at 10.80.0.10 in each."""

    def __init__(self, services: Sequence[VirtualService], *, offload: bool = False) -> None:
        self.wires = {1: Wire("a", offload), 2: Wire("b", offload)}
        self.registry = Registry(FakeMaps(), lambda vpc_id: self.wires[vpc_id].service)
        self.host = ServiceHost(self.registry, services)

    async def up(self, **fields: Any) -> None:
        await self.host.update(view(subnet("a-net", "a", 100), subnet("b-net", "b", 200), **fields))

    async def connect(self, port: int, *, vpc: int = 1, ip: str = "10.80.0.3") -> Any:
        return await self.wires[vpc].pod.open_connection(ip, port)

    async def fetch(self, request: bytes, port: int, *, vpc: int = 1, ip: str = "10.80.0.3") -> bytes:
        """Send, half-close, and read to the end."""
        reader, writer = await self.connect(port, vpc=vpc, ip=ip)
        writer.write(request)
        writer.write_eof()
        answer: bytes = await reader.read()
        writer.close()
        return answer

    async def datagram(self, payload: bytes, port: int, *, vpc: int = 1, ip: str = "10.80.0.3") -> bytes:
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        class Client(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                if not received.done():
                    received.set_result(bytes(data))

        transport, _ = await self.wires[vpc].pod.create_datagram_endpoint(Client, remote_addr=(ip, port))
        try:
            transport.sendto(payload)
            return await received
        finally:
            transport.close()

    async def close(self) -> None:
        await self.host.close()
        await self.registry.close()
        for wire in self.wires.values():
            wire.pod.close()
            wire.service.close()


@asynccontextmanager
async def node(*services: VirtualService, **fields: Any) -> AsyncIterator[Node]:
    offload = fields.pop("offload", False)
    node = Node(services, offload=offload)
    try:
        async with asyncio.timeout(20):
            await node.up(**fields)
            yield node
    finally:
        await node.close()


def count(node: Node, event: str, service: str, tenant: TenantId = TenantId(1, 100)) -> int:  # noqa: B008
    return node.registry.metrics.snapshot().get(Labels(tenant, service), {}).get(event, 0)
