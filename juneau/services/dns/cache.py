"""Answers that are kept: upstream's per Vpc, finished ones per Subnet. Bounded; none pays for another."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from juneau.model.ids import TenantId
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


class Known(NamedTuple):
    reply: Reply
    age: int
    """Whole seconds to take off its TTLs."""
    until: float
    """When that is no longer true."""


class Cache:
    """Times are seconds of one clock, passed in."""

    def __init__(self, entries_per_vpc: int) -> None:
        self._limit = entries_per_vpc
        self._vpcs: OrderedDict[int, OrderedDict[Key, Entry]] = OrderedDict()

    def get(self, vpc_id: int, key: Key, now: float) -> Known | None:
        entries = self._vpcs.get(vpc_id)
        entry = entries.get(key) if entries else None
        if entries is None or entry is None:
            return None
        if now >= entry.expires:
            del entries[key]
            return None
        entries.move_to_end(key)
        age = int(now - entry.stored)
        return Known(entry.reply, age, min(entry.expires, entry.stored + age + 1))

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


NEVER: Final = math.inf
"""`Hot.until` of what only a new view makes untrue; compared by identity, so that no clock is read."""
HOT_PER_TENANT: Final = 4096
HOT_MAX_QUERY: Final = 300
"""Bytes; a longer query carries options that change from one to the next."""


@dataclass(frozen=True, slots=True)
class Hot:
    """An answer as it was sent, without its id."""

    wire: bytes
    events: tuple[str, ...]
    """To be counted with it."""
    until: float


HotKey: TypeAlias = bytes | tuple[bytes]
"""What follows a query's id; by TCP in a tuple, which is equal to no bytes."""


class HotAnswers:
    """Finished answers by the very bytes that asked, id apart: the same bytes get the same answer.

    Letter case, EDNS and flags are part of the key by nature. Forgotten as a whole with each new view.
    """

    def __init__(self) -> None:
        self.tenants: dict[TenantId, dict[HotKey, Hot]] = {}

    def put(self, tenant: TenantId, tcp: bool, message: bytes, hot: Hot) -> None:
        if len(message) > HOT_MAX_QUERY:
            return
        answers = self.tenants.setdefault(tenant, {})
        if len(answers) >= HOT_PER_TENANT:
            answers.clear()  # random names are what fills it, and they gain nothing from it
        answers[(message[2:],) if tcp else message[2:]] = hot

    def clear(self) -> None:
        self.tenants.clear()
