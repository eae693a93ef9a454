"""Server: what asyncio.Server promises. Where CPython's versions differ, ours is 3.13's on all."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import sys
from typing import Any

import pytest
from aio_world import SERVER, Pair, Recorder, Tls, World, addr_of, is_uvloop_kernel, until


async def within(awaitable: Any, seconds: float = 10) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def wait_for_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_serving(world: World) -> None:
    server = await world.start_server(wait_for_eof)
    assert server.is_serving()
    assert server.get_loop() is asyncio.get_running_loop()
    assert len(server.sockets) == 1
    addr = addr_of(server)
    server.close()
    server.close()
    assert not server.is_serving()
    assert tuple(server.sockets) == ()
    await asyncio.sleep(0.01)
    with pytest.raises(ConnectionRefusedError):
        await within(world.open_connection(addr))
    await within(server.wait_closed())


async def test_closing_leaves_connections_alone(world: World) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await world.start_server(echo)
    reader, writer = await world.open_connection(addr_of(server))
    writer.write(b"1")
    assert await within(reader.read(1)) == b"1"
    server.close()
    writer.write(b"2")
    assert await within(reader.read(1)) == b"2"
    waiting = asyncio.ensure_future(server.wait_closed())
    await asyncio.sleep(0.02)
    if world.name == "juneau":  # 3.12.1 and later; 3.11 and uvloop do not wait
        assert not waiting.done()
    writer.close()
    await within(waiting)


async def test_context_manager(world: World) -> None:
    async with await world.start_server(wait_for_eof) as server:
        assert server.is_serving()
    assert not server.is_serving()


async def test_start_serving_later(world: World) -> None:
    server = await world.start_server(wait_for_eof, start_serving=False)
    assert not server.is_serving()
    await server.start_serving()
    await server.start_serving()
    assert server.is_serving()
    _, writer = await world.open_connection(addr_of(server))
    writer.close()
    server.close()


async def test_serve_forever_is_cancelled(world: World) -> None:
    server = await world.start_server(wait_for_eof, start_serving=False)
    forever = asyncio.ensure_future(server.serve_forever())
    await asyncio.sleep(0.01)
    assert server.is_serving()
    with pytest.raises(RuntimeError):
        await server.serve_forever()
    forever.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forever
    assert not server.is_serving()
    with pytest.raises(RuntimeError):
        await server.serve_forever()


async def test_close_ends_serve_forever(pair: Pair) -> None:
    server = await pair.server.start_server(wait_for_eof, port=80)
    forever = asyncio.ensure_future(server.serve_forever())
    await asyncio.sleep(0)
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await within(forever)


@pytest.mark.parametrize("method", ["close_clients", "abort_clients"])
async def test_ending_the_clients(world: World, method: str) -> None:
    if is_uvloop_kernel(world) or (world.name == "kernel" and sys.version_info < (3, 13)):
        pytest.skip("asyncio.Server has it since 3.13, uvloop not yet")
    server = await world.create_server(Recorder)
    ends = [await world.create_connection(Recorder, addr_of(server)) for _ in range(3)]
    await asyncio.sleep(0.02)
    server.close()
    getattr(server, method)()
    await within(server.wait_closed())
    for _, protocol in ends:
        error = await within(protocol.lost)
        reset = method == "abort_clients" and world.name == "juneau"  # a kernel transport's abort is a FIN
        assert isinstance(error, ConnectionResetError) if reset else error is None


async def test_failing_connection_made(world: World, errors: list[dict[str, Any]]) -> None:
    class Failing(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.abort()
            raise ZeroDivisionError

    server = await world.create_server(Failing)
    transport, protocol = await world.create_connection(Recorder, addr_of(server))
    await within(protocol.lost)
    assert len(errors) == 1
    errors.clear()
    transport.close()
    server.close()


# What only the stack has


async def test_close_clients_says_goodbye_in_tls(pair: Pair, tls: Tls) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hi")
        await wait_for_eof(reader, writer)

    server = await pair.server.start_server(greet, SERVER, 443, ssl=tls.server)
    reader, writer = await pair.client.open_connection(
        SERVER, 443, ssl=tls.client, server_hostname="service.test"
    )
    assert await within(reader.readexactly(2)) == b"hi"
    (transport,) = server._transports
    lost: list[Any] = []
    tls_protocol: Any = transport.get_protocol()
    tls_protocol._call_eof_received = lambda: lost.append("close_notify")
    server.close()
    server.close_clients()
    assert await within(reader.read()) == b""
    writer.close()
    await within(server.wait_closed())
    assert set(lost) == {"close_notify"}  # sslproto says it again when the FIN comes with it


async def test_failing_factory(pair: Pair, errors: list[dict[str, Any]]) -> None:
    """Reported always, and the connection is reset; a kernel server leaks the socket unless in debug mode."""

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError

    await pair.server.create_server(factory, SERVER, 80)
    _, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    assert isinstance(await within(protocol.lost), ConnectionResetError)
    assert [type(e["exception"]) for e in errors] == [ZeroDivisionError]
    errors.clear()


async def test_addresses(pair: Pair) -> None:
    stack = pair.server
    with pytest.raises(OSError) as caught:
        await stack.start_server(wait_for_eof, "10.9.9.9", 80)
    assert caught.value.errno == errno.EADDRNOTAVAIL
    with pytest.raises(OSError) as caught:
        await stack.start_server(wait_for_eof, "some.name", 80)
    assert caught.value.errno == errno.EADDRNOTAVAIL
    server = await stack.start_server(wait_for_eof, ipaddress.IPv4Address(SERVER), 80)
    with pytest.raises(OSError) as caught:
        await stack.start_server(wait_for_eof, SERVER, 80)
    assert caught.value.errno == errno.EADDRINUSE
    server.close()
    await (await stack.start_server(wait_for_eof, SERVER, 80)).start_serving()


async def test_all_or_none_of_several_endpoints(pair: Pair) -> None:
    stack = pair.server
    stack.add_address(0x0A000063)
    await stack.start_server(wait_for_eof, "10.0.0.99", 80)
    with pytest.raises(OSError):
        await stack.start_server(wait_for_eof, [SERVER, "10.0.0.99"], 80)
    server = await stack.start_server(wait_for_eof, SERVER, 80)
    assert addr_of(server) == (SERVER, 80)


async def test_every_address(pair: Pair) -> None:
    server = await pair.server.start_server(wait_for_eof, None, 80)
    assert addr_of(server) == ("0.0.0.0", 80)
    _, writer = await pair.client.open_connection(SERVER, 80)
    assert writer.get_extra_info("peername") == (SERVER, 80)
    writer.close()
    server.close()


async def test_a_removed_address_ends_its_connections(pair: Pair) -> None:
    server = await pair.server.create_server(Recorder, SERVER, 80)
    _, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    await until(lambda: server._transports)
    (transport,) = server._transports
    ours: Any = transport.get_protocol()
    await within(ours.made)
    pair.server.remove_address(0x0A000001)
    assert isinstance(await within(ours.lost), ConnectionAbortedError)
    assert isinstance(await within(protocol.lost), ConnectionResetError)
    server.close()
    await within(server.wait_closed())


async def test_closing_resets_what_was_not_accepted(pair: Pair) -> None:
    server = await pair.server.create_server(Recorder, SERVER, 80)
    server._acceptors[0].listener.user = None  # nobody accepts
    _, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    server.close()
    assert isinstance(await within(protocol.lost), ConnectionResetError)


async def test_driver_close_ends_everything(pair: Pair) -> None:
    server = await pair.server.create_server(Recorder, SERVER, 80)
    _, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    opening = asyncio.ensure_future(pair.client.create_connection(Recorder, "10.0.0.77", 80))
    await asyncio.sleep(0.01)
    pair.server.close()
    assert isinstance(await within(protocol.lost), ConnectionResetError)
    await within(server.wait_closed())
    assert not list(pair.server.stack.tcp.connections())
    pair.client.close()
    with pytest.raises(OSError):
        await within(opening)
