"""Two ends over a bad wire: bytes in are bytes out, once and in order; memory is bounded; everything ends."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tcp_kit import Link, Pair, WireModel

from juneau.netstack.limits import Limits
from juneau.netstack.tcp import TcpOptions
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason

STREAM = random.Random(9).randbytes(400_000)

options = st.builds(
    lambda **fields: replace(TcpOptions(), **fields),
    sack=st.booleans(),
    timestamps=st.booleans(),
    window_scaling=st.booleans(),
    rack=st.booleans(),
    tlp=st.booleans(),
    nodelay=st.booleans(),
    limited_transmit=st.booleans(),
    congestion_control=st.sampled_from(["reno", "cubic"]),
    rcv_buf=st.sampled_from([2_000, 5_000, 70_000, 1 << 20]),
    ecn=st.sampled_from(["off", "active"]),
    ooo_ranges=st.sampled_from([2, 512]),
)
links = st.builds(
    lambda mtu, tso: Link(mtu=mtu, checksum_offload=tso, tso=tso),
    mtu=st.sampled_from([576, 1_040, 1_450, 9_000]),
    tso=st.booleans(),
)
wires = st.builds(
    WireModel,
    loss=st.sampled_from([0.0, 0.0, 0.02, 0.1]),
    duplicate=st.sampled_from([0.0, 0.1]),
    reorder=st.sampled_from([0.0, 0.1]),
    delay=st.sampled_from([0, 10, 5 * MILLISECOND]),
    jitter=st.sampled_from([0, 50]),
)
isns = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 3_000, 2**32 - 1))


@given(options, options, links, links, wires, st.integers(0, 2**16), st.tuples(isns, isns), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_two_ends_agree_on_the_bytes(left, right, link_a, link_b, wire, seed, iss, data):
    up = STREAM[: data.draw(st.sampled_from([0, 1, 3_000, 60_000]))]
    down = STREAM[: data.draw(st.sampled_from([0, 1, 3_000, 60_000]))][::-1]
    pair = Pair(left, options_b=right, link=link_a, link_b=link_b, wire=wire, seed=seed, iss=iss)
    _conn, client, server = pair.connect(up, down)
    client.chunk = data.draw(st.sampled_from([7, 1_000, 100_000]))
    if client.chunk == 7:
        client.outgoing = up[:2_000]
    buffers = [host.tcp.options.rcv_buf for host in (pair.a, pair.b)]
    settle = pair.settle

    def watched() -> None:
        settle()
        for host, buf in zip((pair.a, pair.b), buffers, strict=True):
            slack = 2 * host.tcp.link.mtu + 2**14
            assert host.tcp.buffered <= buf + slack, "the window bounds what is held"

    pair.settle = watched
    pair.run(until=4_000 * SECOND)
    assert bytes(server.received) == client.outgoing
    assert bytes(client.received) == down
    assert (client.closed, server.closed) == (CloseReason.NORMAL, CloseReason.NORMAL)
    pair.now += 200 * SECOND
    for host in (pair.a, pair.b):
        host.now = pair.now
        host.advance(200 * SECOND)
        assert host.tcp._table == {}
        assert host.tcp.buffered == 0
        assert host.tcp.next_timeout() is None


def test_a_slow_reader_stalls_the_sender_and_loses_nothing():
    limits = Limits(rcv_buffer=20_000)
    pair = Pair(wire=WireModel(delay=1_000), limits=limits)
    _conn, _client, server = pair.connect(STREAM)
    held = []
    original = pair._read

    def read_slowly(conn, app):
        held.append((conn, app))

    pair._read = read_slowly
    for _ in range(40):
        pair.run(until=pair.now + 300 * MILLISECOND)
        assert pair.b.tcp.buffered <= 20_000
        for conn_, app in {id(c): (c, a) for c, a in held}.values():
            app.received += b"".join(conn_.read(10_000))
        if server.received == STREAM:
            break
    pair._read = original
    for conn_, app in {id(c): (c, a) for c, a in held}.values():
        original(conn_, app)
    pair.run()
    assert bytes(server.received) == STREAM


def test_a_thousand_short_connections_leave_nothing():
    pair = Pair()
    for _ in range(300):
        conn, client, server = pair.connect(b"request", b"response")
        pair.apps = {conn: client}
        pair.run()
        assert (bytes(server.received), bytes(client.received)) == (b"request", b"response")
    for host in (pair.a, pair.b):
        host.now = pair.now
        host.advance(70 * SECOND)
        assert host.tcp._table == {}
        assert host.tcp._connections == host.tcp.half_open == host.tcp.buffered == 0


def test_throughput_is_not_far_from_what_the_loss_allows():
    """No stall anywhere: goodput within a factor of the window and loss limits."""
    rows = []
    for loss, delay in ((0.0, 0), (0.0, 20_000), (0.01, 0), (0.01, 20_000), (0.05, 5_000)):
        pair = Pair(wire=WireModel(loss=loss, delay=delay), seed=11)
        _conn, _client, server = pair.connect(STREAM * 5)
        start = pair.now
        pair.run()
        assert len(server.received) == 2_000_000
        rows.append((loss, delay, (pair.now - start) / SECOND))
    limits = {(0.0, 0): 0.1, (0.0, 20_000): 1.0, (0.01, 0): 4.0, (0.01, 20_000): 12.0, (0.05, 5_000): 12.0}
    assert all(seconds <= limits[loss, delay] for loss, delay, seconds in rows), rows
