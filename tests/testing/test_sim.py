"""Stacks in virtual time: exact timers, whole transfers, the same again for the same seed."""

from __future__ import annotations

from random import Random

import pytest

from juneau.netstack.events import Closed, Connected
from juneau.netstack.stack import Stack
from juneau.netstack.tcp import TcpOptions
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason, Endpoint, Link, parse_ip
from juneau.testing import match, oracle, packets
from juneau.testing.sim import Sim, SimHost, SimNet
from juneau.testing.wire import Impairment

DATA = bytes(range(256)) * 400


def test_advance_fires_what_is_due_and_no_more():
    stack = Stack(tcp=TcpOptions(rto_initial=1 * SECOND), rng=Random(1), secret=bytes(16))
    stack.add_address(parse_ip("10.0.0.1"))
    sim = Sim(stack)
    local = Endpoint(parse_ip("10.0.0.1"), 1000)
    stack.tcp_connect(Endpoint(parse_ip("10.0.0.2"), 80), local=local, path="p", now=sim.now)
    syn = match.ip(match.tcp(flags="S", dport=80), src="10.0.0.1", dst="10.0.0.2")
    match.check(sim.advance(0), [syn])
    match.check(sim.advance(1 * SECOND - 1), [])
    match.check(sim.advance(1), [syn])
    match.check(sim.advance(2 * SECOND - 1), [])
    match.check(sim.advance(1), [syn])
    assert sim.now == 3 * SECOND
    match.check(sim.advance(12 * SECOND), [syn, syn])


def transfer(net: SimNet, data: bytes = DATA, **host: object) -> tuple[bytes, SimHost, SimHost]:
    """Client sends `data` and closes; what the server read."""
    client, server = net.host("10.0.0.1", **host), net.host("10.0.0.2", **host)
    listener = server.listen(80)
    conn = client.connect(server, 80)
    conn.send(data, net.now)
    conn.shutdown(net.now)
    got = bytearray()

    def finished() -> bool:
        nonlocal peer
        peer = peer or listener.accept()
        if peer is None:
            return False
        for piece in peer.read(1 << 16):
            got.extend(piece)
        server.settle()
        return peer.at_eof

    peer = None
    net.run_until(finished, timeout=600 * SECOND)
    assert peer is not None
    peer.shutdown(net.now)
    net.advance(200 * SECOND)
    return bytes(got), client, server


@pytest.mark.parametrize("tso", [False, True])
@pytest.mark.parametrize("rough", [False, True])
def test_a_transfer_arrives_whole_and_both_ends_are_told(tso: bool, rough: bool):
    bad = Impairment(
        loss=0.03, delay=5 * MILLISECOND, jitter=2_000, duplicate=0.02, reorder=0.05, corrupt=0.01
    )
    net = SimNet(seed=3, impairment=bad if rough else Impairment())
    link = Link(mtu=1500, checksum_offload=tso, tso=tso)
    got, client, server = transfer(net, link=link)
    assert got == DATA
    assert isinstance(client.events[0], Connected)
    for host in (client, server):
        assert [e.reason for e in host.events if isinstance(e, Closed)] == [CloseReason.NORMAL]
        assert list(host.stack.tcp.connections()) == []
    assert rough == (set(net.wire.fates) > {"delivered"})


def test_superframes_are_cut_where_the_test_wants_a_plain_wire():
    net = SimNet()
    sizes: list[int] = []
    link = Link(mtu=1500, checksum_offload=True, tso=True)
    client, server = net.host("10.0.0.1", link=link), net.host("10.0.0.2", link=link)
    server.listen(80)
    client.cut_superframes = True
    net.wire.log = []
    conn = client.connect(server, 80)
    conn.send(DATA, net.now)
    net.advance(1 * SECOND)
    sizes = [len(entry.packet) for entry in net.wire.log if entry.source == "10.0.0.1"]
    assert max(sizes) == 1500
    assert len(sizes) > 60


def test_the_same_seed_gives_the_same_packets():
    def trace(seed: int) -> list[object]:
        net = SimNet(seed=seed, impairment=Impairment(loss=0.05, delay=1_000, reorder=0.1))
        net.wire.log = []
        transfer(net)
        return list(net.wire.log)

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_every_packet_of_a_transfer_satisfies_scapy():
    net = SimNet(impairment=Impairment(loss=0.05))
    net.wire.log = []
    transfer(net, DATA[:20_000])
    for entry in net.wire.log:
        oracle.check(entry.packet)
        assert packets.decode(entry.packet).l4_checksum_ok


def test_run_until_says_when_nothing_can_happen_any_more():
    with pytest.raises(AssertionError, match="nothing is pending"):
        SimNet().run_until(lambda: False)


def test_a_partition_delays_and_healing_ends_it():
    net = SimNet(impairment=Impairment(delay=1_000))
    client, server = net.host("10.0.0.1"), net.host("10.0.0.2")
    server.listen(80)
    net.wire.partition("10.0.0.1", "10.0.0.2")
    client.connect(server, 80)
    net.advance(2 * SECOND)
    assert client.events == []
    net.wire.heal("10.0.0.1", "10.0.0.2")
    net.advance(2 * SECOND)
    assert [type(event) for event in client.events] == [Connected]
