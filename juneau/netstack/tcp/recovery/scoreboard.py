"""Every transmission in flight: one record per superframe, cut where an ACK or SACK cuts it.

Records are kept twice: by sequence number (a sorted list; neighbours that are both SACKed become one),
and by time of the latest transmission (a ring of those neither SACKed nor lost). Nothing here walks
all of them for an ACK: an ACK takes from the front of the list, a SACK block finds its place by
bisection, loss detection looks at the oldest of the ring.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Final

from juneau.netstack.types import Micros

SENT: Final = 0
SACKED: Final = 1
LOST: Final = 2

MAX_SPLIT: Final = 8_192
"""Records past which a SACK block no longer cuts one: a peer cannot make us keep a record per byte."""

_BY_SEQ: Final = attrgetter("seq")
_BY_TIME: Final = attrgetter("at")


class Ring:
    """The ring's fixed point: `newer` is the oldest in flight, `older` the newest."""

    __slots__ = ("newer", "older")
    newer: Any  # a Sent, or the Ring, where it closes
    older: Any


class Sent(Ring):
    """Bytes seq..end, one transmission of them."""

    __slots__ = ("at", "end", "push", "retrans", "seq", "state")

    def __init__(self, seq: int, end: int, at: Micros, push: bool = False) -> None:
        self.seq = seq
        self.end = end
        self.at = at
        self.retrans = 0
        """How often it was retransmitted."""
        self.push = push
        """Its last segment has PSH, whenever it is sent."""
        self.state = SENT


_NONE_LOST: Final[list[tuple[int, int, Sent]]] = []
"""Stands for every empty heap of lost records; never written to."""
NO_RECORDS: Final[list[Sent]] = []
"""Stands for every list of records without any; never written to."""
_NOBODY: Final = Sent(-1, -1, 0)
"""Where the ring of a scoreboard that is done with points to."""


class Scoreboard:
    __slots__ = (
        "_lost_heap",
        "_serial",
        "lost",
        "lost_ever",
        "oldest_first",
        "records",
        "retrans_ever",
        "sacked",
    )

    def __init__(self) -> None:
        self.records: list[Sent] = NO_RECORDS
        ring = self.oldest_first = Ring()
        ring.newer = ring.older = ring
        self.sacked = 0
        """Bytes SACKed beyond snd_una."""
        self.lost = 0
        """Bytes deemed lost and not retransmitted since."""
        self.lost_ever = 0
        self.retrans_ever = 0
        """Bytes retransmitted in the connection's life."""
        self._lost_heap: list[tuple[int, int, Sent]] = _NONE_LOST
        self._serial = 0

    # --- the ring ---

    def _link_newest(self, rec: Sent) -> None:
        ring = self.oldest_first
        newest = ring.older
        rec.older, rec.newer = newest, ring
        newest.newer = ring.older = rec

    @staticmethod
    def _unlink(rec: Sent) -> None:
        older, newer = rec.older, rec.newer
        older.newer, newer.older = newer, older

    # --- sending ---

    def on_sent(self, seq: int, end: int, now: Micros, push: bool = False) -> None:
        """New bytes, the highest so far."""
        rec = Sent(seq, end, now, push)
        if self.records:
            self.records.append(rec)
        else:
            self.records = [rec]
        ring = self.oldest_first
        newest = ring.older
        rec.older, rec.newer = newest, ring
        newest.newer = ring.older = rec

    def next_lost(self) -> Sent | None:
        """The lost record with the lowest sequence number."""
        heap = self._lost_heap
        while heap:
            rec = heap[0][2]  # cut from the left by an ACK, its key is stale but still the smallest
            if rec.state == LOST:
                return rec
            heappop(heap)
        return None

    def on_retransmit(self, rec: Sent, size: int, now: Micros) -> None:
        """The first `size` bytes of `rec` are being sent again."""
        if rec.seq + size < rec.end:
            self._split(self._index(rec.seq), rec.seq + size)
        if rec.state == LOST:
            self.lost -= rec.end - rec.seq
        else:
            self._unlink(rec)
        rec.state = SENT
        rec.at = now
        rec.retrans += 1
        self.retrans_ever += rec.end - rec.seq
        self._link_newest(rec)

    # --- what the peer says ---

    def _index(self, seq: int) -> int:
        """Of the record that holds `seq`; -1 if it is before all."""
        return bisect_right(self.records, seq, key=_BY_SEQ) - 1

    def ack(self, una: int) -> list[Sent]:
        """Remove everything before `una`; return the records and pieces that were not SACKed before."""
        records = self.records
        fresh: list[Sent] = []
        count = 0
        for rec in records:
            if rec.end > una:
                break
            count += 1
            if rec.state == SACKED:
                self.sacked -= rec.end - rec.seq
                continue
            if rec.state == LOST:
                self.lost -= rec.end - rec.seq
                rec.state = SACKED  # so that the heap forgets it
            else:
                older, newer = rec.older, rec.newer
                older.newer, newer.older = newer, older
            fresh.append(rec)
        if count:
            del records[:count]
        if records and (rec := records[0]).seq < una:
            gone = una - rec.seq
            if rec.state == SACKED:
                self.sacked -= gone
            else:
                if rec.state == LOST:
                    self.lost -= gone
                piece = Sent(rec.seq, una, rec.at)
                piece.retrans = rec.retrans
                fresh.append(piece)
            rec.seq = una
        return fresh

    def sack(self, start: int, end: int) -> list[Sent]:
        """Note that start..end arrived (within una..nxt); return pieces for which that is news."""
        records = self.records
        index = max(self._index(start), 0)
        fresh: list[Sent] = []
        while index < len(records):
            rec = records[index]
            if rec.seq >= end:
                break
            if rec.state == SACKED or rec.end <= start:
                index += 1
                continue
            if rec.seq < start or rec.end > end:
                if len(records) >= MAX_SPLIT:
                    index += 1
                    continue
                if rec.seq < start:
                    self._split(index, start)
                    index += 1
                    continue
                self._split(index, end)
            self._mark_sacked(rec)
            fresh.append(rec)
            index = self._merge(index) + 1
        return fresh

    def _mark_sacked(self, rec: Sent) -> None:
        size = rec.end - rec.seq
        if rec.state == LOST:
            self.lost -= size
        else:
            self._unlink(rec)
        rec.state = SACKED
        self.sacked += size

    def _merge(self, index: int) -> int:
        """Join a SACKed record with SACKed neighbours; return where it is now."""
        records = self.records
        if index + 1 < len(records) and records[index + 1].state == SACKED:
            records[index + 1] = self._joined(records[index], records[index + 1])
            del records[index]
        if index and records[index - 1].state == SACKED:
            records[index] = self._joined(records[index - 1], records[index])
            index -= 1
            del records[index]
        return index

    @staticmethod
    def _joined(left: Sent, right: Sent) -> Sent:
        rec = Sent(left.seq, right.end, max(left.at, right.at))
        rec.state = SACKED
        return rec

    def split(self, rec: Sent, at: int) -> Sent:
        """Cut `rec`, which is in flight; return its right half."""
        self._split(self._index(rec.seq), at)
        right: Sent = rec.newer
        return right

    def _split(self, index: int, at: int) -> None:
        """Cut a record that is not SACKed; the right half follows the left in time too."""
        rec = self.records[index]
        right = Sent(at, rec.end, rec.at)
        right.retrans, right.state, right.push = rec.retrans, rec.state, rec.push
        rec.end, rec.push = at, False
        self.records.insert(index + 1, right)
        if rec.state == LOST:
            self._push_lost(right)
        else:
            right.older, right.newer = rec, rec.newer
            rec.newer.older = right
            rec.newer = right

    def mark_lost(self, rec: Sent) -> None:
        """`rec` must be in flight."""
        self._unlink(rec)
        rec.state = LOST
        self.lost += rec.end - rec.seq
        self.lost_ever += rec.end - rec.seq
        self._push_lost(rec)

    def mark_first_lost(self, size: int) -> bool:
        """Deem the first `size` bytes lost; False if they already are, or nothing is in flight."""
        if not self.records or self.records[0].state != SENT:
            return False
        rec = self.records[0]
        if rec.end - rec.seq > size:
            self._split(0, rec.seq + size)
        self.mark_lost(rec)
        return True

    def unmark_lost(self) -> None:
        """A timeout was spurious: what it deemed lost is in flight, and older than the rest."""
        ring = self.oldest_first
        lost = [rec for rec in self.records if rec.state == LOST]
        for rec in sorted(lost, key=_BY_TIME, reverse=True):
            rec.state = SENT
            oldest = ring.newer
            rec.older, rec.newer = ring, oldest
            oldest.older = ring.newer = rec
        self.lost = 0

    def mark_larger_lost(self, size: int) -> bool:
        """Deem lost what left in records above `size`; False if there was nothing."""
        before = self.lost
        for rec in self.records:
            if rec.state == SENT and rec.end - rec.seq > size:
                self.mark_lost(rec)
        return self.lost > before

    def forget_sacks(self) -> None:
        """RFC 2018 section 8: after a timeout SACK information may be stale; every byte counts as lost."""
        for rec in self.records:
            if rec.state == SACKED:
                rec.state = SENT
                self._link_newest(rec)
                self.sacked -= rec.end - rec.seq

    def _push_lost(self, rec: Sent) -> None:
        self._serial += 1
        if not self._lost_heap:
            self._lost_heap = []
        heappush(self._lost_heap, (rec.seq, self._serial, rec))

    def clear(self) -> None:
        """The end; nothing else may be called afterwards."""
        ring = self.oldest_first
        ring.newer = ring.older = _NOBODY  # no cycle is left for the collector
        for rec in self.records:
            rec.newer = rec.older = _NOBODY
        self.records = NO_RECORDS
        self._lost_heap = _NONE_LOST
        self.sacked = self.lost = 0
