"""IPv4 reassembly (RFC 791 3.2, RFC 1122 3.3.2) in bounded memory.

Overlapping fragments condemn their datagram, those still to come included: RFC 5722's rule for
IPv6, because nobody honest overlaps. An exact repetition is a duplicate from the network and is
ignored. Fragments never mix across paths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import Final, NamedTuple

from juneau.netstack.counters import Counters
from juneau.netstack.limits import Limits
from juneau.netstack.types import Buffer, Micros, Path
from juneau.netstack.wire import ipv4
from juneau.netstack.wire.ipv4 import Ipv4Header

FRAGMENT_OVERHEAD: Final = 256
"""Charged for each fragment and each datagram above their bytes: views, list slots, dict entries."""


class _Key(NamedTuple):
    src: int
    dst: int
    ident: int
    proto: int
    path: Path


class _Fragment(NamedTuple):
    start: int
    end: int
    payload: memoryview


class Expired(NamedTuple):
    """A datagram that ran out of time although its first fragment was there."""

    header: Ipv4Header
    packet: Buffer
    """The first fragment as it came."""
    path: Path


class _Datagram:
    """Fragments of one datagram, sorted, disjoint."""

    __slots__ = ("charge", "dead", "deadline", "first", "fragments", "got", "size")

    def __init__(self, deadline: Micros) -> None:
        self.deadline = deadline
        self.fragments: list[_Fragment] = []
        self.first: tuple[Ipv4Header, Buffer] | None = None
        self.size: int | None = None  # payload bytes, known from the last fragment
        self.got = 0
        self.charge = FRAGMENT_OVERHEAD
        self.dead = False

    def fits(self, fragment: _Fragment, last: bool) -> bool:
        """False if `fragment` contradicts what is here."""
        place = bisect_left(self.fragments, fragment.start, key=_start)
        if place and self.fragments[place - 1].end > fragment.start:
            return False
        if place < len(self.fragments) and self.fragments[place].start < fragment.end:
            return False
        if self.size is not None:
            return not last and fragment.end <= self.size
        return not last or not self.fragments or self.fragments[-1].end <= fragment.start

    def repeats(self, fragment: _Fragment, last: bool) -> bool:
        place = bisect_left(self.fragments, fragment.start, key=_start)
        if place == len(self.fragments):
            return False
        start, end, _ = self.fragments[place]
        return (start, end) == (fragment.start, fragment.end) and (self.size == end) == last

    def insert(self, fragment: _Fragment, last: bool) -> None:
        self.fragments.insert(bisect_left(self.fragments, fragment.start, key=_start), fragment)
        self.got += fragment.end - fragment.start
        if last:
            self.size = fragment.end

    def condemn(self) -> None:
        """Keep the name until the deadline, so that late fragments find it; free the rest."""
        self.fragments, self.first, self.dead = [], None, True


def _start(fragment: _Fragment) -> int:
    return fragment.start


class Reassembler:
    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self.datagrams: OrderedDict[_Key, _Datagram] = OrderedDict()  # oldest, so first to expire, first
        self._of_path: dict[Path, OrderedDict[_Key, None]] = {}
        self.held_bytes = 0
        """Charged against `limits.fragment_bytes`."""

    def __len__(self) -> int:
        return len(self.datagrams)

    def receive(
        self, header: Ipv4Header, payload: memoryview, packet: Buffer, path: Path, now: Micros
    ) -> bytes | None:
        """Take a fragment; the whole packet, with a plain 20-byte header, once all are here."""
        self._counters.add("ip.fragments")
        fragment = _Fragment(header.frag_offset, header.frag_offset + len(payload), payload)
        if reason := _bad_shape(header, fragment):
            self._counters.drop(reason)
            return None
        key = _Key(header.src, header.dst, header.ident, header.proto, path)
        datagram = self.datagrams.get(key)
        if datagram is not None and now >= datagram.deadline:  # its timer is late
            self._remove(key)
            self._counters.add("ip.reassembly_timeout")
            datagram = None
        if datagram is None:
            datagram = self._open(key, now)
        return self._add(key, datagram, fragment, header, packet)

    def _add(
        self, key: _Key, datagram: _Datagram, fragment: _Fragment, header: Ipv4Header, packet: Buffer
    ) -> bytes | None:
        if datagram.dead:
            self._counters.drop("ip.fragment_overlap")
            return None
        if datagram.repeats(fragment, not header.mf):
            self._counters.drop("ip.fragment_duplicate")
            return None
        if not datagram.fits(fragment, not header.mf):
            self._counters.drop("ip.fragment_overlap")
            self._charge(datagram, FRAGMENT_OVERHEAD - datagram.charge)
            datagram.condemn()
            return None
        datagram.insert(fragment, not header.mf)
        if fragment.start == 0:
            datagram.first = header, packet
        if datagram.got == datagram.size:
            self._remove(key)
            return self._join(datagram)
        # The view pins the whole buffer, so that is what it costs.
        self._charge(datagram, len(packet) + FRAGMENT_OVERHEAD)
        self._evict(key)
        return None

    def _join(self, datagram: _Datagram) -> bytes | None:
        assert datagram.first is not None  # disjoint fragments that add up to the size include offset 0
        header, _ = datagram.first
        self._counters.add("ip.reassembled")
        whole = ipv4.build_header(
            header.src,
            header.dst,
            header.proto,
            datagram.got,
            ident=header.ident,
            ttl=header.ttl,
            tos=header.tos,
        )
        return b"".join((whole, *(fragment.payload for fragment in datagram.fragments)))

    def expire(self, now: Micros) -> list[Expired]:
        """Forget datagrams that are due; those to answer with time exceeded are returned."""
        expired = []
        while self.datagrams:
            key, datagram = next(iter(self.datagrams.items()))
            if datagram.deadline > now:
                break
            self._remove(key)
            if datagram.dead:
                continue
            self._counters.add("ip.reassembly_timeout")
            if datagram.first is not None:
                expired.append(Expired(*datagram.first, key.path))
        return expired

    def next_timeout(self) -> Micros | None:
        return next(iter(self.datagrams.values())).deadline if self.datagrams else None

    def remove_address(self, ip: int) -> None:
        for key in [key for key in self.datagrams if key.dst == ip]:
            self._remove(key)

    def _open(self, key: _Key, now: Micros) -> _Datagram:
        datagram = self.datagrams[key] = _Datagram(now + self._limits.fragment_timeout)
        self._of_path.setdefault(key.path, OrderedDict())[key] = None
        self.held_bytes += datagram.charge
        return datagram

    def _charge(self, datagram: _Datagram, amount: int) -> None:
        datagram.charge += amount
        self.held_bytes += amount

    def _evict(self, newcomer: _Key) -> None:
        """Make room: first among the newcomer's own path, then the oldest of all, then the newcomer."""
        while (
            self.held_bytes > self._limits.fragment_bytes
            or len(self.datagrams) > self._limits.fragment_datagrams
        ):
            own = next(iter(self._of_path[newcomer.path]))
            oldest = next(iter(self.datagrams))
            victim = own if own != newcomer else oldest
            self._remove(victim)
            if victim == newcomer:
                self._counters.drop("ip.fragment_limit")
                return
            self._counters.add("ip.fragment_limit")

    def _remove(self, key: _Key) -> None:
        datagram = self.datagrams.pop(key)
        self.held_bytes -= datagram.charge
        of_path = self._of_path[key.path]
        del of_path[key]
        if not of_path:
            del self._of_path[key.path]


def _bad_shape(header: Ipv4Header, fragment: _Fragment) -> str | None:
    size = fragment.end - fragment.start
    if fragment.end > ipv4.MAX_TOTAL_LENGTH - ipv4.HEADER_BYTES:
        return "ip.fragment_too_long"
    if size == 0 or (header.mf and size % 8):
        return "ip.bad_fragment"
    return None
