"""Round-trip time and the retransmission timeout (RFC 6298)."""

from __future__ import annotations

from juneau.netstack.types import SECOND, Micros

MIN_RTT_WINDOW: Micros = 300 * SECOND
"""RFC 8985 6.2 step 1 wants a windowed minimum; Linux's tcp_min_rtt_wlen."""


class RttEstimator:
    """srtt and rttvar in microseconds; the clock's granularity G is one of them, so it vanishes."""

    __slots__ = (
        "_min_at",
        "backoff",
        "initial",
        "latest",
        "maximum",
        "min_rtt",
        "minimum",
        "rto",
        "rttvar",
        "srtt",
    )

    def __init__(self, initial: Micros, minimum: Micros, maximum: Micros) -> None:
        self.initial, self.minimum, self.maximum = initial, minimum, maximum
        self.srtt = 0
        """0: no measurement yet."""
        self.rttvar = 0
        self.rto = initial
        """Without the backoff."""
        self.backoff = 0
        """Timeouts since the last measurement or progress (5.5)."""
        self.latest = 0
        self.min_rtt = 0
        self._min_at: Micros = 0

    def sample(self, rtt: Micros, now: Micros) -> None:
        """Take a measurement; the caller obeys Karn's rule (section 3). A virtual link may measure 0."""
        rtt = rtt if rtt > 0 else 1
        self.latest = rtt
        if not self.min_rtt or rtt <= self.min_rtt or now - self._min_at > MIN_RTT_WINDOW:
            self.min_rtt, self._min_at = rtt, now
        srtt, var = self.srtt, self.rttvar
        if srtt:
            delta = rtt - srtt
            self.rttvar = var = var + (((delta if delta > 0 else -delta) - var) >> 2)
            self.srtt = srtt = srtt + (delta >> 3 or (1 if delta > 0 else 0))
        else:
            self.srtt, self.rttvar = srtt, var = rtt, rtt >> 1
        rto = srtt + 4 * var
        self.rto = self.minimum if rto < self.minimum else min(rto, self.maximum)
        self.backoff = 0

    def current_rto(self) -> Micros:
        """RFC 6298 5.5: doubled for every timeout, up to the maximum."""
        if not self.backoff:
            return self.rto
        return min(self.rto << min(self.backoff, 32), self.maximum)
