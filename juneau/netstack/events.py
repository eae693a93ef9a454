"""What the stack tells whoever drives it, through `Stack.take_events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from juneau.netstack.types import CloseReason, Endpoint
from juneau.netstack.wire.icmp import IcmpErrorKind

if TYPE_CHECKING:
    from juneau.netstack.tcp import TcpConnection, TcpListener
    from juneau.netstack.udp import UdpSocket


class Accepted(NamedTuple):
    """The accept queue was empty and is not any more: accept until None."""

    listener: TcpListener


class Connected(NamedTuple):
    """An active open reached ESTABLISHED."""

    conn: TcpConnection


class Readable(NamedTuple):
    """New in-order bytes, or EOF, or both."""

    conn: TcpConnection


class Writable(NamedTuple):
    """The send queue shrank while `want_writable` was set; the stack has cleared the flag."""

    conn: TcpConnection


class Closed(NamedTuple):
    """The end, once for each connection that the application still held."""

    conn: TcpConnection
    reason: CloseReason


class DatagramReady(NamedTuple):
    """The receive queue was empty and is not any more: receive until None."""

    socket: UdpSocket


class DatagramError(NamedTuple):
    """ICMP said that a datagram sent from the socket to `remote` met with `kind`."""

    socket: UdpSocket
    remote: Endpoint
    kind: IcmpErrorKind


Event: TypeAlias = Accepted | Connected | Readable | Writable | Closed | DatagramReady | DatagramError
