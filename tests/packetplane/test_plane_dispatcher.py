"""Frames to stacks, without a kernel: any bytes, and who gets what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.model.ids import Mac, TenantId
from juneau.netstack.types import Buffer, Micros, Path
from juneau.netstack.wire import vnet
from juneau.packetplane import Nic, ReturnPath
from juneau.packetplane.bpf.abi import STAMP_TAG, Stamp
from juneau.packetplane.dispatcher import Dispatcher

PACKET = bytes.fromhex("4500001c000040004011") + bytes(18)
ONE, OTHER = TenantId(1, 1), TenantId(2, 0x10001)


class FakeStack:
    def __init__(self) -> None:
        self.got: list[tuple[bytes, Path, bool]] = []
        self.settled = 0

    def receive(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None:
        self.got.append((bytes(packet), path, csum_ok))

    def settle(self) -> None:
        self.settled += 1


class BrokenStack(FakeStack):
    def receive(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None:
        raise RuntimeError("a bug")


def path_of(tenant: TenantId, ifindex: int) -> ReturnPath:
    mac = Mac(b"\x02\0\0\0\0\x05")
    return ReturnPath(Nic(ifindex, f"veth{ifindex}", tenant, IPv4Address("10.80.0.10"), mac))


def frame(
    tenant: TenantId,
    ifindex: int,
    *,
    head: bytes = vnet.PLAIN,
    packet: bytes = PACKET,
    tag: int = STAMP_TAG,
    ethertype: int = 0x0800,
) -> bytes:
    stamp = Stamp(tag, tenant.subnet_id, STAMP_TAG, ifindex).pack()
    return head + stamp + ethertype.to_bytes(2, "big") + packet


def feed(dispatcher: Dispatcher, *frames: bytes, budget: int = 64) -> int:
    left: Iterator[bytes] = iter(frames)

    return dispatcher.read_batch(lambda: next(left, None), budget)


class Room:
    """A dispatcher over two tenants' stacks; NIC 5 is `ONE`'s, 6 is `OTHER`'s."""

    def __init__(self, *, vnet_header: bool = True, quick_us: int = 0) -> None:
        self.counters: Counter[str] = Counter()
        self.stacks: dict[int, FakeStack] = {1: FakeStack(), 2: FakeStack()}
        self.dispatcher = Dispatcher(
            self.stacks.get, self.counters, vnet_header=vnet_header, quick_us=quick_us
        )
        self.paths = {5: path_of(ONE, 5), 6: path_of(OTHER, 6)}
        self.dispatcher.paths = self.paths


@pytest.fixture
def room() -> Room:
    return Room()


def test_the_stamp_names_stack_and_way_back(room: Room) -> None:
    feed(room.dispatcher, frame(ONE, 5), frame(OTHER, 6))
    assert room.stacks[1].got == [(PACKET, room.paths[5], False)]
    assert room.stacks[2].got == [(PACKET, room.paths[6], False)]
    assert not room.counters


def test_each_stack_touched_settles_once_per_batch(room: Room) -> None:
    assert feed(room.dispatcher, *[frame(ONE, 5)] * 5) == 5
    assert (room.stacks[1].settled, room.stacks[2].settled) == (1, 0)


def test_a_batch_ends_at_its_budget(room: Room) -> None:
    assert feed(room.dispatcher, *[frame(ONE, 5)] * 5, budget=3) == 3
    assert len(room.stacks[1].got) == 3


@pytest.mark.parametrize(
    ("head", "csum_ok"),
    [
        (vnet.PLAIN, False),
        (bytes([vnet.F_NEEDS_CSUM]) + bytes(9), True),
        (bytes([vnet.F_DATA_VALID]) + bytes(9), True),
        (vnet.HEADER.pack(1, vnet.GSO_TCPV4, 54, 1400, 34, 16), True),
        (bytes([1, vnet.GSO_TCPV4 | vnet.GSO_ECN]) + bytes(8), True),
    ],
)
def test_the_vnet_header_vouches_for_checksums(room: Room, head: bytes, csum_ok: bool) -> None:
    feed(room.dispatcher, frame(ONE, 5, head=head))
    assert [ok for _, _, ok in room.stacks[1].got] == [csum_ok]


def test_without_vnet_header_the_stack_verifies() -> None:
    room = Room(vnet_header=False)
    feed(room.dispatcher, frame(ONE, 5, head=b""))
    assert room.stacks[1].got == [(PACKET, room.paths[5], False)]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "rx.short"),
        (frame(ONE, 5)[: 10 + 14 + 19], "rx.short"),
        (frame(ONE, 5, tag=0x3333), "rx.no_stamp"),
        (frame(ONE, 5, ethertype=0x86DD), "rx.not_ip"),
        (frame(ONE, 7), "rx.unknown_nic"),
        (frame(OTHER, 5), "rx.wrong_subnet"),
        (frame(TenantId(1, 0x10001), 5), "rx.wrong_subnet"),
        (frame(TenantId(2, 1), 6), "rx.wrong_subnet"),
        (frame(ONE, 5, head=bytes([1, 4]) + bytes(8)), "rx.gso_kind"),
        (frame(ONE, 5, head=bytes([1, vnet.GSO_UDP_L4]) + bytes(8)), "rx.gso_kind"),
    ],
)
def test_every_drop_is_counted_under_its_reason(room: Room, raw: bytes, reason: str) -> None:
    feed(room.dispatcher, raw)
    assert room.counters == {reason: 1}
    assert room.stacks[1].got == room.stacks[2].got == []


def test_a_tap_sees_drops_and_nothing_else(room: Room) -> None:
    seen: list[tuple[str, bytes, str | None]] = []
    room.dispatcher.tap = lambda way, pieces, path, now, why: seen.append((way, b"".join(pieces), why))
    lost = frame(ONE, 7)
    feed(room.dispatcher, frame(ONE, 5), lost, b"")
    assert seen == [("in", lost[vnet.HEADER_BYTES :], "rx.unknown_nic"), ("in", b"", "rx.short")]


def test_no_stack_is_a_counted_drop(room: Room) -> None:
    del room.stacks[1]
    feed(room.dispatcher, frame(ONE, 5))
    assert room.counters == {"rx.no_stack": 1}


def test_a_stack_that_raises_harms_no_other(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.stacks[1] = BrokenStack()
    feed(room.dispatcher, frame(ONE, 5), frame(OTHER, 6))
    assert room.counters == {"rx.stack_error": 1}
    assert len(room.stacks[2].got) == room.stacks[2].settled == 1
    assert "vpc 1" in caplog.text


def test_what_came_before_a_read_error_is_delivered(room: Room) -> None:
    frames = [frame(ONE, 5)]

    def read() -> bytes:
        if frames:
            return frames.pop()
        raise OSError(77, "File descriptor in bad state")

    with pytest.raises(OSError, match="bad state"):
        room.dispatcher.read_batch(read, 64)
    assert len(room.stacks[1].got) == room.stacks[1].settled == 1


@pytest.mark.parametrize(("us_a_frame", "taken"), [(0, 12), (34, 6), (67, 3)])
def test_a_quick_batch_is_prolonged(monkeypatch: pytest.MonkeyPatch, us_a_frame: int, taken: int) -> None:
    room, now, left = Room(quick_us=200), 0, [frame(ONE, 5)] * 20

    def read() -> bytes:
        nonlocal now
        now += us_a_frame
        return left.pop()

    monkeypatch.setattr("juneau.packetplane.dispatcher.monotonic_us", lambda: now)
    assert room.dispatcher.read_batch(read, 3) == taken
    assert room.stacks[1].settled == 1


def test_superframes_use_the_budget_up_sooner(room: Room) -> None:
    large = frame(ONE, 5, packet=PACKET + bytes(60_000))
    assert feed(room.dispatcher, *[large] * 20, budget=16) == 4
    assert feed(room.dispatcher, *[frame(ONE, 5)] * 20, budget=16) == 16


@given(st.lists(st.binary(max_size=80)), st.booleans())
def test_any_bytes_are_delivered_or_counted(frames: list[bytes], with_header: bool) -> None:
    room = Room(vnet_header=with_header)
    assert feed(room.dispatcher, *frames) == min(len(frames), 64)
    delivered = len(room.stacks[1].got) + len(room.stacks[2].got)
    assert delivered + room.counters.total() == min(len(frames), 64)


@given(st.binary(min_size=20, max_size=200), st.integers(0, 255), st.integers(0, 255), st.integers(0, 0xFFFF))
def test_any_packet_and_vnet_header_behind_a_good_stamp(
    packet: bytes, flags: int, kind: int, size: int
) -> None:
    room = Room()
    head = pack("=BBHHHH", flags, kind, 0, size, 0, 0)
    feed(room.dispatcher, frame(ONE, 5, head=head, packet=packet))
    assert bool(room.stacks[1].got) != bool(room.counters)
    assert not room.counters.keys() - {"rx.gso_kind"}
