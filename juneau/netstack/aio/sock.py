"""What `get_extra_info("socket")` and `Server.sockets` give: enough of a socket for foreign servers."""

from __future__ import annotations

import errno
import socket
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from juneau.netstack.aio.errors import os_error
from juneau.netstack.types import Endpoint, format_ip

if TYPE_CHECKING:
    from juneau.netstack.aio.driver import Driver
    from juneau.netstack.tcp import TcpConnection

Address = tuple[str, int]

_SECOND: Final = 1_000_000
_KEEPALIVE: Final = {
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): ("idle", _SECOND),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): ("interval", _SECOND),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): ("probes", 1),
}
"""Option → argument of `set_keepalive`, and its unit in ours."""
_SO_KEEPALIVE: Final = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
_NODELAY: Final = (socket.IPPROTO_TCP, socket.TCP_NODELAY)


_text: Final = lru_cache(4096)(format_ip)
"""One string for all connections of a peer."""


def address(endpoint: Endpoint) -> Address:
    return _text(endpoint.ip), endpoint.port


class StackSocket:
    """A view of one end. No kernel object is behind it, so `fileno()` is -1."""

    __slots__ = ("_conn", "_driver", "_local", "_peer", "type")

    family: Final = socket.AF_INET

    def __init__(
        self,
        kind: socket.SocketKind,
        local: Address,
        peer: Address | None = None,
        conn: TcpConnection | None = None,
        driver: Driver | None = None,
    ) -> None:
        """`conn` and its `driver`: the connection whose options this sets."""
        self.type, self._local, self._peer, self._conn, self._driver = kind, local, peer, conn, driver

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
        """TCP_NODELAY and the keepalive options take effect; the rest raises OSError ENOPROTOOPT."""
        conn, driver, option = self._conn, self._driver, (level, name)
        number = int.from_bytes(value, sys.byteorder) if isinstance(value, bytes) else int(value or 0)
        if conn is None or driver is None:
            raise os_error(errno.ENOPROTOOPT, f"setsockopt level {level} option {name}")
        if option == _NODELAY:
            conn.nodelay = bool(number)
        elif option == _SO_KEEPALIVE:
            conn.set_keepalive(bool(number), driver.clock())
        elif option in _KEEPALIVE:
            argument, unit = _KEEPALIVE[option]
            if number <= 0:
                raise os_error(errno.EINVAL, f"setsockopt {argument} {number}")
            conn.set_keepalive(conn.keeping.on, driver.clock(), **{argument: number * unit})
        else:
            raise os_error(errno.ENOPROTOOPT, f"setsockopt level {level} option {name}")
        driver.wake()

    def getsockopt(self, level: int, name: int, buflen: int = 0) -> int:
        conn, option = self._conn, (level, name)
        if option == (socket.SOL_SOCKET, socket.SO_TYPE):
            return int(self.type)
        if option == (socket.SOL_SOCKET, socket.SO_ERROR):
            return 0
        if conn is not None and option == _NODELAY:
            return int(conn.nodelay)
        if conn is not None and option == _SO_KEEPALIVE:
            return int(conn.keeping.on)
        if conn is not None and option in _KEEPALIVE:
            argument, unit = _KEEPALIVE[option]
            return int(getattr(conn.keeping, argument)) // unit
        raise os_error(errno.ENOPROTOOPT, f"getsockopt level {level} option {name}")

    def gettimeout(self) -> float:
        return 0.0

    def settimeout(self, value: float | None) -> None:
        if value != 0:
            raise ValueError(f"socket timeout: got {value}, allowed 0 (the event loop owns the waiting)")

    def setblocking(self, flag: bool) -> None:
        if flag:
            raise ValueError("a socket of an event loop cannot be blocking")
