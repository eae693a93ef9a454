"""Upstream answers, kept per Vpc: bounded, least recently used out first, no tenant at another's cost."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from juneau.services.dns.reply import Reply

MAX_VPCS: Final = 4096
MAX_BODY: Final = 4096
"""Bytes; larger answers are not kept."""


class Key(NamedTuple):
    qname: bytes
    qtype: int
    do: bool
    cd: bool


class Entry(NamedTuple):
    reply: Reply
    stored: float
    expires: float


class Cache:
    """Times are seconds of one clock, passed in."""

    def __init__(self, entries_per_vpc: int) -> None:
        self._limit = entries_per_vpc
        self._vpcs: OrderedDict[int, OrderedDict[Key, Entry]] = OrderedDict()

    def get(self, vpc_id: int, key: Key, now: float) -> tuple[Reply, int] | None:
        """The reply and its age in whole seconds."""
        entries = self._vpcs.get(vpc_id)
        entry = entries.get(key) if entries else None
        if entries is None or entry is None:
            return None
        if now >= entry.expires:
            del entries[key]
            return None
        entries.move_to_end(key)
        return entry.reply, int(now - entry.stored)

    def put(self, vpc_id: int, key: Key, reply: Reply, lifetime: int, now: float) -> None:
        if lifetime <= 0 or len(reply.body) > MAX_BODY or self._limit <= 0:
            return
        entries = self._vpcs.setdefault(vpc_id, OrderedDict())
        self._vpcs.move_to_end(vpc_id)
        entries[key] = Entry(reply, now, now + lifetime)
        entries.move_to_end(key)
        if len(entries) > self._limit:
            entries.popitem(last=False)
        if len(self._vpcs) > MAX_VPCS:
            self._vpcs.popitem(last=False)
