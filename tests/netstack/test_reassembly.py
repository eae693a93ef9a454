from __future__ import annotations

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from ip_sim import CLIENT, SERVER, Sim

from juneau.netstack.counters import Counters
from juneau.netstack.limits import Limits
from juneau.netstack.reassembly import FRAGMENT_OVERHEAD, Reassembler
from juneau.netstack.types import MILLISECOND, SECOND, Endpoint
from juneau.netstack.wire.ipv4 import parse
from juneau.testing.packets import Ipv4, echo, fragments, icmp, ipv4, tcp, udp

BIG = echo(bytes(range(256)) * 12, src=CLIENT, dst=SERVER)
REPLY = icmp(BIG[28:], type=0, rest=0x00010001)[20:]


def joined(packets: list[bytes]) -> bytes:
    """What the fragments carry, in their own order; they must be contiguous."""
    heads = [Ipv4.decode(packet) for packet in packets]
    payload = b""
    for head, packet in zip(heads, packets, strict=True):
        assert head.frag_offset == len(payload)
        payload += packet[20 : head.total_length]
    assert [head.mf for head in heads] == [True] * (len(heads) - 1) + [False]
    assert len({head.ident for head in heads}) == 1
    return payload


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_any_order_gives_one_datagram(order: tuple[int, ...]):
    sim, pieces = Sim(), fragments(BIG, 800)
    *early, last = [sim.receive(pieces[i]) for i in order]
    assert early == [[], [], []]
    assert joined(last) == REPLY
    counters = sim.stack.counters
    assert (counters["ip.received"], counters["ip.fragments"], counters["ip.reassembled"]) == (4, 4, 1)
    assert sim.drops() == {"icmp.echo_replies": 1}
    assert sim.stack._reassembler.held_bytes == 0


def part(
    start: int, size: int, *, mf: bool = True, ident: int = 7, fill: bytes = b"a", src: str = CLIENT
) -> bytes:
    return ipv4(fill * size, src=src, dst=SERVER, proto=17, ident=ident, df=False, mf=mf, frag_offset=start)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (part(0, 24), part(16, 24)),
        (part(16, 24), part(0, 24)),
        (part(0, 32), part(8, 8)),
        (part(8, 8), part(0, 32)),
        (part(8, 24, mf=False), part(16, 8)),
        (part(24, 8), part(8, 12, mf=False)),  # ends before what is already here
        (part(8, 16, mf=False), part(24, 8)),  # beyond the end
        (part(8, 16, mf=False), part(32, 16, mf=False)),  # two ends
        (part(8, 16), part(8, 16, mf=False)),  # same bytes, another meaning
        (part(8, 16, mf=False), part(8, 16)),
    ],
)
def test_overlap_condemns_the_datagram(first: bytes, second: bytes):
    sim = Sim()
    assert sim.receive(first) == []
    assert sim.receive(second) == []
    assert sim.drops() == {"ip.fragment_overlap": 1}
    assert sim.stack._reassembler.held_bytes <= FRAGMENT_OVERHEAD


def test_fragments_after_an_overlap_are_dropped_until_the_timeout():
    sim, pieces = Sim(), fragments(BIG, 800)
    sim.receive(pieces[0])
    sim.receive(ipv4(bytes(800), src=CLIENT, dst=SERVER, proto=1, df=False, mf=True, frag_offset=400))
    assert [reply for piece in pieces for reply in sim.receive(piece)] == []
    assert sim.drops() == {"ip.fragment_overlap": 5}
    assert sim.advance(30 * SECOND) == []
    assert sim.stack.next_timeout() is None
    assert joined([reply for piece in pieces for reply in sim.receive(piece)]) == REPLY


def test_exact_duplicates_are_harmless():
    sim, pieces = Sim(), fragments(BIG, 800)
    sent = [sim.receive(piece) for piece in (pieces[0], pieces[0], pieces[3], pieces[3], *pieces[1:3])]
    assert joined(sent[-1]) == REPLY
    assert sim.drops() == {"ip.fragment_duplicate": 2, "icmp.echo_replies": 1}


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (part(0, 20), "ip.bad_fragment"),
        (part(0, 0), "ip.bad_fragment"),
        (part(8, 0, mf=False), "ip.bad_fragment"),
        (part(65_528, 8, mf=False), "ip.fragment_too_long"),
        (part(65_512, 8), "ip.fragment_too_long"),
    ],
)
def test_impossible_fragments(packet: bytes, reason: str):
    sim = Sim()
    assert sim.receive(packet) == []
    assert sim.drops() == {reason: 1}
    assert len(sim.stack._reassembler) == 0


def test_the_largest_datagram():
    sim = Sim()
    socket = sim.stack.udp_bind(Endpoint(0, 53))
    for piece in fragments(udp(b"z" * 65_507), 1424):
        assert sim.receive(piece) == []
    datagram = socket.receive()
    assert datagram is not None
    assert bytes(datagram.payload) == b"z" * 65_507


@pytest.mark.parametrize("csum_ok", [False, True])
def test_nobody_vouches_for_the_checksum_of_fragments(csum_ok: bool):
    sim = Sim()
    sim.stack.udp_bind(Endpoint(0, 53))
    pieces = fragments(udp(bytes(2000), checksum=0xBAD), 800)
    assert [reply for piece in pieces for reply in sim.receive(piece, csum_ok=csum_ok)] == []
    assert sim.drops() == {"udp.bad_checksum": 1}


def test_fragments_of_a_tcp_segment_reach_tcp():
    sim, syn = Sim(), tcp(bytes(64), src=CLIENT, dst=SERVER, flags="S", dport=9)
    whole = Sim().receive(syn)
    assert len(whole) == 1  # RST: nobody listens
    assert [p[20:] for piece in fragments(syn, 24) for p in sim.receive(piece)] == [whole[0][20:]]


class TestTimeout:
    def test_time_exceeded_if_the_first_fragment_is_here(self):
        sim, pieces = Sim(), fragments(BIG, 800)
        sim.receive(pieces[0])
        sim.receive(pieces[2])
        assert sim.stack.next_timeout() == sim.now + 30 * SECOND
        assert sim.advance(30 * SECOND - 1) == []
        (error,) = sim.advance(1)
        assert error[20:] == icmp(pieces[0][:548], type=11, code=1)[20:]
        assert len(error) == 576
        assert sim.drops() == {"ip.reassembly_timeout": 1, "icmp.errors_sent": 1}
        assert sim.stack._reassembler.held_bytes == 0

    def test_silence_without_it(self):
        sim, pieces = Sim(), fragments(BIG, 800)
        sim.receive(pieces[1])
        assert sim.advance(31 * SECOND) == []
        assert sim.drops() == {"ip.reassembly_timeout": 1}

    def test_silence_about_an_icmp_error(self):
        sim = Sim()
        sim.receive(fragments(icmp(bytes(1000), type=3, code=3), 400)[0])
        assert sim.advance(31 * SECOND) == []
        assert sim.drops() == {"ip.reassembly_timeout": 1, "icmp.error_about_error": 1}

    def test_a_late_timer_does_not_join_old_and_new(self):
        sim, pieces = Sim(), fragments(BIG, 1600)
        sim.stack.receive(pieces[0], "pod-a", sim.now)
        sim.now += 30 * SECOND
        assert sim.receive(pieces[1]) == []
        assert sim.drops() == {"ip.reassembly_timeout": 1}
        assert sim.stack.next_timeout() == sim.now + 30 * SECOND
        assert joined(sim.receive(pieces[0])) == REPLY
        assert sim.stack._reassembler.held_bytes == 0

    def test_later_fragments_do_not_prolong(self):
        sim, pieces = Sim(), fragments(BIG, 800)
        sim.receive(pieces[0])
        sim.advance(29 * SECOND)
        sim.receive(pieces[1])
        assert len(sim.advance(1 * SECOND)) == 1


def test_paths_never_mix():
    sim, (head, tail) = Sim(), fragments(BIG, 1600)
    assert sim.receive(head, "pod-a") == []
    assert sim.receive(tail, "pod-b") == []
    assert joined(sim.receive(tail, "pod-a")) == REPLY


@pytest.mark.parametrize("change", [{"src": "10.0.0.9"}, {"ident": 8}])
def test_names_never_mix(change: dict[str, object]):
    sim = Sim()
    sim.receive(part(0, 16))
    sim.receive(part(16, 16, mf=False, **change))
    assert "udp.closed_port" not in sim.drops()
    sim.receive(part(16, 16, mf=False))
    assert sim.drops().keys() & {"udp.closed_port", "udp.bad_length"}


class TestLimits:
    def test_bytes(self):
        sim = Sim(limits=Limits(fragment_bytes=16_384))
        for ident in range(1000):
            sim.receive(part(0, 800, ident=ident))
            assert sim.stack._reassembler.held_bytes <= 16_384
        assert sim.drops() == {"ip.fragment_limit": 1000 - len(sim.stack._reassembler)}

    def test_exactly_the_limit_fits_and_a_byte_more_does_not(self):
        cost = 2 * FRAGMENT_OVERHEAD + len(part(0, 80))  # of a datagram with one fragment
        for limit, kept in ((2 * cost, 2), (2 * cost - 1, 1)):
            sim = Sim(limits=Limits(fragment_bytes=limit))
            sim.receive(part(0, 80, ident=1))
            sim.receive(part(0, 80, ident=2))
            assert len(sim.stack._reassembler) == kept

    def test_a_large_one_pushes_out_as_many_as_it_takes(self):
        sim = Sim(limits=Limits(fragment_bytes=16_384))
        for ident in range(28):
            sim.receive(part(0, 8, ident=ident))
        sim.receive(part(0, 8_000, ident=99))
        assert sim.stack._reassembler.held_bytes <= 16_384
        assert len(sim.stack._reassembler) < 20

    def test_tiny_fragments_are_charged_for_what_they_cost(self):
        sim = Sim(limits=Limits(fragment_bytes=16_384))
        for place in range(1, 1000):
            sim.receive(part(place * 16, 8))
        assert sum(len(d.fragments) for d in sim.stack._reassembler.datagrams.values()) < 16_384 / 256

    def test_datagrams(self):
        sim = Sim(limits=Limits(fragment_datagrams=10))
        for ident in range(100):
            sim.receive(part(0, 8, ident=ident))
        assert len(sim.stack._reassembler) == 10

    def test_one_path_cannot_push_out_another(self):
        sim, (head, tail) = Sim(limits=Limits(fragment_datagrams=10)), fragments(BIG, 1600)
        sim.receive(head, "pod-a")
        for ident in range(100):
            sim.receive(part(0, 8, ident=ident), "pod-b")
        assert joined(sim.receive(tail, "pod-a")) == REPLY

    @pytest.mark.parametrize("limits", [Limits(fragment_bytes=0), Limits(fragment_datagrams=0)])
    def test_nothing_allowed_is_nothing_kept(self, limits: Limits):
        sim = Sim(limits=limits)
        sim.receive(part(0, 8))
        assert (len(sim.stack._reassembler), sim.stack._reassembler.held_bytes) == (0, 0)
        assert sim.drops() == {"ip.fragment_limit": 1}

    def test_removing_the_address_frees_them(self):
        sim = Sim()
        sim.receive(part(0, 8))
        sim.stack.remove_address(parse(part(0, 8))[0].dst, sim.now)
        assert (len(sim.stack._reassembler), sim.stack._reassembler.held_bytes) == (0, 0)
        assert sim.stack.next_timeout() is None


@given(st.data(), st.binary(min_size=50, max_size=400))
def test_any_cutting_any_order(data: st.DataObject, payload: bytes):
    cuts = sorted(data.draw(st.sets(st.integers(1, (len(payload) + 7) // 8), max_size=6)))
    bounds = [0, *(cut * 8 for cut in cuts), len(payload) + 8]
    bounds = sorted({min(bound, len(payload) + 8) for bound in bounds})
    datagram = udp(payload, src=CLIENT, dst=SERVER)[20:]
    pieces = [
        ipv4(datagram[a:b], src=CLIENT, dst=SERVER, proto=17, df=False, mf=b < len(datagram), frag_offset=a)
        for a, b in pairwise(bounds)
    ]
    sim = Sim()
    socket = sim.stack.udp_bind(Endpoint(0, 53))
    for piece in data.draw(st.permutations(pieces)):
        assert socket.receive() is None
        sim.receive(piece)
    got = socket.receive()
    assert got is not None
    assert bytes(got.payload) == payload


STREAM = bytes(range(1, 129))
KEY = {"src": CLIENT, "dst": SERVER, "proto": 99, "df": False}


class ReassemblerMachine(RuleBasedStateMachine):
    """Any fragments of truth and lies: what comes out was said without contradiction; memory is bounded."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(fragment_bytes=4_096, fragment_datagrams=3)
        self.reassembler = Reassembler(self.limits, Counters())
        self.now = 0
        self.said: dict[tuple[int, str], list[tuple[int, int, bool, bytes]]] = {}

    @rule(
        ident=st.integers(0, 4),
        path=st.sampled_from("ab"),
        start=st.integers(0, 15),
        size=st.integers(0, 33),
        mf=st.booleans(),
        shift=st.sampled_from([0, 0, 0, 1]),
    )
    def fragment(self, ident: int, path: str, start: int, size: int, mf: bool, shift: int) -> None:
        data = STREAM[start * 8 + shift : start * 8 + shift + size]
        packet = ipv4(data, ident=ident, mf=mf, frag_offset=start * 8, **KEY)
        if not mf and not start:
            return  # a whole datagram never gets here
        header, payload = parse(packet)
        said = self.said.setdefault((ident, path), [])
        said.append((start * 8, start * 8 + len(data), mf, data))
        whole = self.reassembler.receive(header, payload, packet, path, self.now)
        if whole is not None:
            self.check(said, bytes(parse(whole)[1]))
            del self.said[ident, path]

    def check(self, said: list[tuple[int, int, bool, bytes]], got: bytes) -> None:
        assert any(not mf and end == len(got) for _, end, mf, _ in said)
        for at in range(0, len(got), 8):
            assert any(start <= at < end and data[at - start : at - start + 8] == got[at : min(at + 8, end)]
                       for start, end, _, data in said)  # fmt: skip

    @rule(step=st.sampled_from([MILLISECOND, 10 * SECOND, 31 * SECOND]))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.reassembler.expire(self.now)

    @invariant()
    def stays_within_its_limits(self) -> None:
        held = self.reassembler.datagrams.values()
        assert self.reassembler.held_bytes == sum(d.charge for d in held) <= self.limits.fragment_bytes
        assert len(held) <= self.limits.fragment_datagrams
        assert sum(map(len, self.reassembler._of_path.values())) == len(held)

    @invariant()
    def keeps_nothing_past_its_time(self) -> None:
        due = self.reassembler.next_timeout()
        assert due is None or self.now < due <= self.now + self.limits.fragment_timeout


TestReassemblerMachine = ReassemblerMachine.TestCase
