"""All TCP of one stack: the connection table, segments of no connection, output in turn, time."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias

from juneau.netstack.counters import Counters
from juneau.netstack.events import Event
from juneau.netstack.limits import Limits
from juneau.netstack.tcp import cookies
from juneau.netstack.tcp.conn import Keepalive, TcpConnection
from juneau.netstack.tcp.cookies import SynCookies
from juneau.netstack.tcp.emitter import Emitter
from juneau.netstack.tcp.handshake import Handshake, negotiate, wscale_for
from juneau.netstack.tcp.isn import IsnGenerator
from juneau.netstack.tcp.listener import Embryo, TcpListener, check_backlog, graduate, syn_ack
from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.tcp.rcv import ReceiveRules
from juneau.netstack.tcp.segment import Segment
from juneau.netstack.tcp.states import SYNCHRONIZED, Cause, State
from juneau.netstack.tcp.timers import NEVER, Timed, TimerHeap
from juneau.netstack.tcp.timewait import TimeWait
from juneau.netstack.types import (
    SECOND,
    CloseReason,
    Endpoint,
    FourTuple,
    Link,
    Micros,
    Misuse,
    Path,
    Refused,
    Rng,
    TxPacket,
)
from juneau.netstack.wire import tcp
from juneau.netstack.wire.checksum import ones_sum
from juneau.netstack.wire.icmp import IcmpErrorKind
from juneau.netstack.wire.tcp import ACK, CWR, ECE, FIN, PSH, RST, SYN, URG

_MASK: Final = 0xFFFF_FFFF
_QUANTUM: Final = 8
"""Packets one connection may send before it is the next one's turn."""
_MAX_REPLIES: Final = 1_024
"""Resets waiting to leave."""
_MAX_PATHS: Final = 1_024
"""Remote hosts whose smaller path MTU is remembered."""
_STAMP_AT: Final = 20
_PSH_FIN: Final = PSH | FIN
_ACK_PSH_FIN: Final = ACK | PSH | FIN
_HARD_ERRORS: Final = frozenset({IcmpErrorKind.PORT, IcmpErrorKind.PROTOCOL})


class Speaker(Protocol):
    """Whatever may wait in the ready queue."""

    queued: bool

    def transmit(self, now: Micros, out: list[TxPacket], quantum: int) -> bool: ...


Entry: TypeAlias = TcpConnection | TimeWait | Embryo


class TcpLayer:
    def __init__(
        self,
        link: Link,
        limits: Limits,
        options: TcpOptions,
        rng: Rng,
        secret: bytes,
        counters: Counters,
        events: list[Event],
    ) -> None:
        self.link = link
        self.limits = limits
        self.tune(options)
        self.counters = counters
        self.events = events
        self.isn = IsnGenerator(secret)
        """Has `generate(flow, now) -> (iss, timestamp offset)`; a test may put its own here."""
        self.buffered = 0
        """Received bytes held by all connections."""
        self.buffer_limit = limits.buffered_bytes
        self.gap_limit = self.buffer_limit * 3 // 4
        """Text beyond a gap is taken up to here: no gap, once its peer is dead, starves what is in order."""
        self.hurry = False
        """Somebody's bulk data wants its ACK now: it is the peer's clock."""
        self._rng = rng
        self._cookies = SynCookies(secret)
        self._table: dict[FourTuple, Entry] = {}
        self._listeners: dict[tuple[int, int], TcpListener] = {}
        self._time_wait: OrderedDict[FourTuple, TimeWait] = OrderedDict()
        self._embryos = 0
        self._connections = 0
        self._ready: deque[Speaker] = deque()
        self._replies: deque[TxPacket] = deque()
        self._timers = TimerHeap()
        self._path_mtus: OrderedDict[int, int] = OrderedDict()
        self._resets = 0
        self._resets_until: Micros = 0
        self._cookies_until: Micros = 0
        self._now: Micros = 0
        self._next_port = 0

    def tune(self, options: TcpOptions) -> None:
        """For connections to come. What they share is worked out here, once."""
        self.options = options
        self.keeping = Keepalive.of(options)
        self.push_segments = options.push_segments
        self.tos = options.dscp << 2
        buf, mss = options.rcv_buf or self.limits.rcv_buffer, options.mss or self.link.mtu - 40
        self.receive_rules = ReceiveRules(buf, mss, options)
        self.wscale = wscale_for(buf, options) if options.window_scaling else 0

    # --- in ---

    def receive(
        self, src: int, dst: int, tos: int, segment: memoryview, path: Path, now: Micros, csum_ok: bool
    ) -> None:
        """Take a segment addressed to this stack. `csum_ok`: the link vouches for the checksum."""
        size = len(segment)
        if size < 20:
            self.counters.drop("tcp.drop.malformed")
            return
        src_port, dst_port, seq, ack, offset_flags, window, _, urgent = tcp.HEADER.unpack_from(segment)
        header = offset_flags >> 10 & 0x3C
        if header < 20 or header > size:
            self.counters.drop("tcp.drop.malformed")
            return
        if not csum_ok and (src + dst + 6 + size + ones_sum(segment)) % 0xFFFF:
            self.counters.drop("tcp.drop.checksum")
            return
        self._now = now
        flags = offset_flags & 0x1FF
        payload = segment[header:]
        ts_val, ts_ecr = -1, 0
        usual = header == 20  # no options, or none but a timestamp
        if header == 32:
            layout, ts_val, ts_ecr = tcp.TIMESTAMP_WORDS.unpack_from(segment, _STAMP_AT)
            usual = layout == tcp.TIMESTAMP_LAYOUT and not flags & SYN
        flow = (dst, dst_port, src, src_port)
        entry = self._table.get(flow)  # type: ignore[call-overload]  # equal to, and hashed as, a FourTuple
        if (
            usual
            and (flags | _PSH_FIN) == _ACK_PSH_FIN
            and type(entry) is TcpConnection
            and entry.fast
            and entry.receive_predicted(seq, ack, flags & FIN, window, payload, ts_val, now)
        ):
            return
        seg = Segment(seq, ack, flags, window, payload, path, tos & 3)
        if usual:
            seg.ts_val, seg.ts_ecr = ts_val, ts_ecr
        else:
            self._read_options(seg, segment[20:header])
        if flags & URG:
            seg.urgent = urgent
        if entry is not None:
            entry.receive(seg, now)
        else:
            self.receive_new(FourTuple(*flow), seg, now)

    @staticmethod
    def _read_options(seg: Segment, options: memoryview) -> None:
        parsed = tcp.parse_options(options)
        seg.ts_val, seg.ts_ecr = parsed.timestamps or (-1, 0)
        seg.sack = parsed.sack
        seg.options = parsed

    def receive_new(self, flow: FourTuple, seg: Segment, now: Micros, *, after: int | None = None) -> None:
        """A segment of no connection: LISTEN (RFC 9293 3.10.7.2) or CLOSED (3.10.7.1).

        `after`: the 4-tuple was in TIME-WAIT with this snd_nxt; the new ISN must be beyond it.
        """
        listener = self._listeners.get((flow[0], flow[1])) or self._listeners.get((0, flow[1]))
        flags = seg.flags
        if flags & RST:
            self.counters.drop("tcp.drop.stray_reset")
            return
        if listener is None:
            self.counters.add("tcp.no_connection")
            self.reset_for(flow, seg)
        elif flags & ACK:
            if not self._try_cookie(listener, flow, seg, now):
                self.reset_for(flow, seg)
        elif flags & SYN and not (flags & FIN and self.options.drop_syn_fin):
            self._on_syn(listener, flow, seg, now, after)
        else:
            self.counters.drop("tcp.drop.no_syn")

    def reset_for(self, flow: FourTuple, seg: Segment) -> None:
        """The RST that answers an unacceptable segment (RFC 9293 3.10.7.1); none answers a RST."""
        if seg.flags & RST:
            return
        if self._now >= self._resets_until:
            self._resets, self._resets_until = 0, self._now + SECOND
        self._resets += 1
        if self._resets > self.options.rst_per_second:
            self.counters.add("tcp.resets_limited")
            return
        self.counters.add("tcp.resets_sent")
        emitter = Emitter(*flow, self.link, self.options.ttl)
        if seg.flags & ACK:
            self.reply(emitter.packet(seg.path, seg.ack, 0, RST, 0))
        else:
            self.reply(emitter.packet(seg.path, 0, seg.seq + seg.length, RST | ACK, 0))

    # --- passive opens ---

    def listen(self, local: Endpoint, *, backlog: int = 128, user: object = None) -> TcpListener:
        """Raises Misuse if the endpoint is taken; ip 0 is every address of the stack."""
        check_backlog(backlog)
        if local in self._listeners:
            raise Misuse(f"listen on {local}: address already in use (close the other listener first)")
        listener = TcpListener(self, local, backlog, user)
        self._listeners[local] = listener
        return listener

    def unlisten(self, listener: TcpListener) -> None:
        self._listeners.pop(listener.local, None)

    def _handshake(self, flow: FourTuple, now: Micros) -> Handshake:
        options, rules = self.options, self.receive_rules
        iss, ts_offset = self.isn.generate(flow, now)
        hs = Handshake(options, iss, ts_offset, rules.mss, self.wscale)
        hs.syn_window = min(self.buffer_for(rules.buf), options.initial_window or 65_535, 65_535)
        return hs

    def buffer_for(self, wanted: int) -> int:
        """A connection's receive buffer: past half of the stack's bytes only a little more is promised."""
        if self.buffered * 2 <= self.buffer_limit:
            return wanted
        return min(wanted, self.limits.min_rcv_buffer)

    def _on_syn(
        self, listener: TcpListener, flow: FourTuple, seg: Segment, now: Micros, after: int | None
    ) -> None:
        if listener.full or self._connections >= self.limits.connections:
            self.counters.drop("tcp.drop.accept_queue_full" if listener.full else "tcp.drop.connection_limit")
            return
        local = listener.local  # whose numbers all its connections share
        flow = FourTuple(local.ip or flow.local_ip, local.port, flow.remote_ip, flow.remote_port)
        hs = self._handshake(flow, now)
        if after is not None and 0 < ((after - hs.iss + 65_536) & _MASK) < 0x8000_0000:
            hs.iss = (after + 65_536) & _MASK  # RFC 9293 3.10.7.4 wants an ISN beyond the old snd_nxt
        hs.irs = seg.seq
        theirs = seg.options
        negotiate(hs, theirs, self.options)
        hs.ecn = self.options.ecn != "off" and seg.flags & (ECE | CWR) == ECE | CWR
        if self._embryos >= self.limits.half_open:
            self._send_cookie(flow, seg, hs, theirs, now)
            return
        embryo = Embryo(self, listener, flow, hs, seg.path, now)
        self._embryos += 1
        listener.embryos[flow] = embryo
        self._table[flow] = embryo
        self.ready(embryo)

    def _send_cookie(
        self, flow: FourTuple, seg: Segment, hs: Handshake, theirs: tcp.Options, now: Micros
    ) -> None:
        if not self.options.syn_cookies:
            self.counters.drop("tcp.drop.syn_queue_full")
            return
        self.counters.add("tcp.syn_cookies_sent")
        self._cookies_until = now + cookies.LIFETIME  # nobody may guess one at other times
        hs.iss = self._cookies.make(flow, seg.seq, hs.peer_mss, now)
        ts_now = (now // 1000 + hs.ts_offset) & _MASK
        if hs.timestamps:
            ts_now = cookies.pack_options(ts_now, theirs.wscale if hs.wscale_ok else None, hs.sack, hs.ecn)
        else:
            hs.wscale_ok = hs.sack = hs.ecn = False  # nowhere to keep them
        emitter = Emitter(*flow, self.link, self.options.ttl)
        self.reply(syn_ack(self, emitter, seg.path, hs, ts_now))

    def _try_cookie(self, listener: TcpListener, flow: FourTuple, seg: Segment, now: Micros) -> bool:
        """Whether the segment was taken for the last step of a stateless handshake."""
        if seg.flags & SYN or now >= self._cookies_until:
            return False
        irs, cookie = (seg.seq - 1) & _MASK, (seg.ack - 1) & _MASK
        mss = self._cookies.check(flow, irs, cookie, now)
        if mss is None:
            return False
        if listener.full or self._connections >= self.limits.connections:
            self.counters.drop("tcp.drop.accept_queue_full")
            return True
        hs = self._handshake(flow, now)
        hs.iss, hs.irs = cookie, irs
        hs.syn_window = min(
            self.receive_rules.buf, self.options.initial_window or 65_535, 65_535
        )  # at least what we said
        stamped = seg.ts_val >= 0 and hs.timestamps
        wscale, sack, ecn = cookies.unpack_options(seg.ts_ecr) if stamped else (None, False, False)
        negotiate(hs, tcp.Options(mss, wscale, sack, (seg.ts_val, 0) if stamped else None), self.options)
        hs.ecn = ecn and self.options.ecn != "off"
        self.counters.add("tcp.syn_cookies_accepted")
        graduate(self, listener, flow, hs, seg, now, sent_at=-1, syn_lost=False)
        return True

    def forget_embryo(self, embryo: Embryo) -> None:
        if self._table.get(embryo.flow) is embryo:
            del self._table[embryo.flow]
            self._embryos -= 1

    def adopt(self, conn: TcpConnection) -> None:
        self._table[conn.flow] = conn
        self._connections += 1

    @property
    def half_open(self) -> int:
        return self._embryos

    # --- active opens ---

    def connect(
        self, remote: Endpoint, *, local: Endpoint, path: Path, now: Micros, user: object = None
    ) -> TcpConnection:
        """Queue a SYN. `local.port` 0: an ephemeral one; Refused if none is left, or by a limit."""
        if self._connections >= self.limits.connections:
            self.counters.add("tcp.connection_limit")
            raise Refused(
                "tcp.connection_limit", f"connect to {remote}: {self._connections} connections are open"
            )
        flow = self._local_flow(local, remote, now)
        hs = self._handshake(flow, now)
        conn = TcpConnection(self, flow, path, hs, State.CLOSED, now)
        conn.user = user
        conn.move(Cause.OPEN)
        conn.syn_now = True
        self.adopt(conn)
        self.ready(conn)
        return conn

    def _local_flow(self, local: Endpoint, remote: Endpoint, now: Micros) -> FourTuple:
        if local.port:
            flow = FourTuple(local.ip, local.port, remote.ip, remote.port)
            if not self._free(flow, now):
                raise Misuse(f"connect from {local} to {remote}: address already in use")
            return flow
        low, high = self.options.ephemeral_low, self.options.ephemeral_high
        count = high - low + 1
        start = self._rng.getrandbits(16) % count
        for step in range(count):
            port = low + (start + step) % count
            flow = FourTuple(local.ip, port, remote.ip, remote.port)
            if (local.ip, port) not in self._listeners and self._free(flow, now):
                return flow
        raise Refused("tcp.no_port", f"connect to {remote}: no ephemeral port of {local} is free")

    def _free(self, flow: FourTuple, now: Micros) -> bool:
        """Free, or in TIME-WAIT for a second with timestamps to tell old from new (RFC 6191 section 2)."""
        entry = self._table.get(flow)
        if entry is None:
            return True
        if not isinstance(entry, TimeWait) or not entry.ts_on:
            return False
        if entry.expires_at - self.options.time_wait + SECOND > now:
            return False
        self.end_time_wait(entry)
        return True

    # --- ends ---

    def forget(self, conn: TcpConnection) -> None:
        if self._table.get(conn.flow) is conn:
            del self._table[conn.flow]
            self._connections -= 1
            self._shrink()

    def enter_time_wait(self, conn: TcpConnection, now: Micros) -> None:
        self.forget(conn)
        if len(self._time_wait) >= self.limits.time_wait:
            self.counters.add("tcp.time_wait_overflow")
            self.end_time_wait(next(iter(self._time_wait.values())))
        entry = TimeWait(self, conn, conn.emitter, now)
        self._table[conn.flow] = self._time_wait[conn.flow] = entry
        if conn.rcv.ack_now:
            self.ready(entry)

    def end_time_wait(self, entry: TimeWait) -> None:
        del self._table[entry.flow], self._time_wait[entry.flow]
        self._shrink()

    def _shrink(self) -> None:
        if not self._table:
            self._table = {}  # an emptied dict keeps its room

    def restart_time_wait(self, entry: TimeWait, now: Micros) -> None:
        entry.expires_at = now + self.options.time_wait
        self._time_wait.move_to_end(entry.flow)

    @property
    def time_wait_count(self) -> int:
        return len(self._time_wait)

    def remove_address(self, ip: int, now: Micros) -> None:
        """Abort connections and close listeners of `ip`, telling the application."""
        for entry in [x for flow, x in self._table.items() if flow[0] == ip]:
            if isinstance(entry, TimeWait):
                self.end_time_wait(entry)
            elif isinstance(entry, Embryo):
                entry.reset(now)
            else:
                if entry.state >= SYNCHRONIZED:
                    entry.send_reset(now)
                entry.finish(CloseReason.ABORTED, now)
        for listener in [x for x in self._listeners.values() if x.local.ip == ip]:
            listener.close(now)

    def connections(self) -> Iterator[TcpConnection]:
        """All but half-open ones and those in TIME-WAIT."""
        return (x for x in self._table.values() if isinstance(x, TcpConnection))

    def listeners(self) -> Iterator[TcpListener]:
        return iter(self._listeners.values())

    def time_waits(self) -> Iterator[TimeWait]:
        return iter(self._time_wait.values())

    # --- ICMP ---

    def path_mtu(self, ip: int) -> int:
        if not self._path_mtus:
            return self.link.mtu
        return min(self._path_mtus.get(ip, self.link.mtu), self.link.mtu)

    def receive_icmp_error(
        self, flow: FourTuple, kind: IcmpErrorKind, mtu: int, seq: int, now: Micros
    ) -> None:
        """Heed an error about a packet of ours if it quotes what is in flight (RFC 5927 section 4.1)."""
        conn = self._table.get(flow)
        if not isinstance(conn, TcpConnection):
            return
        snd = conn.snd
        if not (snd.flight and ((seq - snd.una) & _MASK) < snd.flight):
            self.counters.drop("tcp.drop.icmp_not_in_flight")
            return
        if kind is IcmpErrorKind.FRAG_NEEDED:
            self._lower_mtu(conn, mtu)
        elif conn.state < SYNCHRONIZED and kind in _HARD_ERRORS:
            # hard before, soft after the handshake (RFC 5927 5.2)
            conn.finish(CloseReason.REFUSED if kind is IcmpErrorKind.PORT else CloseReason.UNREACHABLE, now)
        else:
            conn.soft_error = CloseReason.UNREACHABLE

    def _lower_mtu(self, conn: TcpConnection, mtu: int) -> None:
        """RFC 1191; a router that names no MTU gets RFC 1191's next plateau."""
        ip = conn.flow.remote_ip
        current = self.path_mtu(ip)
        if not mtu:
            mtu = next((p for p in (1492, 1006, 576) if p < current), self.options.min_pmtu)
        mtu = max(mtu, self.options.min_pmtu)
        if mtu >= current:
            return
        self.counters.add("tcp.path_mtu_lowered")
        self._path_mtus[ip] = mtu
        self._path_mtus.move_to_end(ip)
        if len(self._path_mtus) > _MAX_PATHS:
            self._path_mtus.popitem(last=False)
        for other in self.connections():
            if other.flow.remote_ip == ip:
                other.on_path_mtu()

    # --- out ---

    def ready(self, speaker: Speaker) -> None:
        """`speaker` has something to send."""
        if not speaker.queued:
            speaker.queued = True
            self._ready.append(speaker)

    def reply(self, packet: TxPacket) -> None:
        """A packet that needs no connection to leave."""
        if len(self._replies) >= _MAX_REPLIES:
            self.counters.drop("tcp.drop.replies_full")
            return
        self._replies.append(packet)

    @property
    def wants_output(self) -> bool:
        return bool(self._ready or self._replies)

    def take_packets(self, now: Micros, budget: int = 64) -> list[TxPacket]:
        """What may leave now, about `budget` packets, connections taking turns."""
        out: list[TxPacket] = []
        self.hurry = False
        replies, ready = self._replies, self._ready
        while replies and len(out) < budget:
            out.append(replies.popleft())
        while ready and (left := budget - len(out)) > 0:
            speaker = ready.popleft()
            speaker.queued = False
            if speaker.transmit(now, out, left if left < _QUANTUM else _QUANTUM) and not speaker.queued:
                speaker.queued = True
                ready.append(speaker)
        return out

    # --- time ---

    def arm(self, timed: Timed, at: Micros) -> None:
        self._timers.arm(timed, at)

    def next_timeout(self) -> Micros | None:
        """Never later than the earliest deadline; 0 if packets wait to be taken."""
        if self._ready or self._replies:
            return 0
        at = self._timers.next()
        if self._time_wait:
            at = min(at, next(iter(self._time_wait.values())).expires_at)
        return None if at == NEVER else at

    def quiet_until(self, at: Micros) -> bool:
        """Whether neither packets nor a timer before `at` wait. A timer that is void by now counts."""
        if self._ready or self._replies or self._timers.bound() < at:
            return False
        return not self._time_wait or next(iter(self._time_wait.values())).expires_at >= at

    def handle_timeout(self, now: Micros) -> None:
        self._now = now
        self._timers.expire(now)
        waiting = self._time_wait
        while waiting and (entry := next(iter(waiting.values()))).expires_at <= now:
            self.end_time_wait(entry)
