"""Passive opens: LISTEN (RFC 9293 3.10.7.2), the SYN queue, and the accept queue.

A half-open connection is a small `Embryo`; the `TcpConnection` is made when the handshake is complete.
As on Linux, a full accept queue makes new SYNs and completing ACKs go unheard: the peer tries again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from juneau.netstack.events import Accepted
from juneau.netstack.seq import extend
from juneau.netstack.tcp import steps
from juneau.netstack.tcp.conn import TcpConnection
from juneau.netstack.tcp.emitter import Emitter
from juneau.netstack.tcp.handshake import Handshake
from juneau.netstack.tcp.segment import Segment
from juneau.netstack.tcp.states import State
from juneau.netstack.tcp.timers import NEVER
from juneau.netstack.types import Endpoint, FourTuple, Micros, Misuse, Path, TxPacket
from juneau.netstack.wire import tcp
from juneau.netstack.wire.tcp import ACK, ECE, FIN, PSH, RST, SYN

if TYPE_CHECKING:
    from juneau.netstack.tcp.layer import TcpLayer

_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000
_ACK_PSH: Final = ACK | PSH


class TcpListener:
    __slots__ = ("_layer", "_queue", "backlog", "closed", "defer_accept", "embryos", "local", "user")

    def __init__(self, layer: TcpLayer, local: Endpoint, backlog: int, user: object) -> None:
        self._layer = layer
        self.local = local
        self.backlog = backlog
        self.user = user
        self.defer_accept: Micros = 0
        """So long after its SYN a connection is complete only with data (Linux's TCP_DEFER_ACCEPT)."""
        self.closed = False
        self.embryos: dict[FourTuple, Embryo] = {}
        self._queue: deque[TcpConnection] = deque()

    def accept(self) -> TcpConnection | None:
        """The connection that has waited longest; it may already hold data or EOF."""
        queue = self._queue
        while queue:
            conn = queue.popleft()
            if conn.state is not State.CLOSED:
                conn.held = True
                return conn
            conn.abort(0)  # reset while it waited: nobody saw it, nothing is sent
        return None

    @property
    def full(self) -> bool:
        """Linux's meaning of the backlog: one more than it says may wait."""
        return len(self._queue) > self.backlog

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enqueue(self, conn: TcpConnection) -> None:
        conn.held = False
        self._queue.append(conn)
        if len(self._queue) == 1:
            self._layer.events.append(Accepted(self))

    def close(self, now: Micros) -> None:
        """Stop listening; reset what is not accepted yet. Repeating it is harmless."""
        if self.closed:
            return
        self.closed = True
        self._layer.unlisten(self)
        for embryo in list(self.embryos.values()):
            if embryo.answered:
                embryo.reset(now)  # its peer is ESTABLISHED, and may be waiting for us to speak
            else:
                embryo.leave()  # as on Linux: whatever the peer sends next is answered by a RST
        while self._queue:
            self._queue.popleft().abort(now)

    def __repr__(self) -> str:
        return f"<TcpListener {self.local} waiting={len(self._queue)}>"


class Embryo:
    """SYN-RECEIVED after a passive open."""

    __slots__ = (
        "_answers", "_at", "_deferred_until", "_emitter", "_layer", "_listener", "_rto", "_sent_at",
        "_silent", "ack_now", "answered", "flow", "heap_at", "hs", "path", "queued", "retries", "syn_ack_now",
    )  # fmt: skip

    def __init__(
        self, layer: TcpLayer, listener: TcpListener, flow: FourTuple, hs: Handshake, path: Path, now: Micros
    ) -> None:
        self._layer = layer
        self._listener = listener
        self.flow = flow
        self.hs = hs
        self.path = path
        self.retries = 0
        self.queued = False
        self.heap_at = NEVER
        self.syn_ack_now = True
        self.ack_now = False
        self.answered = False
        """The last ACK of the handshake has come, but it is not complete: for want of data or of room."""
        self._emitter = Emitter(*flow, layer.link, layer.options.ttl)
        self._rto = layer.options.rto_initial
        self._at = now + self._rto
        self._sent_at = now
        self._answers = 0
        self._deferred_until = now + listener.defer_accept
        self._silent = False

    def receive(self, seg: Segment, now: Micros) -> None:
        """RFC 9293 3.10.7.4 for SYN-RECEIVED; first what nearly always comes, the ACK that is expected."""
        hs, layer = self.hs, self._layer
        rcv_nxt = hs.irs + 1
        if (
            (seg.flags | PSH) == _ACK_PSH
            and not (seg.seq - rcv_nxt) & _MASK
            and seg.ack == (hs.iss + 1) & _MASK
            and (not hs.timestamps or (seg.ts_val >= 0 and (seg.ts_val - hs.ts_recent) & _MASK < _HALF))
        ):
            self._acknowledged(seg, now)
            return
        seq = extend(seg.seq, rcv_nxt)
        flags = seg.flags
        if flags & (SYN | ACK | RST) == SYN and seq == hs.irs:
            self.syn_ack_now = True  # the SYN again: our answer was lost, or is late
            layer.ready(self)
            return
        if not self._acceptable(seg, seq, rcv_nxt):
            return
        if flags & RST:
            if seq == rcv_nxt or not layer.options.challenge_rst:
                layer.counters.add("tcp.embryo_reset")
                self.leave()
            else:
                self._answer()
            return
        if flags & SYN:
            self._answer()
            return
        if not flags & ACK:
            layer.counters.drop("tcp.drop.no_ack")
            return
        if seg.ack != (hs.iss + 1) & _MASK:
            layer.reset_for(self.flow, seg)
            return
        self._acknowledged(seg, now)

    def _acknowledged(self, seg: Segment, now: Micros) -> None:
        self.answered = True
        if now < self._deferred_until and not seg.payload and not seg.flags & FIN:
            self._silent = True  # it has our SYN-ACK, so there is no hurry to repeat that
            return
        self._complete(seg, now)

    def _acceptable(self, seg: Segment, seq: int, rcv_nxt: int) -> bool:
        hs = self.hs
        if hs.timestamps and not seg.flags & RST:
            if seg.ts_val < 0:
                if self._layer.options.tolerate_missing_timestamps:
                    return True
                self._layer.counters.drop("tcp.drop.no_timestamp")
                return False
            if (seg.ts_val - hs.ts_recent) & _MASK >= _HALF:
                self._layer.counters.drop("tcp.drop.paws")
                self._answer()
                return False
        window = hs.syn_window
        if rcv_nxt <= seq < rcv_nxt + window or (seq < rcv_nxt < seq + seg.length):
            return True
        self._layer.counters.drop("tcp.drop.out_of_window")
        if not seg.flags & RST:
            self._answer()
        return False

    def _answer(self) -> None:
        """An ACK with what we expect; a few for each half-open connection are enough."""
        self._answers += 1
        if self._answers <= self._layer.options.challenge_acks:
            self.ack_now = True
            self._layer.ready(self)

    def _complete(self, seg: Segment, now: Micros) -> None:
        listener = self._listener
        if listener.full:
            self._layer.counters.drop("tcp.drop.accept_queue_full")
            return
        self.leave()
        sent_at = self._sent_at if not self.retries else -1
        graduate(
            self._layer, listener, self.flow, self.hs, seg, now, self._emitter,
            sent_at=sent_at, syn_lost=self.retries > 0,
        )  # fmt: skip

    def leave(self) -> None:
        """Out of every table, without a word."""
        self._at = NEVER
        self._listener.embryos.pop(self.flow, None)
        self._layer.forget_embryo(self)

    def reset(self, now: Micros) -> None:
        self._layer.reply(self._emitter.packet(self.path, self.hs.iss + 1, self.hs.irs + 1, RST | ACK, 0))
        self.leave()

    def transmit(self, now: Micros, out: list[TxPacket], quantum: int) -> bool:
        if self._at == NEVER:
            return False
        hs, layer = self.hs, self._layer
        ts_now = (now // 1000 + hs.ts_offset) & _MASK
        if self.syn_ack_now:
            self.syn_ack_now = False
            out.append(syn_ack(layer, self._emitter, self.path, hs, ts_now))
        elif self.ack_now:
            window = hs.syn_window >> hs.rcv_wscale
            stamp = ts_now if hs.timestamps else -1
            out.append(
                self._emitter.packet(
                    self.path, hs.iss + 1, hs.irs + 1, ACK, window, ts_val=stamp, ts_ecr=hs.ts_recent
                )
            )
        self.ack_now = False
        if self._at < self.heap_at:
            layer.arm(self, self._at)
        return False

    def deadline(self) -> Micros:
        return self._at

    def handle_timeout(self, now: Micros) -> None:
        if self.retries >= self._layer.options.synack_retries:
            self._layer.counters.add("tcp.embryo_expired")
            self.leave()
            return
        self.retries += 1
        self._rto = min(self._rto * 2, self._layer.options.rto_max)
        self._at = now + self._rto
        self._layer.arm(self, self._at)
        if not self._silent or now >= self._deferred_until:
            self.syn_ack_now = True
            self._layer.ready(self)


def syn_ack(layer: TcpLayer, emitter: Emitter, path: Path, hs: Handshake, ts_now: int) -> TxPacket:
    flags = SYN | ACK | (ECE if hs.ecn else 0)
    options = tcp.build_syn_options(hs.offer(ts_now), layer.options.syn_option_style)
    return emitter.packet(path, hs.iss, hs.irs + 1, flags, hs.syn_window, options=options)


def graduate(
    layer: TcpLayer,
    listener: TcpListener,
    flow: FourTuple,
    hs: Handshake,
    seg: Segment,
    now: Micros,
    emitter: Emitter | None = None,
    *,
    sent_at: Micros,
    syn_lost: bool,
) -> None:
    """The ACK of our SYN-ACK: from here on it is a connection, and this segment its first."""
    conn = TcpConnection(layer, flow, seg.path, hs, State.LISTEN, now, emitter)
    snd, rcv = conn.snd, conn.rcv
    snd.una = snd.nxt = hs.iss + 1
    rcv.adv = rcv.nxt + (rcv.buf if layer.options.judge_by_buffer else hs.syn_window)
    in_order = seg.ts_val >= 0 and not (seg.seq - rcv.nxt) & _MASK  # RFC 7323 4.3
    rcv.ts_recent, rcv.ts_recent_at = seg.ts_val if in_order else hs.ts_recent, now
    if sent_at >= 0:
        snd.rtt.sample(now - sent_at, now)
    snd.wnd = snd.max_wnd = seg.window << hs.snd_wscale
    snd.wl1, snd.wl2 = hs.irs, snd.una
    conn.establish(hs, now, syn_lost=syn_lost)
    layer.adopt(conn)
    listener.enqueue(conn)
    if seg.payload or seg.flags & ~(ACK | PSH):
        steps.process(conn, seg, now)


def check_backlog(backlog: int) -> None:
    if backlog < 0:
        raise Misuse(f"listen: backlog {backlog} (0 or more)")
