"""Captures at a stack's edge, as pcapng: `stack.tap = Capture(file.write, ...).tap("vpc-a")`."""

from __future__ import annotations

from collections.abc import Callable

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
        self.packets = 0
        write(pcapng.section_header())

    def tap(self, interface: str) -> Tap:
        """For `Stack.tap`. Two stacks with one name share an interface."""
        number = self._interface(interface)

        def tap(
            direction: Direction, pieces: tuple[Buffer, ...], path: Path, now: Micros, comment: str | None
        ) -> None:
            if self._keep(path):
                self._record(number, direction, pieces, now, comment)

        return tap

    def _interface(self, name: str) -> int:
        number = self._interfaces.get(name)
        if number is None:
            number = self._interfaces[name] = len(self._interfaces)
            self._write(pcapng.interface_description(name))
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
        self.packets += 1
