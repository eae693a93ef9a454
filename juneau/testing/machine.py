"""Two stacks under random events, checked against what TCP promises.

A RuleBasedStateMachine to run as it is (`TestStacks = TwoStacks.TestCase`) or to subclass with rules
and invariants of one's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from juneau.netstack.events import Accepted, Closed
from juneau.netstack.limits import Limits
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason, Link, Micros
from juneau.testing.sim import SimNet
from juneau.testing.strategies import impairments
from juneau.testing.wire import PERFECT, Impairment

if TYPE_CHECKING:
    from juneau.netstack.events import Event
    from juneau.netstack.tcp import TcpConnection
    from juneau.testing.sim import SimHost

LIMITS = Limits(rcv_buffer=16_384, min_rcv_buffer=4_096, buffered_bytes=64 * 1024)
ENDS_WITHIN = 3_600 * SECOND
"""Every retransmission gives up and every TIME-WAIT passes in this."""


@dataclass(eq=False)
class Half:
    """One side of a connection, and its stream so far."""

    conn: TcpConnection
    sent: bytearray = field(default_factory=bytearray)
    got: bytearray = field(default_factory=bytearray)
    shut: bool = False
    gone: CloseReason | None = None
    peer: Half | None = None


class NearWrap:
    """Stands in for the stack's ISN generator: sequence numbers that soon pass 2**32."""

    def __init__(self) -> None:
        self.count = 0

    def generate(self, flow: object, now: Micros) -> tuple[int, int]:
        self.count += 1
        return 2**32 - 997 * self.count, 2**32 - 1_500


class TwoStacks(RuleBasedStateMachine):
    """Bytes out are bytes in, once and in order; memory stays within limits; every connection ends."""

    def __init__(self) -> None:
        super().__init__()
        self.net = SimNet(seed=1)
        self.halves: list[Half] = []
        self.by_conn: dict[int, Half] = {}
        self.serial = 0

    def _host(self, ip: str, tso: bool, near_wrap: bool) -> SimHost:
        host = self.net.host(ip, limits=LIMITS, link=Link(checksum_offload=tso, tso=tso))
        host.on_event = self._on_event
        if near_wrap:
            host.stack.tcp.isn = NearWrap()  # type: ignore[assignment]
        return host

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Accepted):
            self._accept()
        elif isinstance(event, Closed) and (half := self.by_conn.get(id(event.conn))) is not None:
            half.gone = event.reason

    def _accept(self) -> None:
        while (conn := self.listener.accept()) is not None:
            half = self._add(conn)
            for other in self.halves:
                if other.conn.local == conn.remote and other.peer is None:
                    half.peer, other.peer = other, half

    def _add(self, conn: TcpConnection) -> Half:
        half = Half(conn)
        self.halves.append(half)
        self.by_conn[id(conn)] = half
        return half

    def _pick(self, number: int) -> Half:
        return self.halves[number % len(self.halves)]

    # --- rules ---

    @initialize(bad=st.one_of(st.just(PERFECT), impairments()), tso=st.booleans(), near_wrap=st.booleans())
    def begin(self, bad: Impairment, tso: bool, near_wrap: bool) -> None:
        self.net.wire.impairment = bad
        self.client = self._host("10.0.0.1", tso, near_wrap)
        self.server = self._host("10.0.0.2", tso, near_wrap)
        self.listener = self.server.listen(80, backlog=4)

    @precondition(lambda self: len(self.halves) < 8)
    @rule()
    def connect(self) -> None:
        self._add(self.client.connect(self.server, 80))

    @precondition(lambda self: self.halves)
    @rule(which=st.integers(0, 7), size=st.one_of(st.integers(1, 100), st.integers(1_000, 60_000)))
    def send(self, which: int, size: int) -> None:
        half = self._pick(which)
        if half.shut or half.gone is not None:
            return
        self.serial += 1
        data = bytes((self.serial + n * 7) % 256 for n in range(size))
        half.conn.send(data, self.net.now)
        half.sent += data
        self.net.settle()

    @precondition(lambda self: self.halves)
    @rule(which=st.integers(0, 7), size=st.integers(1, 40_000))
    def read(self, which: int, size: int) -> None:
        self._read(self._pick(which), size)
        self.net.settle()

    def _read(self, half: Half, size: int) -> None:
        for piece in half.conn.read(size):
            half.got += piece

    @precondition(lambda self: self.halves)
    @rule(which=st.integers(0, 7))
    def shutdown(self, which: int) -> None:
        half = self._pick(which)
        if not half.shut and half.gone is None:
            half.shut = True
            half.conn.shutdown(self.net.now)
            self.net.settle()

    @precondition(lambda self: self.halves)
    @rule(which=st.integers(0, 7))
    def abort(self, which: int) -> None:
        half = self._pick(which)
        if half.gone is None:
            half.gone = CloseReason.ABORTED
            half.conn.abort(self.net.now)
            self.net.settle()

    @rule(duration=st.one_of(st.integers(0, 5_000), st.integers(0, 2 * SECOND)))
    def pass_time(self, duration: int) -> None:
        self.net.advance(duration)

    @rule()
    def lose_contact(self) -> None:
        """A short partition."""
        self.net.wire.partition("10.0.0.1", "10.0.0.2")
        self.net.advance(300 * MILLISECOND)
        self.net.wire.heal("10.0.0.1", "10.0.0.2")

    # --- what always holds ---

    @invariant()
    def what_arrives_is_what_was_sent(self) -> None:
        for half in self.halves:
            if half.peer is not None:
                assert half.peer.sent.startswith(half.got), f"{half.conn}: not the stream that was sent"
            else:
                assert not half.got, f"{half.conn}: bytes from nobody"

    @invariant()
    def memory_stays_within_limits(self) -> None:
        for half in self.halves:
            assert half.conn.recv_queue_bytes <= LIMITS.rcv_buffer
        for host in self.net.hosts.values():
            assert host.stack.tcp.buffered <= LIMITS.buffered_bytes
            assert host.stack.tcp.half_open <= LIMITS.half_open

    def teardown(self) -> None:
        """Let everything end: whoever is left reads to the end and closes, over a wire made good."""
        self.net.wire.impairment = PERFECT
        for _ in range(200):
            for half in self.halves:
                self._read(half, 1 << 20)
            self.net.advance(100 * MILLISECOND)
        for half in self.halves:
            self._check_complete(half)
            if half.gone is None:
                half.conn.close(self.net.now)
        self.net.advance(ENDS_WITHIN)
        for host in self.net.hosts.values():
            left = list(host.stack.tcp.connections())
            assert not left, f"{host.name}: {len(left)} connections never ended"

    def _check_complete(self, half: Half) -> None:
        peer = half.peer
        if peer is not None and half.gone is None and peer.gone is None:
            assert bytes(half.got) == bytes(peer.sent), "bytes are missing although both ends are well"
