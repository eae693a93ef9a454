"""The networking half of the event loop: asyncio's calls, carried out on the host whose code asks.

What reaches outside (pipes, processes, signals, unix sockets) refuses with an error that names the way.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import socket
import ssl as ssl_module
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from juneau.netstack.aio import Server, start_tls
from juneau.netstack.aio.tls import TlsTimeouts
from juneau.netstack.types import format_ip, parse_ip
from juneau.testing.clock import VirtualClock
from juneau.testing.network import claims
from juneau.testing.network.adopt import adopt_connection
from juneau.testing.network.host import current_boot
from juneau.testing.network.lowlevel import SocketLoop

if TYPE_CHECKING:
    from juneau.testing.network.network import Network

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

NO_SUCH: Final = "the network in this process has no {what} ({instead})"


class NetworkLoop(SocketLoop):
    def __init__(self, network: Network, clock: VirtualClock, *, seed: int = 0) -> None:
        super().__init__(clock, seed=seed)
        self.network = network

    # Names

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        """The hosts' names, at once: there is no resolver whose packets could get lost."""
        return self.network.names.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        return self.network.names.getnameinfo(sockaddr, flags)

    # Streams

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: ProtocolFactory,
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        family: int = socket.AF_UNSPEC,
        flags: int = socket.AI_PASSIVE,
        sock: Any = None,
        backlog: int = 100,
        ssl: Any = None,
        reuse_address: bool | None = None,
        reuse_port: bool | None = None,
        keep_alive: bool | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
    ) -> Server:
        if isinstance(ssl, bool):
            raise TypeError("ssl argument must be an SSLContext or None")
        _only_with(
            ssl, ssl_handshake_timeout=ssl_handshake_timeout, ssl_shutdown_timeout=ssl_shutdown_timeout
        )
        boot = current_boot()
        if sock is not None:
            if host is not None or port is not None:
                raise ValueError("host/port and sock can not be specified at the same time")
            endpoint = claims.claim_listener(sock)
            hosts, port = [format_ip(endpoint.ip)], endpoint.port
        elif host is None and port is None:
            raise ValueError("Neither host/port nor sock were specified")
        else:
            hosts = self._local(host, family, flags)
        if not port and (len(hosts) > 1 or not start_serving):
            port = boot.free_port()
        try:
            for ip in hosts:
                boot.check_free(parse_ip(ip), port or 0)
            return await boot.aio.create_server(
                protocol_factory,
                hosts,
                port,
                ssl=ssl,
                backlog=backlog,
                start_serving=start_serving,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
        except OSError as error:
            where = (hosts[0] if len(hosts) == 1 else hosts, port)
            reason = os.strerror(error.errno or 0).lower()  # asyncio's words, which programs look for
            message = f"error while attempting to bind on address {where!r}: {reason}"
            raise OSError(error.errno, message) from error

    def _local(self, host: str | Sequence[str] | None, family: int, flags: int) -> list[str]:
        """The addresses to listen on."""
        names: Iterable[str | None] = [host] if host is None or isinstance(host, str | bytes) else host
        infos = [
            info
            for name in names
            for info in self.network.names.getaddrinfo(name, 0, family, socket.SOCK_STREAM, 0, flags)
        ]
        return list(dict.fromkeys(info[4][0] for info in infos))

    async def create_connection(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        sock: Any = None,
        local_addr: tuple[str, int] | None = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        happy_eyeballs_delay: float | None = None,
        interleave: int | None = None,
        all_errors: bool = False,
    ) -> tuple[Any, Any]:
        """`happy_eyeballs_delay` and `interleave` change nothing: addresses are tried one by one."""
        _only_with(
            ssl,
            server_hostname=server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        if ssl and server_hostname is None:
            if not host:
                raise ValueError("You must set server_hostname when using ssl without a host")
            server_hostname = host
        timeouts = TlsTimeouts(ssl_handshake_timeout, ssl_shutdown_timeout)
        if sock is not None:
            if host is not None or port is not None:
                raise ValueError("host/port and sock can not be specified at the same time")
            return await adopt_connection(
                sock, protocol_factory, ssl=ssl, server_hostname=server_hostname, timeouts=timeouts
            )
        if host is None and port is None:
            raise ValueError("host and port was not specified and no sock specified")
        infos = self.network.names.getaddrinfo(host, port, family, socket.SOCK_STREAM, proto, flags)
        errors: list[OSError] = []
        try:
            for info in infos:
                try:
                    return await self._connect(
                        protocol_factory, info[4], local_addr, ssl, server_hostname, timeouts, family
                    )
                except ssl_module.SSLError:
                    raise
                except OSError as error:
                    errors.append(error)
            if all_errors:
                raise ExceptionGroup("create_connection failed", errors)
            if len(errors) == 1:
                raise errors[0]
            raise OSError("Multiple exceptions: " + ", ".join(map(str, errors)))
        finally:
            errors.clear()  # they hold this frame

    async def _connect(
        self,
        protocol_factory: ProtocolFactory,
        remote: tuple[str, int],
        local_addr: tuple[str, int] | None,
        ssl: Any,
        server_hostname: str | None,
        timeouts: TlsTimeouts,
        family: int,
    ) -> tuple[Any, Any]:
        boot = current_boot()
        ip = remote[0] if remote[0] != "0.0.0.0" else "127.0.0.1"
        local = (format_ip(boot.source(parse_ip(ip))), 0)
        if local_addr is not None:
            info = self.network.names.getaddrinfo(*local_addr, family, socket.SOCK_STREAM, 0, 0)[0]
            local = info[4]
            boot.check_free(parse_ip(local[0]), local[1])
        return await boot.aio.create_connection(
            protocol_factory,
            ip,
            remote[1],
            ssl=ssl,
            server_hostname=server_hostname,
            local_addr=local,
            ssl_handshake_timeout=timeouts.handshake,
            ssl_shutdown_timeout=timeouts.shutdown,
        )

    async def connect_accepted_socket(
        self,
        protocol_factory: ProtocolFactory,
        sock: Any,
        *,
        ssl: Any = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> tuple[Any, Any]:
        _only_with(
            ssl, ssl_handshake_timeout=ssl_handshake_timeout, ssl_shutdown_timeout=ssl_shutdown_timeout
        )
        timeouts = TlsTimeouts(ssl_handshake_timeout, ssl_shutdown_timeout)
        return await adopt_connection(sock, protocol_factory, ssl=ssl, server_side=True, timeouts=timeouts)

    async def start_tls(
        self,
        transport: Any,
        protocol: Any,
        sslcontext: Any,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> Any:
        if not isinstance(sslcontext, ssl_module.SSLContext):
            raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        return await start_tls(
            transport,
            protocol,
            sslcontext,
            server_side=server_side,
            server_hostname=server_hostname,
            timeouts=TlsTimeouts(ssl_handshake_timeout, ssl_shutdown_timeout),
        )

    # Datagrams

    async def create_datagram_endpoint(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        local_addr: Any = None,
        remote_addr: Any = None,
        *,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        reuse_address: Any = None,
        reuse_port: bool | None = None,
        allow_broadcast: bool | None = None,
        sock: Any = None,
    ) -> tuple[Any, Any]:
        if sock is not None:
            if any((local_addr, remote_addr, family, proto, flags, reuse_port, allow_broadcast)):
                raise ValueError("socket modifier keyword arguments can not be used when sock is specified")
            local_addr, remote_addr = claims.claim_datagram(sock)
        elif not (family or local_addr or remote_addr):
            raise ValueError("unexpected address family")
        names = self.network.names
        local, remote = (
            None
            if addr is None
            else names.getaddrinfo(addr[0], addr[1], family, socket.SOCK_DGRAM, proto, flags)[0][4]
            for addr in (local_addr, remote_addr)
        )
        boot = current_boot()
        if remote is not None and (local is None or local[0] == "0.0.0.0"):
            local = (format_ip(boot.source(parse_ip(remote[0]))), 0 if local is None else local[1])
        return await boot.aio.create_datagram_endpoint(protocol_factory, local, remote)

    # Threads
    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run `func` on a thread that takes turns with the loop, whatever the executor. It costs no
        virtual time but what it sleeps or waits for the network.
        """
        self._check_closed()
        if not callable(func):
            raise TypeError(f"a callable object is expected, got {func!r}")
        future = self.create_future()
        self.network.threads.spawn(_work, future, func, args)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """Accepted and unused."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # What reaches outside

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Accepted and never called: signals come from outside. Servers set them up as a matter of course."""
        if asyncio.iscoroutine(callback) or asyncio.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        _check_signal(sig)
        self._check_closed()

    def remove_signal_handler(self, sig: int) -> bool:
        _check_signal(sig)
        return False

    async def create_unix_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("unix sockets", "use TCP between two hosts, or on one over 127.0.0.1")

    async def create_unix_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("unix sockets", "use TCP between two hosts, or on one over 127.0.0.1")

    async def connect_read_pipe(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("pipes", "use a connection or an asyncio.Queue")

    async def connect_write_pipe(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("pipes", "use a connection or an asyncio.Queue")

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("processes", "give the program a host of its own")

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("processes", "give the program a host of its own")


def refuse(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(NO_SUCH.format(what=what, instead=instead))


def _check_signal(sig: int) -> None:
    if not isinstance(sig, int):
        raise TypeError(f"sig must be an int, not {sig!r}")
    if sig not in signal.valid_signals():
        raise ValueError(f"invalid signal number {sig}")


def _only_with(ssl: Any, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None and not ssl:
            raise ValueError(f"{name} is only meaningful with ssl")


def _work(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        result = func(*args)
    except (SystemExit, KeyboardInterrupt):
        raise
    except concurrent.futures.CancelledError as error:  # as wrap_future has it
        future.set_exception(asyncio.CancelledError(*error.args))
    except BaseException as error:  # noqa: BLE001 (whatever the work raises goes to who waits for it)
        future.set_exception(error)
    else:
        future.set_result(result)
