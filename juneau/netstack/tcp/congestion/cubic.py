"""CUBIC (RFC 9438). Windows are bytes here and segments in the RFC."""

from __future__ import annotations

from typing import ClassVar, Final

from juneau.netstack.tcp.congestion.base import INFINITE, CongestionControl
from juneau.netstack.types import Micros

C: Final = 0.4
"""Segments per second cubed (5.1)."""
BETA_NUM, BETA_DEN = 7, 10
"""Multiplicative decrease (4.6)."""
ALPHA_NUM, ALPHA_DEN = 9, 17
"""3 (1 - beta) / (1 + beta), the growth that is fair to Reno (4.3)."""


class Cubic(CongestionControl):
    __slots__ = ("_acked", "_epoch", "_k_us", "_origin", "_target_at", "_target_cwnd", "w_est", "w_max")
    name: ClassVar[str] = "cubic"

    def __init__(self, mss: int, initial_cwnd: int) -> None:
        super().__init__(mss, initial_cwnd)
        self.w_max = 0
        self.w_est = 0
        self._epoch: Micros = -1  # start of congestion avoidance; -1: begins with the next ACK
        self._k_us = 0
        self._origin = 0
        self._acked = 0
        self._target_at: Micros = -1
        self._target_cwnd = 0

    def on_ack(self, acked: int, now: Micros, srtt: Micros) -> None:
        if self.cwnd < self.ssthresh:
            acked = self._slow_start(acked)
        if not acked:
            return
        if self._epoch < 0:
            self._begin_epoch(now)
        self.w_est += ALPHA_NUM * acked * self.mss // (ALPHA_DEN * self.cwnd)
        if now != self._target_at:  # many ACKs share one arrival time
            self._target_at = now
            self._target_cwnd = self._w_cubic(now - self._epoch + srtt)
        target = min(max(self._target_cwnd, self.cwnd), self.cwnd * 3 // 2)
        if target > self.cwnd:
            self._acked += acked * (target - self.cwnd)
            grow, self._acked = divmod(self._acked, self.cwnd)
            self.cwnd += grow
        self.cwnd = max(self.cwnd, self.w_est)

    def on_congestion(self, flight: int, now: Micros) -> None:
        if self.cwnd < self.w_max:  # fast convergence (4.7)
            self.w_max = self.cwnd * (BETA_NUM + BETA_DEN) // (2 * BETA_DEN)
        else:
            self.w_max = self.cwnd
        self.ssthresh = max(min(flight, self.cwnd) * BETA_NUM // BETA_DEN, 2 * self.mss)
        self._epoch = -1

    def _begin_epoch(self, now: Micros) -> None:
        self._epoch = now
        self._acked = 0
        self.w_est = self.cwnd
        self._origin = max(self.w_max, self.cwnd)
        short = (self._origin - self.cwnd) / self.mss
        self._k_us = int((short / C) ** (1 / 3) * 1e6) if short > 0 else 0

    def _w_cubic(self, elapsed: Micros) -> int:
        """Equation 1, bytes. Time is cut at a minute past K: the cube stays small."""
        t = (min(elapsed, self._k_us + 60_000_000) - self._k_us) / 1e6
        return min(self._origin + int(C * t * t * t * self.mss), INFINITE)
