"""What the lab's tests serve, bad handlers among them. Loaded by path, never imported."""

import asyncio
import hashlib

from juneau.model.ids import Protocol
from juneau.services.framework import Listener, VirtualService

BLOCK = bytes(range(256)) * 4096  # 1 MiB
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


async def head_of(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    request, _, fields = head.decode().partition("\r\n")
    method, path, _ = request.split()
    headers = dict(line.lower().split(": ", 1) for line in fields.split("\r\n") if ": " in line)
    return method, path, headers


async def bulk(reader, writer):
    """GET /N: N MiB. PUT: sha256 and size of the body."""
    method, path, headers = await head_of(reader)
    if method == "GET":
        count = int(path[1:])
        writer.write(OK + f"Content-Length: {count * len(BLOCK)}\r\n\r\n".encode())
        for _ in range(count):
            writer.write(BLOCK)
            await writer.drain()
        return
    if headers.get("expect") == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    digest, left = hashlib.sha256(), int(headers["content-length"])
    while left:
        data = await reader.read(min(left, 1 << 20))
        if not data:
            return
        digest.update(data)
        left -= len(data)
    writer.write(OK + b"\r\n" + digest.hexdigest().encode())


async def who(reader, writer):
    await head_of(reader)
    tenant = writer.get_extra_info("tenant")
    writer.write(OK + f"\r\n{tenant.vpc_id}/{tenant.subnet_id}\n".encode())


async def raising(reader, writer):
    await reader.read(1)
    raise RuntimeError("on purpose")


async def never_reads(reader, writer):
    await asyncio.sleep(3600)


async def never_closes(reader, writer):
    writer.write(b"here\n")
    while await reader.read(65536):
        pass
    await asyncio.sleep(3600)


async def floods(reader, writer):
    """100 MB without drain, to someone who may not read them."""
    for _ in range(100):
        writer.write(BLOCK)
    await writer.drain()


class Handlers(VirtualService):
    """One port each."""

    def listeners(self):
        handlers = (bulk, who, raising, never_reads, never_closes, floods)
        return tuple(Listener(Protocol.TCP, 8000 + n, handler) for n, handler in enumerate(handlers))


class _Colour:
    tcp_ports = (9000,)
    colour = ""

    def applies_to(self, subnet, vpc):
        return vpc.name == self.colour

    async def handle_tcp(self, reader, writer):
        await head_of(reader)
        writer.write(OK + f"\r\nI am {self.colour}\n".encode())


class Blue(_Colour, VirtualService):
    colour = "blue"


class Green(_Colour, VirtualService):
    colour = "green"


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)


async def echo_once(reader, writer):
    writer.write(await reader.readexactly(1))


class Short(VirtualService):
    """The client closes first, or the server does."""

    def listeners(self):
        return Listener(Protocol.TCP, 8100, echo), Listener(Protocol.TCP, 8101, echo_once)
