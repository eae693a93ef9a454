"""Puts a protocol behind a connection that a program opened with a socket of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from juneau.netstack.aio import TcpTransport
from juneau.netstack.aio.connect import handed_over
from juneau.netstack.aio.tls import TlsTimeouts, ssl_protocol
from juneau.testing.network.claims import claim_connection


async def adopt_connection(
    sock: Any,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    *,
    ssl: Any,
    timeouts: TlsTimeouts,
    server_side: bool = False,
    server_hostname: str | None = None,
) -> tuple[Any, Any]:
    """The transport (TLS with `ssl`) and the protocol, after `connection_made` and the handshake."""
    conn, aio = claim_connection(sock)
    loop = aio.loop
    waiter: asyncio.Future[None] = loop.create_future()
    protocol = outer = protocol_factory()
    if ssl:
        context = None if isinstance(ssl, bool) else ssl
        outer = ssl_protocol(
            loop,
            protocol,
            context,
            waiter,
            timeouts,
            server_side=server_side,
            server_hostname=server_hostname,
        )
    transport: Any = TcpTransport(aio, conn, outer, extra={})
    sock.lend(transport)
    return await handed_over(transport, outer, waiter, tls=bool(ssl)), protocol
