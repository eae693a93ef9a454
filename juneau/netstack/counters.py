"""Named event and drop counters. Names are `layer.what`; docs/netstack.md says what each means."""

from __future__ import annotations

from collections import defaultdict

from juneau.netstack.types import Malformed


class Counters:
    """Counts by name. `drop` also remembers the name, so that a capture can say why a packet went."""

    __slots__ = ("_values", "last_drop")

    def __init__(self) -> None:
        self._values: defaultdict[str, int] = defaultdict(int)
        self.last_drop: str | None = None

    def add(self, name: str, amount: int = 1) -> None:
        self._values[name] += amount

    def drop(self, reason: str) -> None:
        """Count a packet that nobody will get."""
        self._values[reason] += 1
        self.last_drop = reason

    def forget_drop(self) -> None:
        self.last_drop = None

    def malformed(self, err: Malformed) -> None:
        """Count a packet that a parser refused: `udp.length` becomes `udp.bad_length`."""
        layer, _, field = err.field.partition(".")
        self.drop(f"{layer}.bad_{field}")

    def __getitem__(self, name: str) -> int:
        return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """A copy, sorted by name; names never counted are absent."""
        return dict(sorted(self._values.items()))
