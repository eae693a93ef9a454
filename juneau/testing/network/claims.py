"""What the loop takes over from sockets that a program made itself, and what it asks about ports."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

from juneau.netstack.aio import AsyncStack
from juneau.netstack.aio.errors import os_error
from juneau.netstack.aio.sock import Address, address
from juneau.netstack.types import Endpoint
from juneau.testing.network.sockets import SimSocket

if TYPE_CHECKING:
    from juneau.netstack.tcp import TcpConnection


def socketpair(family: int = -1, type: int = -1, proto: int = -1) -> tuple[SimSocket, SimSocket]:
    """Two connected TCP sockets of this host, at once."""
    if type not in (-1, socket.SOCK_STREAM):
        raise os_error(errno.EAFNOSUPPORT, "socketpair: streams only")
    listener, one = SimSocket(), SimSocket()
    with listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        one.connect(listener.getsockname())
        return one, listener.accept()[0]


def claim_listener(sock: Any) -> Endpoint:
    """The address of a bound socket, which stops to listen by itself."""
    _check(sock, socket.SOCK_STREAM)
    if sock._local is None or sock._lent:
        raise os_error(errno.EINVAL, "create_server: the socket is not bound, or has a server already")
    if sock._listener is not None:
        sock._listener.close(sock._boot.aio.clock())
        sock._listener = None
    endpoint: Endpoint = sock._local
    sock._boot.bound_ports.discard(endpoint.port)
    sock._lent = True
    return endpoint


def claim_connection(sock: Any) -> tuple[TcpConnection, AsyncStack]:
    """The connection of a connected socket, which is its own no more."""
    _check(sock, socket.SOCK_STREAM)
    conn: TcpConnection | None = sock._conn
    if conn is None or not sock._connected:
        raise os_error(errno.ENOTCONN, "the socket is not connected")
    if sock._lent:
        raise os_error(errno.EBUSY, f"{sock!r} has a transport already")
    return conn, sock._boot.aio


def claim_datagram(sock: Any) -> tuple[Address | None, Address | None]:
    """Where a UDP socket was bound and connected; it is closed."""
    _check(sock, socket.SOCK_DGRAM)
    local, remote = sock._local, sock._remote
    sock.close()
    return (None if local is None else address(local)), (None if remote is None else address(remote))


def _check(sock: Any, kind: socket.SocketKind) -> None:
    if not isinstance(sock, SimSocket):
        raise ValueError(
            f"{sock!r} is no socket of this network (make it by socket.socket while the network runs)"
        )
    if sock._kind is not kind:
        raise ValueError(
            f"A {'Stream' if kind is socket.SOCK_STREAM else 'Datagram'} Socket was expected, got {sock!r}"
        )
    if sock._closed:
        raise os_error(errno.EBADF)
