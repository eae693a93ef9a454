"""The sending half: what may leave now, what an ACK means, when to send again.

Sequence numbers are extended (see `seq`). Loss recovery follows RFC 8985 (RACK-TLP) and RFC 6675 where
the peer has SACK, RFC 6582 where it has not. A connection ends from here only by `on_timer`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from juneau.netstack.tcp.congestion import ALGORITHMS, CongestionControl, Reno
from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.tcp.recovery.prr import Prr
from juneau.netstack.tcp.recovery.rack import DUP_THRESH, Rack
from juneau.netstack.tcp.recovery.scoreboard import NO_RECORDS, SACKED, SENT, Scoreboard, Sent
from juneau.netstack.tcp.rtt import RttEstimator
from juneau.netstack.tcp.sendqueue import SendQueue
from juneau.netstack.types import MILLISECOND, SECOND, Micros

NEVER: Final[Micros] = (1 << 62) - 1
_MANY_SIZES: Final = 256
_RTO_AFTER_SYN_LOSS: Final[Micros] = 3 * SECOND


_IDLE_PRR: Final = Prr(0)
"""Of a sender that has lost nothing yet; never written to."""


_UNOPENED: Final = Reno(536, 536)
"""Of a sender whose handshake is not over; never written to."""


_sizes: Final[dict[int, int]] = {}


def shared(size: int) -> int:
    """The same, once for all connections, which mostly agree on their sizes."""
    return _sizes.setdefault(size, size) if len(_sizes) < _MANY_SIZES else _sizes.get(size, size)


class Mode(Enum):
    OPEN = "open"
    RECOVERY = "fast recovery"
    LOSS = "after a timeout"


class Timer(Enum):
    """What `timer_at` is for; at most one of them is needed at a time."""

    NONE = "off"
    RTO = "rto"
    TLP = "tail loss probe"
    REORDER = "rack reordering"
    PERSIST = "persist"


_NONE: Final = Timer.NONE
_RTO: Final = Timer.RTO
_TLP: Final = Timer.TLP
_REORDER: Final = Timer.REORDER
_OPEN: Final = Mode.OPEN


class Sender:
    __slots__ = (
        "_cwnd_full", "_delivered_at", "_delivered_end", "_dsacked", "_dupacks", "_ecn_recover", "_in_retry",
        "_judged", "_peak", "_peak_end", "_rack", "_reno_sacked", "_rto_base", "_tlp_end", "_tlp_retrans",
        "_undo", "_undo_end", "board", "cc", "cwr_pending", "fin", "force", "initial_cwnd", "iss", "max_wnd",
        "mode", "mss", "nodelay", "nxt", "options", "probe_now", "probes", "prr", "push", "queue", "recover",
        "retries", "rtt", "sack_ok", "stalled_since", "timer", "timer_at", "tlp_now", "una", "wl1", "wl2",
        "wnd", "wscale",
    )  # fmt: skip

    def __init__(self, iss: int, options: TcpOptions) -> None:
        self.options = options
        self.iss = iss
        self.una = iss
        self.nxt = iss
        self.wnd = 0
        """The peer's window, bytes."""
        self.wl1 = self.wl2 = 0
        self.max_wnd = 0
        self.wscale = 0
        self.mss = options.default_mss
        """Payload bytes of a full segment: what the peer and the path take, less the timestamp option."""
        self.sack_ok = False
        self.nodelay = options.nodelay
        self.queue = SendQueue(iss + 1)
        self.push = True
        """The last send asked for PSH (RFC 9293 3.9.1.2)."""
        self.fin = False
        """Our FIN follows the queued data; its sequence number is `queue.end`."""
        self.board = Scoreboard()
        self._rack: Rack | None = None
        self._delivered_at: Micros = -1
        self._delivered_end = 0
        """The last record acknowledged; most connections never need more of RACK's state."""
        self.prr = _IDLE_PRR
        self.rtt = RttEstimator(options.rto_initial, options.rto_min, options.rto_max)
        self.cc: CongestionControl = _UNOPENED
        self.initial_cwnd = 0
        self.mode = _OPEN
        self.recover = iss
        self.retries = 0
        """Timeouts without progress."""
        self.probes = 0
        """Window probes without an opening."""
        self.probe_now = False
        self.tlp_now = False
        self.stalled_since: Micros = NEVER
        """Since when something waits for an acknowledgement or a window without progress."""
        self.timer = _NONE
        self.timer_at: Micros = NEVER
        self.cwr_pending = False
        self.force = False
        """The one retransmission that a timeout or entering recovery asks for leaves whatever the window."""
        self._rto_base: Micros = 0
        self._dupacks = 0
        self._reno_sacked = 0
        self._cwnd_full = False
        self._peak = 0
        self._peak_end = iss
        """The largest flight of the last window: an ACK that drains it does not make the window unused."""
        self._tlp_end = 0
        self._tlp_retrans = False
        self._in_retry = False
        self._undo: tuple[int, int, Micros, int] | None = None
        """Before the window was cut: cwnd, ssthresh, when, and `retrans_ever`."""
        self._undo_end = 0
        """DSACKs come until this is acknowledged."""
        self._judged = False
        """The first ACK with progress since has told what its timestamp tells."""
        self._dsacked = 0
        """Bytes reported as duplicates since."""
        self._ecn_recover = iss

    def establish(self, mss: int, *, sack_ok: bool, syn_lost: bool) -> None:
        """The handshake is over: sizes are known."""
        self.mss = mss
        self.sack_ok = sack_ok
        self.initial_cwnd = shared(self.options.initial_cwnd * mss)
        self.cc = ALGORITHMS[self.options.congestion_control](mss, mss if syn_lost else self.initial_cwnd)
        if syn_lost:
            self.rtt.rto = max(self.rtt.rto, _RTO_AFTER_SYN_LOSS)  # RFC 6298 5.7

    @property
    def rack(self) -> Rack:
        if self._rack is None:
            at = self._delivered_at
            self._rack = Rack(at, self._delivered_end, self.rtt.latest if at >= 0 else 0)
        return self._rack

    # --- what may leave ---

    @property
    def flight(self) -> int:
        return self.nxt - self.una

    def pipe(self) -> int:
        """RFC 6675's estimate of the bytes in the network."""
        board = self.board
        return self.nxt - self.una - board.sacked - board.lost - self._reno_sacked

    def clean(self) -> bool:
        """Nothing lost, SACKed or probed: an ACK that makes progress is a simple one."""
        board = self.board
        return not (
            board.sacked
            or board.lost
            or self._tlp_end
            or self._reno_sacked
            or self.mode is not _OPEN
            or self.timer is _REORDER
        )

    def waiting(self) -> bool:
        """Data or FIN that never left."""
        return self.queue.end > self.nxt or (self.fin and self.nxt == self.queue.end)

    def retransmission(self, limit: int, tso: bool) -> tuple[Sent, int] | None:
        """A lost record and how many bytes of it may leave now."""
        board = self.board
        if not board.lost or (rec := board.next_lost()) is None:
            return None
        mss, size = self.mss, rec.end - rec.seq
        room = self.cc.cwnd - self.pipe()
        if self.force:
            room = max(room, mss)
        if room < mss and room < size:
            return None
        if tso:
            limit = min(limit, self._half_window())
        return rec, min(size, max(room - room % mss, mss), limit)

    def _half_window(self) -> int:
        """The largest superframe: a window has room for two, or nothing would tell of the loss of one."""
        half = self.cc.cwnd >> 1
        return max(half - half % self.mss, self.mss)

    def fresh_bytes(self, limit: int, tso: bool) -> int:
        """Bytes of new data that may leave now in one go; `limit` is a multiple of the MSS."""
        queued = self.queue.end - self.nxt
        if queued <= 0:
            return 0
        mss, cwnd, flight = self.mss, self.cc.cwnd, self.nxt - self.una
        if tso and queued > mss and cwnd < limit + limit:
            limit = self._half_window()
        wnd_room = self.una + self.wnd - self.nxt
        board = self.board
        cwnd_room = cwnd - flight + board.sacked + board.lost + self._reno_sacked  # less the pipe
        if not self.options.limited_transmit and not self._in_retry and self.mode is _OPEN:
            cwnd_room -= board.sacked + self._reno_sacked
        room = wnd_room if wnd_room < cwnd_room else cwnd_room
        if room >= queued:
            if queued > limit:
                return limit
            tail = queued % mss
            if tail and flight and not self.nodelay and not self.fin:
                return queued - tail  # Nagle (RFC 9293 3.7.4)
            return queued
        if cwnd_room <= wnd_room:
            self._cwnd_full = True
        size = min(room, limit)
        size -= size % mss
        if size > 0:
            if tso and flight and self._worth_waiting(size, flight, limit, queued):
                return 0
            return size
        if room < mss and wnd_room == room and room > 0 and not flight and room * 2 >= self.max_wnd:
            return room  # sender SWS avoidance, condition (3) of RFC 9293 3.8.6.2.1
        return 0

    def full_superframes(self, size: int) -> int:
        """How many of `size` bytes `fresh_bytes` would grant in a row, none of them the last of the queue."""
        queued, cwnd, flight = self.queue.end - self.nxt, self.cc.cwnd, self.nxt - self.una
        if queued <= size or cwnd < size + size or not self.clean():
            return 0
        wnd_room, cwnd_room = self.wnd - flight, cwnd - flight
        if cwnd_room <= wnd_room and cwnd_room < queued:
            self._cwnd_full = True
        return min(wnd_room, cwnd_room, queued - 1) // size

    def restart_after_idle(self, now: Micros) -> None:
        """RFC 5681 4.1: after an RTO of silence the window says nothing about the path any more."""
        if self.nxt == self.una and now - self._rto_base > self.rtt.current_rto():
            self.cc.on_idle(self.initial_cwnd)

    def _worth_waiting(self, size: int, flight: int, limit: int, queued: int) -> bool:
        """A small opening, while enough is in flight to bring the ACK that makes it a larger one."""
        return (
            self.options.tso_defer
            and self.mode is Mode.OPEN
            and size * 2 < min(limit, queued)
            and flight >= max(4 * size, 4 * self.mss)
        )

    def on_sent(self, size: int, now: Micros, count: int = 1) -> None:
        """`count` times `size` new bytes, a FIN counted as one, leave from snd_nxt."""
        start, una = self.nxt, self.una
        end = self.nxt = start + count * size
        if count > 1:
            for seq in range(start, end - size, size):
                self.board.on_sent(seq, seq + size, now)
        self.board.on_sent(end - size, end, now, self.push and end >= self.queue.end)
        flight = end - una
        if flight >= self._peak or una >= self._peak_end:
            self._peak, self._peak_end = flight, end
        if start == una:
            self._rto_base = self.stalled_since = now
            self.probes = 0
        if self.mode is not _OPEN and self.mode is Mode.RECOVERY:
            self.prr.out += size
        self.arm(now)

    def on_retransmit(self, rec: Sent, size: int, now: Micros) -> None:
        self.board.on_retransmit(rec, size, now)
        self.force = False
        if self.mode is Mode.RECOVERY:
            self.prr.out += size
        if self.timer_at == NEVER or (self.mode is Mode.RECOVERY and rec.seq == self.una):
            self._rto_base = now  # or the timeout fires while its ACK is on the way
        self.arm(now)

    # --- what an ACK means ---

    def on_ack_simple(self, ack: int, acked: int, now: Micros) -> None:
        """Progress while nothing is lost, SACKed or probed: the common case, in one piece."""
        board = self.board
        records = board.records
        self.una = ack
        count = 0
        for rec in records:
            if rec.end > ack:
                break
            older, newer = rec.older, rec.newer
            older.newer, newer.older = newer, older
            count += 1
        if count:
            last = records[count - 1]
            if count == len(records):
                board.records = records = NO_RECORDS
            else:
                del records[:count]
            self._delivered_at, self._delivered_end = last.at, last.end
            if self._rack is not None:
                self._rack.on_plain(last, now)
            self.rtt.sample(now - last.at, now)
        if records and records[0].seq < ack:
            records[0].seq = ack
        self.queue.release(ack)
        cc = self.cc
        if self._cwnd_full or (cc.cwnd < cc.ssthresh and cc.cwnd < 2 * self._peak):
            self._cwnd_full = False
            cc.on_ack(acked, now, self.rtt.srtt)
        self._dupacks = self.retries = self.probes = self.rtt.backoff = 0
        self._rto_base = now
        if self.nxt > ack:
            self.stalled_since = now
            self.arm(now)
        else:
            self.nxt = ack  # equal: one number in memory instead of two
            self.stalled_since = self.timer_at = NEVER
            self.timer = _NONE

    def on_ack(
        self, ack: int, sack: list[tuple[int, int]], dsack: int, duplicate: bool, echo: Micros, now: Micros
    ) -> None:
        """Any acceptable ACK (una <= ack <= nxt). `sack` blocks are extended and lie in ack..nxt.

        `dsack`: bytes reported as duplicates. `duplicate`: RFC 5681's definition holds. `echo`: RTT by
        timestamp, -1 if the ACK has none.
        """
        board, acked = self.board, ack - self.una
        sacked_before = board.sacked
        lost_before = board.lost_ever
        fresh: list[Sent] = []
        if acked > 0:
            fresh = board.ack(ack)
            self.una = ack
            self.queue.release(min(ack, self.queue.end))
            self.retries = self.probes = 0
            self.rtt.backoff = 0
            self._rto_base = now
            if self.mode is not Mode.OPEN:
                self._tlp_end = 0  # recovery goes on, and may be probed once more
            self.stalled_since = now if self.nxt > ack else NEVER
            self._reno_sacked = max(self._reno_sacked - acked + self.mss, 0) if self._reno_sacked else 0
        in_order = len(fresh)
        for start, end in sack:
            fresh += board.sack(start, end)
        self._measure(fresh, in_order, echo, now)
        delivered = acked + board.sacked - sacked_before
        if dsack:
            self.rack.on_dsack(self.nxt, self.una)
            self._dsacked += dsack
        if acked > 0 and self._undo is not None and not self._judged:
            self._judge_by_echo(echo, now)
        self._count_duplicates(duplicate, acked)
        self._on_tlp_ack(ack, dsack > 0, duplicate and not sack, now)
        self._leave_recovery(acked, now)
        if self._undo is not None and self.mode is Mode.OPEN:
            self._judge_by_dsack()
        self._find_losses(acked, now)
        if self.mode is Mode.OPEN and board.lost:
            self._enter_recovery(now)
        self._grow(acked, delivered, board.lost_ever > lost_before, now)
        self.arm(now)

    def _measure(self, fresh: list[Sent], in_order: int, echo: Micros, now: Micros) -> None:
        """RTT (RFC 6298 section 3, Karn) and RACK's news; the first `in_order` records were acknowledged.

        The echo is of what came in order (RFC 7323 4.3): of a segment beyond a hole it says nothing.
        """
        sample, resent_at = -1, -1
        for index, rec in enumerate(fresh):
            if rec.retrans and index < in_order and echo > now - rec.at + MILLISECOND:
                resent_at = max(resent_at, rec.at)
                continue  # an earlier copy is what arrived (RFC 8985 6.2 step 2)
            self.rack.on_delivered(rec, self.rtt, now)
            if not rec.retrans:
                sample = now - rec.at
            elif rec.at > resent_at:
                resent_at = rec.at
        if resent_at >= 0:
            # What was not sent again waited behind what was: its age is no RTT. An echo older than the last
            # retransmission answers an earlier copy, whose own ACK may have been lost: no RTT either.
            sample = now - resent_at if 0 <= echo <= now - resent_at + MILLISECOND else -1
        if sample >= 0:
            self.rtt.sample(sample, now)

    def _count_duplicates(self, duplicate: bool, acked: int) -> None:
        if acked > 0:
            self._dupacks = 0
        elif duplicate:
            self._dupacks += 1
            if not self.sack_ok:  # each stands for one segment that left the network
                self._reno_sacked = min(self._reno_sacked + self.mss, max(self.flight - self.mss, 0))

    def _find_losses(self, acked: int, now: Micros) -> None:
        board, mss = self.board, self.mss
        if not self.sack_ok:
            if self.mode is Mode.OPEN and self._dupacks == DUP_THRESH and self.una > self.recover:
                board.mark_first_lost(mss)
            elif self.mode is Mode.RECOVERY and acked > 0:
                board.mark_first_lost(mss)  # a partial ACK (RFC 6582 3.2 step 3)
            return
        if not self.options.rack:
            if board.sacked >= DUP_THRESH * mss or self._dupacks >= DUP_THRESH:
                self._mark_holes()
            return
        self._run_rack(now)

    def _run_rack(self, now: Micros) -> None:
        recovering = self.mode is not Mode.OPEN
        window = self.rack.reo_wnd(self.rtt, recovering, self.board.sacked // self.mss)
        wait = self.rack.detect(self.board, window, now)
        if wait:
            self.timer, self.timer_at = Timer.REORDER, now + wait
        elif self.timer is Timer.REORDER:
            self.timer = Timer.NONE

    def _mark_holes(self) -> None:
        """RFC 6675's IsLost: DUP_THRESH segments' worth was SACKed above."""
        above, bar = 0, (DUP_THRESH - 1) * self.mss
        for rec in reversed(self.board.records[:]):
            if rec.state == SACKED:
                above += rec.end - rec.seq
            elif rec.state == SENT and above > bar and not rec.retrans:
                self.board.mark_lost(rec)

    def _enter_recovery(self, now: Micros) -> None:
        self.mode = Mode.RECOVERY
        self.recover = self.nxt
        self.force = True
        self.prr = Prr(self.flight)
        self._remember(now)
        self.cc.on_congestion(self.flight, now)
        self.cwr_pending = True
        self._tlp_end = 0

    def _leave_recovery(self, acked: int, now: Micros) -> None:
        if self.mode is Mode.OPEN or self.una < self.recover:
            return
        if self.mode is Mode.RECOVERY:
            self.cc.cwnd = self.cc.ssthresh
            self.rack.on_recovered()
        self._undo_end = self.nxt
        self.mode = Mode.OPEN
        self._in_retry = False
        self._reno_sacked = 0

    def _grow(self, acked: int, delivered: int, new_loss: bool, now: Micros) -> None:
        cc = self.cc
        if self.mode is Mode.RECOVERY:
            advanced = acked > 0 and not new_loss
            cc.cwnd = self.prr.window(self.pipe(), cc.ssthresh, delivered, self.mss, advanced)
        elif acked > 0:
            slow = cc.cwnd < cc.ssthresh
            if self.mode is Mode.LOSS or self._cwnd_full or (slow and cc.cwnd < 2 * self._peak):
                self._cwnd_full = False
                cc.on_ack(acked, now, self.rtt.srtt)

    def on_ecn_echo(self, now: Micros) -> None:
        """ECE: once a window, as for a loss, but nothing is sent again (RFC 3168 6.1.2)."""
        if self.mode is Mode.OPEN and self.una >= self._ecn_recover:
            self._ecn_recover = self.nxt
            self.cc.on_congestion(self.flight, now)
            self.cc.cwnd = self.cc.ssthresh
            self.cwr_pending = True

    # --- tail loss probe (RFC 8985 section 7) ---

    def probe_record(self) -> tuple[Sent, int] | None:
        """Of what is in flight the segment that left last, to be sent again as a probe; None: nothing is."""
        board = self.board
        last = board.oldest_first.older
        if last is board.oldest_first:
            return None
        if last.seq == self.queue.end and last.older is not board.oldest_first:
            last = last.older  # not a bare FIN, which few receivers SACK
        if last.end - last.seq > self.mss:
            last = board.split(last, last.end - self.mss)
        return last, last.end - last.seq

    def on_probe_sent(self, retransmission: bool) -> None:
        self._tlp_end, self._tlp_retrans = self.nxt, retransmission

    def _on_tlp_ack(self, ack: int, dsack: bool, duplicate: bool, now: Micros) -> None:
        """7.4: was the probe what repaired a loss? Then the window pays for it."""
        if not self._tlp_end or ack < self._tlp_end:
            return
        if not self._tlp_retrans or dsack:
            self._tlp_end = 0
        elif ack > self._tlp_end:
            self._tlp_end = 0
            if self.mode is Mode.OPEN:
                self._pay(now)
        elif duplicate:
            self._tlp_end = 0  # both copies arrived, and the peer does not report DSACK

    def _pay(self, now: Micros) -> None:
        self.cc.on_congestion(max(self.flight, self.cc.cwnd), now)
        self.cc.cwnd = self.cc.ssthresh

    # --- timers ---

    def arm(self, now: Micros) -> None:
        """Choose the timer after something was sent or acknowledged.

        A tail loss probe comes first where the peer has SACK, once a flight, and while recovering too, as in
        RFC 9002 6.2: the last in flight may be a retransmission, and lost.
        """
        flight = self.nxt - self.una
        if not flight:
            self.timer, self.timer_at = _NONE, NEVER
            return
        if self.timer is _REORDER:
            return
        rtt, options = self.rtt, self.options
        if (
            not self.sack_ok
            or not options.tlp
            or rtt.backoff
            or self._tlp_end
            or not rtt.srtt
            or (self.board.sacked and self.mode is _OPEN)
        ):
            self.timer, self.timer_at = _RTO, self._rto_base + rtt.current_rto()
            return
        pto = 2 * rtt.srtt  # RFC 8985 7.2
        if flight <= self.mss:
            pto += options.tlp_max_ack_delay
        if pto < options.tlp_min:
            pto = options.tlp_min
        rto_at = self._rto_base + rtt.rto
        self.timer, self.timer_at = _TLP, now + pto if now + pto < rto_at else rto_at

    def arm_persist(self, now: Micros) -> None:
        """Nothing in flight, something to send, no window: the peer's next update may get lost."""
        if self.timer is not Timer.PERSIST:
            if self.stalled_since == NEVER:
                self.stalled_since = now
            wait = min(self.rtt.rto << min(self.probes, 32), self.options.rto_max)
            self.timer, self.timer_at = Timer.PERSIST, now + wait

    def on_timer(self, now: Micros) -> bool:
        """The due timer's work; True if something wants to leave."""
        timer, self.timer = self.timer, Timer.NONE
        self.timer_at = NEVER
        if timer is Timer.RTO:
            self._on_rto(now)
        elif timer is Timer.TLP:
            self.tlp_now = True
        elif timer is Timer.PERSIST:
            self.probes += 1
            self.probe_now = True
        elif timer is Timer.REORDER:
            self._run_rack(now)
            if self.mode is Mode.OPEN and self.board.lost:
                self._enter_recovery(now)
                self._grow(0, 0, True, now)
            self.arm(now)
        return True

    def _on_rto(self, now: Micros) -> None:
        """RFC 6298 5.4 to 5.7, RFC 8985 6.3."""
        board, cc = self.board, self.cc
        if not self._in_retry:
            self._remember(now)
            cc.on_rto(self.flight, now)
        cc.cwnd = self.mss
        self._in_retry = self.force = True
        self.mode, self.recover = Mode.LOSS, self.nxt
        self.retries += 1
        self.rtt.backoff += 1
        self._rto_base = now
        self._dupacks = self._reno_sacked = self._tlp_end = 0
        self.cwr_pending = True
        if board.records and board.records[0].state == SACKED:
            board.forget_sacks()
        ring = board.oldest_first
        patience = self.rack.rtt + self.rack.reo_wnd(self.rtt, True, 0)
        while (rec := ring.newer) is not ring and rec.at + patience <= now:
            board.mark_lost(rec)
        board.mark_first_lost(self.mss)
        self.arm(now)

    # --- was it needed? ---

    def _remember(self, now: Micros) -> None:
        """The window is about to be cut."""
        self._undo = self.cc.cwnd, self.cc.ssthresh, now, self.board.retrans_ever
        self._judged, self._dsacked = False, 0

    def _judge_by_echo(self, echo: Micros, now: Micros) -> None:
        """Eifel (RFC 3522, RFC 4015): an echo from before the first retransmission says that the original
        arrived: it was overtaken, or the peer or this machine had paused."""
        self._judged = True
        if self._undo is None or self.mode is Mode.OPEN or echo <= now - self._undo[2] + MILLISECOND:
            return
        if self.mode is Mode.RECOVERY:
            self.rack.reordering_seen = True
        self.mode, self._in_retry, self.force = Mode.OPEN, False, False
        self.board.unmark_lost()
        self._restore()

    def _judge_by_dsack(self) -> None:
        """RFC 3708: whatever was sent again had arrived already."""
        if self._undo is None:
            return
        again = self.board.retrans_ever - self._undo[3]
        if self._dsacked >= again > 0:
            self._restore()
        elif self.una > self._undo_end:
            self._undo = None

    def _restore(self) -> None:
        cc = self.cc
        if self._undo is not None:
            cc.cwnd, cc.ssthresh = max(cc.cwnd, self._undo[0]), max(cc.ssthresh, self._undo[1])
        self._undo = None

    def on_syn_timeout(self, now: Micros) -> None:
        self.retries += 1
        self.rtt.backoff += 1
        self.timer_at = now + self.rtt.current_rto()

    def on_mss(self, mss: int) -> None:
        """The path takes less than we thought: what did not fit is lost (RFC 1191 6.4)."""
        if mss >= self.mss:
            return
        self.mss = mss
        self.cc.on_mss(mss)
        if self.board.mark_larger_lost(mss):
            self.mode, self.recover, self.force = Mode.LOSS, self.nxt, True

    def clear(self) -> None:
        self.board.clear()
        self.queue.clear()
        self.timer, self.timer_at = Timer.NONE, NEVER
        self.probe_now = self.tlp_now = False
