"""An aiohttp application, as it would run anywhere, at `.3` of every Subnet: port 80, and 443 where CERT
names a PEM file with key and certificate.

juneau lab up -f examples/demo --service examples/aiohttp_app.py:AiohttpApp
"""

import os
import ssl

from aiohttp import WSMsgType, web

from juneau.services import Listener, Protocol, VirtualService


async def hello(request):
    vpc = request.transport.get_extra_info("vpc")
    return web.Response(text=f"hello {request.remote}, this is aiohttp in {vpc}\n")


async def count(request):
    size = 0
    async for data in request.content.iter_chunked(2**16):
        size += len(data)
    return web.Response(text=f"{size}\n")


async def echo(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


app = web.Application(client_max_size=2**30)
app.add_routes([web.get("/", hello), web.put("/count", count), web.get("/echo", echo)])


class AiohttpApp(VirtualService):
    offset = 3

    async def start(self):
        self.runner = web.AppRunner(app)
        await self.runner.setup()

    async def stop(self):
        await self.runner.cleanup()

    def protocol(self):
        return self.runner.server()

    def listeners(self):
        plain = Listener(Protocol.TCP, 80, protocol_factory=self.protocol)
        if "CERT" not in os.environ:
            return (plain,)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(os.environ["CERT"])
        return plain, Listener(Protocol.TCP, 443, protocol_factory=self.protocol, ssl=context)
