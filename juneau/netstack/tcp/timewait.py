"""TIME-WAIT: a small record that answers for a connection that is over, for 2 MSL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from juneau.netstack.seq import extend
from juneau.netstack.tcp.conn import TcpConnection
from juneau.netstack.tcp.emitter import Emitter
from juneau.netstack.tcp.segment import Segment
from juneau.netstack.types import FourTuple, Micros, Path, TxPacket
from juneau.netstack.wire.tcp import ACK, FIN, RST, SYN

if TYPE_CHECKING:
    from juneau.netstack.tcp.layer import TcpLayer

_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000


class TimeWait:
    __slots__ = (
        "_acks", "_acks_until", "_emitter", "_layer", "_path", "_ts_offset", "expires_at", "flow", "queued",
        "rcv_nxt", "rcv_wnd", "snd_nxt", "ts_on", "ts_recent", "wscale",
    )  # fmt: skip

    def __init__(self, layer: TcpLayer, conn: TcpConnection, emitter: Emitter, now: Micros) -> None:
        self._layer = layer
        self._emitter = emitter
        self._path: Path = conn.path
        self.flow: FourTuple = conn.flow
        self.snd_nxt = conn.snd.nxt
        self.rcv_nxt = conn.rcv.nxt
        self.rcv_wnd = conn.rcv.window_field() << conn.rcv.wscale
        self.wscale = conn.rcv.wscale
        self.ts_on = conn.ts_on
        self.ts_recent = conn.rcv.ts_recent
        self._ts_offset = conn.ts_offset
        self.expires_at = now + layer.options.time_wait
        self.queued = False
        self._acks = 0
        self._acks_until: Micros = 0

    def receive(self, seg: Segment, now: Micros) -> None:
        """RFC 9293 3.10.7.4 for TIME-WAIT, with RFC 6191 for a new SYN and RFC 7323's PAWS."""
        layer = self._layer
        seq = extend(seg.seq, self.rcv_nxt)
        flags = seg.flags
        if flags & (SYN | ACK | RST | FIN) == SYN and self._is_newer(seg, seq):
            layer.end_time_wait(self)
            layer.counters.add("tcp.time_wait_reused")
            layer.receive_new(self.flow, seg, now, after=self.snd_nxt)
            return
        if flags & RST:
            if seq == self.rcv_nxt and not layer.options.time_wait_ignores_rst:
                layer.end_time_wait(self)
            return
        if not flags & (ACK | SYN):
            return  # fifth step
        if flags & SYN and not layer.options.challenge_syn and 0 <= seq - self.rcv_nxt < self.rcv_wnd:
            self._reset()
            return
        length = seg.length
        if self.ts_on and seg.ts_val >= 0 and (seg.ts_val - self.ts_recent) & _MASK >= _HALF:
            self._acknowledge(length > 0, now)
        elif seq != self.rcv_nxt or length:
            if flags & FIN and seq + length == self.rcv_nxt:
                layer.restart_time_wait(self, now)  # its ACK was lost
            self._acknowledge(length > 0, now)

    def _reset(self) -> None:
        """RFC 793's answer to a SYN in the window."""
        layer = self._layer
        layer.reply(self._emitter.packet(self._path, self.snd_nxt, self.rcv_nxt, RST | ACK, 0))
        layer.end_time_wait(self)

    def _is_newer(self, seg: Segment, seq: int) -> bool:
        if not self._layer.options.time_wait_reuse:
            return False
        if self.ts_on and seg.ts_val >= 0:
            delta = (seg.ts_val - self.ts_recent) & _MASK
            if 0 < delta < _HALF:
                return True
            if delta:
                return False
        return seq > self.rcv_nxt

    def _acknowledge(self, data: bool, now: Micros) -> None:
        """Data and FIN always get their ACK; anything else is rate limited."""
        options = self._layer.options
        if not data:
            if now >= self._acks_until:
                self._acks, self._acks_until = 0, now + options.challenge_ack_window
            self._acks += 1
            if self._acks > options.challenge_acks:
                self._layer.counters.add("tcp.challenge_ack_limited")
                return
        self._layer.ready(self)

    def transmit(self, now: Micros, out: list[TxPacket], quantum: int) -> bool:
        ts_val = (now // 1000 + self._ts_offset) & _MASK if self.ts_on else -1
        window = min(self.rcv_wnd >> self.wscale, 65_535)
        out.append(
            self._emitter.packet(
                self._path, self.snd_nxt, self.rcv_nxt, ACK, window, ts_val=ts_val, ts_ecr=self.ts_recent
            )
        )
        return False
