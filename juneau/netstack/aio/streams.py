"""StreamReader and StreamWriter over the stack: asyncio's own, but for `start_tls` on any loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import Any, Final, TypeAlias, cast

from juneau.netstack.aio.tls import TlsTimeouts, start_tls

StreamHandler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]

LIMIT: Final = 2**16
"""asyncio's default limit of a StreamReader, bytes."""


class StreamWriter(asyncio.StreamWriter):
    async def start_tls(
        self,
        sslcontext: SSLContext,
        *,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> None:
        """Upgrade the stream to TLS. asyncio's own asks the loop, and uvloop refuses foreign transports."""
        me: Any = self
        protocol: StreamProtocol = me._protocol
        await self.drain()
        transport = await start_tls(
            me._transport,
            protocol,
            sslcontext,
            server_side=protocol.server_side,
            server_hostname=server_hostname,
            timeouts=TlsTimeouts(ssl_handshake_timeout, ssl_shutdown_timeout),
        )
        me._transport = transport
        protocol.upgrade(transport)


class StreamProtocol(asyncio.StreamReaderProtocol):
    """asyncio's, with our writer; and on every version a failing handler closes its connection."""

    takes_views: Final = True
    # asyncio's, unknown to typeshed
    _loop: asyncio.AbstractEventLoop
    _stream_reader: asyncio.StreamReader | None

    def __init__(
        self,
        reader: asyncio.StreamReader,
        handler: StreamHandler | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._handler = handler
        self.server_side = handler is not None
        self._held = reader if self.server_side else None  # asyncio's reference is weak
        super().__init__(reader, None, loop)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio gets no callback: it would make a writer of its own, which since 3.13 closes the
        # transport when it is collected.
        super().connection_made(transport)
        reader, self._held = self._held, None
        if self._handler is None or reader is None:
            return
        writer = StreamWriter(cast(asyncio.WriteTransport, transport), self, reader, self._loop)
        result = self._handler(reader, writer)
        if asyncio.iscoroutine(result):
            self._task = self._loop.create_task(result)
            self._task.add_done_callback(self._handler_done)

    def _handler_done(self, task: asyncio.Task[None]) -> None:
        transport: asyncio.Transport | None = self._transport
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            context = {
                "message": "Unhandled exception in client_connected_cb",
                "exception": exc,
                "transport": transport,
                "protocol": self,
                "task": task,
            }
            self._loop.call_exception_handler(context)
        if transport is not None and (exc is not None or task.cancelled()):
            transport.close()

    def upgrade(self, transport: asyncio.Transport) -> None:
        """Point reader and protocol at the TLS transport (3.11 leaves the reader at the plain one)."""
        self._transport = transport
        self._over_ssl = True
        reader: Any = self._stream_reader
        if reader is not None:
            reader._transport = transport
