"""The simulated wire keeps its promises, and keeps them the same way every time."""

from __future__ import annotations

import pytest

from juneau.netstack.types import MILLISECOND, SECOND, Misuse, TxPacket, parse_ip
from juneau.testing import packets
from juneau.testing.clock import VirtualClock
from juneau.testing.wire import Impairment, SimulatedWire

A, B = "10.0.0.1", "10.0.0.2"


class Line:
    """Two ends, and what arrived at `b` when."""

    def __init__(self, impairment: Impairment, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.wire = SimulatedWire(self.clock, seed=seed, impairment=impairment)
        self.got: list[tuple[int, bytes]] = []
        self.vouched: list[bool] = []
        for name, receive in (("a", lambda *_: None), ("b", self._receive)):
            self.wire.attach(name, receive)
        self.wire.add_address("a", parse_ip(A))
        self.wire.add_address("b", parse_ip(B))

    def _receive(self, packet: bytes, source: str, vouched: bool) -> None:
        assert source == "a"
        self.got.append((self.clock.now, packet))
        self.vouched.append(vouched)

    def send(self, count: int, size: int = 72) -> list[bytes]:
        sent = [packets.udp(n.to_bytes(4, "big") * (size // 4), src=A, dst=B, sport=n) for n in range(count)]
        for packet in sent:
            self.wire.send("a", packet)
        self.clock.advance(10 * SECOND)
        return sent

    @property
    def order(self) -> list[bytes]:
        return [packet for _, packet in self.got]


def test_a_perfect_wire_delivers_everything_at_once_and_in_order():
    line = Line(Impairment())
    assert line.send(20) == line.order
    assert {when for when, _ in line.got} == {0}


def test_delay_is_exact():
    line = Line(Impairment(delay=30 * MILLISECOND))
    line.send(1)
    assert line.got[0][0] == 30 * MILLISECOND


@pytest.mark.parametrize(("loss", "low", "high"), [(0.1, 50, 150), (0.5, 400, 600), (1.0, 1000, 1000)])
def test_loss_is_near_its_probability(loss: float, low: int, high: int):
    line = Line(Impairment(loss=loss))
    line.send(1000)
    assert low <= 1000 - len(line.got) <= high
    assert line.wire.fates.get("lost", 0) == 1000 - len(line.got)


def test_duplicates_come_twice():
    line = Line(Impairment(duplicate=1.0))
    sent = line.send(5)
    assert line.order == [packet for packet in sent for _ in range(2)]


def test_jitter_alone_keeps_the_order_and_reordering_does_not():
    line = Line(Impairment(jitter=5 * MILLISECOND))
    assert line.send(100) == line.order
    assert len({when for when, _ in line.got}) > 5
    line = Line(Impairment(reorder=0.2))
    sent = line.send(100)
    assert sent != line.order
    assert sorted(sent) == sorted(line.order)


def test_corruption_flips_one_bit():
    line = Line(Impairment(corrupt=1.0))
    (sent,) = line.send(1)
    ((_, got),) = line.got
    assert sum((a ^ b).bit_count() for a, b in zip(sent, got, strict=True)) == 1


def test_bandwidth_spaces_packets_and_the_queue_is_bounded():
    line = Line(Impairment(bandwidth=800_000, queue_bytes=1_000))  # 100 bytes take 1 ms
    line.send(100)
    times = [when for when, _ in line.got]
    assert times[:3] == [1 * MILLISECOND, 2 * MILLISECOND, 3 * MILLISECOND]
    assert len(times) == 10
    assert line.wire.fates["queue_full"] == 90


def test_directions_are_apart_and_a_partition_heals():
    line = Line(Impairment())
    line.wire.impair(Impairment(loss=1.0), source="b", target="a")
    assert len(line.send(1)) == len(line.got) == 1
    line.wire.partition("a", "b")
    line.send(1)
    assert (len(line.got), line.wire.fates["down"]) == (1, 1)
    line.wire.heal("a", "b")
    line.send(1)
    assert len(line.got) == 2


def test_a_detached_end_hears_nothing():
    line = Line(Impairment(delay=1))
    line.wire.send("a", packets.udp(src=A, dst=B))
    line.wire.detach("b")
    line.send(1)
    assert line.got == []
    assert line.wire.fates["no_route"] == 1


def test_names_and_addresses_belong_to_one_end():
    line = Line(Impairment())
    with pytest.raises(Misuse):
        line.wire.attach("a", lambda *_: None)
    with pytest.raises(Misuse):
        line.wire.add_address("b", parse_ip(A))


def test_the_same_seed_gives_the_same_fates():
    rough = Impairment(loss=0.1, jitter=900, duplicate=0.1, reorder=0.1, corrupt=0.1, bandwidth=10**6)
    one, two, other = (Line(rough, seed=seed) for seed in (7, 7, 8))
    for line in (one, two, other):
        line.wire.log = []
        line.send(200)
    assert one.got == two.got
    assert one.wire.log == two.wire.log
    assert one.got != other.got


def _partial(payload: bytes, gso_size: int = 0) -> TxPacket:
    """A TCP packet as a stack leaves it for an offloading link: pseudo-header sum only."""
    whole = packets.tcp(payload, src=A, dst=B, flags="PA", seq=2**32 - 100)
    pseudo = packets.internet_checksum(packets.pseudo_header(A, B, packets.TCP, len(whole) - 20)) ^ 0xFFFF
    header = whole[:36] + pseudo.to_bytes(2, "big") + whole[38:40]
    return TxPacket("p", header, (payload,), gso_size, csum_start=20, csum_offset=16)


def test_a_partial_checksum_is_vouched_for_unless_the_wire_damages_the_packet():
    line = Line(Impairment())
    line.wire.send_tx("a", _partial(b"hello"))
    line.clock.advance(0)
    assert line.vouched == [True]
    line.wire.impair(Impairment(corrupt=1.0), source="a", target="b")
    line.wire.send_tx("a", _partial(b"hello"))
    line.clock.advance(0)
    assert line.vouched == [True, False]
    seen = packets.decode(line.got[1][1]) if line.got[1][1][0] == 0x45 else None
    assert seen is None or not (seen.ip.checksum_ok and seen.l4_checksum_ok)


def test_a_superframe_is_cut_as_a_card_does():
    line = Line(Impairment())
    payload = bytes(range(250))
    line.wire.send_tx("a", _partial(payload, gso_size=100), cut=True)
    line.clock.advance(0)
    seen = [packets.decode(packet) for packet in line.order]
    assert line.vouched == [False] * 3
    assert all(p.l4_checksum_ok and p.ip.checksum_ok for p in seen)
    assert [p.tcp.payload for p in seen if p.tcp] == [payload[:100], payload[100:200], payload[200:]]
    assert [p.tcp.seq for p in seen if p.tcp] == [2**32 - 100, 0, 100]
    assert [p.tcp.flag_text for p in seen if p.tcp] == ["A", "A", "PA"]
