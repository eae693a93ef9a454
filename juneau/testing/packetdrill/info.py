"""tcp_info as scripts assert it, from a connection's own view of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from juneau.netstack.tcp.states import State
from juneau.netstack.types import MILLISECOND, Micros

if TYPE_CHECKING:
    from juneau.netstack.tcp import TcpConnection

_LINUX_STATES: Final = {
    State.ESTABLISHED: 1,
    State.SYN_SENT: 2,
    State.SYN_RECEIVED: 3,
    State.FIN_WAIT_1: 4,
    State.FIN_WAIT_2: 5,
    State.TIME_WAIT: 6,
    State.CLOSED: 7,
    State.CLOSE_WAIT: 8,
    State.LAST_ACK: 9,
    State.LISTEN: 10,
    State.CLOSING: 11,
}
_LINUX_NAMES: Final = {
    "SYN_RECEIVED": "SYN_RECV",
    "FIN_WAIT_1": "FIN_WAIT1",
    "FIN_WAIT_2": "FIN_WAIT2",
    "CLOSED": "CLOSE",
}
_CA_STATES: Final = {"Open": 0, "Disorder": 1, "CWR": 2, "Recovery": 3, "Loss": 4}
_MODES: Final = {"open": 0, "fast recovery": 3, "after a timeout": 4}

CONSTANTS: Final[dict[str, Any]] = {
    **{f"TCP_{_LINUX_NAMES.get(state.name, state.name)}": number for state, number in _LINUX_STATES.items()},
    **{f"TCPI_{state.name}": number for state, number in _LINUX_STATES.items()},
    **{f"TCP_CA_{name}": number for name, number in _CA_STATES.items()},
    "TCPI_OPT_TIMESTAMPS": 1,
    "TCPI_OPT_SACK": 2,
    "TCPI_OPT_WSCALE": 4,
    "TCPI_OPT_ECN": 8,
}


def tcp_info(conn: TcpConnection, now: Micros) -> dict[str, Any]:
    """The `tcpi_…` names that can be told of `conn`; others are unknown to a script."""
    info = conn.info()
    mss = max(info.snd_mss, 1)
    ca_state = _MODES[info.mode] or int(info.sacked > 0)
    flags = (
        info.timestamps | info.sack << 1 | (info.snd_wscale > 0 or info.rcv_wscale > 0) << 2 | info.ecn << 3
    )
    return {
        "tcpi_state": _LINUX_STATES[info.state],
        "tcpi_ca_state": ca_state,
        "tcpi_retransmits": info.retransmits,
        "tcpi_backoff": info.backoff,
        "tcpi_options": flags,
        "tcpi_snd_wscale": info.snd_wscale,
        "tcpi_rcv_wscale": info.rcv_wscale,
        "tcpi_rto": info.rto,
        "tcpi_snd_mss": info.snd_mss,
        "tcpi_unacked": -(-info.unacked // mss),
        "tcpi_sacked": -(-info.sacked // mss),
        "tcpi_lost": -(-info.lost // mss),
        "tcpi_pmtu": info.pmtu,
        "tcpi_rtt": info.rtt,
        "tcpi_rttvar": info.rttvar,
        "tcpi_min_rtt": info.min_rtt,
        "tcpi_snd_ssthresh": info.ssthresh // mss,
        "tcpi_snd_cwnd": info.cwnd // mss,
        "tcpi_advmss": info.advmss,
        "tcpi_bytes_acked": info.bytes_acked,
        "tcpi_bytes_received": info.bytes_received,
        "tcpi_last_data_recv": (now - info.data_received_at) // MILLISECOND,
        "tcpi_segs_in": info.segs_in,
        "tcpi_segs_out": info.segs_out,
        "tcpi_notsent_bytes": info.send_queue - info.unacked,
    }
