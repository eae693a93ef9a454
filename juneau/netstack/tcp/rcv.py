"""The receiving half: what arrived in order, what did not, what window and which ACKs the peer gets.

Sequence numbers are extended (see `seq`).
"""

from __future__ import annotations

from typing import Final

from juneau.netstack.tcp.assembler import Assembler
from juneau.netstack.tcp.chunks import Chunks
from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.types import Micros
from juneau.netstack.wire.tcp import SackBlock

NEVER: Micros = (1 << 62) - 1
_MASK = 0xFFFF_FFFF

_EMPTY: Final = Assembler(0)
"""Stands for every out-of-order queue without bytes; never written to."""


class ReceiveRules:
    """What the receiving halves of one stack have in common."""

    __slots__ = (
        "ack_due", "ack_every", "any_size", "buf", "by_buffer", "delayed_ack", "mss", "ooo_ranges",
        "quickack", "seg_size", "sws", "update_fraction",
    )  # fmt: skip

    def __init__(self, buf: int, mss: int, options: TcpOptions) -> None:
        self.buf = buf
        self.mss = mss
        """What we tell peers to send at most, bytes."""
        self.sws = options.sws_bytes or max(min(mss, buf // 2), 1)
        self.update_fraction = options.update_fraction
        self.any_size, self.by_buffer = options.ack_any_size, options.judge_by_buffer
        self.ooo_ranges = options.ooo_ranges
        self.delayed_ack = options.delayed_ack
        self.quickack = options.quickack
        self.ack_every = options.ack_every
        self.seg_size = min(mss, 536)
        self.ack_due = self.due(self.seg_size)

    def due(self, seg_size: int) -> int:
        """Bytes that force an ACK."""
        return 1 if self.ack_every <= 1 else self.ack_every * seg_size


class Receiver:
    __slots__ = (
        "_dsack", "ack_at", "ack_due", "ack_now", "adv", "assembler", "buf", "chunks", "dup_acks", "fin_seq",
        "irs", "last_ack", "nxt", "quick", "rules", "sack_ok", "seg_size", "ts_recent", "ts_recent_at",
        "unacked", "up", "wscale",
    )  # fmt: skip

    def __init__(self, irs: int, wscale: int, rules: ReceiveRules) -> None:
        self.rules = rules
        self.irs = irs
        self.nxt = self.adv = self.last_ack = nxt = irs + 1
        """`adv`: the right edge ever advertised, never moves left; `last_ack`: RFC 7323's Last.ACK.sent."""
        self.buf = rules.buf
        self.wscale = wscale
        self.chunks = Chunks()
        self.assembler = _EMPTY  # most connections never need one
        self.sack_ok = False
        self.fin_seq: int | None = None
        """Where their FIN stands, once seen; text beyond it is discarded."""
        self.up: int | None = None
        """RCV.UP, kept for its own sake: urgent data is delivered in line (RFC 6093)."""
        self.ts_recent = 0
        self.ts_recent_at: Micros = 0
        self.quick = nxt + rules.quickack if rules.quickack else irs
        """ACKs are not delayed up to here."""
        self.seg_size = rules.seg_size
        """The peer's full segment as far as seen: what `ack_every` counts in."""
        self.ack_due = rules.ack_due
        """`unacked` bytes that force an ACK."""
        self.unacked = 0
        """In-order bytes since the last ACK."""
        self.ack_now = False
        self.ack_at: Micros = NEVER
        """The delayed-ACK timer."""
        self.dup_acks = 0
        """Duplicate ACKs owed to a peer without SACK, one for each segment out of order."""
        self._dsack: tuple[int, int] | None = None

    # --- window ---

    @property
    def wnd(self) -> int:
        """RCV.WND: what the peer may think it has."""
        return self.adv - self.nxt

    def window_field(self) -> int:
        """The header's window; opens it by RFC 9293 3.8.6.2.2 (receiver SWS avoidance), never takes back.

        Scaling rounds: up while the buffer has a little to spare, so that the right edge stays; down where it
        has not, and then bytes up to `adv` are still accepted (RFC 7323 2.4).
        """
        nxt, adv, shift, rules = self.nxt, self.adv, self.wscale, self.rules
        edge = nxt + self.buf - self.chunks.size
        if edge - adv >= rules.sws:
            field = (edge - nxt) >> shift
            if nxt + (field << shift) < adv:
                field += 1
        else:
            field = -((nxt - adv) >> shift)
            if nxt + (field << shift) > edge + rules.sws:
                field = (adv - nxt) >> shift
        if field > 65_535:
            field = 65_535
        elif field < 0:
            field = 0  # a FIN was taken beyond the edge
        right = edge if rules.by_buffer else nxt + (field << shift)
        if right > adv:
            self.adv = right
        return field

    def wants_update(self) -> bool:
        """Whether reading has opened the window enough to tell the peer unasked.

        Not while a delayed ACK is due and the peer has room for the segments that bring it forward.
        """
        if self.ack_at != NEVER and self.adv - self.nxt >= 2 * self.ack_due:
            return False
        room = min(self.buf - self.chunks.size, 65_535 << self.wscale)
        gain = self.nxt + room - self.adv
        if gain < self.rules.sws:
            return False
        return gain >= self.adv - self.nxt or gain * self.rules.update_fraction >= self.buf

    # --- text ---

    def acceptable(self, seq: int, length: int) -> bool:
        """The four cases of RFC 9293 3.10.7.4, first step, against the right edge ever advertised."""
        nxt, adv = self.nxt, self.adv
        if not length:
            return nxt <= seq < adv or seq == nxt
        if adv == nxt:
            return seq == nxt  # its text does not fit, but its ACK, URG and FIN count
        return nxt <= seq < adv or nxt < seq + length <= adv or (seq < nxt and seq + length > adv)

    def on_text(self, seq: int, data: memoryview, now: Micros) -> int:
        """Take what is new of an acceptable segment's text; return how far rcv_nxt moved."""
        start, end = seq, seq + len(data)
        limit = self.adv if self.fin_seq is None else min(self.adv, self.fin_seq)
        if end > limit:
            data = data[: max(limit - start, 0)]
            end = start + len(data)
            self.ack_now = True
            if not data:
                return 0
        nxt = self.nxt
        if start < nxt:
            self._dsack = self._dsack or (start, min(end, nxt))
            self.ack_now = True
            if end <= nxt:
                return 0
            data = data[nxt - start :]
            start = nxt
        if start > nxt or self.assembler:
            self._out_of_order(start, data)
        else:
            self.chunks.append(data)
            self.nxt = end
            self.on_in_order(len(data), now)
        return self.nxt - nxt

    def on_in_order(self, size: int, now: Micros) -> None:
        """Decide when to acknowledge (RFC 9293 3.8.6.3, RFC 5681 4.2)."""
        rules = self.rules
        self.unacked = unacked = self.unacked + size
        if size > self.seg_size and self.seg_size < rules.mss:
            self.seg_size = min(size, rules.mss)
            self.ack_due = rules.due(self.seg_size)
        if unacked >= self.ack_due or size > rules.mss or self.nxt <= self.quick:
            self.ack_now = True
        elif self.ack_at == NEVER:
            self.ack_at = now + rules.delayed_ack
        elif rules.any_size:
            self.ack_now = True

    def _out_of_order(self, start: int, data: memoryview) -> None:
        assembler = self.assembler
        if assembler is _EMPTY:
            assembler = self.assembler = Assembler(self.rules.ooo_ranges)
        duplicate = assembler.insert(start, data, self.nxt)
        if duplicate and not self._dsack:
            self._dsack = duplicate
        self.ack_now = True  # at once, for a gap and for what fills one (RFC 5681 4.2)
        if (taken := assembler.take(self.nxt)) is not None:
            self.nxt, chunks = taken
            self.chunks.extend(chunks)
        elif not self.sack_ok and data:
            self.dup_acks += 1

    def on_duplicate(self, seq: int, end: int) -> None:
        """An unacceptable segment with text: report it as a duplicate (RFC 2883)."""
        if seq < self.nxt and end > seq and self._dsack is None:
            self._dsack = seq, min(end, self.nxt)

    # --- ACKs ---

    def sack_blocks(self, limit: int) -> tuple[SackBlock, ...]:
        """Blocks for the next segment, a DSACK first and only once."""
        blocks = self.assembler.blocks(limit) if self.assembler else []
        if self._dsack is not None:
            blocks.insert(0, self._dsack)
            self._dsack = None
            del blocks[limit:]
        return tuple((start & _MASK, end & _MASK) for start, end in blocks)

    def has_blocks(self) -> bool:
        return self.sack_ok and (self._dsack is not None or self.assembler.size > 0)

    def on_ack_sent(self) -> None:
        self.last_ack = self.nxt
        self.unacked = 0
        self.ack_now = False
        self.ack_at = NEVER

    def forget_out_of_order(self) -> None:
        self.assembler = _EMPTY

    def clear(self) -> None:
        self.assembler = _EMPTY
        self.ack_now, self.ack_at, self.dup_acks = False, NEVER, 0
