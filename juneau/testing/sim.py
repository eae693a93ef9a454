"""Stacks in virtual time: one alone (`Sim`), or several on a simulated wire (`SimNet`)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from juneau.netstack.stack import Stack
from juneau.netstack.types import SECOND, Endpoint, Link, Micros, TxPacket, parse_ip
from juneau.testing.clock import Timer, VirtualClock
from juneau.testing.wire import PERFECT, Impairment, SimulatedWire

if TYPE_CHECKING:
    from juneau.netstack.events import Event
    from juneau.netstack.tcp import TcpConnection, TcpListener


class Machine(Protocol):
    """What a sans-IO machine offers its driver; `juneau.netstack.stack.Stack` is one."""

    def handle_timeout(self, now: Micros, /) -> None: ...

    def next_timeout(self) -> Micros | None: ...

    def take_packets(self, now: Micros, /) -> list[TxPacket]: ...


M = TypeVar("M", bound=Machine)


class Sim(Generic[M]):
    """Drives `machine`; between calls the test acts on it with `now=sim.now`."""

    def __init__(self, machine: M, now: Micros = 0) -> None:
        self.machine, self.now = machine, now

    def advance(self, duration: Micros) -> list[TxPacket]:
        """Fire every timer due within `duration`, in order; return what was sent."""
        end, sent = self.now + duration, self._drain()
        while (due := self.machine.next_timeout()) is not None and due <= end:
            self.now = max(self.now, due)
            self.machine.handle_timeout(self.now)
            sent += self._drain()
        self.now = end
        return sent

    def _drain(self) -> list[TxPacket]:
        sent: list[TxPacket] = []
        while packets := self.machine.take_packets(self.now):
            sent += packets
        return sent


OTHER_SIDE = "network"
"""The path that hosts use: one wire, so one way out."""


class SimHost:
    """One stack on the wire. Act on `stack`, then call `settle`; `SimNet.advance` does so by itself."""

    def __init__(self, net: SimNet, name: str, stack: Stack) -> None:
        self.net, self.name, self.stack = net, name, stack
        self.ip = 0
        self.events: list[Event] = []
        """What the stack told, oldest first, unless `on_event` takes it."""
        self.on_event: Callable[[Event], object] | None = None
        self.on_send: Callable[[TxPacket], object] | None = None
        self.cut_superframes = False
        self._timer: Timer | None = None
        net.wire.attach(name, self._receive)

    def add_address(self, ip: str) -> None:
        self.ip = self.ip or parse_ip(ip)
        self.net.wire.add_address(self.name, parse_ip(ip))
        self.stack.add_address(parse_ip(ip))

    def listen(self, port: int, **kw: Any) -> TcpListener:
        return self.stack.tcp_listen(Endpoint(self.ip, port), **kw)

    def connect(self, remote: SimHost, port: int, **kw: Any) -> TcpConnection:
        local = Endpoint(self.ip, kw.pop("local_port", 0))
        now = self.net.now
        conn = self.stack.tcp_connect(Endpoint(remote.ip, port), local=local, path=OTHER_SIDE, now=now, **kw)
        self.settle()
        return conn

    def settle(self) -> None:
        """Deliver events, put what the stack wants to send on the wire, set its timer."""
        now = self.net.now
        for _ in range(10_000):
            events = self.stack.take_events()
            for event in events:
                self._deliver(event)
            packets = self.stack.take_packets(now)
            for packet in packets:
                self._send(packet)
            if not events and not packets:
                break
        else:
            raise AssertionError(f"host {self.name} never settles: the stack sends for ever at one instant")
        self._arm()

    def _deliver(self, event: Event) -> None:
        if self.on_event is None:
            self.events.append(event)
        else:
            self.on_event(event)

    def _send(self, packet: TxPacket) -> None:
        if self.on_send is not None:
            self.on_send(packet)
        self.net.wire.send_tx(self.name, packet, cut=self.cut_superframes)

    def _receive(self, packet: bytes, source: str, vouched: bool) -> None:
        self.stack.receive(packet, source, self.net.now, csum_ok=vouched)
        self.settle()

    def _arm(self) -> None:
        due = self.stack.next_timeout()
        if self._timer is not None:
            if self._timer.when == due and not self._timer.cancelled:
                return
            self._timer.cancel()
        self._timer = None if due is None else self.net.clock.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.stack.handle_timeout(self.net.now)
        self.settle()


class SimNet:
    """A clock, a wire and hosts. The same seed and the same actions give the same packets."""

    def __init__(self, *, seed: int = 0, impairment: Impairment = PERFECT, now: Micros = 0) -> None:
        self.seed = seed
        self.clock = VirtualClock(now)
        self.wire = SimulatedWire(self.clock, seed=seed, impairment=impairment)
        self.hosts: dict[str, SimHost] = {}

    @property
    def now(self) -> Micros:
        return self.clock.now

    def host(self, ip: str, *, name: str = "", link: Link | None = None, **kw: Any) -> SimHost:
        """A new host; `kw` goes to its Stack."""
        name = name or ip
        random = Random(f"{self.seed}/{name}")
        kw.setdefault("rng", random)
        kw.setdefault("secret", random.randbytes(16))
        host = SimHost(self, name, Stack(link=link or Link(), **kw))
        host.add_address(ip)
        self.hosts[name] = host
        return host

    def settle(self) -> None:
        for host in self.hosts.values():
            host.settle()

    def advance(self, duration: Micros) -> None:
        """Let `duration` pass: every packet arrives and every timer fires in order."""
        self.settle()
        self.clock.advance(duration)

    def run_until(self, done: Callable[[], bool], *, timeout: Micros = 60 * SECOND) -> Micros:
        """Run until `done()`; returns how long it took. AssertionError past `timeout` or at a standstill."""
        start = self.now
        self.settle()
        while not done():
            if not self.clock.step(start + timeout):
                still = "nothing is pending" if self.clock.next_deadline() is None else "still busy"
                raise AssertionError(f"not done after {timeout / SECOND:g} virtual seconds ({still})")
        return self.now - start
