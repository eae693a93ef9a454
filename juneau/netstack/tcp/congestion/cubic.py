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


class Epoch:
    """One stretch of congestion avoidance."""

    __slots__ = ("acked", "k_us", "origin", "start", "target_at", "target_cwnd", "w_est")

    def __init__(self, cwnd: int, w_max: int, mss: int, now: Micros) -> None:
        self.start = now
        self.acked = 0
        self.w_est = cwnd
        self.origin = max(w_max, cwnd)
        short = (self.origin - cwnd) / mss
        self.k_us = int((short / C) ** (1 / 3) * 1e6) if short > 0 else 0
        self.target_at: Micros = -1
        self.target_cwnd = 0

    def w_cubic(self, now: Micros, srtt: Micros, mss: int) -> int:
        """Equation 1, bytes. Time is cut at a minute past K: the cube stays small."""
        if now != self.target_at:  # many ACKs share one arrival time
            elapsed = now - self.start + srtt
            t = (min(elapsed, self.k_us + 60_000_000) - self.k_us) / 1e6
            self.target_at = now
            self.target_cwnd = min(self.origin + int(C * t * t * t * mss), INFINITE)
        return self.target_cwnd


class Cubic(CongestionControl):
    __slots__ = ("_epoch", "w_max")
    name: ClassVar[str] = "cubic"

    def __init__(self, mss: int, initial_cwnd: int) -> None:
        super().__init__(mss, initial_cwnd)
        self.w_max = 0
        self._epoch: Epoch | None = None
        """None: begins with the next ACK of congestion avoidance, which most connections never reach."""

    def on_ack(self, acked: int, now: Micros, srtt: Micros) -> None:
        if self.cwnd < self.ssthresh:
            acked = self._slow_start(acked)
        if not acked:
            return
        epoch = self._epoch
        if epoch is None:
            epoch = self._epoch = Epoch(self.cwnd, self.w_max, self.mss, now)
        epoch.w_est += ALPHA_NUM * acked * self.mss // (ALPHA_DEN * self.cwnd)
        target = min(max(epoch.w_cubic(now, srtt, self.mss), self.cwnd), self.cwnd * 3 // 2)
        if target > self.cwnd:
            epoch.acked += acked * (target - self.cwnd)
            grow, epoch.acked = divmod(epoch.acked, self.cwnd)
            self.cwnd += grow
        self.cwnd = max(self.cwnd, epoch.w_est)

    def on_congestion(self, flight: int, now: Micros) -> None:
        if self.cwnd < self.w_max:  # fast convergence (4.7)
            self.w_max = self.cwnd * (BETA_NUM + BETA_DEN) // (2 * BETA_DEN)
        else:
            self.w_max = self.cwnd
        self.ssthresh = max(min(flight, self.cwnd) * BETA_NUM // BETA_DEN, 2 * self.mss)
        self._epoch = None
