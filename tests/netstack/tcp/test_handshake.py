"""Options, MSS, window scale, timestamps and PAWS, listeners, backlog, SYN cookies, limits, ECN, ICMP."""

from __future__ import annotations

import pytest
from tcp_kit import (
    NO_TIMESTAMPS,
    OURS,
    PLAIN,
    THEIRS,
    Endpoint,
    Host,
    Link,
    Pair,
    Peer,
    WireModel,
    connected,
    established,
    faster,
    read_all,
    syn_sent,
)

from juneau.netstack.events import Accepted, Closed
from juneau.netstack.limits import Limits
from juneau.netstack.tcp import State, TcpOptions
from juneau.netstack.tcp.cookies import SynCookies
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason, FourTuple, Misuse, Refused
from juneau.netstack.wire.icmp import IcmpErrorKind
from juneau.testing import packets


def syn_ack(host, options=b"", **fields):
    host.receive(packets.tcp(flags="S", seq=100, options=options, **fields))
    (answer,) = host.sent()
    return answer.tcp


def listening(options=None, link=None, limits=None, backlog=128, iss=1_000):
    host = Host(options or TcpOptions(), link or Link(mtu=1_450), limits or Limits(), iss)
    return host, host.tcp.listen(OURS, backlog=backlog)


# --- options ---


def test_a_syn_whose_only_option_is_the_timestamp():
    host, _listener = listening()
    peer = Peer(host)
    peer.inject("S", options=b"\1\1" + packets.timestamps(7, 0))
    (answer,) = host.sent()
    assert answer.tcp.timestamps[1] == 7


def test_syn_ack_offers_what_the_syn_offered():
    host, _ = listening()
    everything = (
        packets.mss(1_460) + packets.SACK_OK + packets.timestamps(7, 0) + packets.NOP + packets.wscale(9)
    )
    tcp = syn_ack(host, everything)
    assert (tcp.mss, tcp.sack_ok, tcp.wscale) == (1_410, True, 5)
    assert tcp.timestamps[1] == 7


def test_syn_ack_offers_nothing_that_the_syn_did_not():
    host, _ = listening()
    tcp = syn_ack(host)
    assert (tcp.mss, tcp.sack_ok, tcp.wscale, tcp.timestamps) == (1_410, False, None, None)


def test_our_syn_offers_everything_in_the_order_of_linux():
    host = Host(TcpOptions())
    host.tcp.connect(THEIRS, local=Endpoint(OURS.ip, 0), path="p", now=host.now)
    (syn,) = host.sent()
    assert [o.kind for o in syn.tcp.options] == [2, 4, 8, 1, 3]
    assert 32_768 <= syn.tcp.sport <= 60_999


@pytest.mark.parametrize(("offered", "used"), [(None, 536), (1_460, 1_000), (700, 700), (1, 48), (0, 536)])
def test_mss_is_the_smaller_one_with_a_floor(offered, used):
    host, listener = listening(PLAIN, Link(mtu=1_040))
    peer = Peer(host)
    peer.inject("S", options=b"" if offered is None else packets.mss(offered))
    peer.one()
    peer.inject("A", 1, 1)
    conn = listener.accept()
    conn.send(bytes(3_000), host.now)
    assert len(peer.got()[0].payload) == used


def test_timestamps_take_their_12_bytes_from_the_mss():
    host, _peer, conn = established(TcpOptions())
    conn.send(bytes(5_000), host.now)
    assert {len(tx.to_bytes()) for tx in host.take()[:3]} == {1_040}


def test_window_scale_applies_after_the_handshake_only(isns):
    host, peer, conn = established(NO_TIMESTAMPS, wscale=3, wnd=1_000, **isns)
    assert conn.snd.wnd == 8_000
    conn.send(bytes(20_000), host.now)
    assert sum(len(s.payload) for s in peer.got()) == 8_000


def test_the_window_of_a_syn_ack_is_not_scaled(isns):
    _host, peer, conn = syn_sent(**isns)
    peer.inject("SA", 0, 1, wnd=4_000, options=packets.mss(1_000) + packets.NOP + packets.wscale(7))
    assert conn.snd.wnd == 4_000
    peer.inject("A", 1, 1, wnd=4_000)
    assert conn.snd.wnd == 4_000 << 7


def test_a_shift_above_14_is_14():
    _host, _peer, conn = established(NO_TIMESTAMPS, wscale=15)
    assert conn.snd.wscale == 14


def test_our_window_grows_to_the_whole_buffer():
    _host, peer, conn = established(NO_TIMESTAMPS, wscale=7)
    peer.inject("A", 1, 1, bytes(2_000))
    read_all(conn)
    assert peer.one().wnd << 5 == pytest.approx(1 << 20, abs=5_000)


def test_without_scaling_the_window_is_at_most_65535():
    _host, peer, _conn = established(PLAIN)
    peer.inject("A", 1, 1, bytes(2_000))
    assert peer.one().wnd <= 65_535


# --- timestamps ---


def test_paws_drops_an_old_segment_and_answers(isns):
    """RFC 7323 5.3."""
    host, peer, conn = established(TcpOptions(), **isns)
    peer.ts = 100
    peer.inject("A", 1, 1, b"new")
    host.advance(20 * MILLISECOND)
    peer.ts = 99
    peer.inject("A", 4, 1, b"old")
    assert peer.one().ack == 4
    assert read_all(conn) == b"new"
    assert host.counters["tcp.drop.paws"] == 1


def test_paws_survives_a_timestamp_wrap(isns):
    host, peer, conn = established(TcpOptions(), **isns)
    peer.ts = 2**31
    peer.inject("A", 1, 1, b"a")
    host.advance(20 * MILLISECOND)
    peer.ts = 2**32 - 1
    peer.inject("A", 2, 1, b"b")
    host.advance(20 * MILLISECOND)
    peer.ts = 0
    peer.inject("A", 3, 1, b"c")
    assert read_all(conn) == b"abc"


def test_paws_forgets_after_24_days():
    host, peer, conn = established(TcpOptions())
    peer.ts = 1_000_000
    peer.inject("A", 1, 1, b"a")
    host.advance(25 * 24 * 3_600 * SECOND)
    peer.ts = 5
    peer.inject("A", 2, 1, b"b")
    assert read_all(conn) == b"ab"


def test_the_echo_is_of_the_segment_that_moved_the_window(isns):
    """RFC 7323 4.3: with delayed ACKs the earliest, with a hole the last in order."""
    host, peer, _conn = established(TcpOptions(), **isns)
    for ts, at in ((10, 1), (20, 101)):
        peer.ts = ts
        peer.inject("A", at, 1, bytes(100))
    seen = host.advance(50 * MILLISECOND)
    assert seen[0][1].tcp.timestamps[1] == 10
    peer.ts = 30
    peer.inject("A", 1_201, 1, bytes(100))
    (dup,) = host.sent()
    assert dup.tcp.timestamps[1] == 10


def test_a_segment_without_the_agreed_timestamp_is_dropped_unless_told_otherwise():
    _host, peer, conn = established(TcpOptions())
    peer.ts = None
    peer.inject("A", 1, 1, b"x")
    assert conn.recv_queue_bytes == 0
    _host, peer, conn = established(faster(TcpOptions(), tolerate_missing_timestamps=True))
    peer.ts = None
    peer.inject("A", 1, 1, b"x")
    assert conn.recv_queue_bytes == 1


def test_a_reset_needs_no_timestamp():
    _host, peer, conn = established(TcpOptions())
    peer.ts = None
    peer.inject("R", 1)
    assert conn.state is State.CLOSED


# --- listeners ---


def test_an_endpoint_is_taken_once():
    host, listener = listening()
    with pytest.raises(Misuse):
        host.tcp.listen(OURS)
    listener.close(host.now)
    listener.close(host.now)
    host.tcp.listen(OURS)


def test_a_listener_on_any_address_and_a_closer_one():
    host = Host(NO_TIMESTAMPS)
    anywhere = host.tcp.listen(Endpoint(0, 80))
    here = host.tcp.listen(OURS)
    for ip, listener in ((OURS.ip, here), (OURS.ip + 5, anywhere)):
        peer = Peer(host, remote=Endpoint(ip, 80))
        peer.inject("S")
        peer.one()
        peer.inject("A", 1, 1)
        assert host.take_events() == [Accepted(listener)]
        assert listener.accept().local.ip == ip


def test_backlog_like_linux():
    """One more than the backlog may wait; then SYNs and last ACKs go unheard, and are heard again later."""
    host, listener = listening(NO_TIMESTAMPS, backlog=2)
    peers = [Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i)) for i in range(5)]
    for peer in peers[:4]:
        peer.inject("S")
        assert peer.one().flags == "SA"
    for peer in peers[:4]:
        peer.inject("A", 1, 1)
    assert (listener.waiting, host.tcp.half_open) == (3, 1)
    peers[4].inject("S")
    assert peers[4].got() == []
    assert host.counters["tcp.drop.accept_queue_full"] == 2
    while listener.accept() is not None:
        pass
    peers[3].inject("A", 1, 1, b"waited")
    assert read_all(listener.accept()) == b"waited"


def test_closing_a_listener_resets_those_who_think_they_are_connected():
    """They may wait for us to speak. Others are forgotten: their next segment gets a RST."""
    host, listener = listening(NO_TIMESTAMPS, backlog=0)
    peers = [Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i)) for i in range(3)]
    for peer in peers:
        peer.inject("S")
        peer.one()
    for peer in peers[:2]:
        peer.inject("A", 1, 1)
    assert (listener.waiting, host.tcp.half_open) == (1, 2)
    listener.close(host.now)
    for peer, packet in zip((peers[1], peers[0]), host.sent(), strict=True):
        assert peer.see(packet).short == ("RA", 1, 0, 1)
        assert packet.tcp.dport == peer.local.port
    peers[2].inject("A", 1, 1)
    assert peers[2].one().short == ("R", 1, 0, 0)
    assert host.tcp.half_open == 0


def test_accepted_is_told_when_the_queue_was_empty():
    host, listener = listening(NO_TIMESTAMPS)
    for i in range(3):
        peer = Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i))
        peer.inject("S")
        peer.one()
        peer.inject("A", 1, 1)
    assert host.take_events() == [Accepted(listener)]


def test_closing_a_listener_resets_what_is_not_accepted():
    host, listener = listening(NO_TIMESTAMPS)
    waiting, half = Peer(host), Peer(host, local=Endpoint(THEIRS.ip, 3_001))
    for peer in (waiting, half):
        peer.inject("S")
        peer.one()
    waiting.inject("A", 1, 1)
    host.take_events()
    listener.close(host.now)
    assert [p.tcp.flag_text for p in host.sent()] == ["RA"], "what is half open is forgotten, as on Linux"
    assert host.tcp._table == {}
    assert host.take_events() == []


def test_a_connection_reset_before_accept_is_not_handed_out():
    host, listener = listening(NO_TIMESTAMPS)
    peer = Peer(host)
    peer.inject("S")
    peer.one()
    peer.inject("A", 1, 1)
    peer.inject("R", 1)
    assert [type(e) for e in host.take_events()] == [Accepted]
    assert listener.accept() is None


# --- limits ---


def test_connection_limit():
    host, listener = listening(NO_TIMESTAMPS, limits=Limits(connections=1))
    peer = Peer(host)
    peer.inject("S")
    peer.one()
    peer.inject("A", 1, 1)
    other = Peer(host, local=Endpoint(THEIRS.ip, 3_001))
    other.inject("S")
    assert other.got() == []
    with pytest.raises(Refused):
        host.tcp.connect(THEIRS, local=Endpoint(OURS.ip, 0), path="p", now=host.now)
    listener.accept().abort(host.now)
    other.inject("S")
    assert other.got()[-1].flags == "SA"


def test_ephemeral_ports_run_out():
    options = faster(TcpOptions(), ephemeral_low=50_000, ephemeral_high=50_002)
    host = Host(options)
    ports = set()
    for _ in range(3):
        conn = host.tcp.connect(THEIRS, local=Endpoint(OURS.ip, 0), path="p", now=host.now)
        ports.add(conn.local.port)
    assert ports == {50_000, 50_001, 50_002}
    with pytest.raises(Refused):
        host.tcp.connect(THEIRS, local=Endpoint(OURS.ip, 0), path="p", now=host.now)
    host.tcp.connect(Endpoint(THEIRS.ip, 81), local=Endpoint(OURS.ip, 0), path="p", now=host.now)


def test_buffered_bytes_of_all_connections_are_bounded():
    limits = Limits(buffered_bytes=50_000)
    host, listener = listening(NO_TIMESTAMPS, Link(mtu=1_040), limits)
    for i in range(20):
        peer = Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i))
        peer.inject("S", options=packets.mss(1_000))
        peer.got()
        peer.inject("A", 1, 1)
        for n in range(10):
            peer.inject("A", 1 + 1_000 * n, 1, bytes(1_000))
    assert host.tcp.buffered <= 50_000
    assert host.counters["tcp.drop.buffer_limit"] > 0
    while (conn := listener.accept()) is not None:
        read_all(conn)
    assert host.tcp.buffered == 0


def test_received_text_past_the_limit_stops_nothing_that_is_to_be_sent():
    host, peer, conn = established(limits=Limits(buffered_bytes=0))
    conn.snd.cc.cwnd = 1_000
    conn.send(bytes(2_000), host.now)
    assert peer.one().seq == 1
    peer.inject("A", 1, 1_001, b"refused")
    assert peer.one().short == ("A", 1_001, 1_000, 1)
    assert host.counters["tcp.drop.buffer_limit"] == 1


def crowd(count, limits):
    """Connections to a stack whose peers send superframes."""
    host, listener = listening(NO_TIMESTAMPS, Link(mtu=1_040, tso=True, checksum_offload=True), limits)
    for i in range(count):
        peer = Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i))
        peer.inject("S", options=packets.mss(1_000) + packets.SACK_OK)
        peer.got()
        peer.inject("A", 1, 1)
        yield host, peer, listener.accept()


def test_superframes_and_what_fills_gaps_stop_exactly_at_the_limit():
    limits = Limits(buffered_bytes=50_000)
    everyone = list(crowd(20, limits))
    host = everyone[0][0]
    for _, peer, _ in everyone:
        peer.inject("A", 1_001, 1, bytes(2_000))
        assert host.tcp.buffered <= 37_500, "the last quarter is for what is in order"
    for _, peer, _ in everyone:
        peer.inject("A", 1, 1, bytes(30_000))
        assert host.tcp.buffered <= 50_000
    assert host.counters["tcp.drop.buffer_limit"] > 20
    assert host.tcp.buffered == 50_000
    for _, _, conn in everyone:
        read_all(conn)
        assert conn.rcv.assembler.size + conn.recv_queue_bytes <= 2_000
    for _, _, conn in everyone:
        conn.abort(host.now)
    assert host.tcp.buffered == 0


def test_the_part_that_fits_is_taken_and_acknowledged_at_once():
    ((host, peer, conn),) = crowd(1, Limits(buffered_bytes=10_000))
    stream = bytes(range(250)) * 120
    at, got = 0, b""
    while at < len(stream):
        peer.inject("FA", 1 + at, 1, stream[at:])
        (ack,) = peer.got()
        assert ack.ack == 1 + min(at + 10_000, len(stream)) + (at + 10_000 >= len(stream))
        at += 10_000
        got += read_all(conn)
    assert got == stream
    assert conn.at_eof
    assert host.counters["tcp.drop.buffer_limit"] == 2


def test_text_in_order_pushes_out_what_waits_for_it():
    (_, greedy, hoarder), (_, peer, conn) = crowd(2, Limits(buffered_bytes=10_000))
    peer.inject("A", 1_001, 1, b"b" * 2_000)
    peer.inject("A", 4_001, 1, b"d" * 2_000)
    greedy.inject("A", 1, 1, bytes(30_000))
    assert hoarder.recv_queue_bytes == 6_000
    peer.got()
    peer.inject("A", 1, 1, b"a" * 1_000)
    assert read_all(conn) == b"a" * 1_000 + b"b" * 2_000
    assert peer.got()[-1].ack == 3_001
    peer.inject("A", 3_001, 1, b"c" * 1_000 + b"d" * 2_000)
    assert read_all(conn) == b"c" * 1_000 + b"d" * 2_000


def test_a_probe_of_a_closed_window_is_answered_at_the_limit():
    (_, peer, conn), (host, other, _) = crowd(2, Limits(rcv_buffer=4_000, buffered_bytes=8_000))
    peer.inject("A", 1, 1, bytes(4_000))
    other.inject("A", 1, 1, bytes(4_000))
    assert host.tcp.buffered == 8_000
    peer.got()
    peer.inject("A", 4_001, 1, b"p")
    (ack,) = peer.got()
    assert (ack.ack, ack.wnd) == (4_001, 0)
    read_all(conn)
    assert peer.got()[-1].wnd >= 4_000 - 31
    peer.inject("A", 4_001, 1, b"p")
    assert read_all(conn) == b"p"


# --- SYN cookies ---


@pytest.mark.parametrize("timestamps", [True, False])
def test_cookies_carry_a_real_client_through(timestamps):
    host, listener = listening(TcpOptions(), limits=Limits(half_open=1), iss=None)
    flood = Peer(host, local=Endpoint(THEIRS.ip, 2_000))
    flood.inject("S")
    host.take()
    options = packets.mss(1_400) + packets.SACK_OK + packets.NOP + packets.wscale(9)
    if timestamps:
        options += packets.timestamps(50, 0)
    client = Peer(host)
    client.inject("S", options=options)
    (answer,) = host.sent()
    assert host.counters["tcp.syn_cookies_sent"] == 1
    assert host.tcp.half_open == 1
    client.remote_iss = answer.tcp.seq
    if timestamps:
        client.ts, client.ts_ecr = 51, answer.tcp.timestamps[0]
    client.inject("A", 1, 1, b"request")
    conn = listener.accept()
    assert read_all(conn) == b"request"
    info = conn.info()
    assert info.timestamps is timestamps
    assert info.sack is timestamps
    assert info.snd_wscale == (9 if timestamps else 0)
    assert info.snd_mss == (1_360 - 12 if timestamps else 1_360)
    conn.send(b"reply", host.now)
    (reply,) = host.sent()
    assert reply.tcp.payload == b"reply"


def test_cookies_are_believed_for_a_while_only(monkeypatch):
    monkeypatch.setattr(SynCookies, "check", lambda *_: 1_360)  # what a guess may hit
    host, listener = listening(TcpOptions(), limits=Limits(half_open=0), iss=None)
    for late, accepted in ((130 * SECOND, 1), (193 * SECOND, 0)):
        client = Peer(host)
        client.inject("S", options=packets.mss(1_400))
        client.remote_iss = host.sent()[0].tcp.seq
        host.now += late
        client.inject("A", 1, 1)
        assert listener.waiting == accepted
        while (conn := listener.accept()) is not None:
            conn.abort(host.now)
        host.take()


def test_a_wrong_cookie_is_reset():
    host, listener = listening(TcpOptions(), limits=Limits(half_open=0), iss=None)
    client = Peer(host)
    client.inject("S")
    (answer,) = host.sent()
    client.remote_iss = answer.tcp.seq
    client.inject("A", 1, 2)
    assert [p.tcp.flag_text for p in host.sent()] == ["R"]
    assert listener.accept() is None


def test_without_cookies_a_full_queue_is_silent():
    host, _listener = listening(faster(TcpOptions(), syn_cookies=False), limits=Limits(half_open=0))
    client = Peer(host)
    client.inject("S")
    assert host.sent() == []


# --- ICMP (RFC 5927) ---


def flow(conn):
    return FourTuple(conn.local.ip, conn.local.port, conn.remote.ip, conn.remote.port)


def test_frag_needed_lowers_the_mss_and_resends(isns):
    host, peer, conn = established(**isns)
    conn.send(bytes(5_000), host.now)
    first = peer.got()
    assert len(first[0].payload) == 1_000
    host.tcp.receive_icmp_error(flow(conn), IcmpErrorKind.FRAG_NEEDED, 700, conn.snd.una, host.now)
    resent = peer.got()
    assert sum(len(s.payload) for s in resent) == 5_000
    assert max(len(s.payload) for s in resent) == 660
    assert conn.info().pmtu == 700


@pytest.mark.parametrize(("offset", "mtu"), [(-1, 700), (90_000, 700), (0, 9_000)])
def test_frag_needed_is_checked(offset, mtu):
    host, peer, conn = established()
    conn.send(bytes(500), host.now)
    peer.got()
    host.tcp.receive_icmp_error(flow(conn), IcmpErrorKind.FRAG_NEEDED, mtu, conn.snd.una + offset, host.now)
    assert conn.snd.mss == 1_000
    assert peer.got() == []


def test_frag_needed_has_a_floor():
    host, peer, conn = established()
    conn.send(bytes(500), host.now)
    peer.got()
    host.tcp.receive_icmp_error(flow(conn), IcmpErrorKind.FRAG_NEEDED, 68, conn.snd.una, host.now)
    assert conn.snd.mss == 552 - 40


def test_port_unreachable_ends_a_handshake_but_not_a_connection():
    host, peer, conn = syn_sent()
    host.tcp.receive_icmp_error(flow(conn), IcmpErrorKind.PORT, 0, conn.snd.iss, host.now)
    assert host.take_events() == [Closed(conn, CloseReason.REFUSED)]
    host, peer, conn = established()
    conn.send(b"x", host.now)
    peer.got()
    host.tcp.receive_icmp_error(flow(conn), IcmpErrorKind.PORT, 0, conn.snd.una, host.now)
    assert conn.state is State.ESTABLISHED


# --- ECN (RFC 3168) ---


def test_ecn_end_to_end():
    options = faster(TcpOptions(), ecn="active")
    pair = Pair(options, wire=WireModel(delay=1_000))
    conn, _client, server = pair.connect(bytes(500_000))
    pair.run()
    assert conn.ecn_ok
    assert len(server.received) == 500_000


def test_congestion_experienced_is_echoed_until_cwr(isns):
    host = Host(faster(NO_TIMESTAMPS, ecn="passive"), iss=isns["host_iss"])
    listener = host.tcp.listen(OURS)
    peer = Peer(host, iss=isns["peer_iss"], remote_iss=isns["host_iss"])
    peer.inject("SEC", options=packets.mss(1_000))
    assert peer.one().flags == "SAE"
    peer.inject("A", 1, 1)
    conn = listener.accept()
    peer.inject("A", 1, 1, b"a", tos=3)
    assert peer.one().flags == "AE"
    peer.inject("A", 2, 1, b"b" * 2_000)
    assert peer.got()[-1].flags == "AE"
    peer.inject("AC", 2_002, 1, b"c" * 2_000)
    assert peer.got()[-1].flags == "A"
    conn.send(bytes(8_000), host.now)
    (first, *_) = host.take()
    assert first.header[1] & 3 == 2
    before = conn.snd.cc.cwnd
    peer.inject("AE", 4_002, 1_001)
    assert conn.snd.cc.cwnd < before
    conn.send(bytes(100), host.now)
    host.advance(SECOND)


def test_no_ecn_unless_asked():
    host, _ = listening()
    host.receive(packets.tcp(flags="SEC"))
    (answer,) = host.sent()
    assert answer.tcp.flag_text == "SA"


# --- urgent data (RFC 6093) ---


def test_urgent_data_stays_in_the_stream(isns):
    _host, peer, conn = established(**isns)
    peer.inject("AU", 1, 1, b"abc", urg=2)
    peer.inject("A", 4, 1, b"def")
    assert read_all(conn) == b"abcdef"


# --- timers ---


def test_delayed_ack_waits_for_its_time(isns):
    host, peer, _conn = established(**isns)
    peer.inject("A", 1, 1, b"x")
    assert peer.got() == []
    ((at, packet),) = host.advance(50 * MILLISECOND)
    assert at == host.tcp.options.delayed_ack
    assert peer.see(packet).ack == 2


def test_every_second_full_segment_is_acknowledged_at_once(isns):
    _host, peer, _conn = established(**isns)
    peer.inject("A", 1, 1, bytes(1_000))
    peer.got()
    acks = []
    for n in range(1, 9):
        peer.inject("A", 1 + 1_000 * n, 1, bytes(1_000))
        acks += [s.ack for s in peer.got()]
    assert len(acks) == 4


def test_acks_of_bulk_data_are_in_a_hurry_and_others_are_not(isns):
    host, peer, _conn = established(**isns)
    peer.inject("A", 1, 1, b"x")
    assert not host.tcp.hurry
    peer.inject("A", 2, 1, bytes(1_000))
    peer.inject("A", 1_002, 1, bytes(1_000))
    assert host.tcp.hurry
    peer.got()
    assert not host.tcp.hurry
    peer.inject("A", 4_002, 1, bytes(1_000))  # a gap: the peer's recovery waits
    assert host.tcp.hurry


def test_data_takes_the_ack_along(isns):
    host, peer, conn = established(**isns)
    peer.inject("A", 1, 1, b"ping")
    conn.send(b"pong", host.now)
    assert peer.one().short == ("A", 1, 4, 5)
    assert conn.rcv.ack_at > host.now + SECOND


def test_nagle_holds_small_segments_back(isns):
    host, peer, conn = established(faster(NO_TIMESTAMPS, nodelay=False), **isns)
    conn.send(b"a", host.now)
    assert peer.one().payload == b"a"
    conn.send(b"b", host.now)
    conn.send(b"c", host.now)
    assert peer.got() == []
    conn.send(bytes(1_500), host.now)
    assert [len(s.payload) for s in peer.got()] == [1_000]
    peer.inject("A", 1, 1_002)
    assert [len(s.payload) for s in peer.got()] == [502]
    conn.nodelay = True
    conn.send(b"d", host.now)
    assert peer.one().payload == b"d"


def test_keepalive(isns):
    host, peer, conn = established(**isns)
    conn.set_keepalive(True, host.now, idle=10 * SECOND, interval=2 * SECOND, probes=3)
    ((at, probe),) = host.advance(11 * SECOND)
    assert at == 10 * SECOND
    assert peer.see(probe).short == ("A", 0, 0, 1)
    peer.inject("A", 1, 1)
    assert host.advance(9 * SECOND) == []
    seen = host.advance(60 * SECOND)
    assert [p.tcp.flag_text for _, p in seen] == ["A", "A", "A", "RA"]
    assert host.take_events() == [Closed(conn, CloseReason.TIMEOUT)]


def test_user_timeout_counts_from_the_unacknowledged_byte_not_from_idleness():
    """smoltcp#1202."""
    host, _peer, conn = established(faster(NO_TIMESTAMPS, user_timeout=5 * SECOND))
    host.advance(60 * SECOND)
    assert conn.state is State.ESTABLISHED
    conn.send(b"x", host.now)
    started = host.now
    seen = host.advance(60 * SECOND)
    assert seen[-1][1].tcp.flag_text == "RA"
    assert seen[-1][0] == 5 * SECOND
    assert host.now - started == 60 * SECOND
    assert host.take_events() == [Closed(conn, CloseReason.TIMEOUT)]


def test_orphan_with_a_closed_window_ends():
    host, peer, conn = established()
    peer.inject("A", 1, 1, wnd=0)
    conn.send(b"x", host.now)
    conn.close(host.now)
    for _ in range(30):
        host.advance(10 * SECOND)
        peer.inject("A", 1, 1, wnd=0)
        if conn.state is State.CLOSED:
            break
    assert conn.state is State.CLOSED
    host.advance(SECOND)
    assert host.tcp.next_timeout() is None


# --- fairness ---


def test_connections_take_turns():
    host, listener = listening(NO_TIMESTAMPS, Link(mtu=1_040))
    conns = []
    for i in range(4):
        peer = Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i))
        peer.inject("S", options=packets.mss(1_000))
        peer.one()
        peer.inject("A", 1, 1)
        conns.append(listener.accept())
    for conn in conns:
        conn.snd.cc.cwnd = 60_000
        conn.send(bytes(60_000), host.now)
    ports = [packets.decode(tx.to_bytes()).tcp.dport for tx in host.take(32)]
    assert len(ports) == 32
    assert {ports.count(port) for port in set(ports)} == {8}
    assert host.tcp.next_timeout() == 0


def test_one_connection_may_use_the_whole_budget():
    host, _peer, conn = established(wscale=7)
    conn.snd.cc.cwnd = 1_000_000
    conn.send(bytes(500_000), host.now)
    assert len(host.take(64)) == 64


# --- writable ---


def test_writable_is_told_once():
    host, peer, conn = connected()
    conn.send(bytes(2_000), host.now)
    peer.got()
    conn.want_writable = True
    peer.inject("A", 1, 1_001)
    assert [type(e).__name__ for e in host.take_events()] == ["Writable"]
    peer.inject("A", 1, 2_001)
    assert host.take_events() == []
    assert conn.send_queue_bytes == 0


def test_windows_stop_growing_when_the_stack_holds_half_of_what_it_may():
    limits = Limits(rcv_buffer=1 << 20, buffered_bytes=2 << 20)
    host, listener = listening(NO_TIMESTAMPS, Link(mtu=1_040), limits)
    conns, edges = [], []
    for i in range(8):
        peer = Peer(host, local=Endpoint(THEIRS.ip, 3_000 + i))
        peer.inject("S", options=packets.mss(1_000) + packets.NOP + packets.wscale(7))
        edge = 1 + peer.got()[-1].wnd
        peer.inject("A", 1, 1)
        conn = listener.accept()
        conns.append(conn)
        at = 1
        while edge - at > 31 and at < 2 << 20:
            size = min(20_000, edge - at)
            peer.inject("A", at, 1, bytes(size))
            at += size
            for seen in peer.got():
                assert seen.ack + (seen.wnd << conn.rcv.wscale) >= edge - 31
                edge = max(edge, seen.ack + (seen.wnd << conn.rcv.wscale))
        edges.append(edge)
    assert host.counters["tcp.drop.buffer_limit"] == 0, "nothing inside a window is dropped"
    assert host.tcp.buffered < 2 << 20
    assert edges[0] > 1_000_000
    assert edges[-1] < 100_000
    for conn in conns:
        read_all(conn)
    host.take()
    peer.inject("A", at, 1, bytes(2_000))
    assert peer.got()[-1].wnd << conns[-1].rcv.wscale > 1_000_000, "and grow again afterwards"
