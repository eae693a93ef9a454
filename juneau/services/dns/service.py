"""DNS at `.2` of every Subnet: UDP and TCP, one resolver behind both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from ipaddress import IPv4Address
from typing import Any

from juneau.model.cluster import Subnet
from juneau.model.ids import Mac, ServiceId, TenantId
from juneau.services.datagrams import PacketRequest, Responder
from juneau.services.dns.message import HEADER, U16
from juneau.services.dns.resolver import Outcome, Pending, Resolver
from juneau.services.dns.settings import DnsSettings
from juneau.services.framework import DNS_OFFSET, VirtualService


class DnsService(VirtualService):
    """Its address and MAC are the Subnet's own (`status.dns`): no such address, no resolver there."""

    name = "dns"
    service_id = ServiceId.DNS
    offset = DNS_OFFSET
    tcp_ports = udp_ports = (53,)
    udp_unordered = True

    def __init__(self, **settings: Any) -> None:
        """Takes the fields of DnsSettings."""
        self.settings = DnsSettings(**settings)
        self._resolver: Resolver | None = None

    async def start(self) -> None:
        self._resolver = Resolver(self.settings, self.context.view)

    def address(self, subnet: Subnet) -> IPv4Address | None:
        return subnet.dns

    def mac(self, subnet: Subnet, ip: IPv4Address) -> Mac:
        return subnet.dns_mac or super().mac(subnet, ip)

    def handle_udp(self, request: PacketRequest, responder: Responder) -> Awaitable[None] | bytes | None:
        """Known answers leave in the reader's turn; only what must be asked for costs a task."""
        assert self._resolver is not None, "bound before start"
        events = responder.binding.events
        events["dns.queries_udp"] += 1
        outcome = self._resolver.resolve(request.payload, request.tenant, events)
        if outcome is None or isinstance(outcome, bytes):
            return outcome
        return _respond_later(outcome, responder)

    def resolve_tcp(self, message: bytes, tenant: TenantId) -> Outcome:
        assert self._resolver is not None, "bound before start"
        events = self.context.metrics.of(tenant, self.name)
        events["dns.queries_tcp"] += 1
        return self._resolver.resolve(message, tenant, events, tcp=True)

    async def handle_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await TcpClient(self, reader, writer).serve()


class TcpClient:
    """One TCP connection: queries are pipelined, answers come as they are ready (RFC 7766)."""

    def __init__(
        self, service: DnsService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._service, self._reader, self._writer = service, reader, writer
        self._tenant: TenantId = writer.get_extra_info("tenant")
        self._idle_s = service.settings.tcp_idle_s
        self._slots = asyncio.Semaphore(service.settings.tcp_in_flight)
        self._in_flight = 0
        self._size: int | None = None
        self._free = asyncio.Event()
        self._free.set()

    async def serve(self) -> None:
        """Until the client is done, idle, or sends what is no query; what was asked is answered first."""
        try:
            await self._serve()
        except* (TimeoutError, ConnectionError):
            self._writer.transport.abort()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            while (message := await self._next()) is not None:
                await self._slots.acquire()
                outcome = self._service.resolve_tcp(message, self._tenant)
                if callable(outcome):
                    self._in_flight += 1
                    self._free.clear()
                    group.create_task(self._answer_later(outcome))
                else:
                    self._slots.release()
                    await self._write(outcome)

    async def _next(self) -> bytes | None:
        """The next query. None: no more will come."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    return await self._read()
            except asyncio.IncompleteReadError:
                return None
            except TimeoutError:
                if not self._in_flight:
                    return None
            await self._free.wait()

    async def _read(self) -> bytes | None:
        """May be cancelled and called again: a length that was read is kept."""
        if self._size is None:
            (self._size,) = U16.unpack(await self._reader.readexactly(U16.size))
        if self._size < HEADER.size:
            return None
        message = await self._reader.readexactly(self._size)
        self._size = None
        return message

    async def _answer_later(self, outcome: Pending) -> None:
        try:
            await self._write(await outcome())
        finally:
            self._slots.release()
            self._in_flight -= 1
            if not self._in_flight:
                self._free.set()

    async def _write(self, message: bytes | None) -> None:
        """A client that does not read is given up: it would hold everything it asked for."""
        if message is None:
            return
        self._writer.write(U16.pack(len(message)) + message)
        async with asyncio.timeout(self._idle_s):
            await self._writer.drain()


async def _respond_later(outcome: Pending, responder: Responder) -> None:
    responder.write_response(await outcome())
