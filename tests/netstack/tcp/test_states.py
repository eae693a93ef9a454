"""Every state of RFC 9293 and the ways out of it, by raw segments, with ISNs around the wrap."""

from __future__ import annotations

import pytest
from tcp_kit import (
    NO_TIMESTAMPS,
    OURS,
    THEIRS,
    Endpoint,
    Host,
    Peer,
    connected,
    established,
    faster,
    read_all,
    syn_sent,
)

from juneau.netstack.events import Accepted, Closed, Connected, Readable
from juneau.netstack.tcp import State, TcpOptions
from juneau.netstack.tcp.states import TRANSITIONS, Cause
from juneau.netstack.types import SECOND, CloseReason, Misuse
from juneau.testing import packets


def test_every_state_but_closed_can_be_left():
    left = {state for state, _ in TRANSITIONS}
    assert left == set(State)
    assert all(TRANSITIONS[state, Cause.END] is State.CLOSED for state in State)


# --- active open ---


def test_active_open(isns):
    host, peer, conn = syn_sent(**isns)
    assert conn.state is State.SYN_SENT
    peer.inject("SA", 0, 1, options=packets.mss(1_000))
    assert peer.one().short == ("A", 1, 0, 1)
    assert conn.state is State.ESTABLISHED
    assert host.take_events() == [Connected(conn)]


def test_data_on_the_syn_ack_is_taken(isns):
    _host, peer, conn = syn_sent(**isns)
    peer.inject("SA", 0, 1, b"early")
    assert peer.one().ack == 6
    assert read_all(conn) == b"early"


def test_syn_sent_refused(isns):
    host, peer, conn = syn_sent(**isns)
    peer.inject("RA", 0, 1)
    assert conn.state is State.CLOSED
    assert host.take_events() == [Closed(conn, CloseReason.REFUSED)]
    assert peer.got() == []


def test_syn_sent_ignores_a_rst_that_acknowledges_something_else(isns):
    _host, peer, conn = syn_sent(**isns)
    peer.inject("RA", 0, 7)
    peer.inject("R", 0)
    assert conn.state is State.SYN_SENT


def test_syn_sent_resets_a_wrong_ack(isns):
    _host, peer, conn = syn_sent(**isns)
    peer.inject("A", 0, 9)
    assert peer.one().short == ("R", 9, 0, 0)
    peer.inject("SA", 0, 0)
    assert peer.one().short == ("R", 0, 0, 0)
    assert conn.state is State.SYN_SENT


def test_syn_is_retransmitted_with_backoff_until_the_end():
    host, _peer, conn = syn_sent(faster(NO_TIMESTAMPS, syn_retries=3))
    times = [at for at, _ in host.advance(100 * SECOND)]
    assert times == [1 * SECOND, 3 * SECOND, 7 * SECOND]
    assert host.take_events() == [Closed(conn, CloseReason.TIMEOUT)]
    assert host.tcp.next_timeout() is None


def test_simultaneous_open(isns):
    host, peer, conn = syn_sent(**isns)
    peer.inject("S", 0, options=packets.mss(1_000))
    assert peer.one().short == ("SA", 0, 0, 1)
    assert conn.state is State.SYN_RECEIVED
    peer.inject("SA", 0, 1)
    assert conn.state is State.ESTABLISHED
    assert host.take_events() == [Connected(conn)]
    peer.got()
    peer.inject("A", 1, 1, b"data")
    assert read_all(conn) == b"data"


def test_simultaneous_open_ended_by_a_plain_ack(isns):
    _host, peer, conn = syn_sent(**isns)
    peer.inject("S", 0)
    peer.one()
    peer.inject("A", 1, 1)
    assert conn.state is State.ESTABLISHED


def test_simultaneous_open_reset_is_refused(isns):
    host, peer, conn = syn_sent(**isns)
    peer.inject("S", 0)
    peer.one()
    peer.inject("R", 1)
    assert host.take_events() == [Closed(conn, CloseReason.REFUSED)]


def test_two_hosts_open_to_each_other_at_once():
    a, b = Host(iss=1_000), Host(iss=2**32 - 1)
    one, two = Endpoint(OURS.ip, 1_111), Endpoint(THEIRS.ip, 2_222)
    left = a.tcp.connect(two, local=one, path="p", now=a.now)
    right = b.tcp.connect(one, local=two, path="p", now=b.now)
    for _ in range(5):
        from_a, from_b = a.take(), b.take()
        for tx in from_a:
            b.receive(tx.to_bytes())
        for tx in from_b:
            a.receive(tx.to_bytes())
    assert (left.state, right.state) == (State.ESTABLISHED, State.ESTABLISHED)
    left.send(b"hello", a.now)
    for tx in a.take():
        b.receive(tx.to_bytes())
    assert read_all(right) == b"hello"


def test_close_in_syn_sent_forgets(isns):
    host, _peer, conn = syn_sent(**isns)
    conn.close(host.now)
    assert conn.state is State.CLOSED
    assert list(host.tcp.connections()) == []
    assert host.take_events() == []


def test_data_and_fin_queued_in_syn_sent_follow_the_handshake(isns):
    host, peer, conn = syn_sent(**isns)
    conn.send(b"hi", host.now)
    conn.shutdown(host.now)
    assert peer.got() == []
    peer.inject("SA", 0, 1)
    seen = peer.got()
    assert [(s.flags, s.seq, s.payload) for s in seen] == [("FA", 1, b"hi")]
    assert conn.state is State.FIN_WAIT_1


# --- passive open ---


def half_open(isns):
    host = Host(NO_TIMESTAMPS, iss=isns["host_iss"])
    listener = host.tcp.listen(OURS)
    peer = Peer(host, iss=isns["peer_iss"], remote_iss=isns["host_iss"])
    peer.inject("S")
    assert peer.one().short == ("SA", 0, 0, 1)
    return host, peer, listener


def test_passive_open(isns):
    host, peer, listener = half_open(isns)
    assert listener.accept() is None
    peer.inject("A", 1, 1, b"first")
    assert host.take_events()[0] == Accepted(listener)
    conn = listener.accept()
    assert conn is not None
    assert conn.state is State.ESTABLISHED
    assert read_all(conn) == b"first"


def test_fin_completes_the_handshake_too(isns):
    _host, peer, listener = half_open(isns)
    peer.inject("FA", 1, 1)
    conn = listener.accept()
    assert conn is not None
    assert conn.state is State.CLOSE_WAIT
    assert conn.at_eof


@pytest.mark.parametrize(
    ("flags", "seq", "ack", "answer"),
    [
        ("A", 1, 9, ("R", 9, 0, 0)),
        ("A", 1, 0, ("R", 0, 0, 0)),
        ("A", 70_000, 1, ("A", 1, 0, 1)),
        ("S", 1, 0, ("A", 1, 0, 1)),
        ("SA", 1, 1, ("A", 1, 0, 1)),
        ("R", 70_000, 0, None),
        ("R", 500, 0, ("A", 1, 0, 1)),
        ("", 1, 0, None),
        ("F", 1, 0, None),
    ],
)
def test_syn_received_stays(isns, flags, seq, ack, answer):
    host, peer, listener = half_open(isns)
    peer.inject(flags, seq, ack)
    assert [s.short for s in peer.got()] == ([answer] if answer else [])
    assert host.tcp.half_open == 1
    assert listener.accept() is None


def test_syn_received_reset_returns_to_listen(isns):
    host, peer, _listener = half_open(isns)
    peer.inject("R", 1)
    assert host.tcp.half_open == 0
    assert peer.got() == []
    peer.inject("S")
    assert peer.one().flags == "SA"


def test_syn_ack_is_retransmitted(isns):
    host, _peer, _listener = half_open(isns)
    times = [at for at, p in host.advance(100 * SECOND) if p.tcp.flag_text == "SA"]
    assert times == [1 * SECOND, 3 * SECOND, 7 * SECOND, 15 * SECOND, 31 * SECOND]
    assert host.tcp.half_open == 0


@pytest.mark.parametrize("flags", ["", "F", "SF", "U"])
def test_listen_ignores(flags):
    host = Host(NO_TIMESTAMPS)
    host.tcp.listen(OURS)
    host.receive(packets.tcp(flags=flags))
    assert host.sent() == []
    assert host.tcp.half_open == 0


def test_listen_resets_an_ack():
    host = Host(NO_TIMESTAMPS)
    host.tcp.listen(OURS)
    host.receive(packets.tcp(flags="A", seq=1, ack=2))
    (rst,) = host.sent()
    assert (rst.tcp.flag_text, rst.tcp.seq) == ("R", 2)


# --- data states ---


def close_wait(isns):
    host, peer, conn = established(**isns)
    peer.inject("FA", 1, 1)
    assert peer.one().short == ("A", 1, 0, 2)
    assert conn.state is State.CLOSE_WAIT
    assert host.take_events() == [Readable(conn)]
    return host, peer, conn


def fin_wait_1(isns):
    host, peer, conn = established(**isns)
    conn.shutdown(host.now)
    assert peer.one().short == ("FA", 1, 0, 1)
    assert conn.state is State.FIN_WAIT_1
    return host, peer, conn


def fin_wait_2(isns):
    host, peer, conn = fin_wait_1(isns)
    peer.inject("A", 1, 2)
    assert conn.state is State.FIN_WAIT_2
    assert peer.got() == []
    return host, peer, conn


def closing(isns):
    host, peer, conn = fin_wait_1(isns)
    peer.inject("FA", 1, 1)
    assert peer.one().short == ("A", 2, 0, 2)
    assert conn.state is State.CLOSING
    return host, peer, conn


def last_ack(isns):
    host, peer, conn = close_wait(isns)
    conn.shutdown(host.now)
    assert peer.one().short == ("FA", 1, 0, 2)
    assert conn.state is State.LAST_ACK
    return host, peer, conn


def time_wait(isns):
    host, peer, conn = fin_wait_2(isns)
    peer.inject("FA", 1, 2)
    assert peer.one().short == ("A", 2, 0, 2)
    assert conn.state is State.TIME_WAIT
    assert host.take_events() == [Readable(conn), Closed(conn, CloseReason.NORMAL)]
    return host, peer, conn


def test_close_wait_to_closed(isns):
    host, peer, conn = last_ack(isns)
    peer.inject("A", 2, 2)
    assert conn.state is State.CLOSED
    assert host.take_events() == [Closed(conn, CloseReason.NORMAL)]
    assert host.tcp.next_timeout() is None


def test_simultaneous_close(isns):
    host, peer, conn = closing(isns)
    peer.inject("A", 2, 2)
    assert conn.state is State.TIME_WAIT
    assert host.tcp.time_wait_count == 1


def test_fin_wait_1_takes_fin_and_ack_in_one(isns):
    _host, peer, conn = fin_wait_1(isns)
    peer.inject("FA", 1, 2)
    assert conn.state is State.TIME_WAIT
    assert peer.one().short == ("A", 2, 0, 2)


@pytest.mark.parametrize("reach", [fin_wait_1, fin_wait_2])
def test_half_closed_still_receives(isns, reach):
    _host, peer, conn = reach(isns)
    peer.inject("A", 1, 2, b"late" * 600)
    assert read_all(conn) == b"late" * 600
    assert peer.got()[-1].ack == 2_401


def test_close_wait_still_sends(isns):
    host, peer, conn = close_wait(isns)
    conn.send(b"answer", host.now)
    assert peer.one().payload == b"answer"


def test_send_after_shutdown_is_misuse(isns):
    host, _peer, conn = fin_wait_1(isns)
    with pytest.raises(Misuse):
        conn.send(b"x", host.now)


DATA_STATES = [close_wait, fin_wait_1, fin_wait_2, closing, last_ack]


@pytest.mark.parametrize("reach", [lambda isns: established(**isns), *DATA_STATES])
def test_reset_in_every_synchronized_state(isns, reach):
    host, peer, conn = reach(isns)
    host.take_events()
    peer.inject("R", conn.rcv.nxt - conn.rcv.irs)
    assert conn.state is State.CLOSED
    (event,) = host.take_events()
    assert event.reason is (CloseReason.NORMAL if reach in (closing, last_ack) else CloseReason.RESET)
    assert peer.got() == []
    assert host.tcp.next_timeout() is None


@pytest.mark.parametrize("reach", [lambda isns: established(**isns), *DATA_STATES])
def test_syn_in_every_synchronized_state_is_challenged(isns, reach):
    _host, peer, conn = reach(isns)
    state, nxt = conn.state, conn.rcv.nxt - conn.rcv.irs
    peer.inject("S", nxt)
    answer = peer.one()
    assert (answer.flags, answer.ack) == ("A", nxt)
    assert conn.state is state


@pytest.mark.parametrize("reach", [lambda isns: established(**isns), *DATA_STATES])
def test_ack_of_something_not_yet_sent_is_answered(isns, reach):
    _host, peer, conn = reach(isns)
    state, nxt = conn.state, conn.rcv.nxt - conn.rcv.irs
    peer.inject("A", nxt, 9_000)
    assert peer.one().flags == "A"
    assert conn.state is state


@pytest.mark.parametrize("reach", [lambda isns: established(**isns), *DATA_STATES])
def test_segment_without_ack_is_dropped(isns, reach):
    _host, peer, conn = reach(isns)
    state = conn.state
    peer.inject("F", conn.rcv.nxt - conn.rcv.irs)
    assert peer.got() == []
    assert conn.state is state


@pytest.mark.parametrize("reach", [lambda isns: established(**isns), *DATA_STATES])
def test_out_of_window_segment_is_answered_by_an_ack(isns, reach):
    _host, peer, conn = reach(isns)
    peer.inject("A", 90_000_000, 1, b"x")
    answer = peer.one()
    assert (answer.flags, answer.ack) == ("A", conn.rcv.nxt - conn.rcv.irs)


@pytest.mark.parametrize("reach", [lambda isns: established(**isns), *DATA_STATES])
def test_abort_in_every_synchronized_state_resets(isns, reach):
    host, peer, conn = reach(isns)
    host.take_events()
    conn.abort(host.now)
    assert peer.one().flags == "RA"
    assert conn.state is State.CLOSED
    assert host.take_events() == []
    assert host.tcp.next_timeout() is None


@pytest.mark.parametrize("reach", [close_wait, closing, last_ack])
def test_text_after_their_fin_is_ignored(isns, reach):
    _host, peer, conn = reach(isns)
    peer.inject("A", 2, 1, b"impossible")
    assert conn.recv_queue_bytes == 0


@pytest.mark.parametrize("reach", [close_wait, closing, last_ack])
def test_a_repeated_fin_is_acknowledged_again(isns, reach):
    _host, peer, _conn = reach(isns)
    peer.inject("FA", 1, 1)
    assert [s.ack for s in peer.got()] == [2]


# --- close by an application that forgets ---


def test_close_with_unread_data_resets(isns):
    host, peer, conn = established(**isns)
    peer.inject("A", 1, 1, b"unread")
    peer.got()
    conn.close(host.now)
    assert [s.flags for s in peer.got()] == ["RA"]


def test_data_after_close_resets(isns):
    host, peer, conn = established(**isns)
    conn.close(host.now)
    assert peer.one().flags == "FA"
    peer.inject("A", 1, 2, b"nobody listens")
    assert [(s.flags, s.seq) for s in peer.got()][-1] == ("R", 2)
    assert conn.state is State.CLOSED
    assert host.take_events() == []


def test_fin_wait_2_of_an_orphan_ends_in_time(isns):
    host, peer, conn = established(**isns)
    conn.close(host.now)
    peer.one()
    peer.inject("A", 1, 2)
    assert conn.state is State.FIN_WAIT_2
    host.advance(61 * SECOND)
    assert conn.state is State.CLOSED
    assert host.tcp.next_timeout() is None


def test_fin_wait_2_of_a_held_connection_waits_for_ever(isns):
    host, _peer, _conn = fin_wait_2(isns)
    assert host.tcp.next_timeout() is None


def test_close_is_repeatable(isns):
    host, peer, conn = established(**isns)
    conn.close(host.now)
    conn.close(host.now)
    assert [s.flags for s in peer.got()] == ["FA"]


# --- TIME-WAIT ---


def test_time_wait_ends_after_2_msl(isns):
    host, peer, _conn = time_wait(isns)
    assert host.tcp.next_timeout() == host.now + 60 * SECOND
    host.advance(60 * SECOND)
    assert host.tcp.time_wait_count == 0
    peer.inject("A", 2, 2)
    assert peer.one().flags == "R"


def test_time_wait_acknowledges_the_fin_again_and_starts_over(isns):
    host, peer, _conn = time_wait(isns)
    host.now += 30 * SECOND
    peer.inject("FA", 1, 2)
    assert peer.one().short == ("A", 2, 0, 2)
    assert host.tcp.next_timeout() == host.now + 60 * SECOND


def test_time_wait_reset(isns):
    host, peer, _conn = time_wait(isns)
    peer.inject("R", 900)
    assert host.tcp.time_wait_count == 1
    peer.inject("R", 2)
    assert host.tcp.time_wait_count == 0
    assert peer.got() == []


def test_time_wait_gives_way_to_a_newer_syn(isns):
    """RFC 9293 MAY-2, RFC 6191 without timestamps."""
    host, peer, _conn = time_wait(isns)
    host.tcp.isn.iss = isns["host_iss"]
    peer.inject("S", 90_000)
    answer = peer.one()
    assert (answer.flags, answer.ack) == ("SA", 90_001)
    assert answer.seq > 2, "the new ISN is beyond the old snd_nxt"
    assert host.tcp.time_wait_count == 0


def test_time_wait_acknowledges_an_old_syn(isns):
    host, peer, _conn = time_wait(isns)
    peer.inject("S", -5)
    assert peer.one().short == ("A", 2, 0, 2)
    assert host.tcp.time_wait_count == 1


def test_time_wait_is_bounded():
    from juneau.netstack.limits import Limits

    host = Host(NO_TIMESTAMPS, limits=Limits(time_wait=3))
    listener = host.tcp.listen(OURS)
    for port in range(2_000, 2_010):
        peer = Peer(host, local=Endpoint(THEIRS.ip, port))
        peer.inject("S")
        peer.one()
        peer.inject("A", 1, 1)
        conn = listener.accept()
        assert conn is not None
        conn.close(host.now)
        peer.one()
        peer.inject("FA", 1, 2)
        peer.one()
    assert host.tcp.time_wait_count == 3
    assert host.counters["tcp.time_wait_overflow"] == 7


def test_time_wait_reuse_with_timestamps():
    """RFC 6191 2: a SYN with a later timestamp is newer whatever its sequence number."""
    host, peer, conn = established(TcpOptions())
    conn.close(host.now)
    peer.one()
    peer.inject("FA", 1, 2)
    peer.one()
    peer.ts = None
    peer.inject("S", -500, options=packets.mss(1_000) + b"\1\1" + packets.timestamps(1, 0))
    assert peer.one().flags == "A", "not later"
    peer.inject("S", -500, options=packets.mss(1_000) + b"\1\1" + packets.timestamps(9, 0))
    assert peer.one().flags == "SA"


def test_time_wait_is_not_reused_by_an_older_timestamp():
    host, peer, conn = established(TcpOptions())
    peer.ts = 100
    conn.close(host.now)
    peer.one()
    peer.inject("FA", 1, 2)
    peer.one()
    peer.ts = None
    peer.inject("S", 500, options=packets.mss(1_000) + b"\1\1" + packets.timestamps(99, 0))
    assert peer.one().flags == "A", "its sequence number is higher, but it is older"


# --- tables ---


def test_connected_then_everything_is_forgotten():
    host, peer, conn = connected()
    conn.close(host.now)
    peer.one()
    peer.inject("FA", 1, 2)
    peer.one()
    host.advance(61 * SECOND)
    assert host.tcp._table == {}
    assert host.tcp._connections == 0
    assert host.tcp.buffered == 0


def test_remove_address_aborts_and_tells():
    host, peer, conn = established()
    host.tcp.remove_address(OURS.ip, host.now)
    assert [s.flags for s in peer.got()] == ["RA"]
    assert host.take_events() == [Closed(conn, CloseReason.ABORTED)]
    peer.inject("S", 0)
    assert peer.one().flags == "RA"


def test_remove_address_tells_half_open_peers_too():
    host = Host(NO_TIMESTAMPS)
    host.tcp.listen(OURS)
    peer = Peer(host)
    peer.inject("S")
    peer.one()
    host.tcp.remove_address(OURS.ip, host.now)
    assert peer.one().short == ("RA", 1, 0, 1)
    assert host.tcp.half_open == 0


def test_remove_address_right_after_connect_sends_nothing():
    host = Host(NO_TIMESTAMPS)
    conn = host.tcp.connect(THEIRS, local=Endpoint(OURS.ip, 0), path="p", now=host.now)
    host.tcp.remove_address(OURS.ip, host.now)
    assert host.take_events() == [Closed(conn, CloseReason.ABORTED)]
    assert host.advance(10 * SECOND) == []


@pytest.mark.parametrize(("data", "reason"), [(b"", CloseReason.NORMAL), (b"lost", CloseReason.RESET)])
def test_a_reset_of_what_both_have_closed_is_news_only_if_data_is_missing(isns, data, reason):
    host, peer, conn = established(**isns)
    peer.inject("FA", 1, 1)
    conn.send(data, host.now)
    conn.shutdown(host.now)
    peer.got()
    assert conn.state is State.LAST_ACK
    host.take_events()
    peer.inject("R", 2)
    assert host.take_events() == [Closed(conn, reason)]


@pytest.mark.parametrize("how", ["shutdown", "close"])
def test_closing_in_syn_received_waits_for_the_handshake(isns, how):
    host, peer, conn = syn_sent(**isns)
    peer.inject("S", 0, options=packets.mss(1_000))
    peer.one()
    conn.send(b"hello", host.now)
    getattr(conn, how)(host.now)
    assert conn.state is State.SYN_RECEIVED
    peer.inject("A", 1, 1)
    assert [(s.flags, s.payload) for s in peer.got()] == [("FA", b"hello")]
    assert conn.state is State.FIN_WAIT_1
    assert host.take_events() == ([Connected(conn)] if how == "shutdown" else [])


def test_abort_in_syn_received_resets(isns):
    host, peer, conn = syn_sent(**isns)
    peer.inject("S", 0)
    peer.one()
    conn.abort(host.now)
    assert [s.flags for s in peer.got()] == ["RA"]
    assert host.tcp.next_timeout() is None
