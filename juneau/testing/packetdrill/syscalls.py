"""The system calls of a script: arguments and results to and from the socket layer.

Each call is one method of its own name. It returns the result, or raises SysError, Blocked,
Mismatch (an output argument is not as expected) or Unsupported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from juneau.netstack.types import MILLISECOND, SECOND, Endpoint, Micros, Misuse, Refused, parse_ip
from juneau.testing.packetdrill.model import ANYTHING, Anything, Array, Expr, Name, Or, Struct, SyscallEvent
from juneau.testing.packetdrill.report import Mismatch
from juneau.testing.packetdrill.sockets import Blocked, Socket, SocketLayer, SysError
from juneau.testing.packetdrill.symbols import SYMBOLS, Unsupported, errno_name, number, show

if TYPE_CHECKING:
    from juneau.testing.packetdrill.profile import Profile

POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP = 1, 4, 8, 16, 8192
EPOLLONESHOT, EPOLLET = 1 << 30, 1 << 31
_S: Final = SYMBOLS


class Calls:
    """Runs a script's calls. `fd` results take the number that the script expects."""

    def __init__(self, layer: SocketLayer, profile: Profile, remote: Endpoint) -> None:
        self.layer, self.profile, self.remote = layer, profile, remote
        self.under_test: Socket | None = None
        """The socket that outbound packets and tcp_info are about."""
        self.deadline: Micros | None = None
        """When a blocked call gives up by itself (poll and its like)."""

    def run(self, event: SyscallEvent) -> int:
        method = getattr(self, f"do_{event.name}", None)
        if method is None:
            raise Unsupported(f"system call {event.name}")
        try:
            return int(method(list(event.args), event))
        except Refused as refused:
            raise SysError("ENOBUFS") from refused
        except Misuse as misuse:
            raise SysError("EINVAL") from misuse

    # --- making and naming ---

    def _new_fd(self, event: SyscallEvent, sock: Socket) -> int:
        fd = number(event.result)
        if fd < 0:
            raise Mismatch(f"{event.name} succeeded", f"-1 {event.errno}", "a descriptor")
        self.layer.sockets[fd] = sock
        return fd

    def do_socket(self, args: list[Expr], event: SyscallEvent) -> int:
        kind = number(args[1])
        sock = Socket("udp" if kind & 15 == 2 else "tcp", nonblocking=bool(kind & _S["SOCK_NONBLOCK"]))
        self.under_test = sock
        return self._new_fd(event, sock)

    def do_bind(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        sock.local = self._endpoint(args[1], Endpoint(self.layer.address, 8080))
        if sock.kind == "udp":
            sock.udp = self.layer.stack.udp_bind(sock.local)
        return 0

    def do_listen(self, args: list[Expr], event: SyscallEvent) -> int:
        self.layer.listen(self._sock(args[0]), number(args[1]))
        return 0

    def do_accept(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        try:
            child = self.layer.accept(sock)
        except Blocked:
            self._would_block(sock)
            raise
        if self.under_test is sock or self.under_test is None or self.under_test.conn is None:
            self.under_test = child
        return self._new_fd(event, child)

    def do_connect(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        remote = self._endpoint(args[1], self.remote)
        if sock.kind == "udp":
            sock.remote = remote
            if sock.udp is None:
                sock.udp = self.layer.stack.udp_bind(Endpoint(self.layer.address, 0))
            return 0
        self.under_test = sock
        self.layer.connect(sock, remote)
        return 0

    def do_close(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        linger = sock.options.get((_S["SOL_SOCKET"], _S["SO_LINGER"]))
        self.layer.close(sock, linger=linger)
        del self.layer.sockets[number(args[0])]
        return 0

    def do_shutdown(self, args: list[Expr], event: SyscallEvent) -> int:
        self.layer.shutdown(self._sock(args[0]), number(args[1]))
        return 0

    # --- reading ---

    def do_read(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._read(args[0], self._buffer_size(args[1], args[2]), 0)

    def do_recv(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._read(args[0], self._buffer_size(args[1], args[2]), number(args[3]))

    do_recvfrom = do_recv

    def do_readv(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._read(args[0], _iov_size(args[1]), 0)

    def do_recvmsg(self, args: list[Expr], event: SyscallEvent) -> int:
        message, flags = args[1], number(args[2])
        if not isinstance(message, Struct):
            raise Unsupported(f"recvmsg message {show(message)}")
        count = self._read(args[0], _iov_size(message.get("msg_iov")), flags)
        control = message.get("msg_control")
        if isinstance(control, Array):
            for item in control.items:
                self._check_control(self._sock(args[0]), item)
        return count

    def _check_control(self, sock: Socket, item: Expr) -> None:
        if not isinstance(item, Struct) or show(item.get("cmsg_type")) != "TCP_CM_INQ":
            raise Unsupported(f"control message {show(item)}")
        unread = self.layer.readable(sock)
        if not unread and sock.conn is not None and sock.conn.at_eof:
            unread = 1  # Linux: so that the reader comes back for EOF
        _compare("TCP_CM_INQ", item.get("cmsg_data"), unread)

    def _read(self, fd: Expr, size: int, flags: int) -> int:
        sock = self._sock(fd)
        if sock.kind == "udp":
            return self._read_datagram(sock, size)
        if sock.kind == "file":
            return size
        try:
            return self.layer.read(
                sock, size, peek=bool(flags & _S["MSG_PEEK"]), wait_all=bool(flags & _S["MSG_WAITALL"])
            )
        except Blocked:
            self._would_block(sock, flags)
            raise

    def _read_datagram(self, sock: Socket, size: int) -> int:
        datagram = sock.udp.receive() if sock.udp is not None else None
        if datagram is None:
            self._would_block(sock)
            raise Blocked
        return min(size, len(datagram.payload))

    # --- writing ---

    def do_write(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._write(args[0], self._buffer_size(args[1], args[2]), 0)

    def do_send(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._write(args[0], self._buffer_size(args[1], args[2]), number(args[3]))

    def do_sendto(self, args: list[Expr], event: SyscallEvent) -> int:
        target = self._endpoint(args[4], self.remote)
        return self._write(args[0], self._buffer_size(args[1], args[2]), number(args[3]), target)

    def do_writev(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._write(args[0], _iov_size(args[1]), 0)

    def do_sendmsg(self, args: list[Expr], event: SyscallEvent) -> int:
        if not isinstance(args[1], Struct):
            raise Unsupported(f"sendmsg message {show(args[1])}")
        return self._write(args[0], _iov_size(args[1].get("msg_iov")), number(args[2]))

    def do_sendfile(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._write(args[0], number(args[3]), 0)

    def _write(self, fd: Expr, size: int, flags: int, target: Endpoint | None = None) -> int:
        sock = self._sock(fd)
        if sock.kind == "udp":
            return self._write_datagram(sock, size, target)
        more, eor = bool(flags & _S["MSG_MORE"]), bool(flags & _S["MSG_EOR"])
        try:
            return self.layer.write(sock, size, self._send_room(sock), more=more, eor=eor)
        except Blocked:
            self._would_block(sock, flags)
            raise

    def _write_datagram(self, sock: Socket, size: int, target: Endpoint | None) -> int:
        if sock.udp is None:
            sock.udp = self.layer.stack.udp_bind(Endpoint(self.layer.address, 0))
        remote = sock.remote if sock.remote.port else target or self.remote
        sock.udp.send(bytes(size), remote, "wire", local_ip=self.layer.address)
        return size

    def _send_room(self, sock: Socket) -> int:
        return sock.options.get((_S["SOL_SOCKET"], _S["SO_SNDBUF"]), self.profile.sndbuf)

    # --- pipes and files, as far as splice and sendfile need them ---

    def do_open(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._new_fd(event, Socket("file"))

    def do_pipe(self, args: list[Expr], event: SyscallEvent) -> int:
        if not isinstance(args[0], Array):
            raise Unsupported("pipe without two descriptors")
        for item in args[0].items:
            self.layer.sockets[number(item)] = Socket("pipe")
        return 0

    def do_splice(self, args: list[Expr], event: SyscallEvent) -> int:
        source, target, size = self._sock(args[0]), self._sock(args[2]), number(args[4])
        if source.kind == "pipe":
            size = min(size, source.read_bytes)
            source.read_bytes -= size
            return self.layer.write(target, size, self._send_room(target))
        count = self._read(args[0], size, 0)
        target.read_bytes += count
        return count

    # --- options ---

    def do_setsockopt(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        level, name, value = number(args[1]), number(args[2]), args[3]
        if isinstance(value, Struct) and show(args[2]) == "SO_LINGER":
            sock.options[level, name] = number(value.get("linger")) if number(value.get("onoff")) else -1
            return 0
        if isinstance(value, str):
            self.layer.set_text_option(sock, show(args[2]), value)
            return 0
        sock.options[level, name] = number(value)
        self.layer.set_option(sock, show(args[2]), number(value))
        return 0

    def do_getsockopt(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        name = show(args[2])
        if name == "SO_ERROR":
            error = sock.take_error()
            _compare(name, args[3], SYMBOLS[error] if error else 0, error)
        elif name == "SO_RCVBUF":
            mss = self.layer.effective_mss(sock)
            space = self.profile.rcvbuf(mss) if sock.conn is not None and mss else self.profile.recvspace
            _compare(name, args[3], space)
        elif name == "TCP_MAXSEG":
            _compare(name, args[3], self.layer.effective_mss(sock))
        else:
            key = (number(args[1]), number(args[2]))
            _compare(name, args[3], sock.options.get(key, 0))
        return 0

    def do_fcntl(self, args: list[Expr], event: SyscallEvent) -> int:
        sock = self._sock(args[0])
        if number(args[1]) == _S["F_SETFL"]:
            sock.nonblocking = bool(number(args[2]) & _S["O_NONBLOCK"])
            return 0
        return _S["O_RDWR"] | (_S["O_NONBLOCK"] if sock.nonblocking else 0)

    def do_ioctl(self, args: list[Expr], event: SyscallEvent) -> int:
        sock, request = self._sock(args[0]), show(args[1])
        if request in ("SIOCINQ", "FIONREAD"):
            _compare(request, args[2], self.layer.readable(sock))
        elif request == "SIOCOUTQ":
            _compare(request, args[2], sock.conn.send_queue_bytes if sock.conn else 0)
        elif request == "FIONBIO":
            sock.nonblocking = bool(number(args[2]))
        else:
            raise Unsupported(f"ioctl {request}")
        return 0

    # --- waiting for several ---

    def do_poll(self, args: list[Expr], event: SyscallEvent) -> int:
        if not isinstance(args[0], Array):
            raise Unsupported("poll without an array")
        entries = [item for item in args[0].items if isinstance(item, Struct)]
        found = [
            self._ready(number(e.get("fd"))) & (number(e.get("events")) | POLLERR | POLLHUP) for e in entries
        ]
        self._wait_unless(any(found), number(args[2]))
        for entry, events in zip(entries, found, strict=True):
            expected = entry.get("revents")
            if not isinstance(expected, Anything) or "revents" in entry.fields:
                _compare("revents", expected, events)
        return sum(events != 0 for events in found)

    def do_epoll_create(self, args: list[Expr], event: SyscallEvent) -> int:
        return self._new_fd(event, Socket("epoll"))

    do_epoll_create1 = do_epoll_create

    def do_epoll_ctl(self, args: list[Expr], event: SyscallEvent) -> int:
        epoll, fd = self._sock(args[0]), number(args[2])
        if show(args[1]) == "EPOLL_CTL_DEL":
            epoll.watched.pop(fd, None)
            return 0
        if not isinstance(args[3], Struct):
            raise Unsupported(f"epoll event {show(args[3])}")
        data = next((number(args[3].get(k)) for k in ("fd", "u32", "u64", "ptr") if k in args[3].fields), fd)
        epoll.watched[fd] = (number(args[3].get("events")) & 0xFFFFFFFF, data)
        epoll.reported.pop(fd, None)
        return 0

    def do_epoll_wait(self, args: list[Expr], event: SyscallEvent) -> int:
        epoll = self._sock(args[0])
        found = [(fd, events, data) for fd, (wanted, data) in epoll.watched.items()
                 if (events := self._epoll_ready(epoll, fd, wanted))]  # fmt: skip
        self._wait_unless(bool(found), number(args[3]))
        expected = args[1].items if isinstance(args[1], Array) else (args[1],)
        for (fd, events, _), item in zip(found, expected, strict=False):
            if isinstance(item, Struct):
                _compare("epoll events", item.get("events"), events)
            epoll.reported[fd] = self._edge(fd)
            if epoll.watched[fd][0] & EPOLLONESHOT:
                epoll.watched[fd] = (0, epoll.watched[fd][1])
        return min(len(found), number(args[2]))

    def _epoll_ready(self, epoll: Socket, fd: int, wanted: int) -> int:
        if not wanted:
            return 0
        events = self._ready(fd) & (wanted | POLLERR | POLLHUP)
        if wanted & EPOLLET and epoll.reported.get(fd) == self._edge(fd):
            return 0
        return events

    def _edge(self, fd: int) -> int:
        """A number that changes when something new comes: bytes ever received, and the end."""
        sock = self._sock(fd)
        return (sock.read_bytes + self.layer.readable(sock)) * 2 + (
            sock.conn is not None and sock.conn.at_eof
        )

    def _ready(self, fd: int) -> int:
        sock = self._sock(fd)
        if sock.listener is not None:
            return POLLIN if self.layer.has_pending(sock) else 0
        if sock.conn is None:
            return POLLOUT | POLLHUP
        eof = sock.conn.at_eof or sock.closed or sock.shut_read
        events = POLLIN if self.layer.readable(sock) or eof else 0
        events |= POLLRDHUP if eof else 0
        events |= POLLHUP if sock.closed or (sock.shut_write and eof) else 0
        events |= POLLERR if sock.error else 0
        if sock.closed or (sock.connected and self._writable(sock)):
            events |= POLLOUT
        return events

    def _writable(self, sock: Socket) -> bool:
        assert sock.conn is not None
        room = self._send_room(sock)
        lowat = sock.options.get((_S["SOL_TCP"], _S["TCP_NOTSENT_LOWAT"])) or self.profile.notsent_lowat
        if lowat and self.layer.unsent(sock) >= lowat / 2:
            return False
        return sock.conn.send_queue_bytes * 3 < room * 2

    def _wait_unless(self, ready: bool, timeout_ms: int) -> None:
        """poll's rule: block until `ready` or the time is up; the deadline of the first try counts."""
        if ready or timeout_ms == 0 or (self.deadline is not None and self.layer.now >= self.deadline):
            self.deadline = None
            return
        if timeout_ms > 0 and self.deadline is None:
            self.deadline = self.layer.now + timeout_ms * MILLISECOND
        raise Blocked

    def do_usleep(self, args: list[Expr], event: SyscallEvent) -> int:
        if self.deadline is None:
            self.deadline = self.layer.now + number(args[0]) * SECOND // 1_000_000
        if self.layer.now < self.deadline:
            raise Blocked
        self.deadline = None
        return 0

    # --- arguments ---

    def _sock(self, expr: Expr) -> Socket:
        return self.layer.get(number(expr))

    def _would_block(self, sock: Socket, flags: int = 0) -> None:
        if sock.nonblocking or flags & _S["MSG_DONTWAIT"]:
            raise SysError("EAGAIN")

    def _buffer_size(self, buffer: Expr, size: Expr) -> int:
        if buffer == Name("NULL") and number(size):
            raise SysError("EFAULT")
        return number(size)

    def _endpoint(self, expr: Expr, default: Endpoint) -> Endpoint:
        if not isinstance(expr, Struct):
            return default
        port, ip = expr.get("sin_port"), expr.get("sin_addr")
        return Endpoint(parse_ip(ip) if isinstance(ip, str) else default.ip, number(port))


def _iov_size(expr: Expr) -> int:
    """Bytes in `[{..., 40}, {..., 20}]`."""
    if not isinstance(expr, Array):
        raise Unsupported(f"iovec {show(expr)}")
    return sum(number(item.get("1")) for item in expr.items if isinstance(item, Struct))


def _compare(what: str, expected: Expr, got: int, got_name: str = "") -> None:
    if isinstance(expected, Array) and len(expected.items) == 1:
        expected = expected.items[0]
    if expected is ANYTHING or isinstance(expected, str):
        return
    if number(expected) != got:
        raise Mismatch(f"{what} is not as expected", f"{what} {show(expected)}", f"{what} {got_name or got}")


def result_text(value: int, errno: str = "") -> str:
    return f"{value} {errno}".rstrip()


def expected_text(event: SyscallEvent) -> str:
    return result_text_of(event.result, event.errno)


def result_text_of(result: Expr, errno: str) -> str:
    return f"{show(result)} {errno_name(errno)}".rstrip()


def call_text(event: SyscallEvent) -> str:
    return f"{event.name}({', '.join(map(show, event.args))})"


def agrees(event: SyscallEvent, value: int, errno: str) -> bool:
    if isinstance(event.result, Name | Or) or event.result is ANYTHING:
        return event.result is ANYTHING or number(event.result) == value
    return number(event.result) == value and (not event.errno or errno_name(event.errno) == errno_name(errno))
