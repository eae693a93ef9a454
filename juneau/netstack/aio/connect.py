"""Active open: from SYN to a transport whose protocol is connected."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from juneau.netstack.aio.errors import close_error, os_error
from juneau.netstack.aio.server import ProtocolFactory
from juneau.netstack.aio.tls import TlsTimeouts, client_protocol
from juneau.netstack.aio.transport import TcpTransport
from juneau.netstack.types import CloseReason, Endpoint, Misuse, Path, Refused

if TYPE_CHECKING:
    from juneau.netstack.aio.driver import Driver
    from juneau.netstack.tcp import TcpConnection


class _Opening:
    """What the stack calls back until there is a transport."""

    __slots__ = ("done", "end", "remote")

    def __init__(self, loop: asyncio.AbstractEventLoop, remote: Endpoint) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.remote = remote
        self.end: CloseReason | None = None  # came after Connected, before the transport

    def on_connected(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def on_closed(self, reason: CloseReason) -> None:
        if self.done.done():
            self.end = reason
        else:
            error = close_error(reason, f"connect {self.remote}") or os_error(errno.ECONNABORTED)
            self.done.set_exception(error)

    def abort(self) -> None:
        """The driver closes, and aborts the connection itself."""
        self.on_closed(CloseReason.ABORTED)

    def on_readable(self) -> None:
        """The transport will look when it starts to read."""


async def connect(
    driver: Driver, remote: Endpoint, local: Endpoint, path: Path
) -> tuple[TcpConnection, _Opening]:
    """Return once ESTABLISHED. Raises ConnectionRefusedError, TimeoutError, OSError EHOSTUNREACH, or
    EADDRNOTAVAIL if no port is left. Cancelling forgets the half-open connection.
    """
    opening = _Opening(driver.loop, remote)
    try:
        conn = driver.stack.tcp_connect(remote, local=local, path=path, now=driver.clock(), user=opening)
    except (Refused, Misuse) as exc:
        raise OSError(errno.EADDRNOTAVAIL, f"connect {remote} from {local}: {exc}") from exc
    driver.ends[opening] = None
    driver.wake()
    try:
        await opening.done
    except asyncio.CancelledError:
        conn.user = None
        conn.abort(driver.clock())
        driver.wake()
        raise
    finally:
        driver.ends.pop(opening, None)
    return conn, opening


async def create_connection(
    driver: Driver,
    protocol_factory: ProtocolFactory,
    remote: Endpoint,
    local: Endpoint,
    path: Path,
    *,
    ssl: SSLContext | bool | None,
    server_hostname: str | None,
    timeouts: TlsTimeouts,
    extra: Mapping[str, object],
) -> tuple[Any, Any]:
    """The transport (the TLS one with `ssl`) and protocol, after `connection_made` and the handshake."""
    conn, opening = await connect(driver, remote, local, path)
    loop = driver.loop
    waiter: asyncio.Future[None] = loop.create_future()
    try:
        protocol = outer = protocol_factory()
        if ssl:
            context = ssl if isinstance(ssl, SSLContext) else None
            outer = client_protocol(loop, protocol, context, waiter, timeouts, server_hostname)
        transport = TcpTransport(driver, conn, outer, extra=extra)
    except BaseException:
        conn.user = None
        conn.abort(driver.clock())
        driver.wake()
        raise
    if opening.end is not None:
        transport.on_closed(opening.end)
    return await handed_over(transport, outer, waiter, tls=bool(ssl)), protocol


async def handed_over(transport: TcpTransport, outer: Any, waiter: asyncio.Future[None], *, tls: bool) -> Any:
    """Wait for `connection_made`, with TLS for the handshake; the transport that the application sees."""
    if not tls:
        waiter.get_loop().call_soon(wake, waiter)  # behind connection_made
    app_transport = getattr(outer, "_app_transport", transport) if tls else transport
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return app_transport


def wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
