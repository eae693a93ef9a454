"""Answers to one client leave as one superframe; the link cuts it, here as `uso` cuts what Pods send."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ip_sim import ME, PEER, Sim
from scapy.layers.inet import IP, UDP

from juneau.netstack.limits import Limits
from juneau.netstack.output import MAX_BUNDLE
from juneau.netstack.tap import complete_pieces
from juneau.netstack.types import Endpoint, Link, TxPacket
from juneau.netstack.wire.checksum import checksum
from juneau.packetplane import uso

DNS = Endpoint(ME, 53)
PODS = [Endpoint(PEER, 40_000), Endpoint(PEER, 40_001), Endpoint(PEER + 1, 40_000)]
OFFLOAD = Link(checksum_offload=True, uso=True)


def sending(
    *payloads: bytes, link: Link = OFFLOAD, limits: Limits | None = None, unordered: bool = False
) -> list[TxPacket]:
    sim = Sim(link=link, limits=limits)
    socket = sim.stack.udp_bind(DNS)
    socket.unordered = unordered
    for payload in payloads:
        socket.send(payload, PODS[0], "pod-a")
    return sim.stack.take_packets(sim.now)


def cut(packet: TxPacket) -> list[bytes]:
    """The datagrams of a packet, as complete IPv4 packets."""
    if not packet.gso_size:
        return [b"".join(complete_pieces(packet))]
    pieces = uso.split(memoryview(packet.to_bytes()), packet.gso_size)
    assert pieces is not None
    return pieces


SENDS = st.tuples(st.sampled_from(PODS), st.sampled_from("ab"), st.sampled_from([0, 1, 7, 8, 1422, 1423]))


Flow: TypeAlias = tuple[Endpoint, object]


def exchanged(
    sends: list[tuple[Endpoint, str, int]], budget: int, *, unordered: Sequence[bool]
) -> tuple[dict[Flow, list[bytes]], dict[Flow, list[bytes]]]:
    """What was sent to each flow, without what went in fragments, and what came out, each looked at."""
    sim = Sim(link=OFFLOAD)
    socket = sim.stack.udp_bind(DNS)
    wanted, got = defaultdict(list), defaultdict(list)
    for number, (pod, path, size) in enumerate(sends):
        payload = bytes([number & 0xFF]) * size
        socket.unordered = unordered[number % len(unordered)]
        socket.send(payload, pod, path)
        if size <= 1422:  # in fragments: another way
            wanted[pod, path].append(payload)
    while packets := sim.stack.take_packets(sim.now, budget):
        assert len(packets) <= budget
        for packet in packets:
            assert len(packet.to_bytes()) <= OFFLOAD.max_superframe
            assert len(packet.payload) <= MAX_BUNDLE
            for piece in cut(packet):
                parsed = IP(piece)
                if parsed.flags.MF or parsed.frag:
                    continue
                size = parsed[UDP].len - 8
                assert parsed.len == 28 + size == len(piece)
                assert checksum(piece[:20]) == 0
                pod = Endpoint(int.from_bytes(piece[16:20], "big"), parsed.dport)
                got[pod, packet.path].append(piece[28:])
    assert (sim.stack._output.queued_bytes, sim.stack._output._datagrams) == (0, 0)
    return wanted, got


@given(st.lists(SENDS), st.integers(2, 64))
def test_every_flow_gets_its_datagrams_in_order(sends: list[tuple[Endpoint, str, int]], budget: int) -> None:
    wanted, got = exchanged(sends, budget, unordered=[False])
    assert got == wanted


@given(st.lists(SENDS, max_size=200), st.integers(2, 64), st.sampled_from([[True], [True, True, False]]))
def test_every_flow_gets_its_datagrams_in_any_order(
    sends: list[tuple[Endpoint, str, int]], budget: int, unordered: list[bool]
) -> None:
    wanted, got = exchanged(sends, budget, unordered=unordered)
    assert {flow: Counter(sent) for flow, sent in got.items()} == {
        flow: Counter(sent) for flow, sent in wanted.items()
    }


@given(st.lists(st.integers(1, 12), min_size=1, max_size=MAX_BUNDLE))
def test_without_order_there_are_no_more_superframes_than_lengths(sizes: list[int]) -> None:
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    packets = sending(*payloads, unordered=True)
    assert len(packets) <= len(set(sizes))
    assert sorted(piece for packet in packets for piece in packet.payload) == sorted(payloads)


def test_without_order_the_shortest_ends_the_longest() -> None:
    packets = sending(b"bb", b"aaa", b"b2", b"a2a", b"c", unordered=True)
    assert [(packet.gso_size, packet.payload) for packet in packets] == [
        (3, (b"aaa", b"a2a", b"c")),
        (2, (b"bb", b"b2")),
    ]


def test_without_order_idents_and_limits_are_as_with_it() -> None:
    packets = sending(
        *(b"x" * (1 + n % 3) for n in range(25)), limits=Limits(output_packets=10), unordered=True
    )
    idents = [int.from_bytes(piece[4:6], "big") for packet in packets for piece in cut(packet)]
    assert idents == [(idents[0] + n) & 0xFFFF for n in range(10)]
    room = 5 * (28 + 3)
    packets = sending(*(b"x" * 3 for _ in range(25)), limits=Limits(output_bytes=room), unordered=True)
    assert sum(len(packet.payload) for packet in packets) == 5


def test_what_is_cut_and_not_yet_taken_keeps_its_place() -> None:
    sim = Sim(link=OFFLOAD)
    socket = sim.stack.udp_bind(DNS)
    socket.unordered = True
    for size in (1, 2, 3, 4):
        socket.send(bytes(size), PODS[0], "pod-a")
    socket.send(b"later", PODS[1], "pod-a")
    taken = [packet.payload for _ in range(3) for packet in sim.stack._output.take(1)]
    assert taken == [(bytes(4), bytes(1)), (bytes(3), bytes(2)), (b"later",)]


def test_equal_sizes_share_a_superframe_and_a_shorter_one_ends_it() -> None:
    packets = sending(b"aaaa", b"bbbb", b"cc", b"dd", b"eeee")
    assert [(packet.gso_size, packet.payload) for packet in packets] == [
        (4, (b"aaaa", b"bbbb", b"cc")),
        (0, (b"dd",)),
        (0, (b"eeee",)),
    ]


def test_an_empty_datagram_is_no_part_of_a_superframe() -> None:
    packets = sending(b"aa", b"", b"bb", b"cc")
    assert [packet.payload for packet in packets] == [(b"aa",), (), (b"bb", b"cc")]


def test_one_is_no_superframe() -> None:
    (packet,) = sending(b"alone")
    assert packet.gso_size == 0
    assert b"".join(complete_pieces(packet)) == b"".join(complete_pieces(sending(b"alone", link=Link())[0]))


@pytest.mark.parametrize("link", [Link(), Link(checksum_offload=True, tso=True)])
def test_a_link_that_cannot_cut_gets_datagrams(link: Link) -> None:
    assert [packet.payload for packet in sending(b"aa", b"bb", link=link)] == [(b"aa",), (b"bb",)]


def test_idents_differ_across_superframes() -> None:
    packets = sending(b"aa", b"bb", b"c", b"dd", b"ee")
    idents = [int.from_bytes(piece[4:6], "big") for packet in packets for piece in cut(packet)]
    assert idents == [(idents[0] + n) & 0xFFFF for n in range(5)]


@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize(("size", "most"), [(2, MAX_BUNDLE), (1_422, 46)])
def test_a_superframe_is_bounded(size: int, most: int, unordered: bool) -> None:
    packets = sending(*(bytes(size) for _ in range(2 * MAX_BUNDLE)), unordered=unordered)
    assert len(packets[0].payload) == most
    assert all(len(packet.to_bytes()) <= 65_535 for packet in packets)


def test_the_output_limit_counts_datagrams() -> None:
    packets = sending(*(b"x" for _ in range(25)), limits=Limits(output_packets=10))
    assert [len(packet.payload) for packet in packets] == [10]


def test_what_was_taken_does_not_grow() -> None:
    sim = Sim(link=OFFLOAD)
    socket = sim.stack.udp_bind(DNS)
    for payload in (b"aa", b"bb"):
        socket.send(payload, PODS[0], "pod-a")
        (packet,) = sim.stack.take_packets(sim.now)
        assert packet.payload == (payload,)


@pytest.mark.parametrize("unordered", [False, True])
def test_a_capture_sees_datagrams(unordered: bool) -> None:
    sim = Sim(link=OFFLOAD)
    seen = []
    sim.stack.tap = lambda direction, pieces, path, now, reason: seen.append(b"".join(pieces)[28:])
    socket = sim.stack.udp_bind(DNS)
    socket.unordered = unordered
    for payload in (b"aa", b"bb"):
        socket.send(payload, PODS[0], "pod-a")
    sim.stack.take_packets(sim.now)
    assert seen == [b"aa", b"bb"]
