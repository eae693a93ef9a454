"""From a Pod to a stack and back, with the Pods' own kernels as clients."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

import pytest
from frames import ethernet, ipv4, udp
from mini_tcp import MSS, MiniTcp
from plane_town import ONE, OTHER, Town
from plane_world import VIP_MAC, Pod, World, world

from juneau.model.ids import Protocol, ServiceSpec, TenantId, Vip, VirtualAddr
from juneau.netstack.types import TxPacket
from juneau.packetplane import PacketPlane, ReturnPath

pytestmark = pytest.mark.root

VIP = "10.80.0.3"
UPLOAD = """
import socket, hashlib
data = bytes(n * n % 251 for n in range(SIZE))
c = socket.create_connection(("10.80.0.3", 8080), timeout=5)
c.sendall(data); c.shutdown(socket.SHUT_WR)
print(hashlib.sha256(data).hexdigest())
"""
SEND = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({count}): s.sendto(b"x", ("10.80.0.3", 9))
"""
DOWNLOAD = """
import socket, hashlib
c = socket.create_connection(("10.80.0.3", 8080), timeout=5)
print(hashlib.sha256(b"".join(iter(lambda: c.recv(1 << 20), b""))).hexdigest())
"""
ANSWER = bytes(n * n % 241 for n in range(200_000))


def spec(tenant: TenantId, port: int, proto: Protocol, service_id: int) -> ServiceSpec:
    return ServiceSpec(service_id, tenant, VirtualAddr(IPv4Address(VIP), port, proto), VIP_MAC)


@asynccontextmanager
async def serving(plane: PacketPlane, stacks: dict[int, MiniTcp]) -> AsyncIterator[None]:
    for _, read in plane._reader.tap.reads():
        count_frames(read)  # left by tests without a reader
    plane.start(asyncio.get_running_loop(), stacks.get)
    try:
        yield
    finally:
        plane.stop()


def count_frames(read: Callable[[], bytes | None]) -> int:
    count = 0
    while read():
        count += 1
    return count


def stack_of(plane: PacketPlane, answer: bytes = b"") -> MiniTcp:
    return MiniTcp(plane.send, plane.link, answer)


async def upload(pod: Pod, size: int = 200_000) -> str:
    result = await asyncio.to_thread(pod.python, UPLOAD.replace("SIZE", str(size)))
    await asyncio.sleep(0.05)  # the last acknowledgement is on its way
    return result.stdout.strip()


async def test_superframes_of_two_tenants_with_the_same_addresses_stay_apart(town: Town) -> None:
    plane = town.world.plane
    stacks = {7: stack_of(plane), 8: stack_of(plane)}
    async with serving(plane, stacks):
        sums = await asyncio.gather(upload(town.a1, 200_000), upload(town.c1, 200_001))
    assert [stacks[7].digest(), stacks[8].digest()] == sums
    for vpc_id, pod in ((7, town.a1), (8, town.c1)):
        seen = stacks[vpc_id].seen
        assert {packet.path for packet in seen} == {plane.path_to(vpc_id, pod.nic.ip)}
        assert max(packet.size for packet in seen) > 10_000
        assert all(packet.csum_ok for packet in seen)
        assert stacks[vpc_id].settled <= len(seen)


async def test_a_download_in_superframes_reaches_the_pod(town: Town) -> None:
    plane = town.world.plane
    async with serving(plane, {7: stack_of(plane, ANSWER)}):
        result = await asyncio.to_thread(town.a1.python, DOWNLOAD)
    assert result.stdout.strip() == hashlib.sha256(ANSWER).hexdigest()
    assert not [name for name in plane.counters if name.startswith("tx.")]


async def test_the_partial_checksums_are_right(town: Town) -> None:
    """Without transmit checksum offload the kernel completes them, and the Pod's kernel verifies."""
    plane, pod = town.world.plane, town.a2
    await asyncio.to_thread(town.world.ethtool_host, pod, "tx", "off")
    errors = pod.snmp("Tcp", "InCsumErrors")
    async with serving(plane, {7: stack_of(plane, ANSWER)}):
        result = await asyncio.to_thread(pod.python, DOWNLOAD)
    assert result.stdout.strip() == hashlib.sha256(ANSWER).hexdigest()
    assert pod.snmp("Tcp", "InCsumErrors") == errors


async def test_a_pod_without_offload(town: Town) -> None:
    pod, plane = town.b1, town.world.plane
    pod.exec("ethtool", "-K", "eth0", "tso", "off", "gso", "off", "tx", "off")
    vip = Vip(TenantId(7, 2), IPv4Address(VIP), VIP_MAC)
    plane.add_vip(vip)
    try:
        stack = stack_of(plane)
        async with serving(plane, {7: stack}):
            pod.exec("ip", "route", "add", VIP, "dev", "eth0")
            expected = await upload(pod)
        assert stack.digest() == expected
        assert max(packet.size for packet in stack.seen) <= 1_450
        assert not any(packet.csum_ok for packet in stack.seen)
    finally:
        plane.remove_vip(vip)


async def test_the_stamp_survives_fragmentation(town: Town) -> None:
    plane = town.world.plane
    stack = stack_of(plane)
    async with serving(plane, {8: stack}):
        await asyncio.to_thread(town.c2.pings, VIP, "-s", "4000", "-W", "0.1")
        await asyncio.sleep(0.05)
    path = plane.path_to(8, town.c2.nic.ip)
    assert [(p.fragment & 0x1FFF, p.path) for p in stack.seen] == [(n * 178, path) for n in range(3)]
    assert sum(packet.size - 20 for packet in stack.seen) == 4_008


async def test_udp_superframes_arrive_as_datagrams(town: Town) -> None:
    plane = town.world.plane
    stack = stack_of(plane)
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(17, 103, 100); s.sendto(bytes(950), ('10.80.0.3', 443))"
    )
    async with serving(plane, {7: stack}):
        await asyncio.to_thread(town.a1.python, code)
        await asyncio.sleep(0.05)
    assert [packet.size - 28 for packet in stack.seen] == [100] * 9 + [50]
    assert all(packet.csum_ok for packet in stack.seen)


async def test_closed_ports_and_ping_reach_the_stack_and_flows_tell_services_apart(town: Town) -> None:
    plane = town.world.plane
    stack = stack_of(plane)
    plane.bind_service(spec(ONE, 5353, Protocol.UDP, 1))
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 40001))\n"
        "for port in (5353, 5353, 5354): s.sendto(b'x' * 72, ('10.80.0.3', port))"
    )
    async with serving(plane, {7: stack}):
        await asyncio.to_thread(town.a2.python, code)
        await asyncio.to_thread(town.a2.pings, VIP, "-W", "0.1")
    plane.unbind_service(spec(ONE, 5353, Protocol.UDP, 1))
    flows = [flow for flow in plane.flows() if flow.src == town.a2.nic.ip and flow.src_port in (40001, 0)]
    mine = sorted((f.proto, f.dst_port, f.service_id, f.packets, f.bytes) for f in flows)
    assert mine == [(1, 0, 0, 1, 84), (17, 5353, 1, 2, 200), (17, 5354, 0, 1, 100)]
    assert {(f.tenant, f.ifindex, f.pod_mac, f.service_mac) for f in flows} == {
        (ONE, town.a2.nic.ifindex, town.a2.nic.mac, VIP_MAC)
    }
    assert [packet.proto for packet in stack.seen] == [17, 17, 17, 1]


async def test_a_pod_that_sends_more_than_we_read_loses_only_its_own(town: Town) -> None:
    """Other Pods have other queues, in its VPC too."""
    plane = town.world.plane
    async with serving(plane, {}):
        pass  # nobody reads, but what others left is gone
    before = plane.drops()["tap.overflow"]
    await asyncio.to_thread(town.a1.python, SEND.format(count=3_000))
    flooded = plane.drops()["tap.overflow"]
    assert flooded > before + 1_000
    for pod in (town.a2, town.c1):
        await asyncio.to_thread(pod.python, SEND.format(count=2))
    assert plane.drops()["tap.overflow"] == flooded
    waiting = sorted(count_frames(read) for _, read in plane._reader.tap.reads())
    assert waiting[-4:-1] == [0, 2, 2]
    assert waiting[-1] > 2


def flows_from(plane: PacketPlane, src_port: int) -> list[tuple[int, int, int, int]]:
    """(dst_port, service_id, packets, bytes) of each flow."""
    flows = [flow for flow in plane.flows() if flow.src_port == src_port and flow.proto == 17]
    return [(flow.dst_port, flow.service_id, flow.packets, flow.bytes) for flow in flows]


def test_a_flow_starts_over_with_another_service(town: Town) -> None:
    plane = town.world.plane
    probe = ethernet(VIP_MAC, town.a1.nic.mac, 0x0800, ipv4(town.a1.ip, VIP, udp(dst_port=5355)))
    for service_id, times in ((1, 3), (2, 1)):
        plane.bind_service(spec(ONE, 5355, Protocol.UDP, service_id))
        town.a1.emit(*[probe] * times)
        assert flows_from(plane, 40_000) == [(5355, service_id, times, 33 * times)]
    plane.unbind_service(spec(ONE, 5355, Protocol.UDP, 2))


def test_fragments_belong_to_the_vip_not_to_a_port(town: Town) -> None:
    """The bytes where a port would be are payload, whatever they spell."""
    plane, pod = town.world.plane, town.c2
    plane.bind_service(spec(OTHER, 9, Protocol.UDP, 1))
    packet = ipv4(pod.ip, VIP, udp(dst_port=9), fragment=100)
    pod.emit(ethernet(VIP_MAC, pod.nic.mac, 0x0800, packet))
    plane.unbind_service(spec(OTHER, 9, Protocol.UDP, 1))
    assert (0, 0, 1, 33) in flows_from(plane, 0)


async def test_a_vip_removed_in_one_vpc_stays_in_the_other(town: Town) -> None:
    plane, added = town.world.plane, [Vip(t, IPv4Address("10.80.0.4"), VIP_MAC) for t in (ONE, OTHER)]
    for vip in added:
        plane.add_vip(vip)
    plane.remove_vip(added[0])
    plane.remove_vip(added[0])
    stacks = {7: stack_of(plane), 8: stack_of(plane)}
    async with serving(plane, stacks):
        await asyncio.to_thread(town.a1.pings, "10.80.0.4", "-W", "0.1")
        await asyncio.to_thread(town.c1.pings, "10.80.0.4", "-W", "0.1")
    assert not stacks[7].seen
    assert stacks[8].seen
    plane.remove_vip(added[1])


async def test_what_cannot_be_sent_is_counted(town: Town) -> None:
    plane = town.world.plane
    path = plane.path_to(7, town.a1.nic.ip)
    assert plane.path_to(7, IPv4Address("10.80.0.99")) is plane.path_to(9, town.a1.nic.ip) is None
    before = dict(plane.counters)
    header = bytes(20)
    plane.send([TxPacket(path, header, (bytes(3_000),)), TxPacket("no path", header)])
    assert {n: v - before.get(n, 0) for n, v in plane.counters.items() if n.startswith("tx.")} == {
        "tx.too_big": 1,
        "tx.no_path": 1,
    }


async def test_a_path_ends_with_its_nic(town: Town) -> None:
    made = town.world
    pod = made.pod(made.subnets[0], "10.80.0.20")
    await asyncio.to_thread(made.apply)
    async with serving(made.plane, {}):
        path = made.plane.path_to(7, pod.nic.ip)
        others = made.plane.path_to(7, town.a1.nic.ip)
        assert isinstance(path, ReturnPath)
        made.plane.send([TxPacket(path, bytes(20))])
        await asyncio.to_thread(made.remove_pod, pod)
        await asyncio.to_thread(made.apply)
        before = made.plane.counters["tx.no_path"]
        made.plane.send([TxPacket(path, bytes(20))])
    assert made.plane.counters["tx.no_path"] == before + 1
    assert made.plane.path_to(7, pod.nic.ip) is None
    assert made.plane.path_to(7, town.a1.nic.ip) is others


@pytest.fixture(scope="module")
def plain() -> Iterator[World]:
    """A plane without vnet headers."""
    with world(offload=False) as made:
        subnet = made.subnet(OTHER, "10.80.0.1/24")
        made.pod(subnet, "10.80.0.10")
        made.vip(subnet, VIP)
        made.apply()
        yield made


async def test_the_stamp_survives_segmentation(plain: World) -> None:
    """The kernel cuts a Pod's superframe at a TAP that takes none: every piece keeps the stamp."""
    stack, before = stack_of(plain.plane), plain.plane.passes()["to_service"]
    async with serving(plain.plane, {8: stack}):
        expected = await upload(plain.pods[0])
    assert stack.digest() == expected
    assert max(packet.size for packet in stack.seen) == 40 + MSS
    assert plain.plane.passes()["to_service"] - before < len(stack.seen)
    assert not plain.plane.counters.keys() - {"rx.frames", "rx.batches"}


async def test_answers_without_offload(plain: World) -> None:
    async with serving(plain.plane, {8: stack_of(plain.plane, ANSWER[:20_000])}):
        result = await asyncio.to_thread(plain.pods[0].python, DOWNLOAD)
    assert result.stdout.strip() == hashlib.sha256(ANSWER[:20_000]).hexdigest()
