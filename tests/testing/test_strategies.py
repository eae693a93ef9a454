"""The strategies draw what they promise, and the stack stands whatever they draw."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from juneau.netstack.limits import Limits
from juneau.netstack.stack import Stack
from juneau.netstack.types import SECOND, Endpoint, parse_ip
from juneau.testing import packets, strategies
from juneau.testing.machine import TwoStacks
from juneau.testing.packets import to_wire
from juneau.testing.strategies import Abort, Shutdown

SERVER, PEER = "10.0.0.1", "10.0.0.2"

TestTwoStacks = TwoStacks.TestCase
TestTwoStacks.settings = settings(stateful_step_count=20, deadline=None)


@given(strategies.any_packets(src=PEER, dst=SERVER))
def test_drawn_packets_are_sound(raw: bytes):
    head, body = packets.Ipv4.decode(raw), raw[20:]
    pseudo = (
        b""
        if head.proto == packets.ICMP
        else packets.pseudo_header(head.src, head.dst, head.proto, len(body))
    )
    assert (head.checksum_ok, head.total_length) == (True, len(raw))
    assert packets.internet_checksum(pseudo + body) == 0


@given(strategies.tcp_packets(dport=80, flags="S"))
def test_fixed_fields_stay(raw: bytes):
    assert int.from_bytes(raw[22:24], "big") == 80
    assert raw[33] == 2


def test_the_strategies_reach_their_corners():
    def reaches(strategy: st.SearchStrategy[bytes], condition: object) -> bool:
        try:
            find(strategy, condition, settings=settings(max_examples=2_000, database=None))  # type: ignore[arg-type]
        except NoSuchExample:
            return False
        return True

    assert reaches(strategies.tcp_packets(), lambda raw: raw[33] & 0x3F == 0x3F)
    assert reaches(strategies.tcp_packets(), lambda raw: int.from_bytes(raw[24:28], "big") > 2**32 - 2_000)
    assert reaches(strategies.damaged(strategies.udp_packets()), lambda raw: len(raw) < 20)


@given(steps=strategies.conversations())
def test_conversations_end_once(steps: list[strategies.Step]):
    assert [isinstance(step, Shutdown | Abort) for step in steps] == [False] * (len(steps) - 1) + [True]


LIMITS = Limits(rcv_buffer=8_192, min_rcv_buffer=2_048, buffered_bytes=65_536, half_open=8, connections=16)
one = strategies.any_packets(src=PEER, dst=SERVER)
busy = strategies.tcp_packets(src=PEER, dst=SERVER, sport=7, dport=80)
trains = st.lists(
    st.one_of(
        one.map(lambda raw: [raw]),
        busy.map(lambda raw: [raw]),
        strategies.damaged(one).map(lambda raw: [raw]),
        strategies.fragmented(strategies.udp_packets(src=PEER, dst=SERVER)),
        st.binary(max_size=60).map(lambda raw: [raw]),
    ),
    max_size=30,
)


@given(trains, st.integers(0, 5 * SECOND))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_stack_survives_any_packets_and_answers_with_sound_ones(train: list[list[bytes]], gap: int):
    stack = Stack(limits=LIMITS, rng=Random(1), secret=bytes(16))
    stack.add_address(parse_ip(SERVER))
    stack.tcp_listen(Endpoint(parse_ip(SERVER), 80), backlog=2)
    stack.udp_bind(Endpoint(parse_ip(SERVER), 53))
    now = 1 * SECOND
    for pieces in train:
        for raw in pieces:
            stack.receive(raw, "path", now)
        for tx in stack.take_packets(now):
            for sent in to_wire(tx):
                seen = packets.decode(sent)
                assert seen.ip.checksum_ok
                assert seen.l4_checksum_ok
                assert len(sent) <= stack.link.mtu
        now += gap
        stack.handle_timeout(now)
    assert stack.tcp.half_open <= LIMITS.half_open
    assert stack.tcp.buffered <= LIMITS.buffered_bytes
