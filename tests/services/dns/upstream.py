"""A name server on loopback that says what a test tells it to, over UDP and TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


class Upstream(asyncio.DatagramProtocol):
    """`answer(query, tcp)` gives messages, bytes or nothing; `asked` keeps what came."""

    def __init__(self, answer: Callable[[Any, bool], Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, bool]] = []
        self.clients: list[Any] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def replies(self, wire: bytes, tcp: bool) -> list[bytes]:
        query = dns.message.from_wire(wire)
        self.asked.append((query, tcp))
        found = self.answer(query, tcp)
        found = found if isinstance(found, list) else [found]
        return [m if isinstance(m, bytes) else m.to_wire(max_size=65535) for m in found if m is not None]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.clients.append(addr)
        for reply in self.replies(data, False):
            self.transport.sendto(reply, addr)

    async def serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2), "big")
        for reply in self.replies(await reader.readexactly(size), True):
            writer.write(len(reply).to_bytes(2, "big") + reply)
        try:
            await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def upstream(answer: Callable[[Any, bool], Any]):
    server = Upstream(answer)
    loop = asyncio.get_running_loop()
    tcp = await asyncio.start_server(server.serve_tcp, "127.0.0.1", 0)
    server.port = tcp.sockets[0].getsockname()[1]
    udp, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", server.port))
    try:
        yield server
    finally:
        udp.close()
        tcp.close()
        await asyncio.sleep(0.01 if any(tcp for _, tcp in server.asked) else 0)  # let connections end


def reply_to(
    query: Any, *records: str, rcode: str = "NOERROR", authority: tuple[str, ...] = (), tc: bool = False
) -> Any:
    """`records` as "name ttl type data"."""
    response = dns.message.make_response(query, recursion_available=True, our_payload=1232)
    response.set_rcode(dns.rcode.from_text(rcode))
    response.answer = [_rrset(text) for text in records]
    response.authority = [_rrset(text) for text in authority]
    if tc:
        response.flags |= dns.flags.TC
    return response


def _rrset(text: str) -> Any:
    name, ttl, rtype, data = text.split(" ", 3)
    return dns.rrset.from_text(name, int(ttl), "IN", rtype, data)
