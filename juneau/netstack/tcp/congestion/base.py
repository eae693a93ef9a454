"""What loss recovery asks of a congestion control, and the part of it that all share.

cwnd and ssthresh are bytes; `now` is microseconds. Recovery decides *when* something was lost and
how much may be in flight meanwhile (PRR); an algorithm decides how large the window is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from juneau.netstack.types import Micros

INFINITE: Final = (1 << 62) - 1


class CongestionControl(ABC):
    __slots__ = ("cwnd", "mss", "ssthresh")
    name: ClassVar[str]

    def __init__(self, mss: int, initial_cwnd: int) -> None:
        self.mss = mss
        self.cwnd = initial_cwnd
        self.ssthresh = INFINITE

    @abstractmethod
    def on_ack(self, acked: int, now: Micros, srtt: Micros) -> None:
        """`acked` new bytes while nothing is being recovered and the window was in full use."""

    @abstractmethod
    def on_congestion(self, flight: int, now: Micros) -> None:
        """Loss or ECN: set ssthresh. The caller brings cwnd down to it."""

    def on_rto(self, flight: int, now: Micros) -> None:
        """RFC 5681 equation 4, then one segment."""
        self.on_congestion(flight, now)
        self.cwnd = self.mss

    def on_idle(self, initial_cwnd: int) -> None:
        """RFC 5681 4.1: the restart window."""
        self.cwnd = min(self.cwnd, initial_cwnd)

    def on_mss(self, mss: int) -> None:
        """A smaller MSS: the window keeps its number of segments (RFC 1191 6.4 asks for no more bytes)."""
        self.cwnd = max(self.cwnd // self.mss * mss, mss)
        self.mss = mss

    def _slow_start(self, acked: int) -> int:
        """Grow below ssthresh, bytes for bytes (RFC 3465 with L unlimited); return what is left over."""
        room = self.ssthresh - self.cwnd
        if acked <= room:
            self.cwnd += acked
            return 0
        self.cwnd = self.ssthresh
        return acked - room
