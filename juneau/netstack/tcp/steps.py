"""Arriving segments: RFC 9293 sections 3.10.7.3 (SYN-SENT) and 3.10.7.4 (every other state), step by step.

A step returns False when the RFC says "return" or "drop the segment". LISTEN is in `listener`,
TIME-WAIT in `timewait`, CLOSED in `layer`. The amendments of RFC 5961 (blind attacks), RFC 7323
(timestamps, PAWS) and RFC 6093 (urgent data in line) are where they belong in the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from juneau.netstack.seq import extend
from juneau.netstack.tcp.handshake import negotiate
from juneau.netstack.tcp.segment import Segment
from juneau.netstack.tcp.snd import NEVER, Timer
from juneau.netstack.tcp.states import CAN_RECEIVE, Cause, State
from juneau.netstack.types import SECOND, CloseReason, Micros
from juneau.netstack.wire.tcp import ACK, CWR, ECE, FIN, RST, SYN, URG

if TYPE_CHECKING:
    from juneau.netstack.tcp.conn import TcpConnection

_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000
_PAWS_IDLE: Final[Micros] = 24 * 24 * 3600 * SECOND
"""RFC 7323 5.5: after 24 days ts_recent says nothing."""
_CE: Final = 3
_NO_BLOCKS: Final[list[tuple[int, int]]] = []
_MAX_ECHO: Final = 120_000
"""Milliseconds; an older echo is no measurement but a mistake."""


def process(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    if conn.state is State.SYN_SENT:
        _syn_sent(conn, seg, now)
    elif conn.state is not State.CLOSED:
        _take(conn, seg, now)
    conn.after_steps(now)


def _take(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    rcv, snd = conn.rcv, conn.snd
    seg.seq = extend(seg.seq, rcv.nxt)
    seg.ack = extend(seg.ack, snd.una)
    if conn.state is State.SYN_RECEIVED and seg.flags & SYN and seg.seq == rcv.nxt - 1:
        _strip_syn(conn, seg)
    if not (
        _check_timestamp(conn, seg, now)
        and _check_sequence(conn, seg, now)
        and _check_rst(conn, seg, now)
        and _check_syn(conn, seg, now)
        and _check_ack(conn, seg, now)
    ):
        return
    if seg.ts_val >= 0 and conn.ts_on and seg.seq <= rcv.last_ack:
        rcv.ts_recent, rcv.ts_recent_at = seg.ts_val, now  # RFC 7323 4.3, once the ACK proved it no guess
    conn.path = seg.path
    _urg(conn, seg)
    if _text(conn, seg, now):
        _fin(conn, seg, now)


def _strip_syn(conn: TcpConnection, seg: Segment) -> None:
    """Simultaneous open: the peer's SYN-ACK repeats the SYN we have; its ACK is what counts."""
    seg.flags &= ~SYN
    seg.seq += 1
    conn.rcv.ack_now = True


# --- SYN-SENT (3.10.7.3) ---


def _syn_sent(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    snd = conn.snd
    seg.ack = extend(seg.ack, snd.una)
    acks_us = bool(seg.flags & ACK)
    if acks_us and not snd.una < seg.ack <= snd.nxt:  # first
        if not seg.flags & RST:
            conn.layer.reset_for(conn.flow, seg)
        return
    if seg.flags & RST:  # second
        if acks_us:
            conn.finish(CloseReason.REFUSED, now)
        return
    if not seg.flags & SYN or (seg.flags & FIN and conn.layer.options.drop_syn_fin):  # fifth
        return
    _take_syn(conn, seg, now)  # fourth
    if not acks_us:
        conn.move(Cause.SYN)
        conn.syn_now = True
        snd.timer, snd.timer_at = Timer.NONE, NEVER
        return
    _syn_acknowledged(conn, seg, now)
    conn.tell_connected()
    conn.rcv.ack_now = True
    seg.seq = conn.rcv.nxt
    seg.flags &= ~SYN
    if _text(conn, seg, now):
        _fin(conn, seg, now)


def _take_syn(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    hs, rcv = conn.hs, conn.rcv
    assert hs is not None
    negotiate(hs, seg.options, conn.layer.options)
    conn.ts_on, conn.peer_mss = hs.timestamps, hs.peer_mss
    conn.ecn_ok = conn.layer.options.ecn == "active" and seg.flags & (ECE | CWR) == ECE
    rcv.irs = seg.seq
    window = rcv.buf if conn.layer.options.judge_by_buffer else rcv.adv - rcv.nxt
    rcv.nxt = rcv.last_ack = seg.seq + 1
    rcv.quick = rcv.nxt + conn.layer.options.quickack
    rcv.adv = rcv.nxt + window
    rcv.wscale = hs.rcv_wscale
    if hs.timestamps:
        rcv.ts_recent, rcv.ts_recent_at = hs.ts_recent, now
    conn.path = seg.path


def _syn_acknowledged(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    """Our SYN has its ACK: SYN-SENT or SYN-RECEIVED becomes ESTABLISHED."""
    snd, hs = conn.snd, conn.hs
    assert hs is not None
    syn_lost = snd.retries > 0
    snd.una = snd.iss + 1
    snd.timer, snd.timer_at, snd.stalled_since = Timer.NONE, NEVER, NEVER
    snd.retries = snd.rtt.backoff = 0
    if not syn_lost and conn.syn_sent_at != NEVER:
        snd.rtt.sample(now - conn.syn_sent_at, now)
    shift = 0 if seg.flags & SYN else hs.snd_wscale  # the window of a SYN is never scaled (RFC 7323 2.2)
    snd.wnd = snd.max_wnd = seg.window << shift
    snd.wl1, snd.wl2 = seg.seq, seg.ack
    conn.establish(hs, now, syn_lost=syn_lost)


# --- every other state (3.10.7.4) ---


def _check_timestamp(conn: TcpConnection, seg: Segment, now: Micros) -> bool:
    """RFC 7323 3.2 and 5.3 (PAWS); a RST needs no timestamp."""
    if not conn.ts_on or seg.flags & RST:
        return True
    rcv = conn.rcv
    if seg.ts_val < 0:
        if conn.layer.options.tolerate_missing_timestamps:
            return True
        conn.layer.counters.drop("tcp.drop.no_timestamp")
        return False
    if (seg.ts_val - rcv.ts_recent) & _MASK >= _HALF and now - rcv.ts_recent_at < _PAWS_IDLE:
        conn.layer.counters.drop("tcp.drop.paws")
        _answer(conn, seg, now)
        return False
    return True


def _check_sequence(conn: TcpConnection, seg: Segment, now: Micros) -> bool:
    """First step: is any of it in the window? If not: an ACK, unless it is a RST."""
    rcv, length = conn.rcv, seg.length
    if rcv.acceptable(seg.seq, length):
        return True
    conn.layer.counters.drop("tcp.drop.out_of_window")
    if seg.flags & RST:
        return False
    if seg.payload:
        rcv.on_duplicate(seg.seq, seg.seq + len(seg.payload))
    _answer(conn, seg, now)
    return False


def _answer(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    """An ACK for an unacceptable segment. Data and FIN always get one: the peer is waiting for it."""
    if seg.payload or seg.flags & FIN or conn.may_challenge(now):
        conn.rcv.ack_now = True


def _challenge(conn: TcpConnection, now: Micros) -> None:
    if conn.may_challenge(now):
        conn.layer.counters.add("tcp.challenge_acks")
        conn.rcv.ack_now = True


def _check_rst(conn: TcpConnection, seg: Segment, now: Micros) -> bool:
    """Second step, as RFC 5961 3.2 has it: exactly at rcv_nxt, or it has to prove itself."""
    if not seg.flags & RST:
        return True
    if seg.seq != conn.rcv.nxt and conn.layer.options.challenge_rst:
        _challenge(conn, now)
        return False
    refused = conn.state is State.SYN_RECEIVED
    done = conn.state in (State.CLOSING, State.LAST_ACK) and conn.snd.una >= conn.snd.queue.end
    conn.finish(CloseReason.REFUSED if refused else CloseReason.NORMAL if done else CloseReason.RESET, now)
    return False


def _check_syn(conn: TcpConnection, seg: Segment, now: Micros) -> bool:
    """Fourth step (RFC 5961 4.2); the third, security, is void here."""
    if not seg.flags & SYN:
        return True
    if conn.layer.options.challenge_syn:
        _challenge(conn, now)
    else:
        conn.send_reset(now)
        conn.finish(CloseReason.RESET, now)
    return False


def _check_ack(conn: TcpConnection, seg: Segment, now: Micros) -> bool:
    """Fifth step."""
    if not seg.flags & ACK:
        return False
    snd = conn.snd
    if conn.state is State.SYN_RECEIVED:
        if not snd.una < seg.ack <= snd.nxt:
            conn.layer.reset_for(conn.flow, seg)
            return False
        _syn_acknowledged(conn, seg, now)
        conn.tell_connected()
        return True
    if seg.ack > snd.nxt or seg.ack < snd.una - max(snd.max_wnd, 1):  # RFC 5961 5.2
        conn.layer.counters.drop("tcp.drop.unacceptable_ack")
        if seg.ack > snd.nxt:
            _answer(conn, seg, now)
        else:
            _challenge(conn, now)
        return False
    if seg.ack >= snd.una:
        _on_ack(conn, seg, now)
    elif seg.sack:
        _on_old_ack(conn, seg, now)
    return conn.state is not State.CLOSED and conn.state is not State.TIME_WAIT


def _on_old_ack(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    """An ACK that was overtaken may still bring news of what arrived out of order."""
    una = conn.snd.una
    blocks = [(max(left, una), right) for left, right in _sack_blocks(conn, seg)[0] if right > una]
    if blocks:
        conn.snd.on_ack(una, blocks, 0, False, -1, now)


def _on_ack(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    snd = conn.snd
    acked = seg.ack - snd.una
    window = seg.window << snd.wscale
    plain = not seg.payload and not seg.flags & FIN
    duplicate = not acked and plain and window == snd.wnd and snd.flight > 0
    _update_window(conn, seg, window)
    if snd.timer is Timer.PERSIST or not snd.wnd:
        snd.retries = 0  # it answers: a closed window is not a dead peer (RFC 9293 3.8.6.1)
    if conn.ecn_ok:
        _ecn(conn, seg, now)
    blocks, dsack = _sack_blocks(conn, seg) if seg.sack else (_NO_BLOCKS, 0)
    if acked and not blocks and not dsack and snd.clean():
        snd.on_ack_simple(seg.ack, acked, now)
    elif acked or blocks or dsack or duplicate:
        snd.on_ack(seg.ack, blocks, dsack, duplicate, _echo(conn, seg, now), now)
    if acked:
        conn.bytes_acked += acked
        conn.tell_writable()
        if snd.fin and snd.una > snd.queue.end:
            conn.on_fin_acked(now)


def _update_window(conn: TcpConnection, seg: Segment, window: int) -> None:
    """SND.WND, from the newest segment only."""
    snd = conn.snd
    if not (snd.wl1 < seg.seq or (snd.wl1 == seg.seq and snd.wl2 <= seg.ack)):
        return
    opened = window > snd.wnd
    snd.wnd, snd.wl1, snd.wl2 = window, seg.seq, seg.ack
    snd.max_wnd = max(snd.max_wnd, window)
    if opened and snd.timer is Timer.PERSIST:
        snd.timer, snd.timer_at = Timer.NONE, NEVER
        snd.probes = 0
        snd.stalled_since = NEVER


def _sack_blocks(conn: TcpConnection, seg: Segment) -> tuple[list[tuple[int, int]], int]:
    """Usable blocks, extended, and the bytes of the first if it is a DSACK (RFC 2883 section 4)."""
    snd = conn.snd
    if not seg.sack or not snd.sack_ok:
        return [], 0
    una, nxt, ack = snd.una, snd.nxt, seg.ack
    edges = [(extend(left, una), extend(right, una)) for left, right in seg.sack]
    first_left, first_right = edges[0]
    dsack = first_left < first_right and first_right <= nxt
    dsack = dsack and (
        first_right <= ack or (len(edges) > 1 and edges[1][0] <= first_left and first_right <= edges[1][1])
    )
    blocks = [
        (max(left, ack), right)
        for left, right in edges
        if left < right and ack < right <= nxt and left >= una
    ]
    return blocks, first_right - first_left if dsack else 0


def _echo(conn: TcpConnection, seg: Segment, now: Micros) -> Micros:
    if not conn.ts_on or seg.ts_val < 0 or not seg.ts_ecr:
        return -1
    elapsed = (conn.ts_now(now) - seg.ts_ecr) & _MASK
    return elapsed * 1000 if elapsed < _MAX_ECHO else -1


def _ecn(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    """RFC 3168 6.1.2 and 6.1.3."""
    if seg.flags & ECE:
        conn.snd.on_ecn_echo(now)
    if seg.flags & CWR:
        conn.ece_now = False
    if seg.ecn == _CE:
        conn.ece_now = True
        conn.rcv.ack_now = True


def _urg(conn: TcpConnection, seg: Segment) -> None:
    """Sixth step. The pointer is noted; the data stays in the stream (RFC 6093 section 6)."""
    if seg.flags & URG and conn.state in CAN_RECEIVE:
        up = seg.seq + seg.urgent
        conn.rcv.up = up if conn.rcv.up is None else max(conn.rcv.up, up)


def _text(conn: TcpConnection, seg: Segment, now: Micros) -> bool:
    """Seventh step."""
    if not seg.payload or conn.state not in CAN_RECEIVE:
        return True
    rcv, layer = conn.rcv, conn.layer
    if conn.detached and seg.seq + len(seg.payload) > rcv.nxt:
        layer.counters.add("tcp.data_after_close")  # nobody will read it (RFC 9293 3.10.7.4, RFC 2525 2.17)
        layer.reset_for(conn.flow, seg)  # numbered as the peer expects it, FIN of ours lost or not
        conn.finish(CloseReason.RESET, now)
        return False
    text = seg.payload
    if layer.buffered + len(text) > layer.gap_limit and not (text := _fitting(conn, seg)):
        return False
    if seg.seq != rcv.nxt:
        layer.counters.add("tcp.out_of_order")
    moved = rcv.on_text(seg.seq, text, now)
    if moved:
        conn.bytes_received += moved
        conn.data_at = now
        conn.tell_readable()
    return len(text) == len(seg.payload)


def _fitting(conn: TcpConnection, seg: Segment) -> memoryview:
    """The text as far as the stack's limit has room for it: all, the first part or nothing.

    What is in order pushes out what this connection holds beyond a gap. That was never acknowledged but
    by SACK and may go (RFC 2018 section 8); kept, it could be all there is, and wait for this very text.
    """
    rcv, layer, text = conn.rcv, conn.layer, seg.payload
    new = min(seg.seq + len(text), rcv.adv) - max(seg.seq, rcv.nxt)
    if new <= 0:
        return text  # nothing to keep: a duplicate or a window probe, which wants its ACK
    if seg.seq > rcv.nxt:
        room = layer.gap_limit - layer.buffered
        if new > room:
            layer.counters.drop("tcp.drop.buffer_limit")
            return text[:0]
        return text
    room = layer.buffer_limit - layer.buffered
    if new > room and rcv.assembler:
        rcv.assembler.drop_last(new - room)
        conn.charge()
        room = layer.buffer_limit - layer.buffered
    if new <= room:
        return text
    layer.counters.drop("tcp.drop.buffer_limit")
    if room:
        rcv.ack_now = True
    return text[: max(rcv.nxt - seg.seq, 0) + room]


def _fin(conn: TcpConnection, seg: Segment, now: Micros) -> None:
    """Eighth step: a FIN counts when everything before it is here, whichever segment brought that."""
    rcv = conn.rcv
    if seg.flags & FIN and rcv.fin_seq is None:
        at = seg.seq + len(seg.payload)
        if rcv.nxt <= at <= rcv.adv:
            rcv.fin_seq = at
            rcv.ack_now = True
            conn.fast = False
    if rcv.fin_seq is None or rcv.nxt != rcv.fin_seq or conn.state not in CAN_RECEIVE:
        return
    conn.take_fin(now)
