"""What can be tuned in TCP. Protocol constants stay where they are used; quotas are in `limits`.

The defaults suit one virtual link of microseconds. Imitations of Linux or FreeBSD, for test suites
written against them, are other values of the same fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from juneau.netstack.types import MILLISECOND, SECOND, Micros
from juneau.netstack.wire.tcp import OptionStyle


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """Times are microseconds, sizes bytes, unless a name says otherwise."""

    # --- what a SYN offers ---
    sack: bool = True
    """RFC 2018."""
    timestamps: bool = True
    """RFC 7323; RTT of retransmissions, PAWS, TIME-WAIT reuse. 12 bytes a segment."""
    window_scaling: bool = True
    wscale: int | None = None
    """Shift to offer; None: the smallest that lets `rcv_buf` be advertised."""
    ecn: Literal["off", "passive", "active"] = "off"
    """RFC 3168. passive: accept where the peer asks. No queue on a virtual link marks."""
    mss: int | None = None
    """MSS to offer, and the most to send (TCP_MAXSEG); None: link MTU - 40 (RFC 9293 3.7.1)."""
    min_mss: int = 48
    """A smaller offer is read as this: header cost is an attack. Linux's tcp_min_snd_mss."""
    min_pmtu: int = 552
    """An ICMP message cannot make us believe in less (RFC 5927 section 7): Linux's min_pmtu."""
    default_mss: int = 536
    """Where the peer offers none (RFC 9293 MUST-15)."""
    syn_option_style: OptionStyle = "linux"

    # --- receiving ---
    rcv_buf: int = 0
    """Receive buffer; 0: `Limits.rcv_buffer`."""
    initial_window: int | None = None
    """Largest window advertised in a SYN or SYN-ACK; None: what the buffer allows, up to 65535."""
    delayed_ack: Micros = 10 * MILLISECOND
    """RFC 9293 MUST-58 allows 500 ms. A peer that waits on Nagle loses no more than this."""
    ack_every: int = 2
    """Full-sized segments that force an ACK (RFC 9293 SHLD-18). 1: acknowledge everything at once."""
    quickack: int = 0
    """So many bytes at the start of a connection are acknowledged at once."""
    sws_bytes: int | None = None
    """Least step by which the window's right edge moves; None: min(MSS, half the buffer), as RFC 9293
    3.8.6.2.2 says. FreeBSD moves it by any byte."""
    update_fraction: int = 2
    """Reading sends a window update once it has opened 1/this of the buffer, or doubled the window."""
    ack_any_size: bool = False
    """Every second segment is acknowledged at once, however small, as BSDs do."""
    judge_by_buffer: bool = False
    """Without scaling, segments are judged by the whole buffer, though the header's window says 65,535 at
    most; so does FreeBSD."""
    ooo_ranges: int = 512
    """Separate ranges in the out-of-order queue; at 5 % loss a 1 MiB window has about 40."""

    tolerate_missing_timestamps: bool = False
    """RFC 7323 3.2 says to drop a segment without the negotiated option; Linux takes it."""

    # --- sending ---
    nodelay: bool = True
    """No Nagle: asyncio sets TCP_NODELAY on every TCP socket."""
    congestion_control: str = "cubic"
    """A name of `congestion.ALGORITHMS`."""
    initial_cwnd: int = 10
    """Segments (RFC 6928)."""
    slow_start_after_idle: bool = False
    """RFC 5681 4.1's restart window: a pod link does not change its capacity in a pause."""
    rto_initial: Micros = 1 * SECOND
    """RFC 6298 2.1."""
    rto_min: Micros = 200 * MILLISECOND
    """RFC 6298 2.4 says 1 s; Linux's 200 ms leaves room for its 40 ms delayed ACK and a busy machine."""
    rto_max: Micros = 60 * SECOND
    """RFC 6298 2.5 allows no less."""
    tlp: bool = True
    """Tail loss probe (RFC 8985 section 7)."""
    tlp_min: Micros = 10 * MILLISECOND
    """An event loop answers later than a kernel; probing after 2 RTT of 50 us would never be right."""
    tlp_max_ack_delay: Micros = 50 * MILLISECOND
    """RFC 8985 7.2's WCDelAckT says 200 ms; Linux pods delay by 40 ms at most."""
    rack: bool = True
    """RFC 8985; without it loss is found by duplicate ACKs only (RFC 6675)."""
    push_segments: int = 0
    """PSH on every so many full segments sent together; 0: only where the queue ends. Linux marks each
    superframe, for GRO at the receiver: of two segments at moderate rates."""
    limited_transmit: bool = True
    """RFC 3042."""
    tso_defer: bool = True
    """Let small window openings add up to larger superframes while ACKs are on their way."""

    # --- giving up ---
    syn_retries: int = 6
    """Retransmissions of a SYN: about 127 s, Linux's tcp_syn_retries."""
    synack_retries: int = 5
    """About 63 s; Linux's tcp_synack_retries."""
    data_retries: int = 15
    """Linux's tcp_retries2; with `rto_min` 200 ms and `rto_max` 60 s about 9 minutes."""
    orphan_retries: int = 8
    """When the application has closed and forgotten; Linux's tcp_orphan_retries."""
    user_timeout: Micros = 0
    """RFC 5482: how long data may stay unacknowledged; 0: `data_retries` decides."""
    keepalive: bool = False
    """RFC 9293 MUST-24: off unless asked for."""
    keepalive_idle: Micros = 7_200 * SECOND
    """RFC 9293 MUST-26: no less than two hours by default."""
    keepalive_interval: Micros = 75 * SECOND
    keepalive_probes: int = 9

    # --- closing ---
    time_wait: Micros = 60 * SECOND
    """2 MSL with an MSL of 30 s, as Linux has it; RFC 9293's 2 minutes predate fast links."""
    time_wait_reuse: bool = True
    """RFC 6191: a new SYN that is provably newer may take over a 4-tuple in TIME-WAIT."""
    time_wait_ignores_rst: bool = False
    """RFC 1337's cure for TIME-WAIT assassination; RFC 9293 3.10.7.4 lets a RST end it."""
    fin_wait_2: Micros = 60 * SECOND
    """How long a connection nobody holds waits for the peer's FIN; Linux's tcp_fin_timeout."""
    repeat_fin: bool = False
    """An ACK carries our FIN again while that is unacknowledged, as BSDs' does."""
    rst_on_unread_close: bool = True
    """close with unread data resets (RFC 9293 3.10.4, RFC 2525 2.17)."""

    # --- defence ---
    challenge_rst: bool = True
    """RFC 5961 section 3. False is RFC 793's rule, for comparisons: any RST in the window resets."""
    challenge_syn: bool = True
    """RFC 5961 section 4. False is RFC 793's rule, for comparisons: a SYN in the window resets."""
    drop_syn_fin: bool = True
    """A segment with SYN and FIN opens nothing: nobody but scanners sends one. False: the FIN is ignored."""
    syn_cookies: bool = True
    """Answer SYNs statelessly while the SYN queue is full."""
    challenge_acks: int = 10
    """RFC 5961 section 7: so many challenge ACKs a connection in `challenge_ack_window`."""
    challenge_ack_window: Micros = 5 * SECOND
    rst_per_second: int = 1_000
    """Resets in answer to segments of no connection, all paths together."""
    ttl: int = 64
    dscp: int = 0
    ephemeral_low: int = 32_768
    ephemeral_high: int = 60_999
    """Linux's ip_local_port_range."""
