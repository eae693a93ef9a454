"""RACK: time-based loss detection (RFC 8985 section 6)."""

from __future__ import annotations

from typing import Final

from juneau.netstack.tcp.recovery.scoreboard import Scoreboard, Sent
from juneau.netstack.tcp.rtt import RttEstimator
from juneau.netstack.types import Micros

DUP_THRESH: Final = 3
_REO_PERSIST: Final = 16
"""Recoveries without DSACK after which the reordering window is small again (6.2 step 4)."""


class Rack:
    __slots__ = ("_dsack_round", "_persist", "_reo_mult", "at", "end", "fack", "reordering_seen", "rtt")

    def __init__(self, at: Micros, end: int, rtt: Micros) -> None:
        """Of the last segment delivered in order; `at` -1: of none."""
        self.at = at
        """When the most recently sent of the delivered segments left."""
        self.end = end
        self.rtt = rtt
        self.fack = end
        """Highest sequence number delivered."""
        self.reordering_seen = False
        self._reo_mult = 1
        self._persist = 0
        self._dsack_round = -1

    def on_plain(self, rec: Sent, now: Micros) -> None:
        """`rec` was sent once, and nothing before it is missing."""
        self.at, self.end, self.fack, self.rtt = rec.at, rec.end, rec.end, now - rec.at

    def on_delivered(self, rec: Sent, rtt: RttEstimator, now: Micros) -> None:
        """6.2 steps 2 and 3, for a record that an ACK or SACK has just covered."""
        if rec.end > self.fack:
            self.fack = rec.end
        elif not rec.retrans and rec.end < self.fack:
            self.reordering_seen = True
        elapsed = now - rec.at
        if rec.retrans and elapsed < rtt.min_rtt:
            return  # it is the original that arrived
        self.rtt = elapsed
        if rec.at > self.at or (rec.at == self.at and rec.end > self.end):
            self.at, self.end = rec.at, rec.end

    def on_dsack(self, snd_nxt: int, una: int) -> None:
        """A spurious retransmission: once a round trip, be more patient (6.2 step 4)."""
        if self._dsack_round < 0 or una >= self._dsack_round:
            self._dsack_round = snd_nxt
            self._reo_mult += 1
            self._persist = _REO_PERSIST

    def on_recovered(self) -> None:
        if self._persist:
            self._persist -= 1
            if not self._persist:
                self._reo_mult = 1

    def reo_wnd(self, rtt: RttEstimator, recovering: bool, sacked_segments: int) -> Micros:
        if not self.reordering_seen and (recovering or sacked_segments >= DUP_THRESH):
            return 0
        return min(self._reo_mult * rtt.min_rtt // 4, rtt.srtt)

    def detect(self, board: Scoreboard, reo_wnd: Micros, now: Micros) -> Micros:
        """Mark what is lost (6.2 step 5); return how long until more may be, 0: nothing is waiting.

        The ring is in order of transmission, so the first record that is not due ends the search.
        """
        ring = board.oldest_first
        at, end = self.at, self.end
        while (rec := ring.newer) is not ring:
            if rec.at > at or (rec.at == at and rec.end > end):
                return 0
            remaining: Micros = rec.at + self.rtt + reo_wnd - now
            if remaining > 0:
                return remaining
            board.mark_lost(rec)
        return 0
