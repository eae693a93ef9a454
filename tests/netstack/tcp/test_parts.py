"""The small parts, each against a model: sequence numbers, queues, assembler, scoreboard, RTT, wire."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from juneau.netstack import seq
from juneau.netstack.tcp import cookies
from juneau.netstack.tcp.assembler import Assembler
from juneau.netstack.tcp.chunks import Chunks
from juneau.netstack.tcp.congestion import ALGORITHMS, Cubic, Reno
from juneau.netstack.tcp.cookies import SynCookies
from juneau.netstack.tcp.isn import IsnGenerator
from juneau.netstack.tcp.recovery.scoreboard import LOST, SACKED, SENT, Scoreboard
from juneau.netstack.tcp.rtt import RttEstimator
from juneau.netstack.tcp.sendqueue import SendQueue
from juneau.netstack.tcp.timers import NEVER, TimerHeap
from juneau.netstack.types import MILLISECOND, SECOND, FourTuple, Malformed
from juneau.netstack.wire import tcp
from juneau.testing import packets

STREAM = random.Random(1).randbytes(4_096)
word = st.integers(0, 2**32 - 1)


# --- seq ---


@given(st.integers(0, 2**40), st.integers(-(2**31), 2**31 - 1))
def test_extend_finds_the_nearest(near, offset):
    assert seq.extend(seq.wrap(near + offset), near) == near + offset


@given(word, st.integers(1, 2**31 - 1))
def test_order_survives_the_wrap(a, ahead):
    b = (a + ahead) % 2**32
    assert seq.lt(a, b)
    assert not seq.lt(b, a)
    assert seq.le(a, b)
    assert seq.le(a, a)
    assert not seq.lt(a, a)
    assert seq.diff(b, a) == ahead
    assert seq.diff(a, b) == -ahead


# --- send queue ---


@given(
    st.lists(st.tuples(st.sampled_from([1, 3, 100, 4_095, 4_096, 9_000]), st.booleans()), max_size=30),
    st.randoms(),
)
def test_send_queue_lends_any_slice(writes, rnd):
    start = 2**32 - 5
    queue, model = SendQueue(start), b""
    una = start
    for size, keep in writes:
        data = rnd.randbytes(size)
        queue.append(data if keep else bytearray(data))
        model += data
        assert queue.end == start + len(model)
        a, b = sorted((rnd.randint(una, queue.end), rnd.randint(una, queue.end)))
        if a < b:
            assert b"".join(queue.slice(a, b)) == model[a - start : b - start]
        if rnd.random() < 0.5:
            una = rnd.randint(una, queue.end)
            queue.release(una)
    if una < queue.end:
        assert b"".join(queue.slice(una, queue.end)) == model[una - start :]


def test_large_bytes_are_not_copied():
    data = bytes(100_000)
    queue = SendQueue(0)
    queue.append(data)
    (view,) = queue.slice(10, 60_000)
    assert view.obj is data


def test_a_written_bytearray_may_change_afterwards():
    data = bytearray(b"a" * 10_000)
    queue = SendQueue(0)
    queue.append(data)
    data[:] = b"b" * 10_000
    assert b"".join(queue.slice(0, 10_000)) == b"a" * 10_000


def test_released_queue_holds_nothing():
    queue = SendQueue(0)
    for _ in range(1_000):
        queue.append(bytes(5_000))
        queue.release(queue.end - 100)
    queue.release(queue.end)
    assert queue._chunks == []
    assert queue._starts == []


# --- chunks ---


@given(st.lists(st.integers(1, 400), max_size=40), st.randoms())
def test_chunks_give_back_what_went_in(sizes, rnd):
    chunks, model = Chunks(), b""
    for size in sizes:
        packet = rnd.randbytes(size + 100)
        chunks.append(memoryview(packet)[100:])
        model += packet[100:]
        if rnd.random() < 0.3:
            limit = rnd.randint(0, len(model))
            got = b"".join(chunks.take(limit))
            assert got == model[:limit]
            model = model[limit:]
        assert chunks.size == len(model)
    assert chunks.memory() <= 2 * chunks.size + 500, "one packet may be read in part"
    assert b"".join(chunks.take(1 << 30)) == model


# --- assembler ---


class AssemblerMachine(RuleBasedStateMachine):
    """Any order, any overlap: the bytes out are the stream, once, and memory stays bounded."""

    WINDOW = 256
    RANGES = 6

    def __init__(self):
        super().__init__()
        self.assembler = Assembler(self.RANGES)
        self.nxt = 0
        self.held = set()

    @rule(offset=st.integers(0, WINDOW - 1), size=st.integers(1, 80))
    def segment(self, offset, size):
        start = self.nxt + offset
        end = min(start + size, self.nxt + self.WINDOW, len(STREAM))
        if start >= end:
            return
        before = self.covered()
        duplicate = self.assembler.insert(start, memoryview(STREAM)[start:end], self.nxt)
        already = set(range(start, end)) & before
        assert (duplicate is not None) == bool(already)
        if duplicate is not None:
            assert set(range(*duplicate)) <= already
        after = self.covered()
        assert before <= after <= before | set(range(start, end))
        if len(self.assembler.ranges()) < self.RANGES or start == self.nxt:
            assert self.nxt in after or start != self.nxt
        if len(self.assembler.ranges()) < self.RANGES:
            assert after == before | set(range(start, end))
        if after != before:
            block = self.assembler.blocks(1)[0]
            assert set(range(*block)) & (after - before), "the block that changed last comes first"
        self.take()

    def covered(self):
        return {at for start, end in self.assembler.ranges() for at in range(start, end)}

    def take(self):
        if (taken := self.assembler.take(self.nxt)) is not None:
            end, chunks = taken
            assert b"".join(chunks.take(1 << 30)) == STREAM[self.nxt : end]
            self.nxt = end

    @invariant()
    def ranges_are_in_order_and_apart(self):
        edges = [edge for block in self.assembler.ranges() for edge in block]
        assert all(a < b for a, b in itertools.pairwise(edges))

    @invariant()
    def stays_within_its_limits(self):
        assert len(self.assembler.ranges()) <= self.RANGES
        assert self.assembler.size == len(self.covered()) <= self.WINDOW
        assert len(self.assembler.blocks(3)) <= 3


TestAssembler = AssemblerMachine.TestCase
TestAssembler.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_came_first_stays():
    assembler = Assembler(8)
    assembler.insert(10, memoryview(b"AAAA"), 0)
    assembler.insert(8, memoryview(b"bbbbbbbb"), 0)
    _, chunks = assembler.take(8)
    assert b"".join(chunks.take(99)) == b"bbAAAAbb"


# --- scoreboard ---


class ScoreboardMachine(RuleBasedStateMachine):
    """Against a state per byte."""

    def __init__(self):
        super().__init__()
        self.board = Scoreboard()
        self.una = self.nxt = 100
        self.state = {}
        self.now = 0

    @rule(size=st.integers(1, 50))
    def send(self, size):
        self.now += 1
        self.board.on_sent(self.nxt, self.nxt + size, self.now)
        for at in range(self.nxt, self.nxt + size):
            self.state[at] = SENT
        self.nxt += size

    @rule(fraction=st.floats(0, 1))
    def ack(self, fraction):
        una = self.una + int((self.nxt - self.una) * fraction)
        fresh = {at for rec in self.board.ack(una) for at in range(rec.seq, rec.end)}
        gone = {at: self.state.pop(at) for at in range(self.una, una)}
        assert fresh == {at for at, state in gone.items() if state != SACKED}
        self.una = una

    @rule(a=st.floats(0, 1), b=st.floats(0, 1))
    def sack(self, a, b):
        start, end = sorted(self.una + int((self.nxt - self.una) * x) for x in (a, b))
        if start == end:
            return
        fresh = {at for rec in self.board.sack(start, end) for at in range(rec.seq, rec.end)}
        assert fresh == {at for at in range(start, end) if self.state[at] != SACKED}
        for at in range(start, end):
            self.state[at] = SACKED

    @rule(count=st.integers(1, 3))
    def lose_oldest(self, count):
        for _ in range(count):
            rec = self.board.oldest_first.newer
            if rec is not self.board.oldest_first:
                for at in range(rec.seq, rec.end):
                    assert self.state[at] == SENT
                    self.state[at] = LOST
                self.board.mark_lost(rec)

    @rule(size=st.integers(1, 30))
    def lose_first(self, size):
        first = self.board.records[0] if self.board.records else None
        if self.board.mark_first_lost(size):
            for at in range(self.una, min(self.una + size, first.end)):
                self.state[at] = LOST

    @rule(size=st.integers(1, 30))
    def retransmit(self, size):
        self.now += 1
        rec = self.board.next_lost()
        lost = [at for at, state in self.state.items() if state == LOST]
        assert (rec is None) == (not lost)
        if rec is not None:
            assert rec.seq == min(lost)
            size = min(size, rec.end - rec.seq)
            for at in range(rec.seq, rec.seq + size):
                self.state[at] = SENT
            self.board.on_retransmit(rec, size, self.now)

    @rule()
    def forget_sacks(self):
        self.board.forget_sacks()
        self.state = {at: SENT if state == SACKED else state for at, state in self.state.items()}

    @invariant()
    def agrees(self):
        got = {}
        for rec in self.board.records:
            assert rec.seq < rec.end
            for at in range(rec.seq, rec.end):
                assert at not in got
                got[at] = rec.state
        assert got == self.state
        values = list(self.state.values())
        assert self.board.sacked == values.count(SACKED)
        assert self.board.lost == values.count(LOST)

    @invariant()
    def the_ring_holds_what_is_in_flight_in_order_of_time(self):
        ring, times, held = self.board.oldest_first, [], set()
        rec = ring.newer
        while rec is not ring:
            times.append(rec.at)
            held.add(id(rec))
            assert rec.newer.older is rec
            rec = rec.newer
        assert held == {id(rec) for rec in self.board.records if rec.state == SENT}
        if not any(rec.retrans for rec in self.board.records):
            return
        assert len(times) == len(held)


TestScoreboard = ScoreboardMachine.TestCase
TestScoreboard.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_neighbouring_sacks_become_one_record():
    board = Scoreboard()
    for i in range(1_000):
        board.on_sent(i * 10, i * 10 + 10, i)
    for i in range(1, 1_000):
        board.sack(i * 10, i * 10 + 10)
    assert len(board.records) == 2


# --- RTT ---


def test_first_and_second_measurement():
    """RFC 6298 2.2, 2.3."""
    rtt = RttEstimator(1 * SECOND, 1, 60 * SECOND)
    assert rtt.current_rto() == SECOND
    rtt.sample(100 * MILLISECOND, 0)
    assert (rtt.srtt, rtt.rttvar, rtt.rto) == (100_000, 50_000, 300_000)
    rtt.sample(180 * MILLISECOND, 1)
    assert (rtt.srtt, rtt.rttvar) == (110_000, 57_500)


def test_rto_doubles_up_to_its_maximum():
    rtt = RttEstimator(1 * SECOND, 1, 60 * SECOND)
    seen = []
    for _ in range(8):
        seen.append(rtt.current_rto() // SECOND)
        rtt.backoff += 1
    assert seen == [1, 2, 4, 8, 16, 32, 60, 60]


# --- congestion control ---


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_slow_start_doubles_a_window_per_round(name):
    cc = ALGORITHMS[name](1_000, 10_000)
    cc.on_ack(10_000, 0, 1_000)
    assert cc.cwnd == 20_000


def test_reno_adds_a_segment_per_round():
    cc = Reno(1_000, 10_000)
    cc.on_congestion(10_000, 0)
    cc.cwnd = cc.ssthresh
    assert cc.cwnd == 5_000
    for _ in range(5):
        cc.on_ack(1_000, 0, 0)
    assert cc.cwnd == 6_000


def test_cubic_returns_to_w_max_after_k_and_grows_beyond():
    cc = Cubic(1_000, 100_000)
    cc.on_congestion(100_000, 0)
    cc.cwnd = cc.ssthresh
    assert cc.cwnd == 70_000
    k = (30 / 0.4) ** (1 / 3)
    now, rtt = 0, 100 * MILLISECOND
    at_k = 0
    while now < 2 * k * SECOND:
        for _ in range(10):
            cc.on_ack(cc.cwnd // 10, now, rtt)
        now += rtt
        if not at_k and now >= k * SECOND:
            at_k = cc.cwnd
    assert 97_000 <= at_k <= 101_000
    assert cc.cwnd > 115_000


# --- cookies, ISN ---

FLOW = FourTuple(1, 2, 3, 4)


@given(word, st.sampled_from([*cookies.MSS_TABLE, 500, 1_440, 65_000]), st.integers(0, 10**15))
def test_a_cookie_is_known_again(irs, mss, now):
    syn = SynCookies(b"secret")
    cookie = syn.make(FLOW, irs, mss, now)
    got = syn.check(FLOW, irs, cookie, now + 60 * SECOND)
    assert got is not None
    assert got <= max(mss, 216)
    assert syn.check(FLOW._replace(remote_port=5), irs, cookie, now) is None
    assert syn.check(FLOW, irs ^ 1, cookie, now) is None
    assert SynCookies(b"other").check(FLOW, irs, cookie, now) is None
    assert syn.check(FLOW, irs, cookie, now + 4 * cookies.TICK) is None


@given(word, st.one_of(st.none(), st.integers(0, 14)), st.booleans(), st.booleans())
def test_cookie_options_travel_in_the_timestamp(ts, wscale, sack, ecn):
    packed = cookies.pack_options(ts, wscale, sack, ecn)
    assert cookies.unpack_options(packed) == (wscale, sack, ecn)
    assert 0 <= (ts - packed) % 2**32 < 64


def test_isn_moves_with_the_clock_and_differs_by_flow():
    isn = IsnGenerator(b"secret")
    first, offset = isn.generate(FLOW, 0)
    assert (isn.generate(FLOW, 4_000)[0] - first) % 2**32 == 1_000
    assert isn.generate(FLOW._replace(remote_port=9), 0)[0] != first
    assert IsnGenerator(b"other").generate(FLOW, 0) != (first, offset)


# --- wire ---


@given(st.binary(max_size=100))
def test_any_bytes_are_a_segment_or_malformed(data):
    try:
        _header, options, payload = tcp.parse(data)
    except Malformed:
        return
    assert len(options) + len(payload) + 20 == len(data)
    tcp.parse_options(options)


@given(st.binary(max_size=40))
def test_options_never_raise(data):
    tcp.parse_options(memoryview(data))


@given(
    st.one_of(st.none(), st.integers(0, 65_535)),
    st.one_of(st.none(), st.integers(0, 14)),
    st.booleans(),
    st.one_of(st.none(), st.tuples(word, word)),
    st.sampled_from(["linux", "freebsd"]),
)
def test_syn_options_round_trip(mss, wscale, sack_ok, timestamps, style):
    options = tcp.Options(mss, wscale, sack_ok, timestamps)
    data = tcp.build_syn_options(options, style)
    assert len(data) % 4 == 0
    assert len(data) <= tcp.MAX_OPTION_BYTES
    assert tcp.parse_options(data) == options


@given(st.lists(st.tuples(word, word), min_size=1, max_size=4))
def test_sack_round_trip(blocks):
    assert tcp.parse_options(tcp.build_sack(tuple(blocks))).sack == tuple(blocks)


def test_linux_syn_options_have_linux_order():
    options = tcp.Options(1_460, 7, True, (1, 0))
    kinds = [o.kind for o in packets.decode_options(tcp.build_syn_options(options))]
    assert kinds == [2, 4, 8, 1, 3]
    kinds = [o.kind for o in packets.decode_options(tcp.build_syn_options(options, "freebsd"))]
    assert kinds == [2, 1, 3, 4, 8]


@given(word, word, word, word, st.integers(0, 511), st.integers(0, 65_535), st.binary(max_size=50))
def test_build_agrees_with_an_independent_builder(src, dst, number, ack, flags, window, payload):
    built = tcp.build(
        1, 2, seq=number, ack=ack, flags=flags, window=window, payload=payload,
        pseudo=src + dst + 6 + 20 + len(payload),
    )  # fmt: skip
    expected = packets.tcp_segment(
        payload, src=src, dst=dst, sport=1, dport=2, seq=number, ack=ack, flags=flags, wnd=window
    )
    assert built + payload == expected


class Alarm:
    """What a TimerHeap holds; arms itself as a connection does."""

    def __init__(self, heap: TimerHeap) -> None:
        self.heap, self.heap_at, self.at, self.fired = heap, NEVER, NEVER, 0

    def set(self, at: int) -> None:
        self.at = at
        if at < self.heap_at:
            self.heap.arm(self, at)

    def deadline(self) -> int:
        return self.at

    def handle_timeout(self, now: int) -> None:
        self.fired += 1
        self.at = NEVER


class TestTimerHeap:
    def test_who_was_idle_while_the_heap_was_tidied_is_called_later(self):
        heap = TimerHeap()
        idle = Alarm(heap)
        idle.set(5)
        idle.set(NEVER)
        for n in range(300):
            Alarm(heap).set(1_000 + n)
        idle.set(50)
        assert heap.next() <= 50
        heap.expire(50)
        assert idle.fired == 1

    def test_a_deadline_that_moved_later_is_kept(self):
        heap = TimerHeap()
        alarm = Alarm(heap)
        alarm.set(5)
        alarm.set(50)
        heap.expire(49)
        assert alarm.fired == 0
        heap.expire(50)
        assert alarm.fired == 1

    def test_the_heap_stays_as_small_as_what_lives(self):
        heap = TimerHeap()
        alarm = Alarm(heap)
        for n in range(10_000):
            alarm.set(20_000 - n)
        assert len(heap) < 600

    @pytest.mark.parametrize("seed", range(5))
    def test_nobody_is_late_or_forgotten(self, seed):
        rng, heap, now = random.Random(seed), TimerHeap(), 0
        alarms = [Alarm(heap) for _ in range(200)]
        for _ in range(20_000):
            alarm = rng.choice(alarms)
            alarm.set(NEVER if rng.random() < 0.4 else now + rng.randrange(1, 1_000))
            if rng.random() < 0.02:
                now += rng.randrange(20)
                heap.expire(now)
                assert min(a.at for a in alarms) > now
                assert heap.next() <= min(a.at for a in alarms)
