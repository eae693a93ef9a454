"""AsyncStack: a stack as an application of asyncio sees it, in the words of the event loop's own API."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Mapping
from ssl import SSLContext
from typing import Any

from juneau.netstack.aio.connect import create_connection, wake
from juneau.netstack.aio.datagram import UdpTransport
from juneau.netstack.aio.driver import Driver
from juneau.netstack.aio.errors import os_error
from juneau.netstack.aio.server import (
    Host,
    ProtocolFactory,
    Server,
    ServerOptions,
    local_endpoints,
    resolve,
)
from juneau.netstack.aio.streams import LIMIT, StreamHandler, StreamProtocol, StreamReader, StreamWriter
from juneau.netstack.aio.tls import TlsTimeouts
from juneau.netstack.types import Endpoint, Misuse, Path, Refused

_NOTHING: Mapping[str, object] = {}


class AsyncStack(Driver):
    """`extra` mappings answer `get_extra_info`: "tenant", "service" and what else the caller knows."""

    async def create_server(
        self,
        protocol_factory: ProtocolFactory,
        host: Host | Iterable[Host] | None = None,
        port: int | None = None,
        *,
        ssl: SSLContext | None = None,
        backlog: int = 100,
        start_serving: bool = True,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> Server:
        """As `loop.create_server`. `host` None: every address of the stack. Port 0 is chosen when
        serving starts. Raises OSError EADDRINUSE, EADDRNOTAVAIL.
        """
        if ssl is not None and not isinstance(ssl, SSLContext):
            raise TypeError("ssl argument must be an SSLContext or None")
        timeouts = TlsTimeouts(ssl_handshake_timeout, ssl_shutdown_timeout)
        options = ServerOptions(protocol_factory, ssl, timeouts, backlog, extra or _NOTHING)
        server = Server(self, local_endpoints(self, host, port), options)
        if start_serving:
            await server.start_serving()
        return server

    async def start_server(
        self,
        client_connected_cb: StreamHandler,
        host: Host | Iterable[Host] | None = None,
        port: int | None = None,
        *,
        limit: int = LIMIT,
        **kwargs: Any,
    ) -> Server:
        """As `asyncio.start_server`; an exception of the handler closes its connection on any version."""

        def factory() -> StreamProtocol:
            return StreamProtocol(StreamReader(limit, self.loop), client_connected_cb, self.loop)

        return await self.create_server(factory, host, port, **kwargs)

    async def create_connection(
        self,
        protocol_factory: ProtocolFactory,
        host: Host,
        port: int,
        *,
        path: Path | None = None,
        ssl: SSLContext | bool | None = None,
        server_hostname: str | None = None,
        local_addr: tuple[Host, int] | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> tuple[Any, Any]:
        """As `loop.create_connection`, along `path`. Raises ConnectionRefusedError on RST, TimeoutError,
        OSError EHOSTUNREACH (ICMP said so, or no path is known), EADDRNOTAVAIL.
        """
        if server_hostname is not None and not ssl:
            raise ValueError("server_hostname is only meaningful with ssl")
        remote = Endpoint(resolve(host), port)
        return await create_connection(
            self,
            protocol_factory,
            remote,
            self._local(local_addr, remote),
            self._path(path, remote),
            ssl=ssl,
            server_hostname=str(host) if server_hostname is None else server_hostname,
            timeouts=TlsTimeouts(ssl_handshake_timeout, ssl_shutdown_timeout),
            extra=extra or _NOTHING,
        )

    async def open_connection(
        self, host: Host, port: int, *, limit: int = LIMIT, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, StreamWriter]:
        """As `asyncio.open_connection`; arguments as for `create_connection`."""
        reader = StreamReader(limit, self.loop)
        protocol = StreamProtocol(reader, loop=self.loop)
        transport, _ = await self.create_connection(lambda: protocol, host, port, **kwargs)
        return reader, StreamWriter(transport, protocol, reader, self.loop)

    async def create_datagram_endpoint(
        self,
        protocol_factory: ProtocolFactory,
        local_addr: tuple[Host, int] | None = None,
        remote_addr: tuple[Host, int] | None = None,
        *,
        path: Path | None = None,
        unordered: bool = False,
        extra: Mapping[str, object] | None = None,
    ) -> tuple[Any, Any]:
        """As `loop.create_datagram_endpoint`; host "" or "0.0.0.0": every address of the stack.

        `unordered`: as of UdpSocket.
        """
        local = Endpoint(resolve(local_addr[0]), local_addr[1]) if local_addr else Endpoint(0, 0)
        connected = None
        if remote_addr is not None:
            remote = Endpoint(resolve(remote_addr[0]), remote_addr[1])
            connected = (remote, local.ip or self.source(remote.ip), self._path(path, remote))
        try:
            udp = self.stack.udp_bind(local)
        except Misuse as exc:
            known = not local.ip or local.ip in self.stack.addresses
            raise OSError(errno.EADDRINUSE if known else errno.EADDRNOTAVAIL, str(exc)) from exc
        except Refused as exc:
            raise OSError(errno.ENOBUFS, str(exc)) from exc
        udp.unordered = unordered
        protocol: Any = protocol_factory()
        transport = UdpTransport(self, udp, protocol, extra=extra or _NOTHING, remote=connected)
        made: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_soon(wake, made)  # behind connection_made
        try:
            await made
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    def _local(self, local_addr: tuple[Host, int] | None, remote: Endpoint) -> Endpoint:
        local = Endpoint(0, 0) if local_addr is None else Endpoint(resolve(local_addr[0]), local_addr[1])
        local = local if local.ip else Endpoint(self.source(remote.ip), local.port)
        if local.ip not in self.stack.addresses:
            raise os_error(errno.EADDRNOTAVAIL, f"bind {local}")
        return local

    def _path(self, path: Path | None, remote: Endpoint) -> Path:
        if path is None and self.route is not None:
            path = self.route(remote.ip)
        if path is None:
            raise os_error(errno.EHOSTUNREACH, f"connect {remote}: no path is known")
        return path
