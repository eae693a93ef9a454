"""One TCP connection: what the application calls, what leaves, and when.

`steps` judges arriving segments, `snd` and `rcv` are the two halves, `layer` owns the table. Nothing is
sent synchronously: a connection that has something to say puts itself into the layer's ready queue and
says it in `transmit`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from juneau.netstack.events import Closed, Connected, Readable, Writable
from juneau.netstack.tcp import output, steps
from juneau.netstack.tcp.emitter import Emitter
from juneau.netstack.tcp.info import TcpInfo, gather
from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.tcp.rcv import Receiver
from juneau.netstack.tcp.segment import Segment
from juneau.netstack.tcp.snd import NEVER, Sender, Timer, shared
from juneau.netstack.tcp.states import CAN_SEND, SYNCHRONIZED, TRANSITIONS, Cause, State
from juneau.netstack.types import Buffer, CloseReason, Endpoint, FourTuple, Micros, Misuse, Path, TxPacket
from juneau.netstack.wire.tcp import ACK, RST

if TYPE_CHECKING:
    from juneau.netstack.tcp.handshake import Handshake
    from juneau.netstack.tcp.layer import TcpLayer

_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000
_ESTABLISHED: Final = State.ESTABLISHED
_CLOSED: Final = State.CLOSED
_TIME_WAIT: Final = State.TIME_WAIT
_PREDICTED: Final = frozenset(state for state in State if SYNCHRONIZED <= state < _TIME_WAIT)
_RST_UNSENT: Final = frozenset({State.CLOSED, State.LISTEN, State.SYN_SENT, State.TIME_WAIT})
"""States in which abort sends nothing (RFC 9293 3.10.5). In CLOSING and LAST-ACK, where the RFC is silent
too, a RST tells the peer not to wait for what it will not get."""


_NO_CHALLENGES: Final = (0, 0)


class Keepalive(NamedTuple):
    """SO_KEEPALIVE and what goes with it."""

    on: bool
    idle: Micros
    interval: Micros
    probes: int

    @classmethod
    def of(cls, options: TcpOptions) -> Keepalive:
        return cls(
            options.keepalive, options.keepalive_idle, options.keepalive_interval, options.keepalive_probes
        )


class Misc(Enum):
    """What `misc_at` is for."""

    NONE = "off"
    KEEPALIVE = "keepalive"
    FIN_WAIT_2 = "fin-wait-2"


class TcpConnection:
    __slots__ = (
        "__weakref__", "_challenges", "_charged", "_keep_probes", "_misc", "_misc_at",
        "_readable_told", "born", "bytes_acked", "bytes_received", "data_at", "detached", "ece_now", "ecn_ok",
        "emitter", "fast", "flow", "heap_at", "heard_at", "held", "hs", "keeping", "layer",
        "max_payload", "path", "peer_mss", "queued", "rcv", "segs_in", "segs_out", "snd", "soft_error",
        "state", "syn_now", "syn_sent_at", "ts_offset", "ts_on", "user", "user_timeout", "want_writable",
    )  # fmt: skip

    def __init__(
        self,
        layer: TcpLayer,
        flow: FourTuple,
        path: Path,
        hs: Handshake,
        state: State,
        now: Micros,
        emitter: Emitter | None = None,
    ) -> None:
        options = layer.options
        self.layer = layer
        self.flow = flow
        self.path = path
        self.user: object = None
        self.state = state
        self.want_writable = False
        """Set by the application: tell me once when the send queue shrinks."""
        self.detached = False
        """The application has called close or abort: no more events."""
        self.held = True
        """False while it waits in the accept queue: its end is nobody's news."""
        self.queued = False
        """In the layer's ready queue."""
        self.heap_at = NEVER
        """The earliest entry of this connection in the layer's timer heap."""
        self.snd = Sender(hs.iss, options)
        self.rcv = Receiver(hs.irs, hs.rcv_wscale, layer.receive_rules)
        self.emitter = emitter or Emitter(*flow, layer.link, options.ttl)
        self.hs: Handshake | None = hs
        """Until both SYNs are acknowledged."""
        self.ts_offset = hs.ts_offset
        self.ts_on = hs.timestamps
        self.ecn_ok = hs.ecn
        self.ece_now = False
        self.peer_mss = shared(hs.peer_mss)
        self.syn_now = False
        self.syn_sent_at = NEVER
        self.keeping = layer.keeping
        self.user_timeout = options.user_timeout
        self.soft_error: CloseReason | None = None
        """What ICMP said; the reason of a later timeout (RFC 1122 4.2.3.9)."""
        self.born = self.heard_at = self.data_at = now
        self.segs_in = self.segs_out = self.bytes_received = self.bytes_acked = 0
        self.max_payload = 0
        self.fast = False
        """Segments may take the short way through `receive`."""
        self._misc = Misc.NONE
        self._misc_at: Micros = NEVER
        self._keep_probes = 0
        self._readable_told = False
        self._charged = 0
        self._challenges = _NO_CHALLENGES
        """How many challenge ACKs were asked for, until when that counts."""

    @property
    def local(self) -> Endpoint:
        return Endpoint(self.flow[0], self.flow[1])

    @property
    def remote(self) -> Endpoint:
        return Endpoint(self.flow[2], self.flow[3])

    # --- for the application ---

    def send(self, data: bytes | bytearray | memoryview, now: Micros = 0, *, push: bool = True) -> None:
        """Queue all of `data`: `bytes` by reference, others copied. Raises Misuse once our half is closed.

        What the time is matters to `transmit` only.
        """
        snd = self.snd
        if self.state not in CAN_SEND or snd.fin:
            raise Misuse(f"send on {self}: this half is closed ({self.state.name})")
        snd.queue.append(data)
        snd.push = push
        if self.state >= SYNCHRONIZED and not self.queued:
            self.layer.ready(self)

    @property
    def send_queue_bytes(self) -> int:
        """Queued by the application and not yet acknowledged."""
        snd = self.snd
        una = snd.una if snd.una > snd.iss else snd.iss + 1
        return max(snd.queue.end - una, 0)

    @property
    def progress(self) -> int:
        """Grows with every byte that was received, queued or acknowledged."""
        return self.bytes_received + 2 * self.bytes_acked + self.send_queue_bytes

    def read(self, limit: int) -> list[Buffer]:
        """In-order bytes, `limit` at most in all; makes room in the window."""
        rcv = self.rcv
        chunks = rcv.chunks
        before = chunks.size
        out = chunks.take(limit)
        taken = before - chunks.size
        self._readable_told = False
        self._charged -= taken
        self.layer.buffered -= taken
        if not rcv.ack_now and self.state >= SYNCHRONIZED and rcv.fin_seq is None and rcv.wants_update():
            rcv.ack_now = True
            self.layer.ready(self)
        return out

    @property
    def recv_queue_bytes(self) -> int:
        return self.rcv.chunks.size

    @property
    def at_eof(self) -> bool:
        """Their FIN has come and everything before it was read."""
        rcv = self.rcv
        return rcv.fin_seq is not None and rcv.nxt > rcv.fin_seq and not rcv.chunks.size

    def shutdown(self, now: Micros) -> None:
        """Half-close: FIN after what is queued. Repeating it is harmless."""
        if self.snd.fin or self.state not in CAN_SEND:
            return
        self.snd.fin = True
        if self.state >= SYNCHRONIZED:  # before that it waits for ESTABLISHED (RFC 9293 3.10.4)
            self.move(Cause.CLOSE)
            self.layer.ready(self)

    def close(self, now: Micros) -> None:
        """Orderly, and forget: no more events. Unread data, or data that comes later, is answered by RST."""
        if self.detached:
            return
        self.detached = True
        self.want_writable = False
        if self.state is State.SYN_SENT or self.state is State.CLOSED:
            self.finish(CloseReason.ABORTED, now)
            return
        if (
            self.rcv.chunks.size
            and self.layer.options.rst_on_unread_close
            and self.state is not State.TIME_WAIT
        ):
            self._reset(now)
            return
        self.shutdown(now)
        if self.state is State.FIN_WAIT_2:
            self._set_misc(Misc.FIN_WAIT_2, now + self.layer.options.fin_wait_2)

    def abort(self, now: Micros) -> None:
        """RST at once, and forget: no more events."""
        self.detached = True
        self._reset(now)

    def info(self) -> TcpInfo:
        return gather(self)

    def set_keepalive(
        self, on: bool, now: Micros, *, idle: Micros = 0, interval: Micros = 0, probes: int = 0
    ) -> None:
        """SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT; 0 keeps what is set."""
        old = self.keeping
        self.keeping = Keepalive(on, idle or old.idle, interval or old.interval, probes or old.probes)
        if self.state >= SYNCHRONIZED:
            self._start_keepalive(now)

    @property
    def nodelay(self) -> bool:
        return self.snd.nodelay

    @nodelay.setter
    def nodelay(self, on: bool) -> None:
        self.snd.nodelay = on
        if on and self.state >= SYNCHRONIZED and self.snd.waiting():
            self.layer.ready(self)

    def __repr__(self) -> str:
        return f"<TcpConnection {self.local} {self.remote} {self.state.name}>"

    # --- arriving segments ---

    def receive(self, seg: Segment, now: Micros) -> None:
        self.segs_in += 1
        self.heard_at = now
        steps.process(self, seg, now)

    def receive_predicted(
        self, seq: int, ack: int, fin: int, window: int, payload: memoryview, ts_val: int, now: Micros
    ) -> bool:
        """What nearly all segments are (header prediction): no flags but ACK, PSH and FIN, no options but a
        timestamp, while `fast` holds. False: it is not that, and nothing was done; `receive` is for it.
        """
        rcv, snd, layer = self.rcv, self.snd, self.layer
        nxt, una = rcv.nxt, snd.una
        size = len(payload)
        length = size + fin  # as numbered
        acked = (ack - una) & _MASK
        if (
            (seq ^ nxt) & _MASK
            or acked > snd.nxt - una
            or not (length or acked)
            or (
                length
                and (
                    length > rcv.adv - nxt
                    or layer.buffered + size > layer.buffer_limit
                    or self.state is not _ESTABLISHED
                )
            )
            or rcv.assembler.size
            or (acked and not snd.clean())
        ):
            return False
        if self.ts_on:
            if ts_val < 0 or (ts_val - rcv.ts_recent) & _MASK >= _HALF:
                return False
            if rcv.last_ack >= nxt:
                rcv.ts_recent, rcv.ts_recent_at = ts_val, now
        self.segs_in += 1
        self.heard_at = now
        snd.wnd = wnd = window << snd.wscale
        if wnd >= snd.max_wnd:  # the same number, once in memory
            snd.max_wnd = wnd
        snd.wl1, snd.wl2 = nxt, una
        if acked:
            self.bytes_acked += acked
            snd.wl2 = una = una + acked
            snd.on_ack_simple(una, acked, now)
            if self.want_writable:
                self.want_writable = False
                layer.events.append(Writable(self))
            if snd.fin and snd.una > snd.queue.end:
                self.on_fin_acked(now)
        if size:
            rcv.chunks.append(payload)
            rcv.nxt = nxt + size
            rcv.on_in_order(size, now)
            layer.buffered += size
            self._charged += size
            self.bytes_received += size
            self.data_at = now
            if not self._readable_told:
                self._readable_told = True
                layer.events.append(Readable(self))
            if rcv.unacked >= rcv.ack_due:
                layer.hurry = True
        if length > size:
            rcv.fin_seq = rcv.nxt
            self.take_fin(now)
        if not self.queued and (
            rcv.ack_now or snd.queue.end > snd.nxt or (snd.fin and snd.queue.end == snd.nxt)
        ):
            layer.ready(self)
        if snd.timer_at < self.heap_at or rcv.ack_at < self.heap_at:
            layer.arm(self, min(snd.timer_at, rcv.ack_at))
        return True

    def take_fin(self, now: Micros) -> None:
        """Their FIN is next: RFC 9293 3.10.7.4, eighth step."""
        rcv = self.rcv
        rcv.nxt += 1
        rcv.ack_now = True
        rcv.forget_out_of_order()  # whatever was claimed to lie beyond the FIN
        self.move(Cause.FIN)
        self.tell_readable(eof=True)
        if self.state is _TIME_WAIT:
            self.enter_time_wait(now)

    def after_steps(self, now: Micros) -> None:
        """A segment went through the steps: settle accounts, queue for output, arm timers."""
        self.charge()
        rcv, snd = self.rcv, self.snd
        if self.state is State.CLOSED or self.state is State.TIME_WAIT:
            return
        if rcv.ack_now or rcv.dup_acks or self.syn_now or snd.board.lost or snd.waiting():
            self.layer.ready(self)
            if rcv.unacked >= rcv.ack_due or rcv.assembler.size:
                self.layer.hurry = True
        self.rearm()

    def charge(self) -> None:
        """Tell the layer how many received bytes are held here."""
        held = self.rcv.chunks.size + self.rcv.assembler.size
        self.layer.buffered += held - self._charged
        self._charged = held

    def tell_readable(self, *, eof: bool = False) -> None:
        if not self.detached and (eof or not self._readable_told):
            self._readable_told = True
            self.layer.events.append(Readable(self))

    def tell_connected(self) -> None:
        if not self.detached:
            self.layer.events.append(Connected(self))

    def tell_writable(self) -> None:
        if self.want_writable and not self.detached:
            self.want_writable = False
            self.layer.events.append(Writable(self))

    def may_challenge(self, now: Micros) -> bool:
        """RFC 5961 section 7, per connection, so that one peer's noise cannot silence another's."""
        options = self.layer.options
        count, until = self._challenges
        if now >= until:
            count, until = 0, now + options.challenge_ack_window
        self._challenges = count + 1, until
        if count < options.challenge_acks:
            return True
        self.layer.counters.add("tcp.challenge_ack_limited")
        return False

    # --- states ---

    def move(self, cause: Cause) -> None:
        self.state = state = TRANSITIONS[self.state, cause]
        self.fast = state in _PREDICTED and not self.ecn_ok

    def establish(self, hs: Handshake, now: Micros, *, syn_lost: bool) -> None:
        """Both SYNs are acknowledged."""
        snd = self.snd
        snd.wscale = hs.snd_wscale
        snd.establish(self._payload_mss(), sack_ok=hs.sack, syn_lost=syn_lost)
        self.rcv.sack_ok = hs.sack
        self.update_limits()
        self.data_at = now
        self.hs = None
        self.move(Cause.SYN_ACKED)
        self._start_keepalive(now)
        if snd.fin:
            self.move(Cause.CLOSE)

    def _payload_mss(self) -> int:
        options = self.layer.options
        mss = min(self.peer_mss, self.layer.path_mtu(self.flow[2]) - 40, options.mss or 65_535)
        return shared(max(mss, options.min_mss) - (12 if self.ts_on else 0))

    def on_path_mtu(self) -> None:
        """The path's MTU fell: send smaller segments from now on, and again what was too large."""
        if self.state >= SYNCHRONIZED:
            self.snd.on_mss(self._payload_mss())
            self.update_limits()
            self.layer.ready(self)

    def update_limits(self) -> None:
        mss, link = self.snd.mss, self.layer.link
        if link.tso:
            room = min(link.max_superframe, 65_535) - 40 - (12 if self.ts_on else 0)
            self.max_payload = shared(max(room - room % mss, mss))
        else:
            self.max_payload = shared(mss * output.VIRTUAL_BURST)

    def finish(self, reason: CloseReason, now: Micros) -> None:
        """To CLOSED, the end."""
        if self.state is State.CLOSED:
            return
        if self.state is not State.TIME_WAIT:
            self.state = State.CLOSED
            self.layer.forget(self)
        self.release()
        self._tell_closed(reason)

    def _tell_closed(self, reason: CloseReason) -> None:
        if self.held and not self.detached:
            self.layer.events.append(Closed(self, reason))

    def release(self) -> None:
        """Give back what the protocol held; what the application may still read stays."""
        self.fast = self.syn_now = False
        self.snd.clear()
        self.rcv.clear()
        if self.detached:
            self.rcv.chunks.clear()
        self.charge()
        self._misc, self._misc_at = Misc.NONE, NEVER

    def enter_time_wait(self, now: Micros) -> None:
        """Only a small record stays in the table; for the application this is the end."""
        self.layer.enter_time_wait(self, now)
        self.release()
        self._tell_closed(CloseReason.NORMAL)

    def on_fin_acked(self, now: Micros) -> None:
        self.move(Cause.FIN_ACKED)
        if self.state is State.TIME_WAIT:
            self.enter_time_wait(now)
        elif self.state is State.CLOSED:
            self.layer.forget(self)
            self.release()
            self._tell_closed(CloseReason.NORMAL)
        elif self.detached:
            self._set_misc(Misc.FIN_WAIT_2, now + self.layer.options.fin_wait_2)

    def _reset(self, now: Micros) -> None:
        if self.state not in _RST_UNSENT:
            self.send_reset(now)
        self.finish(CloseReason.ABORTED, now)
        self.release()

    def send_reset(self, now: Micros) -> None:
        snd, rcv = self.snd, self.rcv
        self.layer.reply(
            self.emitter.packet(
                self.path, snd.nxt, rcv.nxt, RST | ACK, 0, ts_val=self._ts(now), ts_ecr=rcv.ts_recent
            )
        )

    # --- output ---

    def _ts(self, now: Micros) -> int:
        return (now // 1000 + self.ts_offset) & _MASK if self.ts_on else -1

    def ts_now(self, now: Micros) -> int:
        """The timestamp clock ticks every millisecond (RFC 7323 5.4)."""
        return (now // 1000 + self.ts_offset) & _MASK

    def transmit(self, now: Micros, out: list[TxPacket], quantum: int) -> bool:
        return output.transmit(self, now, out, quantum)

    # --- time ---

    def deadline(self) -> Micros:
        at = min(self.snd.timer_at, self.rcv.ack_at, self._misc_at)
        if self.user_timeout and self.snd.stalled_since != NEVER:
            at = min(at, self.snd.stalled_since + self.user_timeout)
        return at

    def rearm(self) -> None:
        at = self.deadline()
        if at < self.heap_at:
            self.layer.arm(self, at)

    def handle_timeout(self, now: Micros) -> None:
        """Whatever is due by `now`; early calls do nothing."""
        rcv, snd = self.rcv, self.snd
        if rcv.ack_at <= now:
            rcv.ack_at = NEVER
            rcv.ack_now = True
            self.layer.ready(self)
        if self.user_timeout and now - snd.stalled_since >= self.user_timeout:
            self._give_up(now)
            return
        if snd.timer_at <= now:
            self._on_snd_timer(now)
        if self._misc_at <= now and self.state is not State.CLOSED:
            self._on_misc(now)
        self.rearm()

    def _on_snd_timer(self, now: Micros) -> None:
        snd, options = self.snd, self.layer.options
        if self.state < SYNCHRONIZED:
            limit = options.syn_retries if self.state is State.SYN_SENT else options.synack_retries
            if snd.retries >= limit:
                self._give_up(now)
                return
            snd.on_syn_timeout(now)
            self.syn_now = True
            self.layer.ready(self)
            return
        timed = snd.timer is Timer.RTO or snd.timer is Timer.PERSIST
        limit = options.orphan_retries if self.detached else options.data_retries
        if timed and (snd.retries >= limit or (self.detached and snd.probes >= limit)):
            self._give_up(now)
            return
        if snd.timer is Timer.PERSIST:
            snd.retries += 1
        elif snd.timer is Timer.RTO:
            self.layer.counters.add("tcp.retransmission_timeouts")
        snd.on_timer(now)
        self.layer.ready(self)

    def _give_up(self, now: Micros) -> None:
        """Out of patience: R2 of RFC 9293 3.8.3, user timeout, keepalive."""
        self.layer.counters.add("tcp.timed_out")
        if self.state not in _RST_UNSENT:
            self.send_reset(now)
        self.finish(self.soft_error or CloseReason.TIMEOUT, now)

    def _set_misc(self, misc: Misc, at: Micros) -> None:
        self._misc, self._misc_at = misc, at
        self.rearm()

    def _start_keepalive(self, now: Micros) -> None:
        self._keep_probes = 0
        if self.keeping.on:
            self._set_misc(Misc.KEEPALIVE, now + self.keeping.idle)
        elif self._misc is Misc.KEEPALIVE:
            self._misc, self._misc_at = Misc.NONE, NEVER

    def _on_misc(self, now: Micros) -> None:
        if self._misc is Misc.FIN_WAIT_2:
            self.layer.counters.add("tcp.fin_wait_2_timeout")
            self.finish(CloseReason.TIMEOUT, now)
        elif self._misc is Misc.KEEPALIVE:
            self._on_keepalive(now)

    def _on_keepalive(self, now: Micros) -> None:
        """RFC 9293 3.8.4. Unacknowledged data has its own timers: then keepalive only waits."""
        idle = now - self.heard_at
        if idle < self.keeping.idle:
            self._keep_probes = 0
            self._set_misc(Misc.KEEPALIVE, self.heard_at + self.keeping.idle)
            return
        if not self.snd.flight and not self.snd.waiting():
            if self._keep_probes >= self.keeping.probes:
                self._give_up(now)
                return
            self._keep_probes += 1
            packets: list[TxPacket] = []
            output.send_ack(self, now, packets, seq=self.snd.una - 1)
            self.layer.reply(packets[0])
        self._set_misc(Misc.KEEPALIVE, now + self.keeping.interval)
