"""Named event and drop counters. Names are `layer.what`; docs/netstack.md says what each means."""

from __future__ import annotations

from collections import defaultdict

from juneau.netstack.types import Malformed


class Counters:
    """Counts by name. `drop` also remembers the name, so that a capture can say why a packet went."""

    __slots__ = ("last_drop", "values")

    def __init__(self) -> None:
        self.values: defaultdict[str, int] = defaultdict(int)
        """To add to for every packet, where a call of `add` would show; read snapshots."""
        self.last_drop: str | None = None

    def add(self, name: str, amount: int = 1) -> None:
        self.values[name] += amount

    def drop(self, reason: str) -> None:
        """Count a packet that nobody will get."""
        self.values[reason] += 1
        self.last_drop = reason

    def forget_drop(self) -> None:
        self.last_drop = None

    def malformed(self, err: Malformed) -> None:
        """Count a packet that a parser refused: `udp.length` becomes `udp.bad_length`."""
        layer, _, field = err.field.partition(".")
        self.drop(f"{layer}.bad_{field}")

    def __getitem__(self, name: str) -> int:
        return self.values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """A copy, sorted by name; names never counted are absent."""
        return dict(sorted(self.values.items()))
