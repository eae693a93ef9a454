"""The states of RFC 9293 section 3.3.2 and every transition between them, in one table.

A passive open lives in the listener's SYN queue until its handshake is over, so a `TcpConnection` is in
SYN-RECEIVED only after a simultaneous open. A FIN of either side takes effect once it is ESTABLISHED.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class State(IntEnum):
    CLOSED = 0
    LISTEN = 1
    SYN_SENT = 2
    SYN_RECEIVED = 3
    ESTABLISHED = 4
    FIN_WAIT_1 = 5
    FIN_WAIT_2 = 6
    CLOSE_WAIT = 7
    CLOSING = 8
    LAST_ACK = 9
    TIME_WAIT = 10


class Cause(Enum):
    """What moves a connection from one state to another."""

    OPEN = "active open: our SYN is queued"
    SYN = "a SYN without ACK: simultaneous open"
    SYN_ACKED = "our SYN is acknowledged (and theirs has come)"
    CLOSE = "the application closes its half: our FIN is queued"
    FIN = "their FIN, in order"
    FIN_ACKED = "our FIN is acknowledged"
    END = "RST, abort or a timeout"

    __hash__ = object.__hash__  # Enum's own is Python code that hashes the name


TRANSITIONS: Final[dict[tuple[State, Cause], State]] = {
    (State.CLOSED, Cause.OPEN): State.SYN_SENT,
    (State.SYN_SENT, Cause.SYN): State.SYN_RECEIVED,
    (State.SYN_SENT, Cause.SYN_ACKED): State.ESTABLISHED,
    (State.SYN_RECEIVED, Cause.SYN_ACKED): State.ESTABLISHED,
    (State.LISTEN, Cause.SYN_ACKED): State.ESTABLISHED,  # the listener's half of the handshake is over
    (State.ESTABLISHED, Cause.CLOSE): State.FIN_WAIT_1,
    (State.CLOSE_WAIT, Cause.CLOSE): State.LAST_ACK,
    (State.ESTABLISHED, Cause.FIN): State.CLOSE_WAIT,
    (State.FIN_WAIT_1, Cause.FIN): State.CLOSING,
    (State.FIN_WAIT_2, Cause.FIN): State.TIME_WAIT,
    (State.FIN_WAIT_1, Cause.FIN_ACKED): State.FIN_WAIT_2,
    (State.CLOSING, Cause.FIN_ACKED): State.TIME_WAIT,
    (State.LAST_ACK, Cause.FIN_ACKED): State.CLOSED,
    **{(state, Cause.END): State.CLOSED for state in State},
}

SYNCHRONIZED: Final = State.ESTABLISHED
"""States from here on know both sequence numbers (RFC 9293 3.4.2)."""
CAN_SEND: Final = frozenset({State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED, State.CLOSE_WAIT})
"""The application may queue data."""
CAN_RECEIVE: Final = frozenset({State.ESTABLISHED, State.FIN_WAIT_1, State.FIN_WAIT_2})
"""Their FIN has not come: segment text is welcome (RFC 9293 3.10.7.4, seventh step)."""
