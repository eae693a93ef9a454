"""What other stacks got wrong, one test for each trap, with the issue that found it where there is one."""

from __future__ import annotations

import itertools

import pytest
from tcp_kit import (
    MTU_1040,
    NO_TIMESTAMPS,
    OURS,
    Endpoint,
    Host,
    Pair,
    Peer,
    WireModel,
    connected,
    established,
    faster,
    read_all,
)

from juneau.netstack.events import Closed, Readable
from juneau.netstack.limits import Limits
from juneau.netstack.tcp import State, TcpOptions
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason, Link
from juneau.testing import packets

TSO = Link(mtu=1040, checksum_offload=True, tso=True)


# --- windows ---


def test_zero_window_probe_forces_an_ack(isns):
    """google/gvisor#10243."""
    host, peer, conn = established(**isns)
    conn.send(b"x" * 10, host.now)
    peer.one()
    peer.inject("A", 1, 11, wnd=0)
    conn.send(b"y" * 10, host.now)
    assert peer.got() == []
    ((at, packet),) = host.advance(SECOND // 2)
    assert at <= SECOND // 2, "within one RTO"
    assert peer.see(packet).short == ("A", 10, 0, 1), "out of the peer's window, so it must be answered"


def test_zero_window_five_answers_then_data_at_once(isns):
    host, peer, conn = established(**isns)
    peer.inject("A", 1, 1, wnd=0)
    conn.send(b"y" * 10, host.now)
    assert peer.got() == []
    times = []
    for _ in range(5):
        at = host.tcp.next_timeout()
        times.append(at - host.now)
        host.now = at
        host.tcp.handle_timeout(host.now)
        assert peer.one().short == ("A", 0, 0, 1)
        peer.inject("A", 1, 1, wnd=0)
        assert peer.got() == []
    assert all(b == 2 * a for a, b in itertools.pairwise(times)), times
    assert conn.state is State.ESTABLISHED
    peer.inject("A", 1, 1, wnd=1_000)
    assert peer.one().short == ("A", 1, 10, 1)


def test_zero_window_answers_keep_the_connection_alive_for_ever():
    host, peer, conn = established()
    peer.inject("A", 1, 1, wnd=0)
    conn.send(b"y", host.now)
    assert peer.got() == []
    for _ in range(40):
        host.now = host.tcp.next_timeout()
        host.tcp.handle_timeout(host.now)
        assert len(peer.got()) == 1
        peer.inject("A", 1, 1, wnd=0)
        assert peer.got() == []
    assert conn.state is State.ESTABLISHED


def test_draining_a_full_buffer_announces_the_window_at_once(isns):
    """smoltcp#199: no further input is needed."""
    _host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=4_000), wscale=0, **isns)
    for i in range(4):
        peer.inject("A", 1 + 1_000 * i, 1, b"d" * 1_000)
    assert peer.got()[-1].wnd == 0
    assert len(read_all(conn)) == 4_000
    update = peer.one()
    assert update.ack == 4_001
    assert update.wnd >= 1_000


def test_draining_a_window_of_three_bytes_announces_it_at_once():
    """google/gvisor#1398: it was never 0."""
    _host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=4_000), wscale=0)
    for i in range(3):
        peer.inject("A", 1 + 1_000 * i, 1, b"d" * 1_000)
    peer.inject("A", 3_001, 1, b"d" * 997)
    assert peer.got()[-1].wnd == 3
    read_all(conn)
    assert peer.one().wnd >= 1_000


def test_reading_a_little_announces_nothing():
    """Receiver SWS avoidance."""
    _host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=4_000), wscale=0)
    for i in range(4):
        peer.inject("A", 1 + 1_000 * i, 1, b"d" * 1_000)
    peer.got()
    conn.read(999)
    assert peer.got() == []
    conn.read(1)
    assert peer.one().wnd == 1_000


def test_probe_of_a_nearly_full_buffer_gets_window_0_not_1():
    """google/gvisor#5984."""
    _host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=4_000), wscale=0)
    for i in range(4):
        peer.inject("A", 1 + 1_000 * i, 1, b"d" * 1_000)
    peer.got()
    conn.read(1)
    peer.inject("A", 4_001, 1, b"p")  # a window probe with a byte
    answer = peer.one()
    assert (answer.ack, answer.wnd) == (4_001, 0)
    peer.inject("A", 4_000, 1)  # and one without
    assert peer.one().wnd == 0


def test_one_byte_segments_reach_window_0_in_bounded_memory():
    """google/gvisor#4903."""
    buf = 16_384
    host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=buf), wscale=0)
    peer.inject("A", 1, 1, b"a" * 512)
    at, edge = 513, 0
    while True:
        peer.inject("A", at, 1, b"b")
        at += 1
        host.advance(0)
        host.now += 20 * MILLISECOND
        host.tcp.handle_timeout(host.now)
        for seen in peer.got():
            assert seen.ack + seen.wnd >= edge, "the right edge moved left"
            edge = max(edge, seen.ack + seen.wnd)
            wnd = seen.wnd
        if wnd == 0:
            break
        assert at < 2 * buf
    assert conn.recv_queue_bytes == at - 1 == buf
    assert conn.rcv.chunks.memory() <= 2 * buf
    assert read_all(conn) == b"a" * 512 + b"b" * (at - 513)


def test_one_byte_segments_out_of_order_stay_in_bounded_memory():
    host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=1 << 20), wscale=7)
    for at in range(3, 20_000, 2):
        peer.inject("A", at, 1, b"b")
        host.take()
    assert len(conn.rcv.assembler.ranges()) <= host.tcp.options.ooo_ranges
    assert conn.rcv.assembler.memory() < 64 * 1024
    assert host.tcp.buffered == conn.rcv.assembler.size


# --- RST and challenge ACKs ---


def test_no_rst_answers_a_rst():
    host = Host(NO_TIMESTAMPS)
    peer = Peer(host)
    for flags in ("R", "RA", "RS", "RF"):
        peer.inject(flags, 5, 777)
    assert host.sent() == []


def test_closed_port_answers_an_ack_with_its_ack_number():
    host = Host(NO_TIMESTAMPS)
    host.receive(packets.tcp(seq=5, ack=777, flags="A"))
    (rst,) = host.sent()
    assert (rst.tcp.flag_text, rst.tcp.seq, rst.tcp.ack, rst.tcp.payload) == ("R", 777, 0, b"")


def test_closed_port_answers_a_syn_with_seq_0_and_acks_it():
    host = Host(NO_TIMESTAMPS)
    host.receive(packets.tcp(seq=5, flags="S"))
    (rst,) = host.sent()
    assert (rst.tcp.flag_text, rst.tcp.seq, rst.tcp.ack) == ("RA", 0, 6)


def test_rst_right_behind_data_closes_silently(isns):
    host, peer, conn = established(**isns)
    peer.inject("A", 1, 1, b"d" * 100)
    peer.inject("R", 101)
    assert conn.state is State.CLOSED
    assert peer.got() == []
    assert host.take_events() == [Readable(conn), Closed(conn, CloseReason.RESET)]
    assert list(host.tcp.connections()) == []


def test_rst_elsewhere_in_the_window_is_challenged_with_the_current_ack(isns):
    """smoltcp#338."""
    _host, peer, conn = established(**isns)
    peer.inject("A", 1, 1, b"d" * 100)
    peer.inject("R", 50_000)
    answers = peer.got()
    assert [a.short for a in answers] == [("A", 1, 0, 101)]
    assert conn.state is State.ESTABLISHED


def test_challenge_acks_are_rate_limited_but_answers_to_data_are_not():
    host, peer, conn = established()
    count = 0
    for _ in range(100):
        peer.inject("R", 30_000)
        count += len(peer.got())
    assert count == host.tcp.options.challenge_acks
    assert conn.state is State.ESTABLISHED
    peer.inject("A", 1, 1, b"d" * 1_000)
    peer.got()
    for _ in range(20):
        peer.inject("A", 1, 1, b"d" * 1_000)  # the peer has not heard our ACK
        assert peer.one().ack == 1_001
    host.now += 6 * SECOND
    host.tcp.handle_timeout(host.now)
    peer.inject("R", 30_000)
    assert len(peer.got()) == 1


def test_rst_outside_the_window_is_ignored(isns):
    _host, peer, conn = established(**isns)
    peer.inject("R", -1)
    peer.inject("R", 3_000_000)
    assert conn.state is State.ESTABLISHED
    assert peer.got() == []


# --- FIN ---


def test_an_ack_far_in_the_past_is_challenged(isns):
    """RFC 5961 5.2: data with a blind guess of the ACK number is no data."""
    host, peer, conn = established(wnd=2_000, **isns)
    conn.send(bytes(8_000), host.now)
    for n in (2_001, 4_001, 6_001):
        peer.got()
        peer.inject("A", 1, n, wnd=2_000)
    peer.got()
    peer.inject("A", 1, 4_000, b"blind")
    assert peer.one().ack == 1
    assert conn.recv_queue_bytes == 0
    peer.inject("A", 1, 4_001, b"late")
    assert conn.recv_queue_bytes == 4


def test_a_window_smaller_than_half_of_the_largest_is_used_after_a_while(isns):
    """Sender SWS avoidance waits for a larger one, but not for ever (RFC 9293 3.8.6.2.1)."""
    host, peer, conn = established(wnd=3_000, **isns)
    conn.send(b"w", host.now)
    peer.one()
    peer.inject("A", 1, 2, wnd=100)
    conn.send(bytes(1_000), host.now)
    assert peer.got() == []
    seen = [peer.see(packet) for _, packet in host.advance(3 * SECOND)]
    assert (seen[0].seq, len(seen[0].payload)) == (2, 100)


def test_what_was_promised_is_taken_although_scaling_rounds_the_window_down():
    """RFC 7323 2.4: the right edge does not move left."""
    options = faster(NO_TIMESTAMPS, rcv_buf=60_000, wscale=5, sws_bytes=1)
    host, peer, conn = established(options, wscale=5)
    edge = conn.rcv.adv - conn.rcv.nxt
    peer.inject("A", 1, 1, b"xx")
    ((_, ack),) = host.advance(SECOND)
    assert ack.tcp.wnd << 5 < edge - 2
    peer.inject("A", 1 + edge - 9, 1, bytes(9))
    assert peer.one().sack == ((1 + edge - 9, 1 + edge),)


def test_fin_before_its_data(isns):
    _host, peer, conn = established(**isns)
    peer.inject("FA", 101, 1)
    assert peer.one().short == ("A", 1, 0, 1), "a duplicate ACK at once"
    assert not conn.at_eof
    peer.inject("A", 1, 1, b"d" * 100)
    assert peer.one().ack == 102
    assert read_all(conn) == b"d" * 100
    assert conn.at_eof
    assert conn.state is State.CLOSE_WAIT


def test_data_after_the_fin_is_discarded(isns):
    _host, peer, conn = established(**isns)
    peer.inject("FA", 101, 1)
    peer.inject("A", 102, 1, b"ZZZ")
    peer.inject("A", 1, 1, b"d" * 100 + b"ZZZ")
    assert peer.got()[-1].ack == 102
    peer.inject("A", 102, 1, b"ZZZ")
    peer.got()
    assert read_all(conn) == b"d" * 100
    assert conn.at_eof


def test_half_close_answers_after_eof(isns):
    """Data, FIN; the handler reads to EOF, then writes 50 kB and closes: all bytes, then FIN, no RST."""
    pair = Pair(iss=(isns["host_iss"], isns["peer_iss"]), wire=WireModel(delay=500))
    _conn, client, server = pair.connect(b"question" * 100, b"")
    reply = b"0123456789" * 5_000
    server.outgoing, server.shut = b"", True  # nothing until EOF

    def settle(original=pair.settle):
        if server.eof and not server.outgoing:
            server.outgoing, server.shut = reply, False
        original()

    pair.settle = settle
    pair.run()
    assert client.received == reply
    assert server.received == b"question" * 100
    assert (client.closed, server.closed) == (CloseReason.NORMAL, CloseReason.NORMAL)


def test_half_close_of_the_server_first(isns):
    pair = Pair(iss=(isns["host_iss"], isns["peer_iss"]), wire=WireModel(delay=500))
    _conn, client, server = pair.connect(b"", b"banner")
    client.shut = True
    data = b"0123456789" * 5_000

    def settle(original=pair.settle):
        if client.eof and not client.outgoing:
            client.outgoing, client.shut = data, False
        original()

    pair.settle = settle
    pair.run()
    assert client.received == b"banner"
    assert server.received == data
    assert (client.closed, server.closed) == (CloseReason.NORMAL, CloseReason.NORMAL)


# --- half-open connections ---


def test_handshake_ack_without_timestamps_leaves_no_half_open_behind():
    """google/gvisor#11536."""
    host = Host(TcpOptions())
    listener = host.tcp.listen(OURS, backlog=4)
    for i in range(3 * 5):
        peer = Peer(host, local=Endpoint(packets.address("10.0.0.2"), 2_000 + i))
        peer.inject("S", 0, options=packets.mss(1_000) + b"\1\1" + packets.timestamps(1, 0))
        peer.one()
        peer.inject("A", 1, 1)  # no timestamps
        assert peer.got() == []
    assert host.tcp.half_open == 15
    host.advance(200 * SECOND)
    assert host.tcp.half_open == 0
    assert host.tcp.next_timeout() is None
    peer = Peer(host)
    peer.inject("S", 0, options=packets.mss(1_000))
    assert peer.one().flags == "SA"
    peer.inject("A", 1, 1)
    assert listener.accept() is not None


def test_syn_rst_pairs_leave_nothing():
    """containers/gvisor-tap-vsock#127."""
    host = Host(NO_TIMESTAMPS)
    host.tcp.listen(OURS)
    for i in range(1_000):
        peer = Peer(host, local=Endpoint(packets.address("10.0.0.2"), 2_000 + i))
        peer.inject("S")
        assert peer.one().flags == "SA"
        peer.inject("R", 1)
        assert peer.got() == []
    assert host.tcp.half_open == 0
    assert len(host.tcp._timers) < 600
    host.advance(10 * SECOND)
    assert len(host.tcp._timers) == 0


def test_one_syn_fifty_times_is_one_half_open():
    host = Host(NO_TIMESTAMPS)
    host.tcp.listen(OURS)
    peer = Peer(host)
    for _ in range(50):
        peer.inject("S")
        assert peer.one().short == ("SA", 0, 0, 1)
    assert host.tcp.half_open == 1


def test_ten_thousand_spoofed_syns():
    host = Host(TcpOptions(), limits=Limits(half_open=128), iss=None)
    listener = host.tcp.listen(OURS)
    for i in range(10_000):
        peer = Peer(host, local=Endpoint(packets.address("10.1.0.0") + i, 2_000))
        peer.inject("S", options=packets.mss(1_000))
        host.take()
    assert host.tcp.half_open == 128
    client = Peer(host)
    client.inject("S", options=packets.mss(1_000))
    (answer,) = host.sent()
    client.remote_iss = answer.tcp.seq
    client.inject("A", 1, 1)
    assert listener.accept() is not None, "cookies let a real client through"
    host.advance(200 * SECOND)
    assert host.tcp.half_open == 0


# --- offload ---


def test_without_offload_every_frame_fits(isns):
    host, _peer, conn = established(mss=700, **isns)
    conn.send(bytes(50_000), host.now)
    total = 0
    for tx in host.take():
        assert tx.gso_size == tx.csum_start == 0
        assert sum(map(len, tx.payload)) <= 700
        assert len(tx.to_bytes()) <= 1_040
        assert packets.decode(tx.to_bytes()).l4_checksum_ok
        total += sum(map(len, tx.payload))
    assert total == 10 * 700


def test_with_offload_a_superframe_carries_a_partial_checksum(isns):
    host, peer, conn = established(link=TSO, wscale=7, wnd=1_000, **isns)
    peer.inject("A", 1, 1, wnd=1_000)
    conn.send(bytes(range(250)) * 20, host.now)
    (tx,) = host.take()
    assert (tx.gso_size, tx.csum_start, tx.csum_offset) == (1_000, 20, 16)
    raw = tx.to_bytes()
    assert len(raw) == 20 + 20 + 5_000
    partial = int.from_bytes(raw[36:38], "big")
    expected = (
        packets.internet_checksum(packets.pseudo_header(OURS.ip, peer.local.ip, 6, len(raw) - 20)) ^ 0xFFFF
    )
    assert partial == expected


def test_partial_checksums_are_accepted_where_the_link_vouches():
    _host, peer, conn = established(link=TSO)
    peer.inject("A", 1, 1, b"abc", checksum=0x1234, csum_ok=True)
    assert read_all(conn) == b"abc"


def test_a_bad_checksum_is_dropped_without_offload():
    host, peer, conn = established()
    peer.inject("A", 1, 1, b"abc", checksum=0x1234)
    assert conn.recv_queue_bytes == 0
    assert host.counters["tcp.drop.checksum"] == 1
    assert peer.got() == []


def test_a_superframe_is_delivered_once_and_acknowledged_once(isns):
    host, peer, conn = established(link=TSO, **isns)
    peer.inject("A", 1, 1, bytes(4_000), csum_ok=True)
    assert peer.one().short == ("A", 1, 0, 4_001)
    assert host.take_events() == [Readable(conn)]
    assert len(read_all(conn)) == 4_000


# --- time ---


def test_rtt_0_divides_nothing_by_zero_and_keeps_an_rto_floor():
    host, peer, conn = established()
    conn.send(b"x", host.now)
    peer.one()
    peer.inject("A", 1, 2)
    info = conn.info()
    assert info.rtt >= 1
    assert info.rto >= 200 * MILLISECOND


def test_ten_megabytes_at_rtt_0_with_loss():
    pair = Pair(wire=WireModel(loss=0.02), link=Link(mtu=1450), seed=3)
    data = bytes(range(256)) * 4 * 10_240
    _, client, server = pair.connect(data)
    pair.run()
    assert server.received == data
    assert (client.closed, server.closed) == (CloseReason.NORMAL, CloseReason.NORMAL)


def test_a_stalled_loop_causes_no_spurious_retransmission():
    """Arrival is stamped at read: an ACK read before the timers are served counts first."""
    host, peer, conn = established()
    conn.send(b"x", host.now)
    peer.one()
    peer.inject("A", 1, 2)
    conn.send(b"y" * 10, host.now)
    peer.one()
    due = host.tcp.next_timeout()
    arrived = host.now + 1_000
    host.now = arrived
    peer.inject("A", 1, 12)  # read at `arrived`, processed 50 ms after the timer was due
    host.now = due + 50 * MILLISECOND
    host.tcp.handle_timeout(host.now)
    assert peer.got() == []
    assert conn.info().bytes_retransmitted == 0


@pytest.mark.interpreted
def test_idle_connections_arm_no_timer():
    pair = Pair()
    conn, client, server = pair.connect(b"hello", b"world")
    client.shut = server.shut = True  # stay open
    client.outgoing = b"hello"
    for _ in range(1_000):
        pair.settle()
        while pair.queue:
            import heapq

            _, _, host, packet, csum_ok = heapq.heappop(pair.queue)
            host.receive(packet, csum_ok=csum_ok)
        if pair.a.tcp.next_timeout() is None and pair.b.tcp.next_timeout() is None:
            break
        if not pair.a.tcp.wants_output and not pair.b.tcp.wants_output:
            pair.now += 50 * MILLISECOND
            pair.a.tcp.handle_timeout(pair.now)
            pair.b.tcp.handle_timeout(pair.now)
    assert conn.state is State.ESTABLISHED
    fired = 0
    for host in (pair.a, pair.b):
        original = host.tcp.handle_timeout

        def count(now, original=original):
            nonlocal fired
            fired += 1
            original(now)

        host.tcp.handle_timeout = count
        assert host.advance(60 * SECOND) == []
    assert fired == 0


# --- ends that are told ---


def test_a_reset_is_told_to_whoever_waits():
    host, peer, conn = connected()
    peer.inject("RA", 1, 1)
    assert host.take_events() == [Closed(conn, CloseReason.RESET)]
    assert not conn.at_eof


def test_retransmission_gives_up_and_tells(isns):
    host, _peer, conn = established(faster(NO_TIMESTAMPS, data_retries=3, tlp=False), **isns)
    conn.send(b"x", host.now)
    seen = host.advance(600 * SECOND)
    assert [p.tcp.flag_text for _, p in seen] == ["PA"] * 4 + ["RA"]
    assert host.take_events() == [Closed(conn, CloseReason.TIMEOUT)]
    assert host.tcp.next_timeout() is None


def test_segments_of_every_size_and_flag_raise_nothing():
    host = Host(TcpOptions(), MTU_1040)
    host.tcp.listen(OURS)
    for flags in range(512):
        for size in (0, 1, 19, 20, 21, 40, 60):
            segment = packets.tcp_segment(
                b"", src="10.0.0.2", dst="10.0.0.1", sport=1, dport=80, seq=flags, ack=size, flags=flags,
                options=bytes(range(size % 40)),
            )[: size or 20]  # fmt: skip
            header = packets.ipv4(segment)
            host.receive(header, csum_ok=True)
            host.take()


def test_a_fin_just_beyond_a_full_window_is_taken(isns):
    host, peer, conn = established(faster(NO_TIMESTAMPS, rcv_buf=2_000), wscale=0, **isns)
    peer.inject("FA", 1, 1, bytes(2_000))
    answer = peer.got()[-1]
    assert (answer.ack, answer.wnd) == (2_002, 0)
    conn.send(b"still", host.now)
    assert peer.one().wnd == 0
    assert len(read_all(conn)) == 2_000
    assert conn.at_eof


def test_what_fills_the_first_hole_is_taken_however_many_holes_there_are(isns):
    _host, peer, conn = established(faster(NO_TIMESTAMPS, ooo_ranges=2), wscale=7, **isns)
    for at in (3, 5, 7, 9):
        peer.inject("A", at, 1, b"x")
    assert len(conn.rcv.assembler.ranges()) == 2
    peer.inject("A", 1, 1, b"a")
    assert peer.got()[-1].ack == 2
    peer.inject("A", 2, 1, b"a")
    assert peer.got()[-1].ack == 4
