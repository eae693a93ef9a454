"""A small BSD socket layer over one stack: what a script's file descriptors stand for.

Blocking is for the caller: a call that would block raises Blocked and is tried again later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from juneau.netstack.events import Closed
from juneau.netstack.tcp.states import State
from juneau.netstack.types import CloseReason, Endpoint, Micros
from juneau.testing.packetdrill.notation import stream
from juneau.testing.packetdrill.report import Mismatch

if TYPE_CHECKING:
    from juneau.netstack.events import Event
    from juneau.netstack.stack import Stack
    from juneau.netstack.tcp import TcpConnection, TcpListener
    from juneau.netstack.udp import UdpSocket

ERRNO: Final = {
    CloseReason.RESET: "ECONNRESET",
    CloseReason.REFUSED: "ECONNREFUSED",
    CloseReason.TIMEOUT: "ETIMEDOUT",
    CloseReason.UNREACHABLE: "EHOSTUNREACH",
}

CONNECTED_STATES: Final = frozenset(State) - {State.CLOSED, State.LISTEN, State.SYN_SENT, State.SYN_RECEIVED}


NOWHERE: Final = Endpoint(0, 0)


class Blocked(Exception):
    """The call would have to wait."""


class SysError(Exception):
    """The call fails with this errno."""

    def __init__(self, errno: str) -> None:
        super().__init__(errno)
        self.errno = errno


@dataclass(eq=False, slots=True)
class Socket:
    """One descriptor."""

    kind: str = "tcp"
    """tcp, udp, pipe, file or epoll."""
    nonblocking: bool = False
    local: Endpoint = NOWHERE
    remote: Endpoint = NOWHERE
    listener: TcpListener | None = None
    conn: TcpConnection | None = None
    udp: UdpSocket | None = None
    error: str = ""
    """Pending SO_ERROR."""
    closed: bool = False
    """The connection has ended."""
    connecting: bool = False
    shut_read: bool = False
    shut_write: bool = False
    read_bytes: int = 0
    written_bytes: int = 0
    peek_ahead: int = 0
    defer_accept: Micros = 0
    options: dict[tuple[int, int], int] = field(default_factory=dict)
    """What setsockopt set, by (level, name)."""
    watched: dict[int, tuple[int, int]] = field(default_factory=dict)
    """epoll: events asked for and user data, by descriptor."""
    reported: dict[int, int] = field(default_factory=dict)
    """epoll, edge-triggered: what each descriptor was last reported with."""

    @property
    def connected(self) -> bool:
        return self.conn is not None and not self.closed and self.conn.state in CONNECTED_STATES

    def take_error(self) -> str:
        error, self.error = self.error, ""
        return error


class SocketLayer:
    """All descriptors of a script, keyed by the script's own numbers."""

    def __init__(self, stack: Stack, address: int) -> None:
        self.stack = stack
        self.address = address
        self.sockets: dict[int, Socket] = {}
        self.now: Micros = 0
        self._by_conn: dict[int, Socket] = {}

    def get(self, fd: int) -> Socket:
        if fd not in self.sockets:
            raise SysError("EBADF")
        return self.sockets[fd]

    def on_event(self, event: Event) -> None:
        if isinstance(event, Closed):
            sock = self._by_conn.get(id(event.conn))
            if sock is not None:
                sock.closed = True
                sock.error = ERRNO.get(event.reason, "")

    # --- opening ---

    def listen(self, sock: Socket, backlog: int) -> None:
        local = sock.local if sock.local.port else Endpoint(self.address, 8080)
        if sock.listener is None:
            sock.listener = self.stack.tcp_listen(local, backlog=backlog)
            self._apply(sock, sock.listener)

    def accept(self, sock: Socket) -> Socket:
        if sock.listener is None:
            raise SysError("EINVAL")
        conn = sock.listener.accept()
        if conn is None:
            raise Blocked
        child = Socket(local=conn.local, remote=conn.remote, conn=conn)
        child.options = dict(sock.options)
        self._adopt(child, conn)
        return child

    def connect(self, sock: Socket, remote: Endpoint) -> None:
        """Start, or find out what became of it: blocks until established."""
        if sock.conn is None:
            sock.remote, sock.connecting = remote, True
            local = Endpoint(self.address, sock.local.port)
            conn = self.stack.tcp_connect(
                remote, local=local, path="wire", now=self.now, **self._open_options(sock)
            )
            sock.conn, sock.local = conn, conn.local
            self._adopt(sock, conn)
            if sock.nonblocking:
                raise SysError("EINPROGRESS")
            raise Blocked
        if sock.closed:
            raise SysError(sock.take_error() or "ECONNABORTED")
        if not sock.connected:
            if sock.nonblocking:
                raise SysError("EALREADY")
            raise Blocked
        if not sock.connecting:
            raise SysError("EISCONN")
        sock.connecting = False

    def _open_options(self, sock: Socket) -> dict[str, object]:
        return {}

    def _adopt(self, sock: Socket, conn: TcpConnection) -> None:
        self._by_conn[id(conn)] = sock
        self._apply(sock, conn)

    def _apply(self, sock: Socket, target: TcpConnection | TcpListener) -> None:
        """Options set before there was something to set them on."""

    # --- data ---

    def readable(self, sock: Socket) -> int:
        return sock.conn.recv_queue_bytes if sock.conn is not None else 0

    def read(self, sock: Socket, size: int, *, peek: bool = False, wait_all: bool = False) -> int:
        """Bytes read, checked against the stream; 0 at EOF."""
        if sock.conn is None:
            raise SysError("ENOTCONN")
        waiting = sock.conn.recv_queue_bytes
        if waiting and not (wait_all and waiting < size and not sock.conn.at_eof):
            return min(size, waiting) if peek else self._consume(sock, size)
        if sock.error:
            raise SysError(sock.take_error())
        if sock.closed or sock.shut_read or self._at_eof(sock):
            return 0
        if not sock.connected and not sock.connecting:
            raise SysError("ENOTCONN")
        raise Blocked

    def _at_eof(self, sock: Socket) -> bool:
        return sock.conn is not None and sock.conn.at_eof

    def _consume(self, sock: Socket, size: int) -> int:
        assert sock.conn is not None
        data = b"".join(sock.conn.read(size))
        if data != stream(sock.read_bytes, len(data)):
            raise Mismatch(f"the {len(data)} bytes read are not bytes {sock.read_bytes}.. of the stream sent")
        sock.read_bytes += len(data)
        return len(data)

    def write(self, sock: Socket, size: int, room: int) -> int:
        """Queue the stream's next bytes; at most `room` may be waiting in the send queue."""
        if sock.error:
            raise SysError(sock.take_error())
        if sock.shut_write or sock.closed:
            raise SysError("EPIPE")
        if sock.conn is None:
            raise SysError("ENOTCONN")
        if sock.connecting and not sock.connected:
            raise Blocked
        free = room - sock.conn.send_queue_bytes
        if free <= 0 and size:
            raise Blocked
        size = min(size, free)
        sock.conn.send(stream(sock.written_bytes, size), self.now)
        sock.written_bytes += size
        return size

    # --- ending ---

    def shutdown(self, sock: Socket, how: int) -> None:
        if sock.conn is None or not (sock.connected or sock.conn.state is State.SYN_RECEIVED):
            raise SysError("ENOTCONN")
        sock.shut_read |= how in (0, 2)
        if how in (1, 2) and not sock.shut_write:
            sock.shut_write = True
            sock.conn.shutdown(self.now)

    def close(self, sock: Socket, *, linger: int | None = None) -> None:
        if sock.listener is not None:
            sock.listener.close(self.now)
        if sock.conn is not None and not sock.closed:
            if linger == 0:
                sock.conn.abort(self.now)
            else:
                sock.conn.close(self.now)
        if sock.udp is not None:
            sock.udp.close()
        sock.closed = True
