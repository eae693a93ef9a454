"""StreamReader and StreamWriter over the stack: asyncio's own, but for `start_tls` on any loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import Any, Final, TypeAlias, cast
from weakref import ref

from juneau.netstack.aio.tls import TlsTimeouts, start_tls
from juneau.netstack.types import Buffer

StreamHandler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]

LIMIT: Final = 2**16
"""asyncio's default limit of a StreamReader, bytes."""
PIECE_BYTES: Final = 4096
"""What is smaller is gathered in a buffer: a piece costs as much as 4 KiB copied, and much more memory."""


class _Unasked:
    """Stands for `StreamReaderProtocol._closed`, a future that few ever wait for."""

    __slots__ = ()

    def done(self) -> bool:
        return True

    cancelled = done


_UNASKED: Any = _Unasked()


class StreamReader(asyncio.StreamReader):
    """asyncio's, but a large piece goes to `read` by one copy, where asyncio's buffer takes three.

    Such pieces wait as they were fed. Whatever of asyncio looks at `_buffer` finds them in it.
    """

    # asyncio's, unknown to typeshed
    _eof: bool
    _exception: BaseException | None
    _limit: int
    _paused: bool
    _transport: asyncio.Transport | None
    _wakeup_waiter: Callable[[], None]
    _wait_for_data: Callable[[str], Awaitable[None]]

    _gathered: bytearray
    """What came before the pieces."""
    _pieces: list[Buffer] | tuple[()] = ()
    _pieces_bytes = 0

    @property
    def _buffer(self) -> bytearray:
        if self._pieces:
            self._gathered += b"".join(self._pieces)
            self._pieces, self._pieces_bytes = (), 0
        return self._gathered

    @_buffer.setter
    def _buffer(self, value: bytearray) -> None:
        self._gathered = value

    def feed_data(self, data: Any) -> None:
        """Bytes-like. It must not change afterwards, unless it is a bytearray."""
        assert not self._eof, "feed_data after feed_eof"
        size = len(data)
        if not size:
            return
        if size < PIECE_BYTES or type(data) is bytearray:
            (self._buffer if self._pieces else self._gathered).extend(data)
        else:
            if not self._pieces:
                self._pieces = []
            self._pieces.append(data)
            self._pieces_bytes += size
        self._wakeup_waiter()
        if (
            not self._paused
            and self._pieces_bytes + len(self._gathered) > 2 * self._limit
            and self._transport is not None
        ):
            try:
                self._transport.pause_reading()
            except NotImplementedError:
                self._transport = None  # it cannot; never ask again
            else:
                self._paused = True

    async def read(self, n: int = -1) -> bytes:
        if n <= 0 or self._exception is not None:
            return await super().read(n)
        if not self._pieces and not self._gathered and not self._eof:
            await self._wait_for_data("read")
        if self._pieces or len(self._gathered) > n:
            data = self._take(n)
        else:
            data = bytes(self._gathered)
            self._gathered.clear()
        if self._paused:
            self._maybe_resume_transport()
        return data

    def _take(self, n: int) -> bytes:
        """The next `n` bytes, or what there is."""
        gathered, pieces = self._gathered, self._pieces
        if not gathered and self._pieces_bytes <= n:
            self._pieces, self._pieces_bytes = (), 0
            return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        if not pieces or len(gathered) >= n:
            data = bytes(memoryview(gathered)[:n])
            del gathered[:n]
            return data
        parts: list[Any] = [bytes(gathered)]
        gathered.clear()
        left = n - len(parts[0])
        while left and pieces:
            first = pieces[0]
            if len(first) > left:
                parts.append(first[:left])
                pieces[0] = memoryview(first)[left:]
            else:
                parts.append(first)
                del pieces[0]
            left -= len(parts[-1])
            self._pieces_bytes -= len(parts[-1])
        return b"".join(parts)

    def _maybe_resume_transport(self) -> None:
        if self._paused and self._pieces_bytes + len(self._gathered) <= self._limit:
            self._paused = False
            assert self._transport is not None
            self._transport.resume_reading()

    def at_eof(self) -> bool:
        return self._eof and not self._pieces and not self._gathered


class StreamWriter(asyncio.StreamWriter):
    def __init__(
        self,
        transport: asyncio.WriteTransport,
        protocol: asyncio.BaseProtocol,
        reader: asyncio.StreamReader | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        me: Any = self  # as asyncio's own, but for a future that nothing looks at
        me._transport, me._protocol, me._reader, me._loop = transport, protocol, reader, loop

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
    """asyncio's, with our writer; and on every version a failing handler closes its connection.

    Made for every connection, so it holds little: what asyncio's constructor would set to a constant is a
    default of the class, and the future of `wait_closed` is made for who asks.
    """

    takes_views: Final = True
    server_side = False
    # asyncio's, unknown to typeshed
    _loop: asyncio.AbstractEventLoop
    _stream_reader: asyncio.StreamReader | None
    _stream_reader_wr: ref[asyncio.StreamReader] | None
    _source_traceback = None
    _paused = _connection_lost = _reject_connection = _over_ssl = False
    _stream_writer = _strong_reader = _client_connected_cb = None
    _transport: Any = None
    _task: asyncio.Task[None] | None = None
    _closed = _UNASKED
    # ours
    _handler: StreamHandler | None = None
    _held: asyncio.StreamReader | None = None
    _lost_by: Exception | None = None

    def __init__(
        self,
        reader: asyncio.StreamReader,
        handler: StreamHandler | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._stream_reader_wr = ref(reader)
        if handler is not None:
            self._handler = handler
            self.serve(reader)

    def serve(self, reader: asyncio.StreamReader) -> None:
        """This is a server's end: keep the reader until `started` gets it; asyncio's reference is weak."""
        self.server_side = True
        self._held = reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio gets no callback: it would make a writer of its own, which since 3.13 closes the
        # transport when it is collected.
        super().connection_made(transport)
        if (reader := self._held) is not None:
            self._held = None
            self.started(
                reader, StreamWriter(cast(asyncio.WriteTransport, transport), self, reader, self._loop)
            )

    def started(self, reader: asyncio.StreamReader, writer: StreamWriter) -> None:
        """A server's connection is up."""
        result = self._handler(reader, writer) if self._handler is not None else None
        if asyncio.iscoroutine(result):
            self._task = self._loop.create_task(result)
            self._task.add_done_callback(self._handler_done)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost_by = exc
        super().connection_lost(exc)

    def _get_close_waiter(self, stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        if self._closed is _UNASKED:
            self._closed = self._loop.create_future()
            if self._connection_lost and self._lost_by is None:
                self._closed.set_result(None)
            elif self._lost_by is not None:
                self._closed.set_exception(self._lost_by)
        return cast("asyncio.Future[None]", self._closed)

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
