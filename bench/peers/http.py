"""One aiohttp application, at a VIP and on kernel sockets."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from bench.peers.extra import HTTP_PORT
from juneau.services import Listener, Protocol, VirtualService

BODY: Final = "hello, this is aiohttp\n"


async def hello(_request: web.Request) -> web.Response:
    return web.Response(text=BODY)


async def make_runner() -> web.AppRunner:
    app = web.Application()
    app.add_routes([web.get("/", hello)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    return runner


class Http(VirtualService):
    async def start(self) -> None:
        self._runner = await make_runner()

    async def stop(self) -> None:
        await self._runner.cleanup()

    def protocol(self) -> asyncio.BaseProtocol:
        assert self._runner.server is not None, "bound before start"
        return self._runner.server()

    def listeners(self) -> tuple[Listener, ...]:
        return (Listener(Protocol.TCP, HTTP_PORT, protocol_factory=self.protocol),)


async def serve(host: str, port: int) -> None:
    """On a kernel socket."""
    await web.TCPSite(await make_runner(), host, port).start()
