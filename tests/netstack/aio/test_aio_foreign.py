"""Servers written for asyncio, unmodified: aiohttp with keep-alive, a file by sendfile, a WebSocket, TLS."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aio_world import SERVER, Pair, Tls
from aiohttp import web


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"hello {request.remote} {await request.text()}")


async def socket_echo(request: web.Request) -> web.WebSocketResponse:
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        await ws.send_str(message.data.upper())
    return ws


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[web.AppRunner]:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4_000)
    app = web.Application()
    app.router.add_route("*", "/", hello)
    app.router.add_get("/ws", socket_echo)
    app.router.add_static("/static", tmp_path)
    made = web.AppRunner(app, tcp_keepalive=True)
    await made.setup()
    yield made
    await made.cleanup()


async def serve(
    pair: Pair, runner: web.AppRunner, tls: Tls | None = None
) -> tuple[Any, asyncio.StreamReader, Any]:
    factory: Any = runner.server
    server = await pair.server.create_server(factory, SERVER, 80, ssl=tls.server if tls else None)
    secure = {"ssl": tls.client, "server_hostname": "service.test"} if tls else {}
    return server, *await pair.client.open_connection(SERVER, 80, **secure)


async def response(reader: asyncio.StreamReader) -> bytes:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 200 ")
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    return await asyncio.wait_for(reader.readexactly(int(length.split(b":")[1])), 5)


@pytest.mark.parametrize("secure", [False, True])
async def test_keep_alive(pair: Pair, runner: web.AppRunner, tls: Tls, secure: bool) -> None:
    server, reader, writer = await serve(pair, runner, tls if secure else None)
    for number in range(3):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d" % number)
        assert await response(reader) == b"hello 10.0.0.2 %d" % number
    writer.close()
    server.close()
    await asyncio.wait_for(server.wait_closed(), 5)


async def test_file(pair: Pair, runner: web.AppRunner) -> None:
    """`loop.sendfile` falls back to reading; on uvloop aiohttp reads itself."""
    server, reader, writer = await serve(pair, runner)
    writer.write(b"GET /static/file HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await response(reader) == bytes(range(256)) * 4_000
    writer.close()
    server.close()


async def test_websocket(pair: Pair, runner: web.AppRunner) -> None:
    server, reader, writer = await serve(pair, runner)
    key = base64.b64encode(os.urandom(16))
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 101 ")
    writer.write(b"\x81\x85\0\0\0\0hello")  # a masked text frame, the mask all zero
    assert await asyncio.wait_for(reader.readexactly(7), 5) == b"\x81\x05HELLO"
    writer.write(b"\x88\x80\0\0\0\0")
    assert await asyncio.wait_for(reader.readexactly(4), 5) == b"\x88\x02\x03\xe8"
    writer.close()
    server.close()
