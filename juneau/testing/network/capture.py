"""The network's packets in one pcapng file: the same seed gives the same bytes.

Each host is an interface that shows what it sent, with a comment on packets that did not arrive as
they were sent, and what reached it.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Final

from juneau.netstack.types import Micros
from juneau.netstack.wire import pcapng
from juneau.testing.wire import Trace

EPOCH: Final[Micros] = 1_767_225_600_000_000
"""Virtual time 0 on the wall clock: 2026-01-01T00:00:00Z, microseconds since 1970."""

_DIRECTIONS: Final = {"in": pcapng.INBOUND, "out": pcapng.OUTBOUND}


class Capture:
    def __init__(self, path: str | PathLike[str]) -> None:
        self._file = Path(path).open("wb")  # noqa: SIM115 (closed by close)
        self._file.write(pcapng.section_header())
        self._interfaces: dict[str, int] = {}

    def follow(self, now: Callable[[], Micros]) -> list[Trace]:
        """A log for the wire that writes what is appended to it."""
        return _Log(self, now)

    def write(
        self, interface: str, direction: str, packet: bytes, at: Micros, comment: str | None = None
    ) -> None:
        number = self._interfaces.get(interface)
        if number is None:
            number = self._interfaces[interface] = len(self._interfaces)
            self._file.write(pcapng.interface_description(interface))
        self._file.write(
            pcapng.enhanced_packet(
                number, EPOCH + at, (packet,), direction=_DIRECTIONS[direction], comment=comment
            )
        )

    def close(self) -> None:
        self._file.close()


class _Log(list[Trace]):
    """Keeps nothing: a long run would fill memory."""

    def __init__(self, capture: Capture, now: Callable[[], Micros]) -> None:
        super().__init__()
        self._capture, self._now = capture, now

    def append(self, trace: Trace) -> None:
        comment = None if trace.fate == "delivered" else trace.fate
        self._capture.write(trace.source, "out", trace.packet, self._now(), comment)
