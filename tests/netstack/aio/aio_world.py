"""Two places where the same asyncio program runs: kernel sockets over loopback, and two stacks in memory."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from juneau.netstack.aio import AsyncStack, monotonic_us
from juneau.netstack.limits import Limits
from juneau.netstack.stack import Stack
from juneau.netstack.types import Link, Micros, TxPacket, parse_ip

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"


class Pair:
    """Two AsyncStacks joined back to back; what one sends arrives in the next turn of the loop."""

    def __init__(
        self,
        *,
        offload: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], Micros] = monotonic_us,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.clock = clock
        self.packets = 0
        self.cut = False  # lose everything
        self._queues: dict[str, list[TxPacket]] = {SERVER: [], CLIENT: []}
        link = Link(checksum_offload=offload, tso=offload)
        self.server, self.client = (
            self._end(own, peer, link, limits or Limits(), options)
            for own, peer in ((SERVER, CLIENT), (CLIENT, SERVER))
        )
        self._by_ip = {SERVER: self.server, CLIENT: self.client}

    def _end(self, own: str, peer: str, link: Link, limits: Limits, options: dict[str, Any]) -> AsyncStack:
        stack = Stack(link=link, limits=limits, rng=random.Random(own), secret=own.encode().ljust(16))
        stack.add_address(parse_ip(own))
        queue = self._queues[peer]

        def send(packets: list[TxPacket]) -> None:
            self.packets += len(packets)
            if self.cut:
                return
            if not queue:
                self.loop.call_soon(self._arrive, peer)
            queue.extend(packets)

        return AsyncStack(
            stack, send, loop=self.loop, clock=self.clock, name=own, route=lambda _: "wire", **options
        )

    def _arrive(self, ip: str) -> None:
        queue, end = self._queues[ip], self._by_ip[ip]
        packets, queue[:] = queue[:], []
        now = self.clock()
        for packet in packets:
            end.receive(packet.to_bytes(), "wire", now, bool(packet.csum_start))
        end.settle()

    def close(self) -> None:
        self.client.close()
        self.server.close()


class JuneauWorld:
    name = "juneau"

    def __init__(self, *, offload: bool) -> None:
        self.pair = Pair(offload=offload)

    async def create_server(self, factory: Any, **kw: Any) -> Any:
        return await self.pair.server.create_server(factory, SERVER, 0, **kw)

    async def start_server(self, handler: Any, **kw: Any) -> Any:
        return await self.pair.server.start_server(handler, SERVER, 0, **kw)

    async def create_connection(self, factory: Any, addr: tuple[str, int], **kw: Any) -> Any:
        return await self.pair.client.create_connection(factory, *addr, **kw)

    async def open_connection(self, addr: tuple[str, int], **kw: Any) -> Any:
        return await self.pair.client.open_connection(*addr, **kw)

    async def bind_udp(self, factory: Any) -> Any:
        return await self.pair.server.create_datagram_endpoint(factory, (SERVER, 0))

    async def connect_udp(self, factory: Any, addr: tuple[str, int]) -> Any:
        return await self.pair.client.create_datagram_endpoint(factory, remote_addr=addr)

    def free_address(self) -> tuple[str, int]:
        return SERVER, 9

    async def close(self) -> None:
        self.pair.close()


class KernelWorld:
    name = "kernel"

    async def create_server(self, factory: Any, **kw: Any) -> Any:
        return await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0, **kw)

    async def start_server(self, handler: Any, **kw: Any) -> Any:
        return await asyncio.start_server(handler, "127.0.0.1", 0, **kw)

    async def create_connection(self, factory: Any, addr: tuple[str, int], **kw: Any) -> Any:
        return await asyncio.get_running_loop().create_connection(factory, *addr, **kw)

    async def open_connection(self, addr: tuple[str, int], **kw: Any) -> Any:
        return await asyncio.open_connection(*addr, **kw)

    async def bind_udp(self, factory: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.create_datagram_endpoint(factory, local_addr=("127.0.0.1", 0))

    async def connect_udp(self, factory: Any, addr: tuple[str, int]) -> Any:
        return await asyncio.get_running_loop().create_datagram_endpoint(factory, remote_addr=addr)

    def free_address(self) -> tuple[str, int]:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            host, port = sock.getsockname()
            return host, port

    async def close(self) -> None:
        pass


World = JuneauWorld | KernelWorld


class Tls(NamedTuple):
    """Contexts for service.test; the client trusts nobody else."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def addr_of(server: Any) -> tuple[str, int]:
    host, port = server.sockets[0].getsockname()
    return host, port


def is_uvloop_kernel(world: World) -> bool:
    return world.name == "kernel" and "uvloop" in type(asyncio.get_running_loop()).__module__


async def until(condition: Callable[[], object]) -> None:
    """Wait for what no future tells; the test's own timeout is the bound."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def is_reset(exc: BaseException | None) -> bool:
    return isinstance(exc, ConnectionResetError) and exc.errno == errno.ECONNRESET


class Recorder(asyncio.Protocol):
    """Writes down what the transport tells it."""

    def __init__(self, *, keep_open: bool | None = None) -> None:
        self.calls: list[str] = []
        self.data = bytearray()
        self.keep_open = keep_open
        self.transport: Any = None
        self.error: BaseException | None = None
        loop = asyncio.get_running_loop()
        self.made = loop.create_future()
        self.eof = loop.create_future()
        self.lost = loop.create_future()
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_eof: Callable[[], None] = lambda: None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")
        self.transport = transport
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        if self.calls[-1] != "data":
            self.calls.append("data")
        self.data += data
        self.on_data(data)
        for size, future in self._waiting:
            if len(self.data) >= size and not future.done():
                future.set_result(None)

    async def has(self, size: int) -> bytes:
        if len(self.data) < size:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((size, future))
            await asyncio.wait_for(future, 10)
        return bytes(self.data)

    def eof_received(self) -> bool | None:
        self.calls.append("eof")
        self.on_eof()
        self.eof.set_result(None)
        return self.keep_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.error = exc
        self.lost.set_result(exc)
