"""What two SYNs agree on."""

from __future__ import annotations

from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.wire.tcp import MAX_WSCALE, Options


class Handshake:
    """First what we offer; after `negotiate`, what holds."""

    __slots__ = (
        "ecn", "irs", "iss", "our_mss", "peer_mss", "rcv_wscale", "sack", "snd_wscale",
        "syn_window", "timestamps", "ts_offset", "ts_recent", "wscale_ok",
    )  # fmt: skip

    def __init__(self, options: TcpOptions, iss: int, ts_offset: int, our_mss: int, rcv_wscale: int) -> None:
        self.iss = iss
        self.irs = 0
        self.our_mss = our_mss
        self.peer_mss = options.default_mss
        self.syn_window = 0
        """What our SYN or SYN-ACK advertises, unscaled."""
        self.wscale_ok = options.window_scaling
        self.rcv_wscale = rcv_wscale
        self.snd_wscale = 0
        self.timestamps = options.timestamps
        self.ts_offset = ts_offset
        self.ts_recent = 0
        self.sack = options.sack
        self.ecn = False

    def offer(self, ts_now: int) -> Options:
        return Options(
            self.our_mss,
            self.rcv_wscale if self.wscale_ok else None,
            self.sack,
            (ts_now, self.ts_recent) if self.timestamps else None,
        )


def wscale_for(rcv_buf: int, options: TcpOptions) -> int:
    if options.wscale is not None:
        return min(options.wscale, MAX_WSCALE)
    return min(max(rcv_buf.bit_length() - 16, 0), MAX_WSCALE)


def negotiate(hs: Handshake, theirs: Options, options: TcpOptions) -> None:
    """Keep of our offers what the peer's SYN offers too (RFC 7323 2.2, 3.2; RFC 2018 section 2)."""
    hs.peer_mss = max(theirs.mss or options.default_mss, options.min_mss)
    if theirs.wscale is None or not hs.wscale_ok:
        hs.wscale_ok = False
        hs.rcv_wscale = hs.snd_wscale = 0
    else:
        hs.snd_wscale = theirs.wscale
    hs.timestamps = hs.timestamps and theirs.timestamps is not None
    if hs.timestamps and theirs.timestamps is not None:
        hs.ts_recent = theirs.timestamps[0]
    hs.sack = hs.sack and theirs.sack_ok
