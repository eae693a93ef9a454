"""`socket.socket` on a simulated host: for programs that make their own sockets before they hand them
to asyncio, for `loop.sock_*`, and for blocking clients in threads.

A SimSocket is a `socket.socket` to `isinstance`, but no kernel object is behind it.
"""

from __future__ import annotations

import errno
import itertools
import socket
import warnings
from collections.abc import Callable, Iterable
from socket import socket as RealSocket
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakValueDictionary, ref

from juneau.netstack.aio.errors import close_error, os_error
from juneau.netstack.aio.sock import Address, address
from juneau.netstack.types import CloseReason, Endpoint, Misuse, Refused, format_ip
from juneau.testing.network.host import Boot, KernelSide, current_boot

if TYPE_CHECKING:
    from juneau.netstack.aio import TcpTransport
    from juneau.netstack.tcp import TcpConnection, TcpListener
    from juneau.netstack.udp import UdpSocket

SEND_BUFFER: Final = 256 * 1024
"""Bytes that may wait for their acknowledgement before `send` blocks, as long as SO_SNDBUF is not set."""
FIRST_EPHEMERAL: Final = 49_152
_NUMBERS = itertools.count(1 << 20)  # far from real descriptors

_SWITCHES: Final = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): "keepalive",
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): "nodelay",
}


class _Callbacks(KernelSide):
    """What the stack holds of a socket: a socket that its program has dropped is closed."""

    def __init__(self, sock: SimSocket) -> None:
        self._sock = ref(sock)

    def changed(self) -> None:
        if (sock := self._sock()) is not None:
            sock.on_change()

    on_readable = on_writable = on_accepted = on_datagrams = changed

    def on_error(self, remote: Endpoint, kind: object) -> None:
        """ICMP's answer to a datagram: this socket has no error queue."""

    def on_connected(self) -> None:
        if (sock := self._sock()) is not None:
            sock.on_connected()

    def on_closed(self, reason: CloseReason) -> None:
        if (sock := self._sock()) is not None:
            sock.on_closed(reason)


class SimSocket(RealSocket):
    """AF_INET, SOCK_STREAM or SOCK_DGRAM. It belongs to the host whose code made it."""

    by_number: ClassVar[WeakValueDictionary[int, SimSocket]] = WeakValueDictionary()

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        if fileno is not None:
            raise os_error(
                errno.EOPNOTSUPP, "socket from a file descriptor: no kernel is behind this network"
            )
        kind = socket.SocketKind(socket.SOCK_STREAM if type == -1 else type & 0xF)
        if family not in (-1, socket.AF_INET) or kind not in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            raise os_error(errno.EAFNOSUPPORT, f"socket family {family}, type {kind}: IPv4 TCP and UDP only")
        self._io_refs, self._closed = 0, False  # what socket.socket's Python half keeps
        self._number = next(_NUMBERS)
        self.by_number[self._number] = self
        self._kind = kind
        self._boot: Boot = current_boot()
        self._timeout: float | None = socket.getdefaulttimeout()
        self._local: Endpoint | None = None
        self._options: dict[tuple[int, int], Any] = {}
        self._watchers: list[Callable[[], object]] = []
        self._callbacks = _Callbacks(self)
        self._peeked = b""
        self._conn: TcpConnection | None = None
        self._listener: TcpListener | None = None
        self._udp: UdpSocket | None = None
        self._remote: Endpoint | None = None
        self._connected = False
        self._no_more_reading = self._no_more_writing = False
        self._error = 0
        self._ended = False
        self._lent = False
        self._owns_port = False
        self._transport: TcpTransport | None = None
        self._names = [1]  # how many sockets share what is below; shared by them
        self._named = True

    def __repr__(self) -> str:
        state = " [closed]" if self._closed else ""
        return f"<SimSocket{state} {self._kind.name} on {self._boot.host.name} local={self._local}>"

    family = property(lambda self: socket.AF_INET)
    type = property(lambda self: self._kind)
    proto = property(lambda self: 6 if self._kind is socket.SOCK_STREAM else 17)
    timeout = property(lambda self: self._timeout)

    # What the stack calls back

    def on_change(self) -> None:
        """Wake whoever waits, to look again."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def on_connected(self) -> None:
        self._connected = True
        self.on_change()

    def on_closed(self, reason: CloseReason) -> None:
        error = close_error(reason)
        self._ended = True
        if error is not None:
            self._error = error.errno or 0
        self.on_change()

    # Readiness, as select sees it

    @property
    def number(self) -> int:
        """What `fileno` was before `close`."""
        return self._number

    def settled(self) -> bool:
        """Whether `connect` came to an end."""
        return self._connected or self._ended or self._closed

    def take_error(self) -> int:
        error, self._error = self._error, 0
        return error

    def can_read(self) -> bool:
        if self._closed:
            return True
        if self._listener is not None:
            return self._backlog() is not None
        if self._udp is not None:
            return self._next_datagram() is not None
        conn = self._conn
        if conn is None:
            return False
        return bool(
            self._peeked or conn.recv_queue_bytes or conn.at_eof or self._ended or self._no_more_reading
        )

    def can_write(self) -> bool:
        if self._closed or self._kind is socket.SOCK_DGRAM or self._ended:
            return True
        conn = self._conn
        if conn is None or not self._connected:
            return False
        if conn.send_queue_bytes < self._send_buffer():
            return True
        conn.want_writable = True
        return False

    def watch(self, call: Callable[[], object]) -> None:
        """Call once at the next change of anything."""
        self._watchers.append(call)

    def _wait(self, ready: Callable[[], bool], limit: float | None) -> None:
        """Block as `settimeout` says. BlockingIOError, TimeoutError."""
        if ready():
            return
        if limit == 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        if not self._boot.host.network.threads.block(lambda: ready() or self._closed, limit, str(self)):
            raise TimeoutError("timed out")

    # Naming

    def bind(self, address: Any) -> None:
        if self._local is not None:
            raise os_error(errno.EINVAL, "bind: the socket is bound")
        ip, port = self._resolve(address)
        if ip and ip not in self._stack.addresses:
            raise os_error(errno.EADDRNOTAVAIL, f"bind {format_ip(ip)}:{port}")
        if self._kind is socket.SOCK_DGRAM:
            self._bind_udp(Endpoint(ip, port))
            return
        if not self._options.get(_REUSE):
            self._boot.check_free(ip, port)
        self._local = Endpoint(ip, port or self._boot.free_port())
        self._boot.bound_ports.add(self._local.port)
        self._owns_port = True

    def _bind_udp(self, local: Endpoint) -> None:
        try:
            self._udp = self._stack.udp_bind(local, user=self._callbacks)
        except (Misuse, Refused) as exc:
            raise os_error(errno.EADDRINUSE, f"bind {local}: {exc}") from exc
        self._local = self._udp.local

    def getsockname(self) -> Address:
        self._check_open()
        return address(self._local or Endpoint(0, 0))

    def getpeername(self) -> Address:
        self._check_open()
        if self._remote is None or (self._kind is socket.SOCK_STREAM and not self._connected):
            raise os_error(errno.ENOTCONN)
        return address(self._remote)

    def fileno(self) -> int:
        """A number that only this network's select, poll and add_reader know."""
        return -1 if self._closed else self._number

    def _resolve(self, address: Any) -> tuple[int, int]:
        host, port = address[0], address[1]
        if host in ("", b""):
            return 0, port
        return self._boot.host.network.names.resolve(host)[0], port

    # Options

    def setsockopt(self, level: int, name: int, value: Any, optlen: int = 0) -> None:
        self._check_open()
        self._options[level, name] = value
        if self._conn is not None:
            self._apply_options()

    def _apply_options(self) -> None:
        for key, attribute in _SWITCHES.items():
            if key in self._options:
                setattr(self._conn, attribute, bool(self._options[key]))
        if self._transport is not None and _SNDBUF in self._options:
            self._transport._snd_limit = self._send_buffer()

    def getsockopt(self, level: int, name: int, buflen: int = 0) -> Any:
        self._check_open()
        if (level, name) == (socket.SOL_SOCKET, socket.SO_ERROR):
            return self.take_error()
        if (level, name) == (socket.SOL_SOCKET, socket.SO_TYPE):
            return int(self._kind)
        if (level, name) in ((socket.SOL_SOCKET, socket.SO_SNDBUF), (socket.SOL_SOCKET, socket.SO_RCVBUF)):
            return self._options.get((level, name), SEND_BUFFER)
        return self._options.get((level, name), 0)

    def _send_buffer(self) -> int:
        return max(2048, int(self._options.get(_SNDBUF, SEND_BUFFER)))

    def settimeout(self, value: float | None) -> None:
        if value is not None and value < 0:
            raise ValueError("Timeout value out of range")
        self._timeout = value

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def getblocking(self) -> bool:
        return self._timeout != 0

    # Listening

    def listen(self, backlog: int = 128) -> None:
        self._check_open()
        if self._local is None:
            self.bind(("", 0))
        assert self._local is not None
        try:
            self._listener = self._stack.tcp_listen(
                self._local, backlog=max(1, backlog), user=self._callbacks
            )
        except (Misuse, Refused) as exc:
            raise os_error(errno.EADDRINUSE, f"listen {self._local}: {exc}") from exc

    def _backlog(self) -> TcpConnection | None:
        """The next connection, kept until `accept` takes it."""
        if self._conn is None and self._listener is not None:
            self._conn = self._listener.accept()
        return self._conn

    def accept(self) -> tuple[SimSocket, Address]:
        self._check_open()
        if self._listener is None:
            raise os_error(errno.EINVAL, "accept: the socket does not listen")
        self._wait(lambda: self._backlog() is not None, self._timeout)
        self._check_open()
        conn, self._conn = self._conn, None
        assert conn is not None
        child = self._boot.run(SimSocket)
        child._take(conn)
        child._timeout = socket.getdefaulttimeout()
        return child, address(conn.remote)

    def _take(self, conn: TcpConnection) -> None:
        self._conn, self._local, self._remote = conn, conn.local, conn.remote
        self._connected = True
        conn.user = self._callbacks

    def _take_over(self, other: SimSocket) -> None:
        """Become what `other` was, which is used up."""
        for name in _STATE:
            setattr(self, name, getattr(other, name))
        held = self._conn or self._listener or self._udp
        self._names[0] += 1
        other.detach()
        if held is not None:
            held.user = self._callbacks

    def is_connected(self) -> bool:
        return self._connected

    # Connecting

    def connect(self, address: Any) -> None:
        error = self._start_connect(address)
        if error == errno.EINPROGRESS and self._timeout != 0:
            self._wait(self.settled, self._timeout)
            error = self.take_error()
        if error == errno.EINPROGRESS:
            raise BlockingIOError(error, "Operation now in progress")
        if error:
            raise os_error(error)

    def connect_ex(self, address: Any) -> int:
        try:
            self.connect(address)
        except OSError as exc:
            return exc.errno or errno.EIO
        return 0

    def _start_connect(self, address: Any) -> int:
        self._check_open()
        ip, port = self._resolve(address)
        ip = ip or 0x7F000001
        remote = Endpoint(ip, port)
        if self._kind is socket.SOCK_DGRAM:
            self._remote = remote
            if self._udp is None:
                self._bind_udp(Endpoint(self._source(ip), 0))
            return 0
        if self._conn is not None:
            return errno.EISCONN if self._connected else errno.EALREADY
        local = self._local or Endpoint(0, 0)
        local = Endpoint(local.ip or self._source(ip), local.port)
        aio = self._boot.aio
        path = aio.route(ip) if aio.route is not None else None
        try:
            self._conn = aio.stack.tcp_connect(
                remote, local=local, path=path, now=aio.clock(), user=self._callbacks
            )
        except (Misuse, Refused) as exc:
            raise os_error(errno.EADDRNOTAVAIL, f"connect {remote}: {exc}") from exc
        self._local, self._remote = self._conn.local, remote
        self._apply_options()
        self._settle()
        return errno.EINPROGRESS

    def _source(self, remote_ip: int) -> int:
        return remote_ip if remote_ip in self._stack.addresses else self._boot.host.ips[0]

    # Receiving

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        if self._kind is socket.SOCK_DGRAM:
            return self.recvfrom(bufsize, flags)[0]
        self._check_open()
        if self._conn is None or self._lent:
            raise os_error(errno.ENOTCONN)
        if bufsize == 0:
            return b""
        self._wait(self.can_read, 0 if flags & socket.MSG_DONTWAIT else self._timeout)
        self._check_open()
        data = self._peeked or self._read(bufsize)
        if flags & socket.MSG_PEEK:
            self._peeked = data
            return data[:bufsize]
        self._peeked = data[bufsize:]
        return data[:bufsize]

    def _read(self, limit: int) -> bytes:
        conn = self._conn
        assert conn is not None
        if conn.recv_queue_bytes:
            data = b"".join(conn.read(limit))
            self._settle()  # the window has opened
            return data
        if error := self.take_error():
            raise os_error(error)
        return b""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def recvfrom(self, bufsize: int, flags: int = 0) -> tuple[bytes, Any]:
        if self._kind is socket.SOCK_STREAM:
            return self.recv(bufsize, flags), None
        self._check_open()
        if self._udp is None:
            self._bind_udp(Endpoint(0, 0))
        self._wait(
            lambda: self._next_datagram() is not None, 0 if flags & socket.MSG_DONTWAIT else self._timeout
        )
        self._check_open()
        payload, remote = self._datagrams[0] if flags & socket.MSG_PEEK else self._datagrams.pop(0)
        return bytes(payload)[:bufsize], address(remote)

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        view = memoryview(buffer).cast("B")
        data, peer = self.recvfrom(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data), peer

    def _next_datagram(self) -> tuple[Any, Endpoint] | None:
        """From the peer only, if there is one."""
        while not self._datagrams and self._udp is not None:
            datagram = self._udp.receive()
            if datagram is None:
                return None
            if self._remote is None or datagram.remote == self._remote:
                self._datagrams.append((datagram.payload, datagram.remote))
        return self._datagrams[0] if self._datagrams else None

    @property
    def _datagrams(self) -> list[tuple[Any, Endpoint]]:
        queue: list[tuple[Any, Endpoint]] = self.__dict__.setdefault("_queue", [])
        return queue

    # Sending

    def send(self, data: Any, flags: int = 0) -> int:
        if self._kind is socket.SOCK_DGRAM:
            if self._remote is None:
                raise os_error(errno.EDESTADDRREQ)
            return self._send_to(data, self._remote)
        self._check_sending()
        self._wait(self.can_write, 0 if flags & socket.MSG_DONTWAIT else self._timeout)
        self._check_sending()
        conn = self._conn
        assert conn is not None
        view = memoryview(data).cast("B")
        room = self._send_buffer() - conn.send_queue_bytes
        piece = bytes(view[:room])
        conn.send(piece, self._boot.aio.clock())
        self._settle()
        return len(piece)

    def _check_sending(self) -> None:
        self._check_open()
        if self._conn is None or not (self._connected or self._ended):
            raise os_error(errno.ENOTCONN)
        if error := self.take_error():
            raise os_error(error)
        if self._ended or self._no_more_writing:
            raise os_error(errno.EPIPE)

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        sent = 0
        while sent < len(view):
            sent += self.send(view[sent:], flags)

    def sendto(self, data: Any, *args: Any) -> int:
        if self._kind is socket.SOCK_STREAM:
            return self.send(data)
        ip, port = self._resolve(args[-1])
        return self._send_to(data, Endpoint(ip or 0x7F000001, port))

    def _send_to(self, data: Any, remote: Endpoint) -> int:
        self._check_open()
        if self._udp is None:
            self._bind_udp(Endpoint(0, 0))
        assert self._udp is not None
        aio = self._boot.aio
        path = aio.route(remote.ip) if aio.route is not None else None
        payload = bytes(data)
        local_ip = self._udp.local.ip or self._source(remote.ip)
        try:
            self._udp.send(payload, remote, path, local_ip=local_ip)
        except Refused as exc:
            raise os_error(errno.EMSGSIZE, str(exc)) from exc
        self._settle()
        return len(payload)

    def sendmsg(self, buffers: Iterable[Any], *args: Any) -> int:
        data = b"".join(bytes(b) for b in buffers)
        return self.sendto(data, args[-1]) if len(args) == 3 else self.send(data)

    # Ending

    def shutdown(self, how: int) -> None:
        self._check_open()
        if self._conn is None or not self._connected or self._ended:
            raise os_error(errno.ENOTCONN)
        if how != socket.SHUT_WR:
            self._no_more_reading = True
        if how != socket.SHUT_RD and not self._no_more_writing:
            self._no_more_writing = True
            self._conn.shutdown(self._boot.aio.clock())
        self._settle()
        self.on_change()

    def _real_close(self, _ss: object = RealSocket) -> None:
        if self._drop_name():
            self._conn = self._listener = self._udp = None
            return
        now = self._boot.aio.clock()
        if self._conn is not None and not self._lent:
            self._conn.user = None
            if self._lingers_not():
                self._conn.abort(now)
            elif not self._ended:
                self._conn.close(now)
        if self._listener is not None:
            self._listener.close(now)
        if self._udp is not None:
            self._udp.user = None
            self._udp.close()
        if self._owns_port and self._local is not None:
            self._boot.bound_ports.discard(self._local.port)
        self._conn = self._listener = self._udp = None
        self._settle()
        self.on_change()

    def _drop_name(self) -> bool:
        """Whether others share the connection still."""
        if self._named:
            self._named = False
            self._names[0] -= 1
        return self._names[0] > 0

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._lent:
            what = f"unclosed {self!r}"
            self.close()
            warnings.warn(what, ResourceWarning, source=self, stacklevel=2)

    def _lingers_not(self) -> bool:
        linger = self._options.get((socket.SOL_SOCKET, socket.SO_LINGER))
        return isinstance(linger, bytes) and linger[:1] == b"\1" and not any(linger[4:8])

    def detach(self) -> int:
        self._drop_name()
        self._conn = self._listener = self._udp = None
        self._closed = True
        return -1

    def dup(self) -> SimSocket:
        """Another name for the same connection, which ends with the last of them."""
        twin = self._boot.run(SimSocket)
        for name in _STATE:
            setattr(twin, name, getattr(self, name))
        self._names[0] += 1
        return twin

    def _check_open(self) -> None:
        if self._closed:
            raise os_error(errno.EBADF)

    def lend(self, transport: TcpTransport) -> None:
        """The transport has the connection now; names and options still work here."""
        self._lent = True
        self._transport = transport
        self._apply_options()

    def _settle(self) -> None:
        """The stack has something to send, unless all is over; a kernel would send it now."""
        if self._boot.alive and not self._boot.aio.loop.is_closed():
            self._boot.run(self._boot.settle)

    @property
    def _stack(self) -> Any:
        if not self._boot.alive:
            raise os_error(errno.ENETDOWN, f"host {self._boot.host.name} has crashed")
        return self._boot.aio.stack


_STATE: Final = (
    "_boot",
    "_conn",
    "_connected",
    "_ended",
    "_error",
    "_kind",
    "_listener",
    "_local",
    "_names",
    "_options",
    "_owns_port",
    "_peeked",
    "_remote",
    "_timeout",
    "_udp",
)
_REUSE: Final = (socket.SOL_SOCKET, socket.SO_REUSEPORT)
_SNDBUF: Final = (socket.SOL_SOCKET, socket.SO_SNDBUF)
