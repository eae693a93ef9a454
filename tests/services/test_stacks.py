"""Services over real stacks: the registry and the example as a Pod meets them."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path

import pytest
from service_stacks import POD_IP, count, node

from juneau.services import FunctionService, TcpLimits, load_service

HELLO = f"{Path(__file__).parents[2]}/examples/hello.py"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("name", ["Hello", "handle"])
async def test_hello_tells_each_vpc_who_it_is(name):
    service = load_service(f"{HELLO}:{name}", tcp_ports=() if name == "Hello" else (8080,))
    async with node(service) as n:
        one, two = [await n.fetch(GET, 8080, vpc=vpc) for vpc in (1, 2)]
    assert one.partition(b"\r\n\r\n")[2] == f"hello {POD_IP}, this is hello of a (1/100)\n".encode()
    assert two.partition(b"\r\n\r\n")[2] == f"hello {POD_IP}, this is hello of b (2/200)\n".encode()
    assert one.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("offload", [False, True])
async def test_megabytes_both_ways(offload):
    async def handle(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    data = hashlib.shake_256(b"seed").digest(3_000_000)
    async with node(FunctionService(handle, tcp_ports=(7,)), offload=offload) as n:
        reader, writer = await n.connect(7)

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        _, back = await asyncio.gather(send(), reader.read())
        writer.close()
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


async def test_bad_handlers_harm_nobody():
    """One raises, one never reads, one never closes, one writes without drain; the last is served."""

    async def handle(reader, writer):
        match (await reader.readline()).strip():
            case b"raise":
                raise ValueError("boom")
            case b"hang":
                await asyncio.Event().wait()
            case b"flood":
                for _ in range(200):
                    writer.write(bytes(100_000))
        writer.write(b"fine")

    async with node(FunctionService(handle, name="t", tcp_ports=(7,))) as n:
        clients = {name: await n.connect(7) for name in (b"raise", b"hang", b"flood")}
        for name, (_, writer) in clients.items():
            writer.write(name + b"\n")
        assert await n.fetch(b"\n", 7) == b"fine"
        with pytest.raises(ConnectionResetError):
            await clients[b"raise"][0].read()
        flood = await clients[b"flood"][0].read()
        assert len(flood) == 20_000_004
        assert count(n, "tcp.handler_errors", "t") == 1
        for _, writer in clients.values():
            writer.close()


async def test_who_writes_without_end_to_a_client_that_does_not_read_is_reset():
    """The service is called what it is, with the tenant; its other clients are served."""
    block, lost = bytes(1_000_000), asyncio.Event()

    async def handle(reader, writer):
        if await reader.readline() == b"flood\n":
            for _ in range(300):
                writer.write(block)
            with suppress(OSError):
                await writer.drain()
            lost.set()
        writer.write(b"fine")

    async with node(FunctionService(handle, name="t", tcp_ports=(7,))) as n:
        reader, writer = await n.connect(7)
        writer.transport.pause_reading()
        writer.write(b"flood\n")
        await asyncio.wait_for(lost.wait(), 10)
        assert await n.fetch(b"\n", 7) == b"fine"
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert count(n, "tcp.handler_errors", "t") == 1
        assert n.wires[1].service.stack.counters.snapshot()["tcp.unsent_quota"] == 1
        writer.close()


async def test_idle_is_counted_in_bytes_not_in_reads():
    """A server that only pushes is busy; a client that says nothing is reset."""

    async def handle(reader, writer):
        if await reader.readline():
            for _ in range(30):
                writer.write(b".")
                await asyncio.sleep(0.02)

    service = FunctionService(handle, name="t", tcp_ports=(7,))
    service.tcp_limits = TcpLimits(idle_s=0.2)
    async with node(service) as n:
        quiet = await n.connect(7)
        assert await n.fetch(b"go\n", 7) == b"." * 30
        with pytest.raises(ConnectionResetError):
            await quiet[0].read()
        assert count(n, "tcp.idle", "t") == 1
        quiet[1].close()


async def test_over_the_limit_is_reset_and_unbound_is_refused():
    async def handle(reader, writer):
        await reader.read()

    service = FunctionService(handle, name="t", tcp_ports=(7,))
    service.tcp_limits = TcpLimits(connections=1)
    async with node(service) as n:
        first, second = await n.connect(7), await n.connect(7)
        with pytest.raises(ConnectionResetError):
            await second[0].read()
        with pytest.raises(ConnectionRefusedError):
            await n.connect(8)
        await n.host.close()
        with pytest.raises(ConnectionResetError):
            await first[0].read()
        assert n.registry.bindings() == ()
        for _, writer in (first, second):
            writer.close()


async def test_the_writer_is_the_stacks_own():
    """Its `start_tls` works on uvloop as well."""

    async def handle(reader, writer):
        seen.append(type(writer).__module__)
        writer.write(b"ok")

    seen: list[str] = []
    async with node(FunctionService(handle, tcp_ports=(7,))) as n:
        assert await n.fetch(b"", 7) == b"ok"
    assert seen == ["juneau.netstack.aio.streams"]
