"""TLS through asyncio's own SSLProtocol, on every loop.

uvloop's `start_tls` and `create_server(ssl=)` take uvloop's transports only, so nothing here asks the
loop: asyncio's SSLProtocol needs no more of it than call_soon and call_later.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from ssl import SSLContext
from typing import Any, NamedTuple


class TlsTimeouts(NamedTuple):
    """Seconds; None is asyncio's default, 60 and 30."""

    handshake: float | None = None
    shutdown: float | None = None


def server_protocol(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    context: SSLContext,
    timeouts: TlsTimeouts,
) -> SSLProtocol:
    """What to put behind an accepted connection. Nobody waits for the handshake: it succeeds or the
    connection goes.
    """
    return ssl_protocol(loop, protocol, context, None, timeouts, server_side=True)


def client_protocol(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    context: SSLContext | None,
    waiter: asyncio.Future[None],
    timeouts: TlsTimeouts,
    server_hostname: str | None,
) -> SSLProtocol:
    """`context` None: the default one. `waiter` learns how the handshake went."""
    return ssl_protocol(loop, protocol, context, waiter, timeouts, server_hostname=server_hostname)


def ssl_protocol(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    context: SSLContext | None,
    waiter: asyncio.Future[None] | None,
    timeouts: TlsTimeouts,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    call_connection_made: bool = True,
) -> SSLProtocol:
    make: Any = SSLProtocol  # typeshed wants a context and a waiter; both may be None
    made: SSLProtocol = make(
        loop,
        protocol,
        context,
        waiter,
        server_side,
        server_hostname,
        call_connection_made=call_connection_made,
        ssl_handshake_timeout=timeouts.handshake,
        ssl_shutdown_timeout=timeouts.shutdown,
    )
    return made


async def start_tls(
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    context: SSLContext,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    timeouts: TlsTimeouts = TlsTimeouts(),  # noqa: B008 (a tuple)
) -> asyncio.Transport:
    """As `loop.start_tls`, for our transports on any loop, and for TLS inside TLS."""
    if not isinstance(context, SSLContext):
        raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {context!r}")
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    tls = ssl_protocol(
        loop,
        protocol,
        context,
        waiter,
        timeouts,
        server_side=server_side,
        server_hostname=server_hostname,
        call_connection_made=False,
    )
    transport.pause_reading()  # no byte may come before SSLProtocol.connection_made
    transport.set_protocol(tls)
    begin = loop.call_soon(tls.connection_made, transport)
    resume = loop.call_soon(transport.resume_reading)
    try:
        await waiter
    except BaseException:
        transport.close()
        begin.cancel()
        resume.cancel()
        raise
    upgraded: asyncio.Transport = tls._app_transport
    return upgraded
