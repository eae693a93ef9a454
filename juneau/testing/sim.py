"""One sans-IO machine against virtual time."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from juneau.netstack.types import Micros, TxPacket


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
