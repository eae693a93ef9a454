"""What a connection sends, and in which order: ACKs that cannot wait, probes, what was lost, new data, FIN.

Called from the layer's ready queue. Every segment carries the newest ACK and window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from juneau.netstack.tcp.recovery.scoreboard import Sent
from juneau.netstack.tcp.snd import NEVER, Timer
from juneau.netstack.tcp.states import SYNCHRONIZED, State
from juneau.netstack.types import Micros, TxPacket
from juneau.netstack.wire import tcp
from juneau.netstack.wire.tcp import ACK, CWR, ECE, FIN, PSH, SYN

if TYPE_CHECKING:
    from juneau.netstack.tcp.conn import TcpConnection

_MASK: Final = 0xFFFF_FFFF
_ECT0: Final = 2
VIRTUAL_BURST: Final = 8
"""Segments that share one record where the link has no offload."""


def transmit(conn: TcpConnection, now: Micros, out: list[TxPacket], quantum: int) -> bool:
    """Append up to about `quantum` packets; True if it could go on at once."""
    if conn.state < SYNCHRONIZED:
        if conn.syn_now:
            send_syn(conn, now, out)
        elif conn.rcv.ack_now and conn.state is State.SYN_RECEIVED:
            send_ack(conn, now, out)
        return False
    snd, rcv = conn.snd, conn.rcv
    rcv.buf = conn.layer.buffer_for(rcv.rules.buf)
    if conn.fast and 0 < snd.queue.end - snd.nxt <= snd.mss and send_small(conn, now, out):
        return False
    stop = len(out) + quantum
    if rcv.ack_now and (rcv.dup_acks or (rcv.sack_ok and rcv.has_blocks())):
        send_acks(conn, now, out)
    if snd.probe_now or snd.tlp_now:
        send_probe(conn, now, out)
    if snd.board.lost:
        send_lost(conn, now, out, stop)
    more = False
    if snd.queue.end > snd.nxt:
        more = send_fresh(conn, now, out, stop)
    if snd.fin and snd.nxt == snd.queue.end and snd.una + snd.wnd > snd.nxt:
        send_segment(conn, snd.nxt, 0, FIN, now, out)
        snd.on_sent(1, now)
    if rcv.ack_now:
        send_ack(conn, now, out)
    if snd.nxt == snd.una and snd.timer_at == NEVER and snd.waiting() and not more:
        snd.arm_persist(now)
    if snd.timer_at < conn.heap_at:
        conn.layer.arm(conn, snd.timer_at)
    return more


def send_small(conn: TcpConnection, now: Micros, out: list[TxPacket]) -> bool:
    """What most answers are: all that waits, in one segment, while nothing is lost and nothing else is due.

    The same as the long way, in one piece. False: it is not so, and nothing was done.
    """
    snd, rcv, layer = conn.snd, conn.rcv, conn.layer
    seq, una, mss = snd.nxt, snd.una, snd.mss
    end = snd.queue.end
    size, span = end - seq, end - una
    if (
        span > snd.wnd
        or span > snd.cc.cwnd
        or (size < span and size < mss and not snd.nodelay)  # Nagle
        or snd.fin
        or snd.probe_now
        or snd.tlp_now
        or layer.options.slow_start_after_idle
        or (rcv.ack_now and (rcv.dup_acks or rcv.has_blocks()))
        or not snd.clean()
    ):
        return False
    flags = ACK | PSH if snd.push or (size == mss and layer.push_segments == 1) else ACK
    conn.segs_out += 1
    out.append(
        conn.emitter.packet(
            conn.path, seq, rcv.nxt, flags, rcv.window_field(),
            ts_val=(now // 1000 + conn.ts_offset) & _MASK if conn.ts_on else -1, ts_ecr=rcv.ts_recent,
            payload=snd.queue.slice(seq, end), size=size, tos=layer.tos,
        )
    )  # fmt: skip
    rcv.on_ack_sent()
    snd.on_sent(size, now)
    if snd.timer_at < conn.heap_at:
        layer.arm(conn, snd.timer_at)
    return True


def send_fresh(conn: TcpConnection, now: Micros, out: list[TxPacket], stop: int) -> bool:
    snd, tso = conn.snd, conn.layer.link.tso
    queue, limit = snd.queue, conn.max_payload
    if conn.layer.options.slow_start_after_idle:
        snd.restart_after_idle(now)
    if tso and conn.fast:
        send_superframes(conn, now, out, stop)
    while (room := stop - len(out)) > 0:
        if not tso and room < VIRTUAL_BURST:
            limit = snd.mss * room
        size = snd.fresh_bytes(limit, tso)
        if not size:
            return False
        seq = snd.nxt
        end = seq + size
        fin = snd.fin and end == queue.end and snd.una + snd.wnd > end
        send_segment(conn, seq, size, FIN if fin else 0, now, out)
        snd.on_sent(size + fin, now)
        if snd.nxt >= queue.end:
            return False
    return True


def send_superframes(conn: TcpConnection, now: Micros, out: list[TxPacket], stop: int) -> bool:
    """What bulk mostly is: full superframes that are not the last of what waits, while nothing is lost.

    The same as the long way, but what they have in common is worked out once. False: there are none.
    """
    snd, rcv, layer = conn.snd, conn.rcv, conn.layer
    size, queue = conn.max_payload, snd.queue
    count = min(snd.full_superframes(size), stop - len(out))
    if count <= 0:
        return False
    every = layer.push_segments * snd.mss
    flags = ACK | PSH if every and not size % every else ACK
    packet, path, rcv_nxt, window = conn.emitter.packet, conn.path, rcv.nxt, rcv.window_field()
    ts_val, ts_ecr = (now // 1000 + conn.ts_offset) & _MASK if conn.ts_on else -1, rcv.ts_recent
    gso_size = snd.mss if size > snd.mss else 0
    first = snd.nxt
    for seq in range(first, first + count * size, size):
        out.append(
            packet(
                path, seq, rcv_nxt, flags, window, ts_val=ts_val, ts_ecr=ts_ecr,
                payload=queue.slice(seq, seq + size), size=size, gso_size=gso_size, tos=layer.tos,
            )
        )  # fmt: skip
    conn.segs_out += count
    rcv.on_ack_sent()
    snd.on_sent(size, now, count)
    return True


def send_lost(conn: TcpConnection, now: Micros, out: list[TxPacket], stop: int) -> None:
    snd, tso = conn.snd, conn.layer.link.tso
    while len(out) < stop and (work := snd.retransmission(conn.max_payload, tso)) is not None:
        rec, size = work
        resend(conn, rec, size, now, out)
        snd.on_retransmit(rec, size, now)


def resend(conn: TcpConnection, rec: Sent, size: int, now: Micros, out: list[TxPacket]) -> None:
    fin = FIN if rec.seq + size > conn.snd.queue.end else 0
    push = PSH if rec.push and rec.seq + size == rec.end else 0
    conn.layer.counters.add("tcp.retransmitted_segments")
    send_segment(conn, rec.seq, size - fin, fin | push, now, out, again=True)


def send_segment(
    conn: TcpConnection,
    seq: int,
    size: int,
    flags: int,
    now: Micros,
    out: list[TxPacket],
    again: bool = False,
) -> None:
    """Data and FIN: one superframe, or as many segments as it takes."""
    snd, rcv, layer = conn.snd, conn.rcv, conn.layer
    mss = snd.mss
    if size:
        end = seq + size
        payload = snd.queue.slice(seq, end)
        every = layer.push_segments * mss
        if (snd.push and end == snd.queue.end and not again) or (every and size % every == 0):
            flags |= PSH
    else:
        payload, end, every = (), seq, 0
        flags &= ~PSH
    flags |= ACK
    tos = layer.tos
    if conn.ecn_ok:
        flags, tos = mark_ecn(conn, flags, tos, size > 0, again)
    window = rcv.window_field()
    ts_val = (now // 1000 + conn.ts_offset) & _MASK if conn.ts_on else -1
    if size <= mss or layer.link.tso:
        conn.segs_out += 1
        out.append(
            conn.emitter.packet(
                conn.path, seq, rcv.nxt, flags, window, ts_val=ts_val, ts_ecr=rcv.ts_recent,
                payload=payload, size=size, gso_size=mss if size > mss else 0, tos=tos,
            )
        )  # fmt: skip
    else:
        last = flags
        flags &= ~(PSH | FIN)
        for start in range(seq, end, mss):
            stop = min(start + mss, end)
            push = PSH if every and (stop - seq) % every == 0 else 0
            conn.segs_out += 1
            out.append(
                conn.emitter.packet(
                    conn.path, start, rcv.nxt, last if stop == end else flags | push, window, ts_val=ts_val,
                    ts_ecr=rcv.ts_recent, payload=snd.queue.slice(start, stop), size=stop - start, tos=tos,
                )
            )  # fmt: skip
            flags &= ~CWR
    rcv.on_ack_sent()


def mark_ecn(conn: TcpConnection, flags: int, tos: int, data: bool, again: bool) -> tuple[int, int]:
    """RFC 3168 6.1: ECT on new data only, CWR on the first of it after a reduction."""
    if conn.ece_now:
        flags |= ECE
    if data and not again:
        tos |= _ECT0
        if conn.snd.cwr_pending:
            conn.snd.cwr_pending = False
            flags |= CWR
    return flags, tos


def send_ack(
    conn: TcpConnection, now: Micros, out: list[TxPacket], options: bytes = b"", seq: int = -1
) -> None:
    rcv, snd = conn.rcv, conn.snd
    flags = ACK | ECE if conn.ece_now else ACK
    if (
        conn.layer.options.repeat_fin
        and rcv.nxt > rcv.last_ack
        and snd.nxt > snd.queue.end
        and snd.flight == 1
    ):
        flags, seq = flags | FIN, snd.queue.end
    conn.segs_out += 1
    out.append(
        conn.emitter.packet(
            conn.path, conn.snd.nxt if seq < 0 else seq, rcv.nxt, flags, rcv.window_field(),
            ts_val=(now // 1000 + conn.ts_offset) & _MASK if conn.ts_on else -1,
            ts_ecr=rcv.ts_recent, options=options, tos=conn.layer.tos,
        )
    )  # fmt: skip
    rcv.on_ack_sent()


def send_acks(conn: TcpConnection, now: Micros, out: list[TxPacket]) -> None:
    """ACKs that say more than a number: SACK blocks, or as many duplicates as segments came out of order."""
    rcv = conn.rcv
    if rcv.sack_ok:
        blocks = rcv.sack_blocks(3 if conn.ts_on else 4)
        send_ack(conn, now, out, tcp.build_sack(blocks) if blocks else b"")
        return
    count, rcv.dup_acks = rcv.dup_acks, 0
    for _ in range(min(count, 8)):
        send_ack(conn, now, out)


def send_probe(conn: TcpConnection, now: Micros, out: list[TxPacket]) -> None:
    """Window probe or tail loss probe."""
    snd = conn.snd
    if snd.tlp_now:
        snd.tlp_now = False
        send_tail_probe(conn, now, out)
    if not snd.probe_now:
        return
    snd.probe_now = False
    room = min(snd.una + snd.wnd - snd.nxt, snd.queue.end - snd.nxt, snd.mss)
    if room > 0 and snd.flight == 0:  # the override timeout of sender SWS avoidance
        send_segment(conn, snd.nxt, room, 0, now, out)
        snd.on_sent(room, now)
    elif snd.flight == 0 and snd.waiting():
        send_ack(conn, now, out, seq=snd.una - 1)  # out of window: forces an ACK
        snd.arm_persist(now)


def send_tail_probe(conn: TcpConnection, now: Micros, out: list[TxPacket]) -> None:
    snd = conn.snd
    conn.layer.counters.add("tcp.tail_loss_probes")
    size = min(snd.queue.end - snd.nxt, snd.mss, snd.una + snd.wnd - snd.nxt)
    if size > 0:
        send_segment(conn, snd.nxt, size, 0, now, out)
        snd.on_probe_sent(retransmission=False)
        snd.on_sent(size, now)
    elif (work := snd.probe_record()) is not None:
        rec, size = work
        snd.on_probe_sent(retransmission=True)
        resend(conn, rec, size, now, out)
        snd.on_retransmit(rec, size, now)
    else:  # nothing is in flight: all is deemed lost, and no window lets any of it leave
        snd.on_probe_sent(retransmission=False)
        snd.force = snd.board.lost > 0
    snd.arm(now)


def send_syn(conn: TcpConnection, now: Micros, out: list[TxPacket]) -> None:
    """SYN, or SYN-ACK after a simultaneous open."""
    conn.syn_now = False
    snd, rcv, layer = conn.snd, conn.rcv, conn.layer
    simultaneous = conn.state is State.SYN_RECEIVED
    hs = conn.hs
    assert hs is not None
    options = hs.offer(conn.ts_now(now))
    flags = SYN | ACK if simultaneous else SYN
    if layer.options.ecn == "active" and not simultaneous and snd.retries == 0:
        flags |= ECE | CWR
    window = hs.syn_window
    rcv.adv = max(rcv.adv, rcv.nxt + window)
    conn.segs_out += 1
    out.append(
        conn.emitter.packet(
            conn.path, snd.iss, rcv.nxt if simultaneous else 0, flags, window,
            options=tcp.build_syn_options(options, layer.options.syn_option_style),
        )
    )  # fmt: skip
    if snd.timer_at == NEVER:
        snd.nxt = snd.iss + 1
        conn.syn_sent_at = now
        if snd.stalled_since == NEVER:
            snd.stalled_since = now
        snd.timer, snd.timer_at = Timer.RTO, now + snd.rtt.current_rto()
    conn.rearm()
