from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ip_sim import CLIENT, ME, PEER, SERVER, Sim
from scapy.layers.inet import IP, UDP
from test_reassembly import joined

from juneau.netstack.events import DatagramReady
from juneau.netstack.limits import Limits
from juneau.netstack.tap import complete_pieces
from juneau.netstack.types import Endpoint, Link, Misuse, Refused, parse_ip
from juneau.netstack.udp import EPHEMERAL_PORTS, UDP_OVERHEAD, UdpSocket
from juneau.testing.packets import Ipv4, ipv4, udp

DNS = Endpoint(ME, 53)
POD = Endpoint(PEER, 40_000)
QUERY = udp(b"query", src=CLIENT, dst=SERVER, sport=40_000, dport=53)


def drain(socket: UdpSocket) -> list[bytes]:
    return [bytes(datagram.payload) for datagram in iter(socket.receive, None)]


class TestReceive:
    @given(st.binary(max_size=1422))
    def test_from_scapy(self, payload: bytes):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        packet = IP(src=CLIENT, dst=SERVER) / UDP(sport=40_000, dport=53) / payload
        assert sim.receive(bytes(packet)) == []
        assert sim.stack.take_events() == [DatagramReady(socket)]
        assert socket.receive() == (payload, POD, DNS, "pod-a", sim.now)
        assert sim.stack.counters["udp.received"] == 1
        assert socket.receive() is None

    def test_the_event_comes_when_the_queue_stops_being_empty(self):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        sim.receive(QUERY)
        sim.receive(QUERY)
        assert sim.stack.take_events() == [DatagramReady(socket)]
        assert sim.stack.take_events() == []
        socket.receive()
        sim.receive(QUERY)
        assert sim.stack.take_events() == []
        drain(socket)
        sim.receive(QUERY)
        assert sim.stack.take_events() == [DatagramReady(socket)]

    def test_the_exact_address_wins_over_every_address(self):
        sim = Sim()
        other = parse_ip("10.0.0.3")
        sim.stack.add_address(other)
        every, exact = sim.stack.udp_bind(Endpoint(0, 53)), sim.stack.udp_bind(DNS)
        sim.receive(QUERY)
        sim.receive(udp(b"elsewhere", src=CLIENT, dst="10.0.0.3", dport=53))
        assert drain(exact) == [b"query"]
        got = every.receive()
        assert got is not None
        assert (bytes(got.payload), got.local) == (b"elsewhere", Endpoint(other, 53))

    @pytest.mark.parametrize(("checksum", "csum_ok", "lives"), [
        (None, False, True), (0, False, True), (0xFFFF, False, False),
        (0xBAD, False, False), (0xBAD, True, True),
    ])  # fmt: skip
    def test_checksum(self, checksum: int | None, csum_ok: bool, lives: bool):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        sim.receive(udp(b"query", src=CLIENT, dst=SERVER, checksum=checksum), csum_ok=csum_ok)
        assert drain(socket) == ([b"query"] if lives else [])
        assert sim.drops() == ({} if lives else {"udp.bad_checksum": 1})

    def test_a_sum_of_zero_travels_as_ffff(self):
        payload = udp(b"\0\0", src=CLIENT, dst=SERVER)[26:28]  # the sum becomes 0xffff, its complement 0
        packet = udp(payload, src=CLIENT, dst=SERVER)
        assert packet[26:28] == b"\xff\xff"
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        sim.receive(packet)
        assert drain(socket) == [payload]
        socket.send(payload, POD, "pod-a")
        assert sim.sent()[0][26:28] == b"\xff\xff"

    @pytest.mark.parametrize("length", [0, 7, 14])
    def test_a_length_that_cannot_be(self, length: int):
        sim = Sim()
        sim.stack.udp_bind(DNS)
        assert sim.receive(udp(b"query", src=CLIENT, dst=SERVER, length=length), csum_ok=True) == []
        assert sim.drops() == {"udp.bad_length": 1}

    def test_a_short_length_cuts(self):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        sim.receive(udp(b"query", src=CLIENT, dst=SERVER, length=11), csum_ok=True)
        assert drain(socket) == [b"que"]

    def test_what_was_cut_off_is_not_kept(self):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        short_udp = udp(b"q" + bytes(9_000), src=CLIENT, dst=SERVER, length=9)
        padded = udp(b"q", src=CLIENT, dst=SERVER) + bytes(9_000)
        with_options = ipv4(padded[20:29], src=CLIENT, dst=SERVER, proto=17, options=bytes(4)) + bytes(9_000)
        for packet in (short_udp, padded, with_options):
            sim.receive(packet, csum_ok=True)
            datagram = socket.receive()
            assert datagram is not None
            assert isinstance(datagram.payload, memoryview)
            assert datagram.payload == b"q"
            assert len(datagram.payload.obj) < 100

    def test_the_payload_is_no_copy(self):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        sim.receive(QUERY)
        datagram = socket.receive()
        assert datagram is not None
        assert isinstance(datagram.payload, memoryview)
        assert datagram.payload.obj is QUERY


class TestQueueLimits:
    @pytest.mark.parametrize("size", [0, 1000])
    def test_of_a_socket(self, size: int):
        sim = Sim(limits=Limits(udp_socket_bytes=8_000))
        full, other = sim.stack.udp_bind(DNS), sim.stack.udp_bind(Endpoint(ME, 54))
        for _ in range(100):
            sim.receive(udp(bytes(size), src=CLIENT, dst=SERVER, dport=53))
        sim.receive(udp(b"x", src=CLIENT, dst=SERVER, dport=54))
        room = 8_000 // (size + UDP_OVERHEAD)
        assert sim.drops() == {"udp.socket_full": 100 - room}
        assert full.drops == 100 - room
        assert (len(drain(full)), len(drain(other))) == (room, 1)

    def test_of_the_stack(self):
        sim = Sim(limits=Limits(udp_bytes=8_000))
        sockets = [sim.stack.udp_bind(Endpoint(ME, port)) for port in range(1, 101)]
        for port in range(1, 101):
            sim.receive(udp(bytes(1000), src=CLIENT, dst=SERVER, dport=port))
        assert sim.drops() == {"udp.stack_full": 100 - 8_000 // 1_256}
        assert sum(socket.queued_bytes for socket in sockets) == sim.stack._udp.queued_bytes <= 8_000

    def test_exactly_the_limit_fits(self):
        cost = 1_000 + UDP_OVERHEAD
        for limits in (Limits(udp_bytes=cost), Limits(udp_socket_bytes=cost)):
            sim = Sim(limits=limits)
            socket = sim.stack.udp_bind(DNS)
            sim.receive(udp(bytes(1_001), src=CLIENT, dst=SERVER))
            sim.receive(udp(bytes(1_000), src=CLIENT, dst=SERVER))
            assert drain(socket) == [bytes(1_000)]

    def test_reading_and_closing_give_room_back(self):
        sim = Sim(limits=Limits(udp_bytes=600, udp_socket_bytes=600))
        one, two = sim.stack.udp_bind(DNS), sim.stack.udp_bind(Endpoint(ME, 54))
        for _ in range(3):
            sim.receive(QUERY)
            sim.receive(QUERY)
            assert len(drain(one)) == 2
        sim.receive(QUERY)
        sim.receive(QUERY)
        one.close()
        one.close()
        assert (one.queued_bytes, one.receive()) == (0, None)
        assert sim.stack._udp.queued_bytes == 0
        sim.receive(udp(b"x", src=CLIENT, dst=SERVER, dport=54))
        assert drain(two) == [b"x"]

    def test_of_sockets(self):
        sim = Sim(limits=Limits(udp_sockets=2))
        first = sim.stack.udp_bind(DNS)
        sim.stack.udp_bind(Endpoint(0, 0))
        with pytest.raises(Refused, match="2 sockets are open") as caught:
            sim.stack.udp_bind(Endpoint(0, 0))
        assert caught.value.reason == "udp.socket_limit"
        assert sim.stack.counters["udp.socket_limit"] == 1
        first.close()
        sim.stack.udp_bind(Endpoint(0, 0))


class TestSend:
    @given(st.binary(max_size=3000), st.sampled_from([576, 1450, 9000]))
    def test_scapy_agrees(self, payload: bytes, mtu: int):
        sim = Sim(link=Link(mtu=mtu))
        sim.stack.udp_bind(DNS).send(payload, POD, "pod-a")
        packets = sim.sent()
        assert all(len(packet) <= mtu and Ipv4.decode(packet).checksum_ok for packet in packets)
        datagram = joined(packets)
        wanted = IP(src=SERVER, dst=CLIENT) / UDP(sport=53, dport=40_000) / payload
        assert datagram == bytes(wanted)[20:]

    @pytest.mark.parametrize("mtu", [68, 1450, 65_535])
    def test_the_largest(self, mtu: int):
        sim = Sim(link=Link(mtu=mtu))
        sim.stack.udp_bind(DNS).send(b"z" * 65_507, POD, "pod-a")
        packets = sim.sent()
        assert max(map(len, packets)) <= mtu
        assert joined(packets)[8:] == b"z" * 65_507

    def test_one_more_is_refused(self):
        sim = Sim()
        with pytest.raises(Refused, match=r"65508 bytes, allowed 0\.\.65507") as caught:
            sim.stack.udp_bind(DNS).send(bytes(65_508), POD, "pod-a")
        assert caught.value.reason == "udp.too_big"
        assert sim.stack.counters.snapshot() == {"udp.too_big": 1}
        assert sim.sent() == []

    @given(st.binary(max_size=1422))
    @example(bytes(1422))
    def test_partial_checksum_when_the_link_completes_it(self, payload: bytes):
        sim, plain = Sim(link=Link(checksum_offload=True)), Sim()
        for each in (sim, plain):
            each.stack.udp_bind(DNS).send(payload, POD, "pod-a")
        (packet,) = sim.stack.take_packets(sim.now)
        assert (packet.csum_start, packet.csum_offset, packet.gso_size) == (20, 6, 0)
        assert b"".join(complete_pieces(packet)) == plain.sent()[0]

    def test_fragments_carry_complete_checksums_even_then(self):
        sim, plain = Sim(link=Link(checksum_offload=True)), Sim()
        for each in (sim, plain):
            each.stack.udp_bind(DNS).send(bytes(1423), POD, "pod-a")
        packets = sim.stack.take_packets(sim.now)
        assert [packet.csum_start for packet in packets] == [0, 0]
        assert [packet.to_bytes() for packet in packets] == plain.sent()

    def test_idents_differ_and_start_from_the_seed(self):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        for _ in range(70_000):
            socket.send(b"", POD, "pod-a")
            if len(sim.stack._output.queue) == 1_000:
                idents = [Ipv4.decode(packet).ident for packet in sim.sent()]
                assert len(set(idents)) == 1_000
        first = Sim()
        first.stack.udp_bind(DNS).send(b"", POD, "pod-a")
        assert Ipv4.decode(first.sent()[0]).ident == (random.Random(1).getrandbits(16) + 1) % 2**16

    def test_a_mutable_payload_is_copied(self):
        sim, payload = Sim(), bytearray(b"before")
        sim.stack.udp_bind(DNS).send(memoryview(payload), POD, "pod-a")
        payload[:] = b"after!"
        assert sim.sent()[0][28:] == b"before"

    def test_the_answer_leaves_on_the_path_and_address_given(self):
        sim = Sim()
        every = sim.stack.udp_bind(Endpoint(0, 53))
        with pytest.raises(Misuse, match="pass local_ip"):
            every.send(b"x", POD, "pod-a")
        every.send(b"x", POD, "pod-b", local_ip=ME)
        (packet,) = sim.stack.take_packets(sim.now)
        assert packet.path == "pod-b"
        assert Ipv4.decode(packet.to_bytes()).src == ME

    def test_not_from_an_address_that_is_gone(self):
        sim = Sim()
        every, exact = sim.stack.udp_bind(Endpoint(0, 53)), sim.stack.udp_bind(DNS)
        sim.stack.remove_address(ME, sim.now)
        for socket, reason in ((every, "udp.address_gone"), (exact, "udp.closed")):
            with pytest.raises(Refused) as caught:
                socket.send(b"x", POD, "pod-a", local_ip=ME)
            assert caught.value.reason == reason

    @pytest.mark.parametrize("port", [1, 65_535])
    def test_to_any_port_that_can_be(self, port: int):
        sim = Sim()
        sim.stack.udp_bind(DNS).send(b"x", Endpoint(PEER, port), "pod-a")
        assert UDP(sim.sent()[0][20:]).dport == port
        assert sim.stack.counters.snapshot() == {"ip.sent": 1, "udp.sent": 1}

    @pytest.mark.parametrize("port", [0, 65_536])
    def test_not_to_a_port_that_cannot_be(self, port: int):
        with pytest.raises(Misuse, match=r"port must be 1\.\.65535"):
            Sim().stack.udp_bind(DNS).send(b"x", Endpoint(PEER, port), "pod-a")

    @pytest.mark.parametrize("limits", [Limits(output_packets=10), Limits(output_bytes=300)])
    def test_output_over_the_limit_is_dropped_and_counted(self, limits: Limits):
        sim = Sim(limits=limits)
        socket = sim.stack.udp_bind(DNS)
        for _ in range(25):
            socket.send(b"xx", POD, "pod-a")
        assert len(sim.sent()) == 10
        assert sim.drops() == {"ip.output_full": 15}
        socket.send(b"xx", POD, "pod-a")
        assert len(sim.sent()) == 1

    def test_all_fragments_or_none(self):
        sim = Sim(limits=Limits(output_packets=3))
        sim.stack.udp_bind(DNS).send(bytes(5_000), POD, "pod-a")
        assert sim.sent() == []
        assert sim.drops() == {"ip.output_full": 1}


class TestBind:
    def test_taken(self):
        sim = Sim()
        socket = sim.stack.udp_bind(DNS)
        with pytest.raises(Misuse, match=r"udp bind 10\.0\.0\.1:53: in use"):
            sim.stack.udp_bind(DNS)
        socket.close()
        assert sim.stack.udp_bind(DNS, user="me").user == "me"

    def test_not_ours(self):
        with pytest.raises(Misuse, match="not an address of this stack"):
            Sim().stack.udp_bind(Endpoint(PEER, 53))

    def test_ephemeral_ports_until_none_is_left(self):
        sim = Sim(limits=Limits(udp_sockets=100_000))
        ports = {sim.stack.udp_bind(Endpoint(ME, 0)).local.port for _ in EPHEMERAL_PORTS[:500]}
        assert len(ports) == 500
        assert all(port in EPHEMERAL_PORTS for port in ports)
        for port in set(EPHEMERAL_PORTS) - ports:
            sim.stack.udp_bind(Endpoint(ME, port))
        with pytest.raises(Refused, match="no ephemeral port is left"):
            sim.stack.udp_bind(Endpoint(ME, 0))
        assert sim.stack.udp_bind(Endpoint(0, 0)).local.port in EPHEMERAL_PORTS

    def test_a_closed_port_is_closed(self):
        sim = Sim()
        sim.stack.udp_bind(DNS).close()
        assert len(sim.receive(QUERY)) == 1
        assert sim.drops() == {"udp.closed_port": 1, "icmp.errors_sent": 1}
