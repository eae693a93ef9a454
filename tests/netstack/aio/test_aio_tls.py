"""TLS by `ssl=` and by `start_tls`, on every loop and in both worlds."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from aio_world import Tls, World, addr_of

from juneau.netstack.aio import start_tls

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
NAME = {"server_hostname": "service.test"}


async def within(awaitable: Any, seconds: float = 15) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_ssl_argument(world: World, tls: Tls) -> None:
    server = await world.start_server(echo, ssl=tls.server)
    reader, writer = await within(world.open_connection(addr_of(server), ssl=tls.client, **NAME))
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert writer.get_extra_info("peername") == addr_of(server)
    assert not writer.can_write_eof()
    message = bytes(range(256)) * 4_000
    writer.write(message)
    assert await within(reader.readexactly(len(message))) == message
    writer.close()
    await within(writer.wait_closed())
    server.close()
    await within(server.wait_closed())


async def test_large_download(world: World, tls: Tls) -> None:
    size = 5_000_000

    async def handle(reader: Reader, writer: Writer) -> None:
        for _ in range(10):
            writer.write(bytes(size // 10))
            await writer.drain()
        writer.close()

    server = await world.start_server(handle, ssl=tls.server)
    reader, writer = await within(world.open_connection(addr_of(server), ssl=tls.client, **NAME))
    assert len(await within(reader.read())) == size
    writer.close()
    server.close()


async def test_start_tls(world: World, tls: Tls) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.start_tls(tls.server)  # type: ignore[attr-defined]
        assert writer.get_extra_info("sslcontext") is tls.server
        await echo(reader, writer)

    server = await world.start_server(handle)
    reader, writer = await within(world.open_connection(addr_of(server)))
    writer.write(b"STARTTLS\n")
    assert await within(reader.readline()) == b"go\n"
    await within(writer.start_tls(tls.client, **NAME))
    for message in (b"secret", b"s" * 500_000):
        writer.write(message)
        assert await within(reader.readexactly(len(message))) == message
    writer.close()
    await within(writer.wait_closed())
    server.close()


async def test_start_tls_refused_by_the_client(world: World, tls: Tls) -> None:
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def handle(reader: Reader, writer: Writer) -> None:
        try:
            await writer.start_tls(tls.server)  # type: ignore[attr-defined]
        except (ssl.SSLError, ConnectionError) as exc:
            failed.set_result(exc)

    server = await world.start_server(handle)
    _, writer = await within(world.open_connection(addr_of(server)))
    with pytest.raises(ssl.SSLCertVerificationError):
        await within(writer.start_tls(ssl.create_default_context(), **NAME))
    await within(failed)
    server.close()


async def test_wrong_name(world: World, tls: Tls) -> None:
    server = await world.start_server(echo, ssl=tls.server)
    with pytest.raises(ssl.SSLCertVerificationError):
        await within(world.open_connection(addr_of(server), ssl=tls.client, server_hostname="other.test"))
    server.close()


async def test_not_tls_at_all(world: World, tls: Tls) -> None:
    server = await world.start_server(echo, ssl=tls.server)
    reader, writer = await world.open_connection(addr_of(server))
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    try:
        assert len(await within(reader.read())) < 100  # an alert
    except ConnectionResetError:
        pass
    writer.close()
    server.close()


async def test_handshake_timeout(world: World, tls: Tls) -> None:
    async def silent(reader: Reader, writer: Writer) -> None:
        await reader.read()
        writer.close()

    server = await world.start_server(silent)
    with pytest.raises(ConnectionError):
        await within(
            world.open_connection(addr_of(server), ssl=tls.client, ssl_handshake_timeout=0.05, **NAME)
        )
    server.close()


async def test_start_tls_wants_a_context(world: World) -> None:
    with pytest.raises(TypeError):
        await start_tls(asyncio.Transport(), asyncio.Protocol(), "not a context")  # type: ignore[arg-type]
