"""tcp_info as scripts assert it, from a connection's own view of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    pass

# State is RFC 9293's order in the stack, the kernel's own order in scripts.
_LINUX_STATES: Final = [
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
]
_LINUX: Final = {f"TCP_{name}": number for number, name in enumerate(_LINUX_STATES, 1)}
_FREEBSD_STATES: Final = [
    "CLOSED",
    "LISTEN",
    "SYN_SENT",
    "SYN_RECEIVED",
    "ESTABLISHED",
    "CLOSE_WAIT",
    "FIN_WAIT_1",
    "CLOSING",
    "LAST_ACK",
    "FIN_WAIT_2",
    "TIME_WAIT",
]
_CA_STATES: Final = ["Open", "Disorder", "CWR", "Recovery", "Loss"]

CONSTANTS: Final[dict[str, Any]] = {
    **_LINUX,
    **{f"TCPI_{name}": name for name in _FREEBSD_STATES},
    **{f"TCP_CA_{name}": number for number, name in enumerate(_CA_STATES)},
    "TCPI_OPT_TIMESTAMPS": 1,
    "TCPI_OPT_SACK": 2,
    "TCPI_OPT_WSCALE": 4,
    "TCPI_OPT_ECN": 8,
}


def tcp_info(conn: TcpConnection, now: Micros) -> dict[str, Any]:
    """Every `tcpi_…` name that can be told of `conn`."""
    info = conn.info()
    return {f"tcpi_{name}": getattr(info, name) for name in info.__dataclass_fields__}
