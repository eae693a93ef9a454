"""NewReno's window (RFC 5681, 6582)."""

from __future__ import annotations

from typing import ClassVar

from juneau.netstack.tcp.congestion.base import CongestionControl
from juneau.netstack.types import Micros


class Reno(CongestionControl):
    __slots__ = ("_acked",)
    name: ClassVar[str] = "reno"

    def __init__(self, mss: int, initial_cwnd: int) -> None:
        super().__init__(mss, initial_cwnd)
        self._acked = 0

    def on_ack(self, acked: int, now: Micros, srtt: Micros) -> None:
        if self.cwnd < self.ssthresh:
            acked = self._slow_start(acked)
        if not acked:
            return
        self._acked += acked  # congestion avoidance by byte counting, RFC 5681 3.1
        if self._acked >= self.cwnd:
            self._acked -= self.cwnd
            self.cwnd += self.mss

    def on_congestion(self, flight: int, now: Micros) -> None:
        self.ssthresh = max(flight // 2, 2 * self.mss)
        self._acked = 0
