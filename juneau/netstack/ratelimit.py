"""A token bucket for each path, as one integer: the time at which the bucket will be full again."""

from __future__ import annotations

from collections import OrderedDict

from juneau.netstack.types import SECOND, Micros, Path


class RateLimit:
    """At most `burst` at once and `per_second` on average, for each path; 0 forbids.

    Remembers `max_paths` paths. The one idle longest is forgotten first, which refills its bucket:
    harmless while paths are interfaces, of which an attacker cannot make more.
    """

    __slots__ = ("_full_at", "_interval", "_max_paths", "_slack")

    def __init__(self, per_second: int, burst: int, max_paths: int) -> None:
        self._interval = SECOND // per_second if per_second else 0
        self._slack = (burst - 1) * self._interval if per_second else -1
        self._max_paths = max_paths
        self._full_at: OrderedDict[Path, Micros] = OrderedDict()

    def allow(self, path: Path, now: Micros) -> bool:
        full_at = max(self._full_at.get(path, now), now)
        if full_at - now > self._slack:
            return False
        self._full_at[path] = full_at + self._interval
        self._full_at.move_to_end(path)
        if len(self._full_at) > self._max_paths:
            self._full_at.popitem(last=False)
        return True

    def __len__(self) -> int:
        return len(self._full_at)
