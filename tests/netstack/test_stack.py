"""The stack as a whole: it survives anything, serves fairly, says when it wants to be called."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ip_sim import CLIENT, ME, PEER, SERVER, Sim

from juneau.netstack.capture import Capture
from juneau.netstack.limits import Limits
from juneau.netstack.stack import Stack
from juneau.netstack.tap import Tap, complete_pieces
from juneau.netstack.types import SECOND, Endpoint, Link, TxPacket
from juneau.netstack.udp import UdpSocket
from juneau.netstack.wire import pcapng
from juneau.testing.packets import echo, fragments, icmp, internet_checksum, ipv4, tcp, udp

TO_US = {"src": CLIENT, "dst": SERVER}
FROM_US = {"src": SERVER, "dst": CLIENT}
QUERY = udp(b"query", dport=53, **TO_US)
VALID = [
    echo(b"ping", **TO_US),
    QUERY,
    udp(b"closed", dport=9, **TO_US),
    tcp(flags="S", dport=80, options=b"\x02\x04\x05\xb4\x01\x03\x03\x07\x04\x02\x08\x0a" + bytes(8), **TO_US),
    tcp(b"data", flags="PA", dport=80, seq=1, ack=1, **TO_US),
    tcp(flags="R", dport=81, **TO_US),
    icmp(tcp(sport=80, dport=40_000, **FROM_US), type=3, code=4, rest=1400, **TO_US),
    icmp(udp(sport=53, **FROM_US), type=3, code=3, **TO_US),
    ipv4(b"other", proto=99, options=b"\x94\x04\0\0", **TO_US),
    *fragments(udp(bytes(900), dport=53, **TO_US), 400),
]


def listening(sim: Sim) -> UdpSocket:
    sim.stack.tcp_listen(Endpoint(0, 80))
    return sim.stack.udp_bind(Endpoint(0, 53))


def resealed(packet: bytes) -> bytes:
    """With a right header checksum, if it looks like a header, so that the damage gets past it."""
    size = (packet[0] & 15) * 4 if packet else 0
    if not 20 <= size <= len(packet):
        return packet
    bare = packet[:10] + b"\0\0" + packet[12:]
    return bare[:10] + internet_checksum(bare[:size]).to_bytes(2, "big") + bare[12:]


def survives(sim: Sim, packet: bytes, csum_ok: bool) -> None:
    """Whatever comes, what leaves is well formed, and what goes nowhere is counted."""
    before = sim.stack.counters.snapshot()
    sent = sim.receive(packet, csum_ok=csum_ok)
    events = sim.stack.take_events()
    after = sim.stack.counters.snapshot()
    assert after["ip.received"] == before.get("ip.received", 0) + 1
    assert all(internet_checksum(reply[:20]) == 0 and len(reply) <= 1450 for reply in sent)
    changed = {name for name in after if after[name] != before.get(name, 0)}
    assert sent or events or changed - {"ip.received", "ip.sent"}


class TestAnyBytes:
    @given(st.lists(st.tuples(st.binary(max_size=120), st.booleans()), max_size=5))
    def test_at_all(self, packets: list[tuple[bytes, bool]]):
        sim = Sim()
        listening(sim)
        for packet, csum_ok in packets:
            survives(sim, packet, csum_ok)
        sim.advance(60 * SECOND)

    @given(st.integers(0, 255), st.binary(max_size=120), st.integers(5, 15), st.booleans())
    def test_behind_a_valid_header(self, proto: int, body: bytes, ihl: int, csum_ok: bool):
        sim = Sim()
        listening(sim)
        survives(sim, ipv4(body, proto=proto, options=bytes(ihl * 4 - 20), **TO_US), csum_ok)

    @settings(max_examples=300)
    @given(st.data())
    def test_valid_packets_damaged_anywhere(self, data: st.DataObject):
        sim = Sim()
        listening(sim)
        for _ in range(data.draw(st.integers(1, 4))):
            packet = bytearray(data.draw(st.sampled_from(VALID)))
            for _ in range(data.draw(st.integers(0, 3))):
                packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
            damaged = bytes(
                packet[: data.draw(st.integers(0, len(packet)))] if data.draw(st.booleans()) else packet
            )
            survives(sim, resealed(damaged), data.draw(st.booleans()))
        sim.advance(60 * SECOND)

    @pytest.mark.parametrize("kind", [memoryview, lambda packet: memoryview(bytearray(packet))[:]])
    def test_views_do_as_well_as_bytes(self, kind: type[memoryview]):
        for packet in VALID:
            assert Sim().receive(kind(packet)) == Sim().receive(packet)


class FakeTcp:
    """Always has more to send."""

    def __init__(self, backlog: int = 10_000) -> None:
        self.backlog = backlog
        self.due: int | None = None

    @property
    def wants_output(self) -> bool:
        return self.backlog > 0

    def take_packets(self, now: int, budget: int) -> list[TxPacket]:
        count = min(budget, self.backlog)
        self.backlog -= count
        return [TxPacket("tcp", b"")] * count

    def next_timeout(self) -> int | None:
        return self.due


@pytest.mark.interpreted
class TestBudget:
    def mixed(self, *, tcp_backlog: int, datagrams: int) -> Sim:
        sim = Sim()
        sim.stack.tcp = FakeTcp(tcp_backlog)  # type: ignore[assignment]
        socket = sim.stack.udp_bind(Endpoint(ME, 53))
        for _ in range(datagrams):
            socket.send(b"x", Endpoint(PEER, 9), "udp")
        return sim

    @pytest.mark.parametrize("budget", [1, 2, 7, 64])
    def test_half_each_when_both_want_more(self, budget: int):
        sim = self.mixed(tcp_backlog=10_000, datagrams=1_000)
        paths = [packet.path for _ in range(10) for packet in sim.stack.take_packets(sim.now, budget)]
        assert len(paths) == 10 * budget
        assert paths.count("udp") == paths.count("tcp")

    @pytest.mark.parametrize(("tcp_backlog", "datagrams"), [(100, 3), (3, 100), (0, 100), (100, 0), (2, 3)])
    def test_what_one_leaves_goes_to_the_other(self, tcp_backlog: int, datagrams: int):
        sim = self.mixed(tcp_backlog=tcp_backlog, datagrams=datagrams)
        assert len(sim.stack.take_packets(sim.now, 50)) == min(50, tcp_backlog + datagrams)

    def test_nothing_without_a_budget(self):
        assert self.mixed(tcp_backlog=5, datagrams=5).stack.take_packets(0, 0) == []


class TestNextTimeout:
    def test_none_when_idle(self):
        assert Sim().stack.next_timeout() is None

    def test_at_once_while_packets_wait(self):
        sim = Sim()
        for _ in range(70):
            sim.stack.receive(echo(**TO_US), "pod-a", sim.now)
        due = sim.stack.next_timeout()
        assert due is not None
        assert due <= sim.now
        assert len(sim.stack.take_packets(sim.now)) == 64
        due = sim.stack.next_timeout()
        assert due is not None
        assert due <= sim.now
        assert len(sim.stack.take_packets(sim.now)) == 6
        assert sim.stack.next_timeout() is None

    @pytest.mark.interpreted
    @pytest.mark.parametrize("tcp_after", [-1, 1])
    def test_the_earlier_of_tcp_and_reassembly(self, tcp_after: int):
        sim = Sim()
        sim.receive(VALID[-1])
        reassembly_due = sim.now + 30 * SECOND
        sim.stack.tcp = fake = FakeTcp(0)  # type: ignore[assignment]
        fake.due = reassembly_due + tcp_after
        assert sim.stack.next_timeout() == min(fake.due, reassembly_due)


class Seen:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, direction: str, pieces: tuple[bytes, ...], *rest: object) -> None:
        self.calls.append((direction, b"".join(pieces), *rest))


class TestTap:
    def tapped(self, **kw: object) -> tuple[Sim, Seen]:
        sim, seen = Sim(**kw), Seen()  # type: ignore[arg-type]
        sim.stack.tap = seen
        return sim, seen

    def test_in_and_out(self):
        sim, seen = self.tapped()
        (reply,) = sim.receive(VALID[0])
        assert seen.calls == [
            ("in", VALID[0], "pod-a", sim.now, None),
            ("out", reply, "pod-a", sim.now, None),
        ]

    @pytest.mark.parametrize(
        ("packet", "reason"),
        [
            (b"", "ip.bad_header"),
            (echo(dst="10.0.0.9"), "ip.not_ours"),
            (udp(b"x", dport=9, **TO_US), "udp.closed_port"),
            (udp(b"x", checksum=1, **TO_US), "udp.bad_checksum"),
            (icmp(b"x", checksum=1, **TO_US), "icmp.bad_checksum"),
        ],
    )
    def test_drops_say_why(self, packet: bytes, reason: str):
        sim, seen = self.tapped()
        sim.receive(packet)
        assert seen.calls[0] == ("in", packet, "pod-a", sim.now, reason)
        sim.receive(VALID[0])
        assert seen.calls[-2][-1] is None  # the reason is not remembered beyond its packet

    def test_drops_on_the_way_out(self):
        sim, seen = self.tapped(limits=Limits(output_packets=0))
        sim.receive(VALID[0])
        assert [(call[0], call[-1]) for call in seen.calls] == [("out", "ip.output_full"), ("in", None)]

    def test_captures_show_complete_checksums(self):
        sim, seen = self.tapped(link=Link(checksum_offload=True))
        sim.stack.udp_bind(Endpoint(ME, 53)).send(b"x", Endpoint(PEER, 9), "pod-a")
        (packet,) = sim.stack.take_packets(sim.now)
        assert packet.to_bytes() != seen.calls[0][1] == b"".join(complete_pieces(packet))

    def test_it_can_be_taken_off_again(self):
        sim, seen = self.tapped()
        sim.stack.tap = None
        sim.receive(VALID[0])
        assert seen.calls == []
        assert sim.stack.tap is None

    def test_a_capture_of_two_stacks(self, tmp_path: Path):
        file = tmp_path / "x.pcapng"
        with file.open("wb") as out:
            capture = Capture(out.write, epoch_offset=5 * SECOND, keep=lambda path: path != "pod-b")
            one, two = Sim(), Sim()
            one.stack.tap, two.stack.tap = capture.tap("vpc-a"), capture.tap("vpc-b")
            (reply,) = one.receive(VALID[0])
            one.receive(VALID[0], "pod-b")
            two.receive(echo(dst="10.0.0.9"))
        at = one.now + 5 * SECOND
        assert list(pcapng.read_packets(file.read_bytes())) == [
            ("vpc-a", at, VALID[0], pcapng.INBOUND, None),
            ("vpc-a", at, reply, pcapng.OUTBOUND, None),
            ("vpc-b", at, echo(dst="10.0.0.9"), pcapng.INBOUND, "dropped: ip.not_ours"),
        ]
        assert capture.packets == 3


def test_a_tap_is_a_property_of_one_stack():
    one, two = Sim(), Sim()
    tap: Tap = Seen()
    one.stack.tap = tap
    assert two.stack.tap is None
    assert isinstance(one.stack, Stack)
