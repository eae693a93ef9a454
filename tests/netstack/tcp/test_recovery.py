"""Loss: fast retransmit, SACK, RACK-TLP, RTO, PRR, limited transmit, DSACK."""

from __future__ import annotations

import gc
import itertools

import pytest
from tcp_kit import MTU_1040, NO_TIMESTAMPS, PLAIN, Link, Pair, WireModel, established, faster

from juneau.netstack.tcp import State, TcpConnection, TcpOptions
from juneau.netstack.tcp.recovery.scoreboard import Scoreboard, Sent
from juneau.netstack.tcp.snd import Mode, Timer
from juneau.netstack.types import MILLISECOND, SECOND
from juneau.testing import packets
from juneau.testing.sim import SimNet
from juneau.testing.wire import Impairment

RTT = 20 * MILLISECOND
OFFLOAD = Link(mtu=1040, checksum_offload=True, tso=True)
NO_TLP = faster(NO_TIMESTAMPS, tlp=False)


def sending(options=NO_TLP, *, sack=True, segments=10, link=MTU_1040, **isns):
    """`segments` of 1000 bytes in flight, RTT measured."""
    host, peer, conn = established(options, sack=sack, link=link, **isns)
    conn.send(b"w", host.now)
    peer.one()
    host.now += RTT
    peer.inject("A", 1, 2)
    conn.snd.rtt.min_rtt = conn.snd.rtt.srtt = RTT  # the handshake took no time
    conn.send(bytes(1_000 * segments), host.now)
    sent = peer.got()
    assert sum(len(s.payload) for s in sent) == 1_000 * segments
    host.now += RTT
    return host, peer, conn


def at(n):
    """Sequence number of segment n."""
    return 2 + 1_000 * n


def sack(peer, *blocks, ack=2):
    edges = [(peer.remote_iss + a, peer.remote_iss + b) for a, b in blocks]
    edges = [(a % 2**32, b % 2**32) for a, b in edges]
    peer.inject("A", 1, ack, options=b"\1\1" + packets.sack(*edges))


def test_three_duplicate_acks_retransmit_the_first_segment(isns):
    """RFC 5681 3.2, without SACK."""
    _host, peer, conn = sending(faster(PLAIN, tlp=False), sack=False, **isns)
    for _ in range(2):
        peer.inject("A", 1, at(0))
        assert [s for s in peer.got() if s.payload] == []
    peer.inject("A", 1, at(0))
    assert [(s.seq, len(s.payload)) for s in peer.got()] == [(at(0), 1_000)]
    assert conn.snd.mode is Mode.RECOVERY
    assert conn.snd.cc.ssthresh == 7_000


def test_a_partial_ack_retransmits_the_next_hole(isns):
    """RFC 6582 3.2 step 3."""
    _host, peer, conn = sending(faster(PLAIN, tlp=False), sack=False, **isns)
    for _ in range(3):
        peer.inject("A", 1, at(0))
    peer.got()
    peer.inject("A", 1, at(4))
    assert at(4) in [s.seq for s in peer.got()]
    assert conn.snd.mode is Mode.RECOVERY
    peer.inject("A", 1, at(10))
    assert conn.snd.mode is Mode.OPEN
    assert conn.snd.cc.cwnd == conn.snd.cc.ssthresh


def test_limited_transmit_sends_new_data_on_two_duplicates():
    """RFC 3042."""
    host, peer, conn = sending(faster(PLAIN, tlp=False), sack=False, segments=10)
    conn.snd.cc.cwnd = 10_000
    conn.send(bytes(5_000), host.now)
    assert peer.got() == []
    for n in (10, 11):
        peer.inject("A", 1, at(0))
        assert [s.seq for s in peer.got()] == [at(n)]


def test_sack_of_three_segments_retransmits_only_the_hole(isns):
    _host, peer, conn = sending(**isns)
    sack(peer, (at(1), at(2)))
    sack(peer, (at(1), at(3)))
    assert peer.got() == []
    sack(peer, (at(1), at(4)))
    assert [(s.seq, len(s.payload)) for s in peer.got()] == [(at(0), 1_000)]
    assert conn.info().lost == 0
    assert conn.info().sacked == 3_000
    peer.inject("A", 1, at(10))
    assert conn.info().sacked == 0
    assert conn.snd.mode is Mode.OPEN


def test_two_holes_are_repaired_in_one_round(isns):
    _host, peer, _conn = sending(**isns)
    sack(peer, (at(1), at(4)), (at(5), at(10)))
    assert sorted(s.seq for s in peer.got()) == [at(0), at(4)]


def test_without_rack_sack_needs_three_segments_above_the_hole(isns):
    _host, peer, _conn = sending(faster(NO_TLP, rack=False), **isns)
    sack(peer, (at(1), at(3)))
    assert peer.got() == []
    sack(peer, (at(1), at(4)))
    assert [s.seq for s in peer.got()] == [at(0)]


def test_rack_waits_a_reordering_window_once_reordering_was_seen(isns):
    """RFC 8985 6.2 step 4."""
    host, peer, conn = sending(**isns)
    sack(peer, (at(1), at(2)))
    peer.inject("A", 1, at(2))  # segment 0 was only late
    assert conn.info().reordering_seen
    sack(peer, (at(3), at(7)), ack=at(2))
    assert peer.got() == []
    assert conn.snd.timer is Timer.REORDER
    window = conn.deadline() - host.now
    assert 0 < window <= RTT // 4
    seen = host.advance(window)
    assert [peer.see(p).seq for _, p in seen] == [at(2)]


def test_rack_finds_a_lost_retransmission(isns):
    """What three duplicate ACKs cannot see."""
    host, peer, conn = sending(**isns)
    sack(peer, (at(1), at(4)))
    assert [s.seq for s in peer.got()] == [at(0)]
    conn.send(bytes(3_000), host.now)
    host.now += RTT
    sack(peer, (at(1), at(10)))
    fresh = peer.got()
    assert fresh, "new data goes out while recovering"
    host.now += RTT
    sack(peer, (at(1), at(10) + 1_000))
    host.now += RTT
    seen = peer.got() + [peer.see(p) for _, p in host.advance(RTT)]
    assert at(0) in [s.seq for s in seen]
    assert conn.info().retransmits == 0, "no timeout was needed"


def test_a_superframe_sacked_in_part_is_resent_in_part(isns):
    _host, peer, conn = sending(faster(NO_TLP, initial_cwnd=20), link=OFFLOAD, **isns)
    assert len(conn.snd.board.records) == 1
    sack(peer, (at(1), at(3)), (at(4), at(10)))
    assert sorted((s.seq, len(s.payload)) for s in peer.got()) == [(at(0), 1_000), (at(3), 1_000)]
    peer.inject("A", 1, at(10))
    assert conn.snd.flight == 0


def test_acks_inside_a_superframe(isns):
    _host, peer, conn = sending(link=OFFLOAD, **isns)
    for n in (2, 4, 7, 10):
        peer.inject("A", 1, at(n))
        assert conn.snd.una - conn.snd.iss == at(n)
    assert conn.snd.board.records == []


def test_tail_loss_probe_resends_the_last_segment(isns):
    """RFC 8985 section 7."""
    host, peer, conn = sending(NO_TIMESTAMPS, **isns)
    assert conn.snd.timer is Timer.TLP
    due = conn.deadline() - host.now
    assert due < 200 * MILLISECOND
    ((_, packet),) = host.advance(due)
    assert (peer.see(packet).seq, len(packet.tcp.payload)) == (at(9), 1_000)
    host.now += RTT
    sack(peer, (at(9), at(10)))
    assert [s.seq for s in peer.got()] == [at(0)], (
        "the SACK tells that all before is lost; PRR begins with one"
    )
    host.now += RTT
    sack(peer, (at(9), at(10)), ack=at(1))
    assert [s.seq for s in peer.got()] == [at(1), at(2)]
    assert conn.info().retransmits == 0


def test_tail_loss_probe_prefers_new_data():
    host, peer, conn = sending(NO_TIMESTAMPS)
    conn.snd.cc.cwnd = conn.snd.flight
    conn.send(bytes(500), host.now)
    assert peer.got() == []
    ((_, packet),) = host.advance(100 * MILLISECOND)
    assert peer.see(packet).seq == at(10)


def test_a_probe_that_repaired_a_loss_costs_window():
    """RFC 8985 7.4.2 case 2."""
    host, peer, conn = sending(NO_TIMESTAMPS)
    ((_, _),) = host.advance(150 * MILLISECOND)
    peer.inject("A", 1, at(10))
    before = conn.snd.cc.cwnd
    conn.send(bytes(1_000), host.now)
    peer.got()
    peer.inject("A", 1, at(11))
    assert conn.snd.cc.cwnd == before * 7 // 10


def test_a_probe_that_was_not_needed_costs_nothing():
    host, peer, conn = sending(NO_TIMESTAMPS)
    before = conn.snd.cc.cwnd
    ((_, _),) = host.advance(150 * MILLISECOND)
    peer.inject("A", 1, at(10))
    sack(peer, (at(9), at(10)), ack=at(10))  # DSACK: both copies arrived
    conn.send(bytes(1_000), host.now)
    peer.got()
    peer.inject("A", 1, at(11))
    assert conn.snd.cc.cwnd >= before


def test_a_lost_retransmission_at_the_end_of_recovery_is_found_by_a_probe(isns):
    """All else was SACKed, so nothing that left later could tell RACK (RFC 9002 6.2 probes there too)."""
    host, peer, conn = sending(NO_TIMESTAMPS, **isns)
    sack(peer, (at(1), at(10)))
    assert [s.seq for s in peer.got()] == [at(0)]
    ((after, packet),) = host.advance(100 * MILLISECOND)
    assert peer.see(packet).seq == at(0)
    assert after >= 2 * RTT
    assert conn.info().retransmits == 0
    assert host.advance(90 * MILLISECOND) == [], "one probe until there is progress"
    peer.inject("A", 1, at(10))
    assert conn.snd.mode is Mode.OPEN
    assert conn.snd.cc.cwnd == conn.snd.cc.ssthresh == 7_000, "the window paid once"


def test_a_probe_with_nothing_in_flight_sends_what_is_lost():
    """PRR leaves no window when a retransmission is lost and all else was SACKed. Then a timeout is next."""
    host, peer, conn = sending(NO_TIMESTAMPS)
    sack(peer, (at(1), at(10)))
    peer.got()
    conn.snd.board.mark_lost(conn.snd.board.records[0])
    conn.snd.cc.cwnd = 0
    ((_, packet),) = host.advance(150 * MILLISECOND)
    assert peer.see(packet).seq == at(0)
    assert conn.info().retransmits == 0
    host.advance(200 * MILLISECOND)
    assert conn.info().retransmits == 1


def test_a_probe_that_finds_nothing_to_send_is_followed_by_the_timeout():
    host, peer, conn = sending(NO_TIMESTAMPS)
    sack(peer, (at(1), at(10)))
    peer.got()
    board = conn.snd.board
    board._mark_sacked(board.records[0])  # all of it, and yet no ACK: a peer that reneges
    assert len(host.advance(SECOND)) > 0
    assert conn.info().retransmits > 0


def test_a_probe_in_recovery_prefers_new_data():
    host, peer, conn = sending(NO_TIMESTAMPS)
    sack(peer, (at(1), at(4)))
    assert [s.seq for s in peer.got()] == [at(0)]
    conn.snd.cc.cwnd = conn.snd.pipe()
    conn.send(bytes(500), host.now)
    assert peer.got() == []
    ((_, packet),) = host.advance(100 * MILLISECOND)
    assert peer.see(packet).seq == at(10)


def test_a_probe_in_recovery_is_no_bare_fin():
    """Few receivers SACK a FIN: its copy would bring no news."""
    host, peer, conn = sending(NO_TIMESTAMPS)
    sack(peer, (at(1), at(10)))
    conn.shutdown(host.now)
    assert [s.short[:3] for s in peer.got()] == [("A", at(0), 1_000), ("FA", at(10), 0)]
    ((_, packet),) = host.advance(100 * MILLISECOND)
    assert peer.see(packet).seq == at(0)


def test_a_probe_beyond_a_hole_is_believed_whatever_the_echo():
    """The echo is of what came in order (RFC 7323 4.3), so it is older than the probe."""
    host, peer, conn = established(TcpOptions(), mss=1_012, link=Link(mtu=1_052))
    conn.send(b"w", host.now)
    peer.one()
    echo = peer.ts_ecr
    host.now += RTT
    peer.inject("A", 1, 2)
    conn.send(bytes(5_000), host.now)
    assert [len(s.payload) for s in peer.got()] == [1_000] * 5
    ((_, packet),) = host.advance(100 * MILLISECOND)
    assert peer.see(packet).seq == at(4)
    host.now += RTT
    peer.ts_ecr = echo
    sack(peer, (at(4), at(5)))
    assert [s.seq for s in peer.got()] == [at(0)]


def test_a_window_has_room_for_two_superframes():
    """The loss of the only one could be found by a timer alone."""
    _host, peer, conn = sending(link=OFFLOAD)
    assert [rec.end - rec.seq for rec in conn.snd.board.records] == [5_000, 5_000]
    sack(peer, (at(5), at(10)))
    assert [len(s.payload) for s in peer.got()] == [2_000, 2_000, 1_000]


def test_loss_of_whole_superframes_costs_no_timeout():
    net = SimNet(seed=2, impairment=Impairment(loss=0.02, delay=25, bandwidth=10**10))
    link = Link(checksum_offload=True, tso=True)
    client, server = (net.host(ip, link=link) for ip in ("10.0.0.1", "10.0.0.2"))
    listener = server.listen(80)
    conn = client.connect(server, 80)
    conn.send(bytes(50 << 20), net.now)
    conn.shutdown(net.now)
    net.run_until(lambda: listener.waiting > 0)
    peer = listener.accept()
    assert peer is not None
    while not peer.at_eof:
        net.run_until(lambda: peer.recv_queue_bytes > 0 or peer.at_eof)
        peer.read(1 << 22)
        server.settle()
    counters = client.stack.counters.snapshot()
    assert counters["tcp.retransmitted_segments"] > 20
    assert not counters.get("tcp.retransmission_timeouts")
    assert net.now < 200 * MILLISECOND, "2 Gbit/s"


def test_timeout_resends_the_first_segment_and_backs_off(isns):
    host, peer, conn = sending(**isns)
    host.now -= RTT
    seen = [(at_, peer.see(p).seq) for at_, p in host.advance(3 * SECOND)]
    assert [seq for _, seq in seen] == [at(0)] * len(seen)
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(seen)]
    assert all(b == 2 * a for a, b in itertools.pairwise(gaps))
    assert conn.snd.cc.cwnd == 1_000
    assert conn.info().backoff == len(seen)


def test_after_a_timeout_everything_lost_is_resent_in_slow_start(isns):
    host, peer, conn = sending(**isns)
    host.advance(300 * MILLISECOND)
    got, acked = [], 1
    while acked < 10:
        peer.inject("A", 1, at(acked))
        got.append(len(peer.got()))
        acked += got[-1]
        host.now += RTT
    assert got[:3] == [2, 4, 3] or got[:3] == [2, 3, 4], got
    peer.inject("A", 1, at(10))
    assert conn.snd.mode is Mode.OPEN
    assert conn.info().backoff == 0


def test_backoff_ends_with_progress():
    host, peer, conn = sending()
    host.advance(2 * SECOND)
    peer.inject("A", 1, at(10))
    assert conn.info().backoff == 0
    assert conn.info().rto <= 300 * MILLISECOND, "Karn: the retransmission was not measured"


def test_sack_reneging_is_survived():
    """RFC 2018 section 8: after a timeout the peer may have thrown away what it SACKed."""
    host, peer, conn = sending()
    sack(peer, (at(0), at(0) + 500))  # nonsense: SACK at snd_una
    host.advance(3 * SECOND)
    peer.inject("A", 1, at(10))
    assert conn.snd.flight == 0


@pytest.mark.parametrize(
    "blocks",
    [
        [(at(5), at(2))],
        [(at(50), at(60))],
        [(-90_000, -80_000)],
        [(at(3), at(3))],
        [(0, 2**31)],
        [(at(0), at(10))] * 3,
    ],
)
def test_nonsense_sack_blocks_do_no_harm(isns, blocks):
    _host, peer, conn = sending(**isns)
    sack(peer, *blocks)
    peer.got()
    assert conn.state is State.ESTABLISHED
    peer.inject("A", 1, at(10))
    assert conn.snd.flight == 0
    assert conn.info().sacked == conn.info().lost == 0


def test_a_peer_cannot_make_us_keep_a_record_per_byte():
    link = Link(mtu=1040, checksum_offload=True, tso=True)
    _host, peer, conn = sending(link=link, segments=10)
    for i in range(at(0) + 1, at(10), 2):
        sack(peer, (i, i + 1))
    peer.got()
    assert len(conn.snd.board.records) <= 10_001


# --- what we tell the peer ---


def test_sack_blocks_report_the_newest_first(isns):
    _host, peer, _conn = established(wscale=7, **isns)
    peer.inject("A", 1_001, 1, bytes(1_000))
    assert peer.one().sack == ((1_001, 2_001),)
    peer.inject("A", 3_001, 1, bytes(1_000))
    assert peer.one().sack == ((3_001, 4_001), (1_001, 2_001))
    peer.inject("A", 2_001, 1, bytes(500))
    assert peer.one().sack == ((1_001, 2_501), (3_001, 4_001))
    peer.inject("A", 1, 1, bytes(1_000))
    seen = peer.one()
    assert (seen.ack, seen.sack) == (2_501, ((3_001, 4_001),))


def test_duplicate_data_is_reported_by_dsack(isns):
    """RFC 2883."""
    _host, peer, _conn = established(wscale=7, **isns)
    peer.inject("A", 1, 1, bytes(2_000))
    peer.got()
    peer.inject("A", 1, 1, bytes(1_000))
    seen = peer.one()
    assert (seen.ack, seen.sack) == (2_001, ((1, 1_001),))
    peer.inject("A", 3_001, 1, bytes(1_000))
    assert peer.one().sack == ((3_001, 4_001),), "a DSACK is sent once"
    peer.inject("A", 3_001, 1, bytes(500))
    assert peer.one().sack == ((3_001, 3_501), (3_001, 4_001))


def test_a_peer_without_sack_gets_a_duplicate_ack_per_segment(isns):
    _host, peer, _conn = established(PLAIN, sack=False, **isns)
    for n in range(1, 4):
        peer.inject("A", 1 + 1_000 * n, 1, bytes(1_000))
    assert [s.short for s in peer.got()] == [("A", 1, 0, 1)] * 3


# --- whole transfers ---


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
@pytest.mark.parametrize(
    "options", [TcpOptions(), PLAIN, faster(TcpOptions(), congestion_control="reno", rack=False)]
)
@pytest.mark.parametrize("tso", [False, True])
def test_lossy_transfers_end(loss, options, tso):
    link = Link(mtu=1450, checksum_offload=tso, tso=tso)
    pair = Pair(
        options, link=link, wire=WireModel(loss=loss, delay=2_000, reorder=0.05, duplicate=0.02), seed=7
    )
    data = bytes(range(251)) * 800
    _, client, server = pair.connect(data, data[:50_000])
    pair.run(until=3_000 * SECOND)
    assert server.received == data
    assert client.received == data[:50_000]


def test_loss_costs_no_timeout_when_acks_flow():
    pair = Pair(wire=WireModel(loss=0.01, delay=5_000), seed=5)
    data = bytes(3_000_000)
    conn, _client, server = pair.connect(data)
    pair.run()
    assert server.received == data
    assert pair.a.counters["tcp.retransmission_timeouts"] <= 1
    assert conn.snd.board.retrans_ever < 0.03 * len(data)


def test_reordering_alone_causes_few_retransmissions():
    pair = Pair(wire=WireModel(delay=5_000, jitter=1_000), seed=5)
    data = bytes(2_000_000)
    conn, _client, server = pair.connect(data)
    pair.run()
    assert server.received == data
    assert conn.snd.board.retrans_ever < 0.02 * len(data)


def test_a_spurious_timeout_is_undone(isns):
    """RFC 3522, RFC 4015: the ACK echoes a timestamp from before the retransmission."""
    host, peer, conn = established(faster(TcpOptions(), tlp=False), **isns)
    conn.send(bytes(988 * 10), host.now)
    peer.got()
    echo = peer.ts_ecr
    before = conn.snd.cc.cwnd
    assert [peer.see(p).seq for _, p in host.advance(1_050 * MILLISECOND)][:1] == [1]
    assert conn.snd.cc.cwnd == conn.snd.mss
    host.now += 5 * MILLISECOND
    peer.ts, peer.ts_ecr = 2, echo
    peer.inject("A", 1, 1 + 988)
    assert conn.snd.mode is Mode.OPEN
    assert conn.snd.cc.cwnd >= before
    assert conn.info().lost == 0
    assert peer.got() == []


@pytest.mark.parametrize("duplicates", [0, 500, 1_000])
def test_a_fast_retransmission_that_was_not_needed_is_undone_by_dsack(isns, duplicates):
    """RFC 3708, with all that was sent again reported."""
    _host, peer, conn = sending(**isns)
    cwnd = conn.snd.cc.cwnd
    sack(peer, (at(1), at(4)))
    assert [s.seq for s in peer.got()] == [at(0)]
    peer.inject("A", 1, at(4))  # it was only late
    peer.inject("A", 1, at(10))
    assert conn.snd.cc.cwnd == 7_000
    sack(peer, *([(at(0), at(0) + duplicates)] if duplicates else []), ack=at(10))
    assert (conn.snd.cc.cwnd >= cwnd) == (duplicates == 1_000)


def test_a_dsack_that_comes_much_later_undoes_nothing():
    host, peer, conn = sending()
    sack(peer, (at(1), at(4)))
    peer.inject("A", 1, at(10))
    peer.got()
    conn.send(bytes(3_000), host.now)
    assert len(peer.got()) == 3
    sack(peer, (at(11), at(12)), ack=at(10))
    peer.inject("A", 1, at(13))
    sack(peer, (at(0), at(1)), ack=at(13))
    assert conn.snd.cc.cwnd < 10_000


@pytest.mark.parametrize("late", [True, False])
def test_a_fast_retransmission_that_was_not_needed_is_undone_by_its_echo(late):
    """RFC 3522: the original arrived, later than what followed it."""
    host, peer, conn = established(TcpOptions(), mss=1_012, link=Link(mtu=1_052))
    conn.send(b"w", host.now)
    peer.one()
    host.now += RTT
    peer.inject("A", 1, 2)
    cwnd = conn.snd.cc.cwnd
    conn.send(bytes(8_000), host.now)
    assert len(peer.got()) == 8
    original = peer.ts_ecr
    host.now += RTT
    sack(peer, (at(1), at(5)))
    assert peer.got()[0].seq == at(0)
    again = peer.ts_ecr
    assert conn.snd.mode is Mode.RECOVERY
    host.now += RTT // 2
    peer.ts_ecr = original if late else again
    peer.inject("A", 1, at(5))
    assert (conn.snd.mode is Mode.OPEN and conn.snd.cc.cwnd >= cwnd) == late
    assert conn.info().reordering_seen == late


def test_a_real_timeout_is_not_undone(isns):
    host, peer, conn = established(faster(TcpOptions(), tlp=False), **isns)
    conn.send(bytes(988 * 10), host.now)
    peer.got()
    for _, p in host.advance(1_050 * MILLISECOND):
        peer.see(p)
    host.now += 5 * MILLISECOND
    peer.ts = 2
    peer.inject("A", 1, 1 + 988)
    assert conn.snd.mode is Mode.LOSS
    assert conn.info().lost > 0


@pytest.mark.parametrize(("restart", "segments"), [(True, 10), (False, 20)])
def test_the_window_after_an_idle_time(restart, segments):
    """RFC 5681 4.1, and Linux's tcp_slow_start_after_idle."""
    host, peer, conn = sending(faster(NO_TLP, slow_start_after_idle=restart))
    peer.inject("A", 1, at(10))
    assert conn.snd.cc.cwnd == 20_000
    host.now += 5 * SECOND
    conn.send(bytes(40_000), host.now)
    assert len(peer.got()) == segments


def test_a_closed_connection_is_no_work_for_the_collector():
    def tracked():
        kinds = TcpConnection, Sent, Scoreboard
        return sum(isinstance(thing, kinds) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = tracked()
        host, peer, conn = sending()
        peer.inject("A", 1, at(4))
        conn.send(bytes(50_000), host.now)
        peer.got()
        conn.abort(host.now)
        host.advance(100 * SECOND)
        del conn
        assert tracked() == before
    finally:
        gc.enable()


def test_a_syn_that_was_called_off_is_not_sent():
    from tcp_kit import OURS, THEIRS, Endpoint, Host

    host = Host(NO_TIMESTAMPS)
    conn = host.tcp.connect(THEIRS, local=Endpoint(OURS.ip, 0), path="p", now=host.now)
    conn.close(host.now)
    assert host.sent() == []


def test_recovery_of_a_lost_superframe_grows_as_if_every_second_segment_were_acknowledged():
    """One ACK for a superframe must not make slow-start reduction bound linear."""
    link = Link(mtu=1040, checksum_offload=True, tso=True)
    host, peer, conn = sending(link=link)
    conn.snd.cc.cwnd = 60_000
    conn.send(bytes(42_000), host.now)
    peer.got()
    host.now += RTT
    sack(peer, (at(42), at(52)))
    acked, rounds = 0, 0
    while acked < 42:
        sent = sum(len(s.payload) for s in peer.got() if s.seq < at(42)) // 1_000
        assert sent
        acked += sent
        rounds += 1
        host.now += RTT
        sack(peer, (at(42), at(52)), ack=at(acked))
    assert rounds <= 7, rounds
