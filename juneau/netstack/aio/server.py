"""A listening server, as `asyncio.Server` is."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from juneau.netstack.aio.errors import os_error
from juneau.netstack.aio.sock import StackSocket, address
from juneau.netstack.aio.tls import TlsTimeouts, server_protocol
from juneau.netstack.aio.transport import TcpTransport
from juneau.netstack.types import Endpoint, Misuse, parse_ip

if TYPE_CHECKING:
    from juneau.netstack.aio.driver import Driver
    from juneau.netstack.tcp import TcpConnection, TcpListener

Host: TypeAlias = str | IPv4Address
ProtocolFactory: TypeAlias = Callable[[], asyncio.BaseProtocol]


def local_endpoints(driver: Driver, host: Host | Iterable[Host] | None, port: int | None) -> list[Endpoint]:
    """None, "" and "0.0.0.0" are every address of the stack. OSError EADDRNOTAVAIL for a foreign one."""
    hosts = [host] if host is None or isinstance(host, str | IPv4Address) else list(host)
    endpoints = [Endpoint(0 if h is None else resolve(h), port or 0) for h in hosts]
    for endpoint in endpoints:
        if endpoint.ip and endpoint.ip not in driver.stack.addresses:
            raise os_error(errno.EADDRNOTAVAIL, f"bind {endpoint}")
    return endpoints


def resolve(host: Host) -> int:
    """Addresses only: names are the application's affair. Raises OSError EADDRNOTAVAIL."""
    try:
        return parse_ip(str(host)) if host != "" else 0
    except Misuse as exc:
        raise OSError(errno.EADDRNOTAVAIL, str(exc)) from exc


class ServerOptions(NamedTuple):
    protocol_factory: ProtocolFactory
    ssl: SSLContext | None
    timeouts: TlsTimeouts
    backlog: int
    extra: Mapping[str, object]


class _Acceptor:
    """What the stack's listener calls back."""

    __slots__ = ("_server", "listener")

    def __init__(self, server: Server, endpoint: Endpoint, backlog: int) -> None:
        self._server = server
        self.listener = listen(server.driver, endpoint, backlog, self)

    def on_accepted(self) -> None:
        """All of the queue: the backlog bounds it."""
        listener: TcpListener = self.listener
        while self._server.is_serving() and (conn := listener.accept()) is not None:
            self._server.connect(conn)


def listen(driver: Driver, endpoint: Endpoint, backlog: int, user: object) -> TcpListener:
    """Port 0: the highest ephemeral one without a listener."""
    tcp = driver.stack.tcp
    if not endpoint.port:
        taken = {listener.local.port for listener in tcp.listeners()}
        ports = range(tcp.options.ephemeral_high, tcp.options.ephemeral_low - 1, -1)
        endpoint = Endpoint(endpoint.ip, next((port for port in ports if port not in taken), 0))
    try:
        return driver.stack.tcp_listen(endpoint, backlog=backlog, user=user)
    except Misuse as exc:
        raise OSError(errno.EADDRINUSE, f"listen {endpoint}: {exc}") from exc


class Server(asyncio.AbstractServer):
    """Closing stops accepting and leaves open connections alone; `wait_closed` waits for these as
    well (CPython >= 3.12.1; 3.11 and uvloop return at once). `close_clients` and `abort_clients` are
    there on every version.
    """

    def __init__(self, driver: Driver, endpoints: list[Endpoint], options: ServerOptions) -> None:
        self.driver = driver
        self._options = options
        self._endpoints: list[Endpoint] | None = endpoints
        self._acceptors: list[_Acceptor] = []
        self._transports: dict[TcpTransport, None] = {}
        self._waiters: list[asyncio.Future[None]] | None = []
        self._forever: asyncio.Future[None] | None = None
        self._serving = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sockets={self.sockets!r}>"

    @property
    def sockets(self) -> tuple[StackSocket, ...]:
        return tuple(StackSocket(socket.SOCK_STREAM, address(end)) for end in self._endpoints or ())

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.driver.loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        self.listen()
        await asyncio.sleep(0)

    def listen(self) -> None:
        """Until then SYNs are refused. Raises OSError EADDRINUSE; none or all of the endpoints listen."""
        if self._serving:
            return
        if self._endpoints is None:
            raise RuntimeError(f"server {self!r} is closed")
        self._serving = True
        try:
            for index, endpoint in enumerate(self._endpoints):
                acceptor = _Acceptor(self, endpoint, self._options.backlog)
                self._acceptors.append(acceptor)
                self._endpoints[index] = acceptor.listener.local  # the port, if it was 0
        except BaseException:
            self._stop_listening()
            raise
        self.driver.ends[self] = None

    def connect(self, conn: TcpConnection) -> None:
        """Put a new protocol behind an accepted connection."""
        options = self._options
        loop = self.driver.loop
        try:
            protocol = options.protocol_factory()
            if options.ssl is not None:
                protocol = server_protocol(loop, protocol, options.ssl, options.timeouts)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:  # noqa: BLE001 (whatever the application raises)
            conn.abort(self.driver.clock())
            message = "Error on transport creation for incoming connection"
            loop.call_exception_handler({"message": message, "exception": exc, "server": self})
            return
        TcpTransport(self.driver, conn, protocol, extra=options.extra, server=self)

    def attach(self, transport: TcpTransport) -> None:
        self._transports[transport] = None

    def detach(self, transport: TcpTransport) -> None:
        self._transports.pop(transport, None)
        self.driver.gone()
        if not self._transports:
            self._transports = {}  # an emptied dict keeps its room
            if self._endpoints is None:
                self.driver.ends.pop(self, None)
                self._wake_waiters()

    def close(self) -> None:
        if self._endpoints is None:
            return
        self._endpoints = None
        self._stop_listening()
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
            self._forever = None
        if not self._transports:
            self.driver.ends.pop(self, None)
            self._wake_waiters()

    def abort(self) -> None:
        """Stop listening, and reset every connection."""
        self.close()
        self.abort_clients()

    def _stop_listening(self) -> None:
        self._serving = False
        now = self.driver.clock()
        for acceptor in self._acceptors:
            acceptor.listener.close(now)
        self._acceptors.clear()
        self.driver.wake()

    def close_clients(self) -> None:
        """Orderly, TLS included."""
        for transport in tuple(self._transports):
            app_transport(transport).close()

    def abort_clients(self) -> None:
        for transport in tuple(self._transports):
            transport.abort()

    async def serve_forever(self) -> None:
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if self._endpoints is None:
            raise RuntimeError(f"server {self!r} is closed")
        self.listen()
        self._forever = self.driver.loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            try:
                self.close()
                await self.wait_closed()
            finally:
                raise
        finally:
            self._forever = None

    async def wait_closed(self) -> None:
        if self._waiters is None:
            return
        waiter: asyncio.Future[None] = self.driver.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)


def app_transport(transport: TcpTransport) -> Any:
    """The transport that the application holds: the TLS one if there is one."""
    return getattr(transport.get_protocol(), "_app_transport", None) or transport
