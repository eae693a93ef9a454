"""A hostile peer and a careless application: nothing raises, accounts stay right, everything ends."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tcp_kit import MTU_1040, OURS, Host, Link, Peer, faster

from juneau.netstack.events import Closed
from juneau.netstack.limits import Limits
from juneau.netstack.tcp import State, TcpOptions
from juneau.netstack.tcp.recovery.scoreboard import LOST, SACKED, SENT
from juneau.netstack.tcp.states import CAN_SEND
from juneau.netstack.types import FourTuple
from juneau.netstack.wire.icmp import IcmpErrorKind
from juneau.testing import packets

near = st.one_of(st.integers(-3, 3), st.integers(-3_000, 3_000), st.integers(0, 2**32 - 1))
flags = st.one_of(
    st.sampled_from(["A", "A", "A", "FA", "R", "RA", "S", "SA", "AU", "AE", "AC", "", "F"]),
    st.sets(st.sampled_from("FSRPAUEC")).map("".join),
)


class HostilePeer(RuleBasedStateMachine):
    @initialize(
        timestamps=st.booleans(),
        sack=st.booleans(),
        tso=st.booleans(),
        iss=st.sampled_from([1_000, 2**32 - 2]),
        buf=st.sampled_from([500, 4_000, 1 << 20]),
        active=st.booleans(),
    )
    def begin(self, timestamps, sack, tso, iss, buf, active):
        options = faster(TcpOptions(), timestamps=timestamps, sack=sack, rcv_buf=buf, ecn="passive")
        link = Link(mtu=1_040, checksum_offload=tso, tso=tso) if tso else MTU_1040
        self.host = Host(options, link, Limits(half_open=2), iss)
        self.listener = self.host.tcp.listen(OURS)
        self.peer = Peer(self.host, iss=iss, remote_iss=iss)
        self.conns = []
        self.ended = []
        offered = (
            packets.mss(1_000) + packets.SACK_OK + packets.timestamps(1, 0) + packets.NOP + packets.wscale(2)
        )
        if active:
            conn = self.host.tcp.connect(
                self.peer.local, local=OURS._replace(port=999), path="p", now=self.host.now
            )
            self.peer.remote = conn.local
            self.conns.append(conn)
            self.host.take()
            self.peer.inject("SA", 0, 1, options=offered)
        else:
            self.peer.inject("S", 0, options=offered)
            self.host.take()
            stamp = b"\1\1" + packets.timestamps(1, 0) if timestamps else b""
            self.peer.inject("A", 1, 1, options=stamp)
        self.timestamps = timestamps

    def conn(self):
        return self.conns[-1] if self.conns else None

    @rule(
        flags=flags,
        seq=near,
        ack=near,
        size=st.sampled_from([0, 0, 1, 10, 999, 1_000, 5_000]),
        wnd=st.integers(0, 65_535),
        ts=st.one_of(st.none(), st.integers(0, 2**32 - 1), st.just(1)),
        blocks=st.lists(st.tuples(near, near), max_size=3),
        urg=st.integers(0, 100),
        ecn=st.sampled_from([0, 0, 1, 3]),
    )
    def segment(self, flags, seq, ack, size, wnd, ts, blocks, urg, ecn):
        conn = self.conn()
        base_seq = conn.rcv.nxt - conn.rcv.irs if conn else 1
        base_ack = conn.snd.una - conn.snd.iss if conn else 1
        options = b"" if ts is None else b"\1\1" + packets.timestamps(ts, 0)
        if blocks and conn:
            room = [((conn.snd.una + a) % 2**32, (conn.snd.una + b) % 2**32) for a, b in blocks]
            options += b"\1\1" + packets.sack(*room)
        self.peer.inject(
            flags,
            base_seq + seq,
            base_ack + ack,
            bytes(size),
            wnd=wnd,
            options=options[:40],
            urg=urg,
            tos=ecn,
        )

    @rule(acked=st.floats(0, 1), size=st.sampled_from([0, 100]), wnd=st.sampled_from([0, 100, 65_535]))
    def plausible(self, acked, size, wnd):
        """The right next segment, so that machines get somewhere."""
        conn = self.conn()
        if conn is None:
            return
        snd = conn.snd
        ack = int(snd.una + (snd.nxt - snd.una) * acked) - snd.iss
        stamp = b"\1\1" + packets.timestamps(conn.rcv.ts_recent, 0) if conn.ts_on else b""
        self.peer.inject("A", conn.rcv.nxt - conn.rcv.irs, ack, bytes(size), wnd=wnd, options=stamp)

    @rule(size=st.sampled_from([1, 1_000, 20_000, 100_000]))
    def send(self, size):
        conn = self.conn()
        if conn and conn.state in CAN_SEND and not conn.snd.fin:
            conn.send(bytes(size), self.host.now)
            conn.want_writable = True

    @rule(limit=st.sampled_from([1, 700, 10**6]))
    def read(self, limit):
        if conn := self.conn():
            conn.read(limit)

    @rule(how=st.sampled_from(["shutdown", "shutdown", "close", "abort"]))
    def end(self, how):
        if conn := self.conn():
            getattr(conn, how)(self.host.now)

    @rule(by=st.sampled_from([0, 1_000, 50_000, 1_000_000, 100_000_000]))
    def wait(self, by):
        self.host.advance(by)

    @rule(budget=st.integers(0, 10))
    def take(self, budget):
        self.host.take(budget)

    @rule(kind=st.sampled_from(IcmpErrorKind), mtu=st.integers(0, 1_500), at=st.integers(-5, 5_000))
    def icmp(self, kind, mtu, at):
        if conn := self.conn():
            self.host.tcp.receive_icmp_error(
                FourTuple(*conn.flow), kind, mtu, conn.snd.una + at, self.host.now
            )

    @precondition(lambda self: self.listener.waiting)
    @rule()
    def accept(self):
        if (conn := self.listener.accept()) is not None:
            self.conns.append(conn)

    @invariant()
    def events_are_told_once(self):
        for event in self.host.take_events():
            if isinstance(event, Closed):
                assert event.conn not in self.ended
                assert not event.conn.detached
                assert event.conn in self.conns
                self.ended.append(event.conn)

    @invariant()
    def accounts_are_right(self):
        layer = self.host.tcp
        alive = list(layer.connections())
        waiting = [c for c in self.listener._queue if c not in alive]
        everyone = {id(c): c for c in [*alive, *waiting, *self.conns]}.values()
        assert layer.buffered == sum(c.rcv.chunks.size + c.rcv.assembler.size for c in everyone)
        assert layer._connections == len(alive)
        for conn in alive:
            snd, board = conn.snd, conn.snd.board
            states = {SENT: 0, SACKED: 0, LOST: 0}
            at = snd.una
            for rec in board.records:
                assert rec.seq == at
                at = rec.end
                states[rec.state] += rec.end - rec.seq
            if conn.state >= State.ESTABLISHED:
                assert at == snd.nxt, "what is in flight is on the board"
            assert (board.sacked, board.lost) == (states[SACKED], states[LOST])
            assert snd.cc.cwnd >= min(snd.mss, snd.cc.mss)
            assert conn.rcv.adv - conn.rcv.nxt >= -1

    def teardown(self):
        if not hasattr(self, "host"):
            return
        for conn in self.conns:
            conn.close(self.host.now)
        self.listener.close(self.host.now)
        self.host.advance(4_000_000_000)
        assert self.host.tcp._table == {}
        assert self.host.tcp.next_timeout() is None


TestHostilePeer = HostilePeer.TestCase
TestHostilePeer.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
