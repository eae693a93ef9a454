"""What `get_extra_info("socket")` and `Server.sockets` give: enough of a socket for foreign servers."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final

from juneau.netstack.aio.errors import os_error
from juneau.netstack.types import Endpoint, format_ip

if TYPE_CHECKING:
    from juneau.netstack.tcp import TcpConnection

Address = tuple[str, int]

_SWITCHES: Final = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): "keepalive",
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): "nodelay",
}


def address(endpoint: Endpoint) -> Address:
    return format_ip(endpoint.ip), endpoint.port


class StackSocket:
    """A view of one end. No kernel object is behind it, so `fileno()` is -1."""

    __slots__ = ("_conn", "_local", "_peer", "type")

    family: Final = socket.AF_INET

    def __init__(
        self,
        kind: socket.SocketKind,
        local: Address,
        peer: Address | None = None,
        conn: TcpConnection | None = None,
    ) -> None:
        self.type, self._local, self._peer, self._conn = kind, local, peer, conn

    def __repr__(self) -> str:
        peer = "" if self._peer is None else f" peer={self._peer}"
        return f"<StackSocket {self.type.name} local={self._local}{peer}>"

    @property
    def proto(self) -> int:
        return socket.IPPROTO_TCP if self.type is socket.SOCK_STREAM else socket.IPPROTO_UDP

    def fileno(self) -> int:
        return -1

    def getsockname(self) -> Address:
        return self._local

    def getpeername(self) -> Address:
        if self._peer is None:
            raise os_error(errno.ENOTCONN)
        return self._peer

    def setsockopt(self, level: int, name: int, value: int | bytes | None, optlen: int = 0) -> None:
        """SO_KEEPALIVE and TCP_NODELAY take effect; the rest raises OSError ENOPROTOOPT."""
        switch = _SWITCHES.get((level, name))
        if switch is None or self._conn is None:
            raise os_error(errno.ENOPROTOOPT, f"setsockopt level {level} option {name}")
        on = any(value) if isinstance(value, bytes) else bool(value)
        setattr(self._conn, switch, on)

    def getsockopt(self, level: int, name: int, buflen: int = 0) -> int:
        if (level, name) == (socket.SOL_SOCKET, socket.SO_TYPE):
            return int(self.type)
        if (level, name) == (socket.SOL_SOCKET, socket.SO_ERROR):
            return 0
        switch = _SWITCHES.get((level, name))
        if switch is None or self._conn is None:
            raise os_error(errno.ENOPROTOOPT, f"getsockopt level {level} option {name}")
        return int(bool(getattr(self._conn, switch)))

    def gettimeout(self) -> float:
        return 0.0

    def settimeout(self, value: float | None) -> None:
        if value != 0:
            raise ValueError(f"socket timeout: got {value}, allowed 0 (the event loop owns the waiting)")

    def setblocking(self, flag: bool) -> None:
        if flag:
            raise ValueError("a socket of an event loop cannot be blocking")
