"""Joins a stack to an event loop: it performs, the stack decides.

Packets come in through `receive`, then one `settle` delivers events, sends packets and arms the one
timer. What the application does (write, close, connect) asks for a settle later in the same turn of
the loop, so that several writes leave together.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from juneau.netstack.aio.errors import os_error
from juneau.netstack.events import (
    Accepted,
    Closed,
    Connected,
    DatagramError,
    DatagramReady,
    Readable,
    Writable,
)
from juneau.netstack.tcp.timers import NEVER
from juneau.netstack.types import MILLISECOND, Buffer, Micros, Path, TxPacket

if TYPE_CHECKING:
    from juneau.netstack.stack import Receive, Stack

TX_BURST: Final = 256
"""Packets one stack sends per turn of the loop, a millisecond or two; other tenants come between."""
TX_BURST_TSO: Final = 32
"""The same in superframes: up to 2 MiB, half a millisecond."""
SND_LIMIT: Final = 1024 * 1024
"""Bytes of one connection's send queue that count as "in the kernel". Linux's tcp_wmem ends at 4 MiB."""
LATE: Final = 5 * MILLISECOND
"""A timer this late means that the loop was busy, and ACKs may wait unread in the link."""


def monotonic_us() -> Micros:
    return time.monotonic_ns() // 1000


UNSENT_CHECKS: Final = 16
"""Looks at all send queues per quota written: it is overrun by a sixteenth, or by one write."""


def _deaf(packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None:
    """What a closed driver makes of packets."""


def _unheeded() -> None:
    """Nobody counts the connections that end."""


class Endable(Protocol):
    """What `Driver.close` ends."""

    def abort(self) -> None: ...


class Driver:
    """The packet side; `AsyncStack` adds the application side."""

    def __init__(
        self,
        stack: Stack,
        send: Callable[[list[TxPacket]], None],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], Micros] = monotonic_us,
        name: str = "",
        route: Callable[[int], Path | None] | None = None,
        snd_limit: int = SND_LIMIT,
        gone: Callable[[], None] = _unheeded,
    ) -> None:
        """`send` never blocks. `route` names the way to an address that nobody was heard from yet;
        without it, opening a connection needs a `path`. `snd_limit`: bytes, see TcpTransport.
        `gone` is called for each connection of a server that is over.
        """
        self.stack = stack
        self.loop = loop if loop is not None else asyncio.get_running_loop()
        self.clock = clock
        self.name = name
        self.route = route
        self.snd_limit = snd_limit
        self.gone = gone
        self.ends: dict[Endable, None] = {}  # what is open, oldest first: closing is deterministic
        self._send = send
        self._burst = TX_BURST_TSO if stack.link.tso else TX_BURST
        self._settling = False
        self._again = False  # settle was asked for while settling
        self._scheduled = False
        self._deferred = False  # timeouts run once the link has been read
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Micros = 0
        self._closed = False
        self._unsent_allowance = 0  # bytes that may be written before the queues are added up again

    # Packets

    @property
    def receive(self) -> Receive:
        """Takes a packet; the caller settles once after its batch."""
        return _deaf if self._closed else self.stack.receive

    def settle(self) -> None:
        """Deliver events, send what is due, arm the timer.

        Where an application was told something, sending waits for its turn: the answer carries the ACK.
        ACKs of bulk data go out before anything else.
        """
        if self._settling or self._closed:
            self._again = True
            return
        if self.stack.in_hurry:
            self._transmit(self.clock())
        if self.stack.events:
            self._deliver_all()
            self.wake()
        else:
            self._settle(self.clock())

    def _deliver_all(self) -> None:
        events: list[Any] = self.stack.events
        self._settling = True
        try:
            while events:
                batch = events[:]
                events.clear()
                for event in batch:
                    kind = type(event)
                    if kind is not Readable:
                        deliver(event)
                    elif (user := event.conn.user) is not None:  # as `deliver` does it; most are such
                        user.on_readable()
        finally:
            self._settling = False

    def wake(self) -> None:
        """Settle once more in this turn of the loop."""
        if not self._scheduled and not self._settling:
            self._scheduled = True
            self.loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._scheduled = False
        self._settle(self.clock())

    def _settle(self, now: Micros) -> None:
        if self._settling or self._closed:
            self._again = True  # settling: a link that answers inside `send`
            return
        stack = self.stack
        if stack.events:
            self._deliver_all()
        full = stack.wants_output and self._transmit(now)
        if self._again or full:
            self._again = False
            self.wake()
        if not stack.quiet_until(NEVER if self._timer is None else self._timer_at):
            self._arm(stack.next_timeout(), now)

    def _transmit(self, now: Micros) -> bool:
        """True: there may be more than one turn's burst."""
        self._settling = True
        try:
            packets = self.stack.take_packets(now, self._burst)
            if packets:
                self._send(packets)
        finally:
            self._settling = False
        return len(packets) >= self._burst

    # The timer

    def _arm(self, deadline: Micros | None, now: Micros) -> None:
        """Armed too early is left alone: one vain wake-up costs less than moving the timer at each ACK."""
        if deadline is None:
            return
        if deadline <= now:
            self._defer()
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_later((deadline - now) / 1e6, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self.clock()
        if now - self._timer_at > LATE:
            self._defer()
        else:
            self._handle_timeout(max(now, self._timer_at))  # the loop may fire a clock tick early

    def _defer(self) -> None:
        """A deadline has passed while the loop was busy: read first, the ACK may be there.

        Two turns, as libuv runs timers before it polls and asyncio runs what is ready before what it polled.
        """
        if not self._deferred:
            self._deferred = True
            self.loop.call_soon(self.loop.call_soon, self._on_deferred)

    def _on_deferred(self) -> None:
        self._deferred = False
        self._handle_timeout(self.clock())

    def _handle_timeout(self, now: Micros) -> None:
        if not self._closed:
            self.stack.handle_timeout(now)
            self._settle(now)

    # Memory

    def check_unsent(self, written: int) -> None:
        """Hold the quota of what waits to be sent; told of writes by whoever has much there already."""
        self._unsent_allowance -= written
        if self._unsent_allowance > 0:
            return
        quota = self.stack.limits.unsent_bytes
        queues = {conn: conn.send_queue_bytes for conn in self.stack.tcp.connections()}
        total = sum(queues.values())
        while total > quota:
            largest = max(queues, key=queues.__getitem__)
            total -= queues.pop(largest)
            self.stack.counters.add("tcp.unsent_quota")
            user: Any = largest.user
            if user is not None:
                user.on_quota()
            else:
                largest.abort(self.clock())
        self._unsent_allowance = quota // UNSENT_CHECKS

    # Addresses

    def source(self, remote: int) -> int:
        """The address to speak to `remote` from by default: the one that shares the longest prefix with it
        (as rule 8 of RFC 6724), so one of its own Subnet if there is any. OSError EADDRNOTAVAIL if none.
        """
        if not self.stack.addresses:
            raise os_error(errno.EADDRNOTAVAIL, f"source address of stack {self.name!r}")
        return min(self.stack.addresses, key=lambda ip: ((ip ^ remote).bit_length(), ip))

    def add_address(self, ip: int) -> None:
        self.stack.add_address(ip)

    def remove_address(self, ip: int) -> None:
        """Connections on it end with ConnectionAbortedError."""
        self.stack.remove_address(ip, self.clock())
        self.wake()

    def close(self) -> None:
        """Abort everything and tell the peers; after that nothing is received or sent."""
        if self._closed:
            return
        for end in tuple(self.ends):
            end.abort()
        now = self.clock()
        for conn in tuple(self.stack.tcp.connections()):
            conn.abort(now)
        while packets := self.stack.take_packets(now, self._burst):
            self._send(packets)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def deliver(event: Any) -> None:
    """Tell whom the application put behind the connection, listener or socket, if it still holds it."""
    kind = type(event)
    if kind is Readable:  # most are
        if (user := event.conn.user) is not None:
            user.on_readable()
        return
    if kind is Accepted:
        user = event.listener.user
    elif kind is DatagramReady or kind is DatagramError:
        user = event.socket.user
    else:
        user = event.conn.user
    if user is None:
        return
    if kind is DatagramReady:
        user.on_datagrams()
    elif kind is Writable:
        user.on_writable()
    elif kind is Accepted:
        user.on_accepted()
    elif kind is Closed:
        user.on_closed(event.reason)
    elif kind is Connected:
        user.on_connected()
    elif kind is DatagramError:
        user.on_error(event.remote, event.kind)
