"""One TCP connection as an `asyncio.Transport`.

What an application may see follows CPython's selector transports, with the stack in the kernel's
place: its send queue up to `snd_limit` bytes is "in the kernel", what lies above is the transport's
write buffer. On purpose different: `abort()` sends RST, and the end of a connection is reported at
once even while reading is paused (a kernel transport hears of it when reading resumes).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from asyncio import constants, transports
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from juneau.netstack.aio.errors import close_error, os_error
from juneau.netstack.aio.sock import StackSocket, address
from juneau.netstack.types import CloseReason, Misuse

if TYPE_CHECKING:
    from juneau.netstack.aio.driver import Driver
    from juneau.netstack.aio.server import Server
    from juneau.netstack.tcp import TcpConnection

_log = logging.getLogger(__name__)

BytesLike: TypeAlias = bytes | bytearray | memoryview
_BYTES_LIKE: Final = (bytes, bytearray, memoryview)

READ_CHUNK: Final = 256 * 1024
"""Bytes handed to one protocol per turn of the loop, as asyncio's transports do."""
SMALL_PIECE: Final = 4096
"""Pieces of `writelines` smaller than this on average are joined: a piece costs as much as 4 KiB copied."""
MANY_PIECES: Final = 8
"""A StreamReader is fed up to this many views one by one; more are joined first."""
HIGH_WATER: Final = 64 * 1024
LOW_WATER: Final = HIGH_WATER // 4
"""Of the write buffer, bytes: asyncio's defaults."""
_NO_EXTRA: Final[dict[str, object]] = {}
_AFTER_EOF: Final = "Cannot call write() after write_eof()"
LOST_WRITES: Final = 5
"""Writes to a lost connection before the log says so (asyncio's number)."""


class _Feed(IntEnum):
    """How the protocol wants its bytes."""

    BYTES = 0
    VIEWS = 1
    """A StreamReader copies what it is fed, so views will do."""
    BUFFER = 2


class TcpTransport(transports._FlowControlMixin):
    """`_FlowControlMixin` only because `loop.sendfile` and `loop.start_tls` look for it."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_conn",
        "_conn_lost",
        "_driver",
        "_end",
        "_eof_received",
        "_eof_written",
        "_feed",
        "_info",
        "_paused",
        "_protocol",
        "_read_scheduled",
        "_server",
        "_snd_limit",
        "_started",
    )

    # the mix-in's, unknown to typeshed
    _extra: dict[str, object]
    _loop: asyncio.AbstractEventLoop
    _high_water: int
    _low_water: int
    _protocol_paused: bool

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.FALLBACK

    def __init__(
        self,
        driver: Driver,
        conn: TcpConnection,
        protocol: asyncio.BaseProtocol,
        *,
        extra: Mapping[str, object],
        server: Server | None = None,
    ) -> None:
        self._extra = _NO_EXTRA  # what the base classes' constructors would set
        self._loop = loop = driver.loop
        self._protocol_paused = False
        self._high_water, self._low_water = HIGH_WATER, LOW_WATER
        self._driver = driver
        self._conn = conn
        self._info = extra
        self._snd_limit = driver.snd_limit
        self._server = server
        self._started = False  # connection_made has run
        self._paused = False
        self._read_scheduled = False
        self._eof_received = False
        self._eof_written = False
        self._closing = False
        self._conn_lost = 0  # 1: connection_lost is scheduled; then counts writes
        self._end: CloseReason | None = None  # came before connection_made had run
        self.set_protocol(protocol)
        conn.user = self
        if server is not None:
            server.attach(self)
        else:
            driver.ends[self] = None
        loop.call_soon(self._begin, protocol)

    def __repr__(self) -> str:
        state = "closed" if self._conn_lost else "closing" if self._closing else "open"
        reading = "paused" if self._paused else "reading"
        conn = self._conn
        unsent = self.get_write_buffer_size()
        return f"<TcpTransport {conn.local} peer={conn.remote} {state} {reading} unsent={unsent}>"

    # What is known about the connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        conn = self._conn
        match name:
            case "peername":
                return address(conn.remote)
            case "sockname":
                return address(conn.local)
            case "socket":
                local, remote = address(conn.local), address(conn.remote)
                return StackSocket(socket.SOCK_STREAM, local, remote, conn, self._driver)
            case "path":
                return conn.path
            case "tcp_info":
                return conn.info()
            case "tcp_progress":
                return conn.progress
        return self._info.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: asyncio.BaseProtocol | None = protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            self._feed = _Feed.BUFFER
        elif type(protocol) is asyncio.StreamReaderProtocol or getattr(protocol, "takes_views", False):
            self._feed = _Feed.VIEWS
        else:
            self._feed = _Feed.BYTES

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[return-value]  # None once lost, as in asyncio

    def is_closing(self) -> bool:
        return self._closing

    # Reading

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        """Leave what arrives in the stack: its window closes once the receive buffer is full."""
        if not self._closing:
            self._paused = True

    def resume_reading(self) -> None:
        if self._closing or not self._paused:
            return
        self._paused = False
        self._schedule_read()

    def on_readable(self) -> None:
        if self._started and not self._paused and not self._closing and not self._read_scheduled:
            self._read_ready()

    def _begin(self, protocol: asyncio.BaseProtocol) -> None:
        try:
            protocol.connection_made(self)
        finally:
            self._start_reading()

    def _start_reading(self) -> None:
        self._started = True
        if self._end is not None:
            self.on_closed(self._end)
        elif self.is_reading():
            self._read_ready()

    def _schedule_read(self) -> None:
        """Deliver what waits from the loop: never from inside `resume_reading`, and in helpings."""
        conn = self._conn
        if not self._read_scheduled and (conn.recv_queue_bytes or conn.at_eof):
            self._read_scheduled = True
            self._loop.call_soon(self._read_scheduled_now)

    def _read_scheduled_now(self) -> None:
        self._read_scheduled = False
        if self.is_reading():
            self._read_ready()

    def _read_ready(self) -> None:
        """One helping for the protocol, and the EOF if it comes next."""
        conn = self._conn
        rcv = conn.rcv
        waiting = rcv.chunks
        if waiting.size:
            self._deliver(conn)
            if conn.queued:
                self._driver.wake()  # the window has opened
            if self._paused or self._closing:
                return
            if waiting.size:
                self._schedule_read()
                return
        if rcv.fin_seq is not None and conn.at_eof and not self._eof_received:
            self._on_eof()

    def _deliver(self, conn: TcpConnection) -> None:
        protocol: Any = self._protocol
        try:
            if self._feed is _Feed.BUFFER:
                self._fill_buffer(conn, protocol)
                return
            pieces = conn.read(READ_CHUNK)
            if self._feed is _Feed.VIEWS and len(pieces) <= MANY_PIECES:
                for piece in pieces:
                    protocol.data_received(piece)
            else:
                protocol.data_received(b"".join(pieces))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:  # noqa: BLE001 (whatever the application raises)
            self._fatal_error(exc, "Fatal error: the protocol failed to take data.")

    def _fill_buffer(self, conn: TcpConnection, protocol: asyncio.BufferedProtocol) -> None:
        buffer: Any = protocol.get_buffer(-1)
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        filled = 0
        with memoryview(buffer) as view:
            for piece in conn.read(len(view)):
                end = filled + len(piece)
                view[filled:end] = piece
                filled = end
        protocol.buffer_updated(filled)

    def _on_eof(self) -> None:
        self._eof_received = True
        protocol: Any = self._protocol
        try:
            keep_open = protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:  # noqa: BLE001 (whatever the application raises)
            self._fatal_error(exc, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keep_open:
            self.close()

    # Writing

    def get_write_buffer_size(self) -> int:
        """Bytes above what the stack's send queue should hold."""
        return 0 if self._conn_lost else max(0, self._conn.send_queue_bytes - self._snd_limit)

    def write(self, data: BytesLike) -> None:
        if type(data) is not bytes and not isinstance(data, _BYTES_LIKE):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof_written:
            raise RuntimeError(_AFTER_EOF)
        if data:
            self._send(data)

    def writelines(self, list_of_data: Iterable[BytesLike]) -> None:
        """All or nothing: the types are checked first. Large pieces are not joined."""
        pieces = list(list_of_data)
        for index, piece in enumerate(pieces):
            if not isinstance(piece, _BYTES_LIKE):
                raise TypeError(f"item {index}: expected a bytes-like object, {type(piece).__name__} found")
        if self._eof_written:
            raise RuntimeError(_AFTER_EOF)
        if sum(map(len, pieces)) < SMALL_PIECE * len(pieces):
            pieces = [b"".join(pieces)]
        for piece in pieces:
            if piece:
                self._send(piece)

    def _send(self, data: BytesLike) -> None:
        if self._conn_lost:
            if self._conn_lost >= LOST_WRITES:
                _log.warning("write to %r, whose connection is lost", self)
            self._conn_lost += 1
            return
        driver, conn = self._driver, self._conn
        try:
            conn.send(data)
        except Misuse:  # it ended a moment ago; Closed is among the events not yet delivered
            return
        driver.wake()
        snd, limit = conn.snd, self._snd_limit
        if snd.queue.end - snd.una > limit and conn.send_queue_bytes > limit:  # a cheap bound first
            conn.want_writable = True
            driver.check_unsent(len(data))
            self._maybe_pause()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        super()._set_write_buffer_limits(high=high, low=low)  # type: ignore[misc]
        self._maybe_pause()

    def _maybe_pause(self) -> None:
        if not self._protocol_paused and self.get_write_buffer_size() > self._high_water:
            self._protocol_paused = True
            self._tell("pause_writing")

    def _maybe_resume(self) -> None:
        if self._protocol_paused and self.get_write_buffer_size() <= self._low_water:
            self._protocol_paused = False
            self._tell("resume_writing")

    def _tell(self, method: str) -> None:
        try:
            getattr(self._protocol, method)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:  # noqa: BLE001 (whatever the application raises)
            self._report(exc, f"protocol.{method}() failed")

    def on_writable(self) -> None:
        self._maybe_resume()  # may write, or close
        if self._conn_lost:
            return
        if self.get_write_buffer_size():
            self._conn.want_writable = True
        elif self._closing:
            self._let_go(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._closing or self._eof_written:
            return
        self._eof_written = True
        try:
            self._conn.shutdown(self._driver.clock())
        except Misuse:  # as in _send
            return
        self._driver.wake()

    # Ending

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self.get_write_buffer_size():
            self._conn.want_writable = True
        else:
            self._let_go(None)

    def abort(self) -> None:
        """RST now. A kernel transport drops its own buffer and then sends FIN."""
        if not self._conn_lost:
            self._conn.abort(self._driver.clock())
            self._lose(None)

    def on_quota(self) -> None:
        """Too much was written without waiting for the peer."""
        if not self._conn_lost:
            self._conn.abort(self._driver.clock())
            self._lose(os_error(errno.ENOBUFS, "write: more than the peer reads (await drain)"))

    def on_closed(self, reason: CloseReason) -> None:
        """The connection is over. Bytes that came before the end still go first."""
        if self._conn_lost:
            return
        if not self._started:
            self._end = reason
            return
        while self.is_reading() and (self._conn.recv_queue_bytes or self._unheard_eof()):
            self._read_ready()
        error = close_error(reason)
        if not self._conn_lost and (error is not None or self._closing):
            self._lose(error)
        # NORMAL: both directions ended in order, the application has yet to close its end

    def _unheard_eof(self) -> bool:
        return self._conn.at_eof and not self._eof_received

    def _let_go(self, error: BaseException | None) -> None:
        """Leave the connection to the stack, which sends what is queued and then FIN."""
        self._conn.close(self._driver.clock())
        self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        self._closing = True
        self._conn_lost += 1
        self._conn.user = None
        self._driver.wake()
        self._loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)  # type: ignore[arg-type]
        finally:
            self._protocol = None
            if self._server is not None:
                self._server.detach(self)
                self._server = None
            else:
                self._driver.ends.pop(self, None)

    def _fatal_error(self, exc: BaseException, message: str) -> None:
        if not isinstance(exc, OSError):
            self._report(exc, message)
        elif self._loop.get_debug():
            _log.debug("%r: %s", self, message, exc_info=exc)
        self._force_close(exc)

    def _force_close(self, exc: BaseException | None) -> None:
        """Also SSLProtocol's way out. What is queued (a TLS alert) still goes, unless it is much."""
        if self._conn_lost:
            return
        if self.get_write_buffer_size():
            self._conn.abort(self._driver.clock())
            self._lose(exc)
        else:
            self._let_go(exc)

    def _report(self, exc: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": exc, "transport": self, "protocol": self._protocol}
        )
