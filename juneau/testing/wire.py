"""A wire in one process: seeded and per direction, on virtual time.

The same seed and the same sends give the same fate for every packet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, NamedTuple, TypeAlias

from juneau.netstack.types import SECOND, Micros, Misuse, TxPacket, format_ip
from juneau.testing.clock import VirtualClock
from juneau.testing.packets import complete_checksum, segment

Receive: TypeAlias = Callable[[bytes, str, bool], None]
"""Called with the packet, the sender's name and whether its checksums need no check."""

Fate: TypeAlias = Literal["delivered", "lost", "queue_full", "no_route", "down", "duplicated", "corrupted"]


@dataclass(frozen=True, slots=True)
class Impairment:
    """What one direction does to packets. Probabilities are 0..1, per packet."""

    loss: float = 0.0
    delay: Micros = 0
    """One way."""
    jitter: Micros = 0
    """Up to this much more delay, uniform. Jitter alone never reorders."""
    duplicate: float = 0.0
    reorder: float = 0.0
    """Such a packet leaves `reorder_delay` late and may be overtaken."""
    reorder_delay: Micros = 1_000
    corrupt: float = 0.0
    """One bit is flipped anywhere in the packet."""
    bandwidth: int = 0
    """Bits a second; 0: no limit."""
    queue_bytes: int = 0
    """Most that may wait for the bandwidth; 0: no limit."""
    down: bool = False
    """A partition: everything is dropped."""


PERFECT: Final = Impairment()


class Trace(NamedTuple):
    """One packet's entry in the log."""

    sent_at: Micros
    source: str
    target: str
    packet: bytes
    fate: Fate


@dataclass(slots=True)
class _Direction:
    """The state of one (source, target) pair."""

    random: Random
    impairment: Impairment | None = None
    """None: the wire's default."""
    free_at: Micros = 0
    last_arrival: Micros = 0


@dataclass(slots=True)
class _End:
    receive: Receive
    addresses: set[int] = field(default_factory=set)


class SimulatedWire:
    """Joins any number of ends; a packet goes to the end that owns its destination address."""

    def __init__(self, clock: VirtualClock, *, seed: int = 0, impairment: Impairment = PERFECT) -> None:
        self.clock = clock
        self.impairment = impairment
        self.log: list[Trace] | None = None
        """Assign a list to keep a trace of every packet."""
        self.fates: dict[Fate, int] = {}
        self._seed = seed
        self._ends: dict[str, _End] = {}
        self._owner: dict[int, str] = {}
        self._directions: dict[tuple[str, str], _Direction] = {}

    def attach(self, name: str, receive: Receive) -> None:
        if name in self._ends:
            raise Misuse(f"attach {name} to the wire: the name is in use")
        self._ends[name] = _End(receive)

    def detach(self, name: str) -> None:
        """What is under way to `name` is lost: a crash."""
        for ip in self._ends.pop(name).addresses:
            del self._owner[ip]

    def add_address(self, name: str, ip: int) -> None:
        if self._owner.get(ip, name) != name:
            raise Misuse(f"add {format_ip(ip)} to {name}: {self._owner[ip]} has it")
        self._owner[ip] = name
        self._ends[name].addresses.add(ip)

    def impair(self, impairment: Impairment | None, *, source: str, target: str) -> None:
        """Set one direction; None goes back to the wire's default. Packets under way keep their fate."""
        self._direction(source, target).impairment = impairment

    def partition(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            self.impair(Impairment(down=True), source=source, target=target)

    def heal(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            self.impair(None, source=source, target=target)

    def send_tx(self, source: str, packet: TxPacket, *, cut: bool = False) -> None:
        """Send what a stack handed out; `cut` divides superframes as a network card would."""
        pieces = segment(packet) if cut and packet.gso_size else [packet]
        for piece in pieces:
            self.send(source, piece.to_bytes(), partial=piece if piece.csum_start else None)

    def send(self, source: str, packet: bytes, *, partial: TxPacket | None = None) -> None:
        """Send one IPv4 packet; `partial` says where its checksum is still to be completed."""
        target = self._owner.get(int.from_bytes(packet[16:20], "big"))
        if target is None:
            self._note(source, "?", packet, "no_route")
            return
        way = self._direction(source, target)
        impairment = way.impairment or self.impairment
        fate = self._fate(way, impairment, len(packet))
        if fate != "delivered":
            self._note(source, target, packet, fate)
            return
        if way.random.random() < impairment.corrupt:
            packet = _flip_bit(complete_checksum(packet, partial), way.random)
            partial = None
            self._note(source, target, packet, "corrupted")
        else:
            self._note(source, target, packet, "delivered")
        copies = 1
        if way.random.random() < impairment.duplicate:
            self._note(source, target, packet, "duplicated")
            copies = 2
        for _ in range(copies):
            self._schedule(way, impairment, source, target, packet, partial is not None)

    def _fate(self, way: _Direction, impairment: Impairment, size: int) -> Fate:
        if impairment.down:
            return "down"
        if way.random.random() < impairment.loss:
            return "lost"
        if impairment.bandwidth and impairment.queue_bytes:
            waiting = (way.free_at - self.clock.now) * impairment.bandwidth // (8 * SECOND)
            if waiting + size > impairment.queue_bytes:
                return "queue_full"
        return "delivered"

    def _schedule(
        self, way: _Direction, impairment: Impairment, source: str, target: str, packet: bytes, vouched: bool
    ) -> None:
        leaves = max(self.clock.now, way.free_at)
        if impairment.bandwidth:
            leaves += len(packet) * 8 * SECOND // impairment.bandwidth
            way.free_at = leaves
        arrives = leaves + impairment.delay
        if impairment.jitter:
            arrives += way.random.randrange(impairment.jitter + 1)
        if way.random.random() < impairment.reorder:
            arrives += impairment.reorder_delay
        else:
            arrives = way.last_arrival = max(arrives, way.last_arrival)
        self.clock.call_at(arrives, lambda: self._arrive(source, target, packet, vouched))

    def _arrive(self, source: str, target: str, packet: bytes, vouched: bool) -> None:
        if target in self._ends:
            self._ends[target].receive(packet, source, vouched)

    def _direction(self, source: str, target: str) -> _Direction:
        way = self._directions.get((source, target))
        if way is None:
            way = _Direction(Random(f"{self._seed}/{source}/{target}"))
            self._directions[source, target] = way
        return way

    def _note(self, source: str, target: str, packet: bytes, fate: Fate) -> None:
        self.fates[fate] = self.fates.get(fate, 0) + 1
        if self.log is not None:
            self.log.append(Trace(self.clock.now, source, target, packet, fate))


def _flip_bit(packet: bytes, random: Random) -> bytes:
    bit = random.randrange(len(packet) * 8)
    damaged = bytearray(packet)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)
