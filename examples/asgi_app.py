"""An ASGI application on uvicorn, at `.4` of every Subnet, port 80.

juneau lab up -f examples/demo --service examples/asgi_app.py:AsgiApp
"""

import uvicorn

from juneau.services import Listener, Protocol, VirtualService


async def app(scope, receive, send):
    """Any ASGI application: Starlette's and FastAPI's are such callables too."""
    if scope["type"] == "http":
        await hello(scope, receive, send)
    elif scope["type"] == "websocket":
        await echo(receive, send)
    else:  # lifespan
        while (event := (await receive())["type"]) != "lifespan.shutdown":
            await send({"type": f"{event}.complete"})
        await send({"type": f"{event}.complete"})


async def hello(scope, receive, send):
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message.get("more_body", False)
    client, _ = scope["client"]
    body = f"hello {client}, this is uvicorn; {scope['method']} of {size} bytes\n".encode()
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(receive, send):
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


class AsgiApp(VirtualService):
    offset = 4

    def __init__(self):
        self.config = uvicorn.Config(app, log_config=None, access_log=False)
        self.server = uvicorn.Server(self.config)

    async def start(self):
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.lifespan.startup()

    async def stop(self):
        await self.lifespan.shutdown()

    def protocol(self):
        state = self.server.server_state
        make = self.config.http_protocol_class
        return make(config=self.config, server_state=state, app_state=self.lifespan.state)

    def listeners(self):
        return (Listener(Protocol.TCP, 80, protocol_factory=self.protocol),)
