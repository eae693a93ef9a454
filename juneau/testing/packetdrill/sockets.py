"""A small BSD socket layer over one stack: what a script's file descriptors stand for.

Blocking is for the caller: a call that would block raises Blocked and is tried again later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from juneau.netstack.events import Closed
from juneau.netstack.tcp.states import State
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason, Endpoint, Micros
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


_KEEPALIVE: Final = {
    "TCP_KEEPIDLE": ("idle", SECOND),
    "TCP_KEEPINTVL": ("interval", SECOND),
    "TCP_KEEPCNT": ("probes", 1),
}
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
    handed_bytes: int = 0
    """Written bytes that TCP has been given."""
    acked_bytes: int = 0
    """As last seen: an ACK releases what MSG_MORE holds."""
    held_since: Micros = 0
    record_ends: list[int] = field(default_factory=list)
    """Stream offsets where MSG_EOR ended a record."""
    more: bool = False
    """The last write said MSG_MORE."""
    corked: bool = False
    maxseg: int = 0
    keepalive: bool = False
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
            if sock.defer_accept:
                sock.listener.defer_accept = sock.defer_accept

    def accept(self, sock: Socket) -> Socket:
        if sock.listener is None:
            raise SysError("EINVAL")
        conn = sock.listener.accept()
        if conn is None:
            raise Blocked
        child = Socket(local=conn.local, remote=conn.remote, conn=conn)
        child.options, child.maxseg = dict(sock.options), sock.maxseg
        self._adopt(child, conn)
        return child

    def connect(self, sock: Socket, remote: Endpoint) -> None:
        """Start, or find out what became of it: blocks until established."""
        if sock.conn is None:
            sock.remote, sock.connecting = remote, True
            local = Endpoint(self.address, sock.local.port)
            conn = self.stack.tcp_connect(remote, local=local, path="wire", now=self.now)
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

    def _adopt(self, sock: Socket, conn: TcpConnection) -> None:
        self._by_conn[id(conn)] = sock

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

    def write(self, sock: Socket, size: int, room: int, *, more: bool = False, eor: bool = False) -> int:
        """Take the stream's next bytes; at most `room` may be waiting in the send queue."""
        if sock.error:
            raise SysError(sock.take_error())
        if sock.shut_write or sock.closed:
            raise SysError("EPIPE")
        if sock.conn is None:
            raise SysError("ENOTCONN")
        if sock.connecting and not sock.connected:
            raise Blocked
        free = room - sock.conn.send_queue_bytes - (sock.written_bytes - sock.handed_bytes)
        if free <= 0 and size:
            raise Blocked
        size = min(size, free)
        if sock.written_bytes == sock.handed_bytes:
            sock.held_since = self.now
        sock.written_bytes += size
        sock.more = more
        if eor:
            sock.record_ends.append(sock.written_bytes)
        self.flush(sock, push=not more)
        return size

    def unsent(self, sock: Socket) -> int:
        """Bytes written that have not left."""
        if sock.conn is None:
            return 0
        info = sock.conn.info()
        return max(info.send_queue - info.unacked, 0) + sock.written_bytes - sock.handed_bytes

    def flush(self, sock: Socket, *, force: bool = False, push: bool = True) -> None:
        """Hand TCP what may go: whole segments only while corked, and no record into another's segment."""
        conn = sock.conn
        while conn is not None and not sock.closed and sock.handed_bytes < sock.written_bytes:
            if sock.record_ends and sock.handed_bytes == sock.record_ends[0]:
                info = conn.info()
                if info.send_queue > info.unacked and not force:
                    return
                sock.record_ends.pop(0)
            end = sock.record_ends[0] if sock.record_ends else sock.written_bytes
            size = end - sock.handed_bytes
            if (sock.corked or sock.more) and not sock.record_ends and not force:
                size -= size % conn.info().snd_mss
            if not size:
                return
            if sock.record_ends:
                conn.nodelay = True  # Linux's Nagle looks at the last record only
            conn.send(stream(sock.handed_bytes, size), self.now, push=push)
            sock.handed_bytes += size
            sock.held_since = self.now

    def deadline(self) -> Micros | None:
        """When held bytes leave anyway: after an RTO, as Linux has it."""
        held = [
            s.held_since + s.conn.info().rto
            for s in self.sockets.values()
            if s.conn is not None and self._holds(s)
        ]
        return min(held, default=None)

    def _holds(self, sock: Socket) -> bool:
        return sock.handed_bytes < sock.written_bytes and not sock.record_ends and not sock.closed

    def settle(self) -> None:
        """Called after anything happened: records that may go now, corks that have waited long enough."""
        for sock in self.sockets.values():
            if sock.conn is not None and sock.handed_bytes < sock.written_bytes:
                overdue = self._holds(sock) and self.now >= sock.held_since + sock.conn.info().rto
                acked = sock.more and sock.conn.bytes_acked > sock.acked_bytes
                self.flush(sock, force=overdue or acked, push=not acked)
            if sock.conn is not None:
                sock.acked_bytes = sock.conn.bytes_acked

    # --- options ---

    def effective_mss(self, sock: Socket) -> int:
        """TCP_MAXSEG; 0: no connection has found one yet, and none was set."""
        conn = sock.conn
        own = sock.maxseg or self.stack.link.mtu - 40
        if conn is None or conn.state is State.SYN_SENT:
            return sock.maxseg
        return min(own, conn.peer_mss)

    def set_option(self, sock: Socket, name: str, value: int) -> None:
        """What setsockopt means to the stack. One script tests one connection, so that options of TcpOptions
        may be set for the whole stack."""
        if name == "TCP_MAXSEG":
            sock.maxseg = value
            self._change(mss=value)
        elif name in ("TCP_CORK", "TCP_NOPUSH"):
            sock.corked = bool(value)
            if not value:
                self.flush(sock, force=True)
        elif name == "TCP_NODELAY":
            self._set_nodelay(sock, bool(value))
        elif name == "TCP_USER_TIMEOUT":
            self._change(user_timeout=value * MILLISECOND)
            if sock.conn is not None:
                sock.conn.user_timeout = value * MILLISECOND
        elif name == "TCP_LINGER2":
            self._change(fin_wait_2=value * SECOND)
        elif name == "TCP_DEFER_ACCEPT":
            sock.defer_accept = value * SECOND
        elif name == "IP_TTL":
            self._change(ttl=value)
        elif name in ("SO_KEEPALIVE", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
            self._set_keepalive(sock, name, value)

    def _change(self, **fields: Any) -> None:
        self.stack.tcp.tune(replace(self.stack.tcp.options, **fields))

    def _set_nodelay(self, sock: Socket, on: bool) -> None:
        self._change(nodelay=on)
        if sock.conn is not None:
            sock.conn.nodelay = on
            self.flush(sock, force=on, push=not sock.more)

    def _set_keepalive(self, sock: Socket, name: str, value: int) -> None:
        if name == "SO_KEEPALIVE":
            sock.keepalive = bool(value)
        else:
            field, unit = _KEEPALIVE[name]
            self._change(**{f"keepalive_{field}": value * unit})
        if sock.conn is not None:
            options = self.stack.tcp.options
            sock.conn.set_keepalive(
                sock.keepalive,
                self.now,
                idle=options.keepalive_idle,
                interval=options.keepalive_interval,
                probes=options.keepalive_probes,
            )
        self._change(keepalive=sock.keepalive)

    def set_text_option(self, sock: Socket, name: str, value: str) -> None:
        if name == "TCP_CONGESTION":
            self._change(congestion_control=value)

    def has_pending(self, sock: Socket) -> bool:
        return sock.listener is not None and sock.listener.waiting > 0

    # --- ending ---

    def shutdown(self, sock: Socket, how: int) -> None:
        if sock.conn is None or not (sock.connected or sock.conn.state is State.SYN_RECEIVED):
            raise SysError("ENOTCONN")
        sock.shut_read |= how in (0, 2)
        if how in (1, 2) and not sock.shut_write:
            self.flush(sock, force=True)
            sock.shut_write = True
            sock.conn.shutdown(self.now)

    def close(self, sock: Socket, *, linger: int | None = None) -> None:
        if sock.listener is not None:
            sock.listener.close(self.now)
        if sock.conn is not None and not sock.closed:
            if linger == 0:
                sock.conn.abort(self.now)
            else:
                self.flush(sock, force=True)
                sock.conn.close(self.now)
        if sock.udp is not None:
            sock.udp.close()
        sock.closed = True
