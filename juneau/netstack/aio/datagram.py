"""A UDP socket as an `asyncio.DatagramTransport`."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from juneau.netstack.aio.errors import os_error
from juneau.netstack.aio.sock import Address, StackSocket, address
from juneau.netstack.aio.transport import LOST_WRITES, BytesLike
from juneau.netstack.types import Endpoint, Misuse, Path, Refused, parse_ip
from juneau.netstack.wire.icmp import IcmpErrorKind

if TYPE_CHECKING:
    from juneau.netstack.aio.driver import Driver
    from juneau.netstack.output import Flow
    from juneau.netstack.udp import Received, UdpSocket

_log = logging.getLogger(__name__)

PEERS: Final = 4096
"""Addresses whose path one socket remembers; the one heard from longest ago is forgotten first."""
READ_BURST: Final = 256
"""Datagrams for one protocol per turn of the loop, about a millisecond of DNS answers."""


_HARD_ERRORS: Final = {
    IcmpErrorKind.PORT: errno.ECONNREFUSED,
    IcmpErrorKind.PROTOCOL: errno.ENOPROTOOPT,
    IcmpErrorKind.PROHIBITED: errno.EHOSTUNREACH,
}


class _Peer:
    __slots__ = ("addr", "flow", "local_ip", "path", "remote")

    def __init__(self, remote: Endpoint, local_ip: int, path: Path) -> None:
        self.addr = address(remote)
        self.remote = remote
        self.local_ip = local_ip
        self.path = path
        self.flow: Flow | None = None
        """Made for the first answer."""


class UdpTransport(asyncio.DatagramTransport):
    """Answers go the way the last datagram from that address came. Nothing is buffered here, so
    `pause_writing` is never called: a full output queue of the stack drops and counts, like a
    kernel's device queue.
    """

    __slots__ = (
        "__weakref__",
        "_by_addr",
        "_closing",
        "_conn_lost",
        "_connected",
        "_driver",
        "_info",
        "_limits",
        "_peers",
        "_protocol",
        "_read_scheduled",
        "_reading",
        "_socket",
        "_started",
        "_woken",
    )

    def __init__(
        self,
        driver: Driver,
        udp: UdpSocket,
        protocol: asyncio.DatagramProtocol,
        *,
        extra: Mapping[str, object],
        remote: tuple[Endpoint, int, Path] | None = None,
    ) -> None:
        """`remote`: the only peer, the local address to use towards it, and the way there."""
        super().__init__()
        self._driver = driver
        self._socket = udp
        self._protocol: asyncio.DatagramProtocol | None = protocol
        self._info = extra
        self._peers: OrderedDict[tuple[int, int], _Peer] = OrderedDict()
        self._by_addr: dict[Address, _Peer] = {}
        self._connected = None if remote is None else _Peer(*remote)
        self._limits = (16 * 1024, 64 * 1024)
        self._started = False
        self._closing = False
        self._conn_lost = 0
        self._read_scheduled = False
        self._reading = False
        self._woken = False  # the driver is asked once for all answers to a burst
        udp.user = self
        driver.ends[self] = None
        driver.loop.call_soon(protocol.connection_made, self)
        driver.loop.call_soon(self._start_reading)

    def __repr__(self) -> str:
        return f"<UdpTransport {self._socket.local} {'closed' if self._closing else 'open'}>"

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        local = address(self._socket.local)
        peer = None if self._connected is None else self._connected.addr
        match name:
            case "sockname":
                return local
            case "peername":
                return peer if peer is not None else default
            case "socket":
                return StackSocket(socket.SOCK_DGRAM, local, peer)
            case "path" if self._connected is not None:
                return self._connected.path
        return self._info.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol  # type: ignore[assignment]

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[return-value]  # None once closed, as in asyncio

    def is_closing(self) -> bool:
        return self._closing

    # Receiving

    def _start_reading(self) -> None:
        self._started = True
        self.on_datagrams()

    def on_datagrams(self) -> None:
        if self._started and not self._read_scheduled:
            self._read()

    def _read_again(self) -> None:
        self._read_scheduled = False
        self._read()

    def _read(self) -> None:
        burst = self._socket.receive_burst(READ_BURST)
        self._reading = True
        try:
            self._tell(burst)
        finally:
            self._reading = self._woken = False
        if len(burst) == READ_BURST and not self._closing:
            self._read_scheduled = True
            self._driver.loop.call_soon(self._read_again)

    def _tell(self, burst: list[Received]) -> None:
        peers = self._peers
        for payload, remote, local_ip, path, _at in burst:
            if self._closing:
                return
            peer = peers.get(remote)
            if peer is not None and peer.path == path and peer.local_ip == local_ip:
                peers.move_to_end(remote)
            else:
                peer = self._learn(Endpoint(*remote), local_ip, path)
            if self._connected is None or self._connected.remote == remote:
                protocol = self._protocol
                assert protocol is not None
                try:
                    protocol.datagram_received(bytes(payload), peer.addr)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as exc:  # noqa: BLE001 (whatever the application raises)
                    self._complain(exc)

    def _learn(self, remote: Endpoint, local_ip: int, path: Path) -> _Peer:
        peer = self._peers[remote] = _Peer(remote, local_ip, path)
        self._peers.move_to_end(remote)
        self._by_addr[peer.addr] = peer
        if len(self._peers) > PEERS:
            _, oldest = self._peers.popitem(last=False)
            del self._by_addr[oldest.addr]
        return peer

    def _complain(self, exc: BaseException) -> None:
        """A kernel transport lets this one reach the loop's handler and stays open."""
        context = {"message": "protocol.datagram_received() failed", "exception": exc}
        self._driver.loop.call_exception_handler({**context, "transport": self, "protocol": self._protocol})

    def on_error(self, remote: Endpoint, kind: IcmpErrorKind) -> None:
        """As Linux without IP_RECVERR: hard errors only, and only for the peer of a connected socket."""
        code = _HARD_ERRORS.get(kind)
        if code is not None and self._connected is not None and self._connected.remote == remote:
            self._report(os_error(code, f"sendto {remote}"))

    # Sending

    def sendto(self, data: BytesLike, addr: Any = None) -> None:
        """Errors of this datagram go to `error_received`: EHOSTUNREACH for an address that nobody was
        heard from (without a route), EMSGSIZE, EADDRNOTAVAIL. An empty datagram is sent.
        """
        if type(data) is not bytes and not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._conn_lost:
            if self._conn_lost >= LOST_WRITES:
                _log.warning("sendto on %r", self)
            self._conn_lost += 1
            return
        try:
            peer = self._by_addr.get(addr) or self._find(addr)
            if peer.flow is None:
                peer.flow = self._socket.flow(peer.remote, peer.path, local_ip=peer.local_ip)
            self._socket.send_on(peer.flow, data if type(data) is bytes else bytes(data))
        except (OSError, Refused, Misuse) as exc:
            self._report(exc)
            return
        if not self._woken:
            self._woken = self._reading
            self._driver.wake()

    def _find(self, addr: Any) -> _Peer:
        """The peer of an address that no datagram came from."""
        if self._connected is not None:
            if addr not in (None, self._connected.addr):
                raise ValueError(f"Invalid address: must be None or {self._connected.addr}")
            return self._connected
        if addr is None:
            raise os_error(errno.EDESTADDRREQ, f"sendto from {self._socket.local}")
        try:
            remote = Endpoint(parse_ip(str(addr[0])), addr[1])
        except Misuse as exc:
            raise OSError(errno.EADDRNOTAVAIL, f"sendto {addr}: {exc}") from exc
        path = self._driver.route(remote.ip) if self._driver.route is not None else None
        if path is None:
            self._driver.stack.counters.add("udp.no_path")
            raise os_error(errno.EHOSTUNREACH, f"sendto {remote}: nobody was heard from there")
        return _Peer(remote, self._driver.source(remote.ip), path)

    def _report(self, exc: OSError | Refused | Misuse) -> None:
        if isinstance(exc, Refused):
            code = errno.EMSGSIZE if exc.reason == "udp.too_big" else errno.EADDRNOTAVAIL
            exc = OSError(code, str(exc))
        elif isinstance(exc, Misuse):
            exc = OSError(errno.EINVAL, str(exc))
        protocol = self._protocol
        assert protocol is not None
        protocol.error_received(exc)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Kept for `get_write_buffer_limits`; see the class."""
        high = (64 * 1024 if low is None else 4 * low) if high is None else high
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._limits = (low, high)

    # Ending

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._conn_lost += 1
        self._socket.user = None
        self._socket.close()
        self._driver.ends.pop(self, None)
        self._driver.loop.call_soon(self._call_connection_lost)

    abort = close

    def _call_connection_lost(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(None)
