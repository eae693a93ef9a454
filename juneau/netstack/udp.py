"""UDP (RFC 768, RFC 1122 4.1): sockets, demultiplexing, bounded receive queues."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, NoReturn, TypeAlias

from juneau.netstack.counters import Counters
from juneau.netstack.events import DatagramError, DatagramReady, Event
from juneau.netstack.limits import Limits
from juneau.netstack.output import Flow, Output
from juneau.netstack.types import (
    Buffer,
    Endpoint,
    Link,
    Malformed,
    Micros,
    Misuse,
    Path,
    Refused,
    Rng,
)
from juneau.netstack.wire import udp as wire
from juneau.netstack.wire.checksum import ones_sum, ones_sum_of, pseudo_sum
from juneau.netstack.wire.icmp import IcmpError
from juneau.netstack.wire.ipv4 import HEADER_BYTES, PROTO_UDP

UDP_OVERHEAD: Final = 256
"""Charged for each queued datagram above its payload, so that empty ones are not free."""

EPHEMERAL_PORTS: Final = range(32_768, 61_000)
"""Linux's ip_local_port_range."""

_unpack: Final = wire.HEADER.unpack_from


class Datagram(NamedTuple):
    payload: Buffer
    remote: Endpoint
    local: Endpoint
    path: Path
    received_at: Micros


Received: TypeAlias = tuple[Buffer, tuple[int, int], int, Path, Micros]
"""A Datagram in a plain tuple, its local address without the port: there is one of it for each query."""


class UdpSocket:
    """One bound endpoint. Made by `Stack.udp_bind`."""

    def __init__(self, layer: UdpLayer, local: Endpoint, user: object) -> None:
        self.local = local
        """ip 0: every address of the stack."""
        self.user = user
        self.closed = False
        self.unordered = False
        """What is sent to one peer may overtake each other, as UDP lets it: more of it leaves together."""
        self.drops = 0
        """Datagrams that found the queue full."""
        self.icmp_errors = 0
        """Errors received for datagrams sent from here."""
        self.queued_bytes = 0
        self._layer = layer
        self._queue: deque[Received] = deque()

    def receive(self) -> Datagram | None:
        """The oldest datagram. None: a DatagramReady will come before the next one."""
        if not self._queue:
            return None
        ((payload, remote, local_ip, path, now),) = self._layer.take(self, 1)
        return Datagram(payload, Endpoint(*remote), Endpoint(local_ip, self.local.port), path, now)

    def receive_burst(self, limit: int) -> list[Received]:
        """Up to `limit`, oldest first. Fewer: a DatagramReady will come before the next one."""
        return self._layer.take(self, limit)

    def send(self, payload: Buffer, remote: Endpoint, path: Path, *, local_ip: int = 0) -> None:
        """Queue a datagram, in fragments if it is above the MTU; dropped if the output queue is full.

        A socket bound to ip 0 needs `local_ip`, the address that the answer comes from.
        Raises Refused: `udp.too_big`, `udp.closed`, `udp.address_gone`.
        """
        self.send_on(self.flow(remote, path, local_ip=local_ip), payload)

    def flow(self, remote: Endpoint, path: Path, *, local_ip: int = 0) -> Flow:
        """Whither `send_on` sends, to be kept where it goes often; `local_ip` as for `send`."""
        src = self.local.ip or local_ip
        if not src:
            raise Misuse(f"udp send {remote}: socket is bound to every address (pass local_ip)")
        if not 0 < remote.port < 65_536:
            raise Misuse(f"udp send {remote}: port must be 1..65535")
        return path, src, remote.ip, self.local.port, remote.port

    def send_on(self, flow: Flow, payload: Buffer) -> None:
        """As `send`."""
        layer, size = self._layer, len(payload)
        if self.closed or size > wire.MAX_PAYLOAD or flow[1] not in layer._addresses:
            layer._refuse_send(self, flow, size)
        if not isinstance(payload, bytes):
            payload = bytes(payload)  # a view may change before it is sent
        layer._counters.values["udp.sent"] += 1
        if size <= layer._offload_room:
            layer._output.send_datagram(flow, payload, self.unordered)
        else:
            layer._send_summed(flow, payload)

    def close(self) -> None:
        """Forget what is queued; idempotent."""
        self._layer.close(self)


class UdpLayer:
    def __init__(
        self,
        link: Link,
        limits: Limits,
        counters: Counters,
        events: list[Event],
        output: Output,
        addresses: set[int],
        rng: Rng,
    ) -> None:
        self._offload_room = link.mtu - HEADER_BYTES - wire.HEADER_BYTES if link.checksum_offload else -1
        """Payloads up to this many bytes leave in one packet, their checksum completed by the link."""
        self._limits = limits
        self._most_bytes = limits.udp_bytes
        self._most_socket_bytes = limits.udp_socket_bytes
        self._counters = counters
        self._events = events
        self._output = output
        self._addresses = addresses
        self._rng = rng
        self._sockets: dict[int, UdpSocket] = {}  # by ip << 16 | port
        self.queued_bytes = 0
        """In all receive queues, overhead included."""

    def bind(self, local: Endpoint, user: object) -> UdpSocket:
        if local.ip and local.ip not in self._addresses:
            raise Misuse(f"udp bind {local}: not an address of this stack (add_address first)")
        if len(self._sockets) >= self._limits.udp_sockets:
            self._counters.add("udp.socket_limit")
            raise Refused(
                "udp.socket_limit", f"udp bind {local}: {self._limits.udp_sockets} sockets are open"
            )
        if not local.port:
            local = Endpoint(local.ip, self._ephemeral_port(local.ip))
        if local.ip << 16 | local.port in self._sockets:
            raise Misuse(f"udp bind {local}: in use")
        socket = self._sockets[local.ip << 16 | local.port] = UdpSocket(self, local, user)
        return socket

    def _ephemeral_port(self, ip: int) -> int:
        """RFC 6056 3.3.1: from a random start, the next one that is free."""
        start = self._rng.getrandbits(16)
        for step in range(len(EPHEMERAL_PORTS)):
            port = EPHEMERAL_PORTS[(start + step) % len(EPHEMERAL_PORTS)]
            if ip << 16 | port not in self._sockets:
                return port
        raise Refused("udp.no_port", "udp bind: no ephemeral port is left")

    def receive(self, src: int, dst: int, data: memoryview, path: Path, now: Micros, csum_ok: bool) -> bool:
        """Deliver a datagram; False if nobody listens, which is the caller's to answer."""
        size = len(data)
        src_port, dst_port, length, checksum = _unpack(data) if size >= wire.HEADER_BYTES else (0, 0, 0, 0)
        if not wire.HEADER_BYTES <= length <= size:
            self._count_malformed(data)
            return True
        if checksum and not csum_ok:
            total = pseudo_sum(src, dst, PROTO_UDP, length) + ones_sum(data[:length])
            if total % 0xFFFF:
                self._counters.drop("udp.bad_checksum")
                return True
        socket = self._sockets.get(dst << 16 | dst_port) or self._sockets.get(dst_port)
        if socket is None:
            self._counters.drop("udp.closed_port")
            return False
        payload = data[wire.HEADER_BYTES : length]
        if length != size:
            payload = memoryview(bytes(payload))  # a queued view would pin, uncharged, what was cut off
        charge = length - wire.HEADER_BYTES + UDP_OVERHEAD
        if (
            socket.queued_bytes + charge > self._most_socket_bytes
            or self.queued_bytes + charge > self._most_bytes
        ):
            self._drop_full(socket, charge)
            return True
        if not socket._queue:
            self._events.append(DatagramReady(socket))
        socket._queue.append((payload, (src, src_port), dst, path, now))
        socket.queued_bytes += charge
        self.queued_bytes += charge
        self._counters.values["udp.received"] += 1
        return True

    def _count_malformed(self, data: memoryview) -> None:
        try:
            wire.unpack(data)
        except Malformed as err:
            self._counters.malformed(err)

    def _drop_full(self, socket: UdpSocket, charge: int) -> None:
        socket.drops += 1
        if socket.queued_bytes + charge > self._most_socket_bytes:
            self._counters.drop("udp.socket_full")
        else:
            self._counters.drop("udp.stack_full")

    def take(self, socket: UdpSocket, limit: int) -> list[Received]:
        queue = socket._queue
        if len(queue) <= limit:
            taken, charge = list(queue), socket.queued_bytes
            queue.clear()
        else:
            taken = [queue.popleft() for _ in range(limit)]
            charge = sum(len(received[0]) + UDP_OVERHEAD for received in taken)
        socket.queued_bytes -= charge
        self.queued_bytes -= charge
        return taken

    def _send_summed(self, flow: Flow, payload: bytes) -> None:
        """The checksum is ours to complete: the link does not, or there will be fragments."""
        path, src, dst, src_port, dst_port = flow
        partial = pseudo_sum(src, dst, PROTO_UDP, wire.HEADER_BYTES + len(payload))
        bare = wire.build_header(src_port, dst_port, len(payload), partial)
        checksum = 0xFFFF - ones_sum_of((bare, payload)) or 0xFFFF
        header = wire.build_header(src_port, dst_port, len(payload), checksum)
        self._output.send(path, src, dst, PROTO_UDP, header, payload)

    def _refuse_send(self, socket: UdpSocket, flow: Flow, size: int) -> NoReturn:
        _, src, dst, _, dst_port = flow
        remote = Endpoint(dst, dst_port)
        if socket.closed:
            raise Refused("udp.closed", f"udp send {remote}: socket is closed")
        if src not in self._addresses:
            raise Refused("udp.address_gone", f"udp send {remote}: local address was removed")
        self._counters.add("udp.too_big")
        raise Refused("udp.too_big", f"udp send {remote}: {size} bytes, allowed 0..{wire.MAX_PAYLOAD}")

    def receive_icmp_error(self, error: IcmpError) -> None:
        key = error.src << 16 | error.src_port
        socket = self._sockets.get(key) or self._sockets.get(error.src_port)
        if socket is None:
            self._counters.drop("udp.icmp_error_unknown")
            return
        socket.icmp_errors += 1
        self._events.append(DatagramError(socket, Endpoint(error.dst, error.dst_port), error.kind))
        self._counters.add(f"udp.icmp_{error.kind.value}")

    def close(self, socket: UdpSocket) -> None:
        if socket.closed:
            return
        socket.closed = True
        del self._sockets[socket.local.ip << 16 | socket.local.port]
        self.queued_bytes -= socket.queued_bytes
        socket.queued_bytes = 0
        socket._queue.clear()

    def remove_address(self, ip: int) -> None:
        for socket in [socket for socket in self._sockets.values() if socket.local.ip == ip]:
            self.close(socket)
