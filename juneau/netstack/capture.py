"""Captures at a stack's edge, as pcapng: `stack.tap = Capture(file.write, ...).tap("vpc-a")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from juneau.netstack.tap import Direction, Tap
from juneau.netstack.types import Buffer, Micros, Path
from juneau.netstack.wire import pcapng


class Capture:
    """One file for any number of stacks, an interface each. Drops carry their reason as a comment."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        epoch_offset: Micros = 0,
        keep: Callable[[Path], bool] = lambda path: True,
    ) -> None:
        """`epoch_offset` is added to `now` to give µs since 1970; `keep` chooses paths."""
        self._write = write
        self._epoch_offset = epoch_offset
        self._keep = keep
        self._interfaces: dict[str, int] = {}
        self._received: list[int] = []
        write(pcapng.section_header())

    @property
    def packets(self) -> int:
        return sum(self._received)

    def tap(self, interface: str, *, linktype: int = pcapng.LINKTYPE_RAW) -> Tap:
        """For `Stack.tap`. Two stacks with one name share an interface."""
        number = self._interface(interface, linktype)

        def tap(
            direction: Direction, pieces: tuple[Buffer, ...], path: Path, now: Micros, comment: str | None
        ) -> None:
            if self._keep(path):
                self._record(number, direction, pieces, now, comment)

        return tap

    def finish(self, now: Micros, lost: Mapping[str, int] | None = None) -> None:
        """End the file with each interface's counts; `lost`: packets by interface that were left out."""
        for name, number in self._interfaces.items():
            dropped = (lost or {}).get(name, 0)
            received = self._received[number] + dropped
            timestamp = now + self._epoch_offset
            self._write(pcapng.interface_statistics(number, timestamp, received=received, dropped=dropped))

    def _interface(self, name: str, linktype: int) -> int:
        number = self._interfaces.get(name)
        if number is None:
            number = self._interfaces[name] = len(self._interfaces)
            self._received.append(0)
            self._write(pcapng.interface_description(name, linktype=linktype))
        return number

    def _record(
        self,
        interface: int,
        direction: Direction,
        pieces: tuple[Buffer, ...],
        now: Micros,
        comment: str | None,
    ) -> None:
        flag = pcapng.INBOUND if direction == "in" else pcapng.OUTBOUND
        text = None if comment is None else f"dropped: {comment}"
        timestamp = now + self._epoch_offset
        self._write(pcapng.enhanced_packet(interface, timestamp, pieces, direction=flag, comment=text))
        self._received[interface] += 1
