"""A connection's numbers, as `ss -ti` and tcp_info(7) show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from juneau.netstack.tcp.states import State
from juneau.netstack.types import Endpoint, Micros

if TYPE_CHECKING:
    from juneau.netstack.tcp.conn import TcpConnection


@dataclass(slots=True)
class TcpInfo:
    """Times in microseconds, the rest in bytes unless it says segments."""

    state: State
    local: Endpoint
    remote: Endpoint
    recv_queue: int
    send_queue: int
    """Queued and not acknowledged."""
    unacked: int
    """In flight: sent and not acknowledged."""
    sacked: int
    lost: int
    cwnd: int
    ssthresh: int
    snd_wnd: int
    rcv_wnd: int
    snd_mss: int
    """Payload of a full segment."""
    advmss: int
    pmtu: int
    snd_wscale: int
    rcv_wscale: int
    timestamps: bool
    sack: bool
    ecn: bool
    rtt: Micros
    rttvar: Micros
    min_rtt: Micros
    rto: Micros
    backoff: int
    """Timeouts or probes since the last progress."""
    retransmits: int
    """Timeouts since the last progress."""
    mode: str
    """open, fast recovery, after a timeout."""
    congestion_control: str
    reordering_seen: bool
    bytes_acked: int
    bytes_received: int
    data_received_at: Micros
    """On the stack's clock; the end of the handshake if no data has come."""
    bytes_retransmitted: int
    segs_in: int
    segs_out: int
    iss: int
    irs: int
    snd_una: int
    snd_nxt: int
    rcv_nxt: int
    """The last five: 32 bits, as on the wire."""


_MASK = 0xFFFF_FFFF


def gather(conn: TcpConnection) -> TcpInfo:
    snd, rcv, board, rtt = conn.snd, conn.rcv, conn.snd.board, conn.snd.rtt
    return TcpInfo(
        state=conn.state,
        local=conn.local,
        remote=conn.remote,
        recv_queue=conn.recv_queue_bytes,
        send_queue=conn.send_queue_bytes,
        unacked=snd.flight,
        sacked=board.sacked,
        lost=board.lost,
        cwnd=snd.cc.cwnd,
        ssthresh=snd.cc.ssthresh,
        snd_wnd=snd.wnd,
        rcv_wnd=rcv.wnd,
        snd_mss=snd.mss,
        advmss=rcv.rules.mss,
        pmtu=conn.layer.path_mtu(conn.remote.ip),
        snd_wscale=snd.wscale,
        rcv_wscale=rcv.wscale,
        timestamps=conn.ts_on,
        sack=snd.sack_ok,
        ecn=conn.ecn_ok,
        rtt=rtt.srtt,
        rttvar=rtt.rttvar,
        min_rtt=rtt.min_rtt,
        rto=rtt.current_rto(),
        backoff=rtt.backoff or snd.probes,
        retransmits=snd.retries,
        mode=snd.mode.value,
        congestion_control=snd.cc.name,
        reordering_seen=snd.rack.reordering_seen,
        bytes_acked=conn.bytes_acked,
        bytes_received=conn.bytes_received,
        data_received_at=conn.data_at,
        bytes_retransmitted=board.retrans_ever,
        segs_in=conn.segs_in,
        segs_out=conn.segs_out,
        iss=snd.iss & _MASK,
        irs=rcv.irs & _MASK,
        snd_una=snd.una & _MASK,
        snd_nxt=snd.nxt & _MASK,
        rcv_nxt=rcv.nxt & _MASK,
    )
