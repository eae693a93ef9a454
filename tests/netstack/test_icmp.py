from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ip_sim import CLIENT, ME, PEER, SERVER, Sim
from scapy.layers.inet import ICMP, IP
from test_reassembly import joined

from juneau.netstack.counters import Counters
from juneau.netstack.events import Closed
from juneau.netstack.icmp import IcmpLayer
from juneau.netstack.limits import Limits
from juneau.netstack.ratelimit import RateLimit
from juneau.netstack.types import MILLISECOND, SECOND, CloseReason, Endpoint, FourTuple, Link
from juneau.netstack.wire import ipv4 as ipv4_wire
from juneau.netstack.wire.icmp import IcmpErrorKind
from juneau.testing.packets import Ipv4, echo, fragments, icmp, ipv4, tcp, udp

TO_US = {"src": CLIENT, "dst": SERVER}
FROM_US = {"src": SERVER, "dst": CLIENT}


class TestEcho:
    @given(st.binary(max_size=1422), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
    def test_scapy_gets_its_answer(self, payload: bytes, ident: int, seq: int):
        request = IP(src=CLIENT, dst=SERVER) / ICMP(id=ident, seq=seq) / payload
        (packet,) = Sim().receive(bytes(request))
        reply = IP(packet)
        assert (reply.src, reply.dst, reply.ttl) == (SERVER, CLIENT, 64)
        assert (reply[ICMP].type, reply[ICMP].code, reply[ICMP].id, reply[ICMP].seq) == (0, 0, ident, seq)
        assert bytes(reply[ICMP].payload) == payload
        again = reply.copy()
        del again.chksum, again[ICMP].chksum
        assert bytes(again) == packet

    @pytest.mark.parametrize("size", [1422, 1423, 10_000, 65_507])
    @pytest.mark.parametrize("mtu", [68, 576, 1450])
    def test_any_size_within_any_mtu(self, size: int, mtu: int):
        sim = Sim(link=Link(mtu=mtu), limits=Limits(fragment_bytes=2 * 2**20))
        request = echo(bytes(size), **TO_US)
        pieces = fragments(request, 1424) if size > 1422 else [request]
        replies = [reply for piece in pieces for reply in sim.receive(piece)]
        assert max(map(len, replies)) <= mtu
        assert joined(replies)[8:] == bytes(size)
        assert not any(Ipv4.decode(reply).df for reply in replies)

    def test_tos_comes_back_but_not_its_ecn_mark(self):
        (reply,) = Sim().receive(echo(tos=0xB9, **TO_US))
        assert Ipv4.decode(reply).tos == 0xB8

    @pytest.mark.parametrize("csum_ok", [False, True])
    def test_a_bad_checksum_is_dropped(self, csum_ok: bool):
        sim = Sim()
        assert sim.receive(icmp(b"x", checksum=1, **TO_US), csum_ok=csum_ok) == []
        assert sim.drops() == {"icmp.bad_checksum": 1}

    def test_rate_is_bounded_per_path(self):
        sim = Sim(limits=Limits(echo_replies_per_second=10, echo_replies_burst=5))
        assert sum(len(sim.receive(echo(**TO_US), "pod-a")) for _ in range(20)) == 5
        assert len(sim.receive(echo(**TO_US), "pod-b")) == 1
        sim.advance(100 * MILLISECOND)
        assert sum(len(sim.receive(echo(**TO_US), "pod-a")) for _ in range(20)) == 1
        assert sim.drops() == {"icmp.echo_replies": 7, "icmp.echo_rate_limited": 34}


class TestErrorsOut:
    @pytest.mark.parametrize("size", [0, 1, 519, 520, 521, 1422])
    def test_closed_port_quotes_up_to_576(self, size: int):
        sim, datagram = Sim(), udp(bytes(size), dport=9, **TO_US)
        (error,) = sim.receive(datagram)
        assert error[20:] == icmp(datagram[:548], type=3, code=3, **FROM_US)[20:]
        assert len(error) == min(576, 56 + size)
        head = Ipv4.decode(error)
        assert (head.src, head.dst, head.tos) == (ME, PEER, 0)

    def test_padding_is_not_quoted(self):
        datagram = udp(b"x", dport=9, **TO_US)
        (error,) = Sim().receive(datagram + bytes(17))
        assert error[28:] == datagram

    def test_options_are_quoted(self):
        packet = ipv4(udp(b"x", dport=9, **TO_US)[20:], proto=17, options=b"\x94\x04\0\0", **TO_US)
        (error,) = Sim().receive(packet)
        assert error[28:] == packet

    @pytest.mark.parametrize("kind", [3, 4, 5, 11, 12])
    def test_never_about_an_error(self, kind: int):
        sim = Sim()
        assert sim.receive(icmp(udp(**FROM_US), type=kind, code=1, **TO_US)) == []
        assert "icmp.errors_sent" not in sim.drops()

    @pytest.mark.parametrize("src", ["0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", SERVER])
    def test_never_to_what_is_no_host(self, src: str):
        assert Sim().receive(udp(dport=9, src=src, dst=SERVER)) == []

    @pytest.mark.parametrize("dst", ["255.255.255.255", "224.0.0.1", "10.0.0.255"])
    def test_never_about_broadcast(self, dst: str):
        assert Sim().receive(udp(dport=9, src=CLIENT, dst=dst)) == []

    def test_never_about_later_fragments(self):
        sim = Sim()
        assert sim.receive(fragments(udp(bytes(2000), dport=9, **TO_US), 800)[1]) == []
        assert sim.advance(60 * SECOND) == []

    def test_a_reassembled_datagram_is_quoted_as_a_whole_one(self):
        sim, datagram = Sim(), udp(bytes(2000), dport=9, **TO_US)
        *_, (error,) = [sim.receive(piece) for piece in fragments(datagram, 800)]
        quoted = Ipv4.decode(error[28:].ljust(2028, b"\0"))
        assert (quoted.total_length, quoted.mf, quoted.frag_offset, quoted.checksum_ok) == (
            2028,
            False,
            0,
            True,
        )

    def test_rate_is_bounded_per_path_and_apart_from_echo(self):
        sim = Sim(limits=Limits(icmp_errors_per_second=10, icmp_errors_burst=5))
        assert sum(len(sim.receive(udp(dport=9, **TO_US))) for _ in range(20)) == 5
        assert sum(len(sim.receive(ipv4(b"x", proto=99, **TO_US))) for _ in range(20)) == 0
        assert len(sim.receive(udp(dport=9, **TO_US), "pod-b")) == 1
        assert len(sim.receive(echo(**TO_US))) == 1
        sim.advance(200 * MILLISECOND)
        assert sum(len(sim.receive(udp(dport=9, **TO_US))) for _ in range(20)) == 2
        assert sim.drops()["icmp.error_rate_limited"] == 15 + 20 + 18


class FakeTcp:
    def __init__(self) -> None:
        self.errors: list[tuple[object, ...]] = []

    def receive_icmp_error(self, *args: object) -> None:
        self.errors.append(args)


class TestErrorsIn:
    def deliver(self, packet: bytes) -> tuple[FakeTcp, Counters]:
        tcp_layer, counters = FakeTcp(), Counters()
        layer = IcmpLayer(Limits(), counters, None, tcp_layer, None)  # type: ignore[arg-type]
        header, payload = ipv4_wire.parse(packet)
        layer.receive(header, payload, "pod-a", 77)
        return tcp_layer, counters

    @pytest.mark.parametrize(
        ("kind", "code", "rest", "want"),
        [
            (3, 1, 0, (IcmpErrorKind.UNREACHABLE, 0)),
            (3, 3, 0, (IcmpErrorKind.PORT, 0)),
            (3, 4, 1400, (IcmpErrorKind.FRAG_NEEDED, 1400)),
            (11, 0, 0, (IcmpErrorKind.TTL, 0)),
        ],
    )
    def test_tcp_learns_of_it(self, kind: int, code: int, rest: int, want: tuple[IcmpErrorKind, int]):
        quoted = tcp(seq=2**32 - 1, sport=80, dport=40_000, **FROM_US)[:28]
        tcp_layer, counters = self.deliver(icmp(quoted, type=kind, code=code, rest=rest, **TO_US))
        assert tcp_layer.errors == [(FourTuple(ME, 80, PEER, 40_000), *want, 2**32 - 1, 77)]
        assert counters.snapshot() == {f"icmp.in_{want[0].value}": 1}

    def test_a_connection_ends_when_its_syn_is_answered_by_unreachable(self):
        sim = Sim()
        conn = sim.stack.tcp_connect(Endpoint(PEER, 80), local=Endpoint(ME, 0), path="pod-a", now=sim.now)
        (syn,) = sim.sent()
        sim.receive(icmp(syn[:28], type=3, code=3, **TO_US))
        (closed,) = sim.stack.take_events()
        assert isinstance(closed, Closed)
        assert closed.conn is conn
        assert closed.reason in (CloseReason.UNREACHABLE, CloseReason.REFUSED)

    def test_not_if_the_quoted_packet_was_not_sent_from_here(self):
        quoted = tcp(src="10.0.0.9", dst=CLIENT)
        tcp_layer, counters = self.deliver(icmp(quoted, type=3, code=1, **TO_US))
        assert tcp_layer.errors == []
        assert counters.snapshot() == {"icmp.not_our_packet": 1}

    def test_other_protocols_have_nobody_to_tell(self):
        _, counters = self.deliver(icmp(ipv4(bytes(8), proto=99, **FROM_US), type=3, code=1, **TO_US))
        assert counters["icmp.not_our_packet"] == 1

    @pytest.mark.parametrize("cut", [0, 19, 27])
    def test_too_short_a_quotation(self, cut: int):
        _, counters = self.deliver(icmp(tcp(**FROM_US)[:cut], type=3, code=1, **TO_US))
        assert counters.snapshot() == {"icmp.bad_quoted": 1}

    @pytest.mark.parametrize("kind", [0, 4, 5, 13, 17, 200])
    def test_what_we_do_not_act_on_is_counted(self, kind: int):
        tcp_layer, counters = self.deliver(icmp(tcp(**FROM_US), type=kind, **TO_US))
        assert tcp_layer.errors == []
        assert counters.snapshot() == {"icmp.ignored": 1}

    def test_udp_sockets_count_them(self):
        sim = Sim()
        one, every = sim.stack.udp_bind(Endpoint(ME, 53)), sim.stack.udp_bind(Endpoint(0, 54))
        for sport in (53, 54, 55):
            quoted = udp(b"answer", sport=sport, dport=9, **FROM_US)
            assert sim.receive(icmp(quoted, type=3, code=3, **TO_US)) == []
        assert (one.icmp_errors, every.icmp_errors) == (1, 1)
        assert sim.drops() == {"icmp.in_port": 3, "udp.icmp_port": 2, "udp.icmp_error_unknown": 1}


class TestRateLimit:
    @given(st.integers(1, 1000), st.integers(1, 50), st.lists(st.integers(0, 50_000), max_size=200))
    def test_never_more_than_burst_plus_rate(self, rate: int, burst: int, steps: list[int]):
        limit, now, passed = RateLimit(rate, burst, 10), 0, []
        for step in steps:
            now += step
            if limit.allow("p", now):
                passed.append(now)
        interval = SECOND // rate
        for i, start in enumerate(passed):
            for j in range(i, len(passed)):
                assert j - i + 1 <= burst + (passed[j] - start) // interval

    def test_an_idle_path_gets_its_burst_back_and_no_more(self):
        limit = RateLimit(10, 3, 10)
        for now in (0, 100 * SECOND):
            assert [limit.allow("p", now) for _ in range(4)] == [True, True, True, False]

    def test_zero_forbids(self):
        assert not RateLimit(0, 50, 10).allow("p", 5)

    def test_memory_is_bounded(self):
        limit = RateLimit(10, 1, 8)
        for path in range(100):
            assert limit.allow(path, 0)
        assert len(limit) == 8
        assert not limit.allow(99, 0)

    def test_the_path_idle_longest_is_forgotten(self):
        limit = RateLimit(10, 1, 2)
        for path, now in (("a", 0), ("b", 0), ("a", 100 * MILLISECOND), ("c", 100 * MILLISECOND)):
            assert limit.allow(path, now)
        assert not limit.allow("a", 100 * MILLISECOND)
