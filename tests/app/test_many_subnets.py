"""A node of many Subnets: what one more costs is counted, not timed, and does not grow with their number."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.app.node import Node
from juneau.model.cluster import ClusterView, Subnet, Vpc
from juneau.model.ids import Mac, Protocol, ServiceSpec, TenantId, Vip, VirtualAddr
from juneau.netstack.wire import vnet
from juneau.packetplane import DesiredState, Nic, PacketPlane, PlaneError, PlaneSettings, SubnetEntry, filters
from juneau.packetplane import inspect as plane_inspect
from juneau.packetplane.bpf import abi
from juneau.services import VirtualService
from juneau.services.host import desired_bindings
from juneau.testing import packets

GATEWAY, SERVICE = Mac("02:00:00:00:00:01"), Mac("0a:00:00:00:00:03")


class DictMap:
    """A BPF map in memory that remembers what was done to it."""

    def __init__(self, spec: abi.MapSpec, max_entries: int = 1 << 17) -> None:
        self.spec, self.max_entries = spec, max_entries
        self.held: dict[bytes, bytes] = {}
        self.writes = 0

    def set(self, key: bytes, value: bytes) -> None:
        if key not in self.held and len(self.held) == self.max_entries:
            raise OSError(errno.E2BIG, "Argument list too long")
        self.held[key] = value
        self.writes += 1

    def delete(self, key: bytes) -> bool:
        self.writes += 1
        return self.held.pop(key, None) is not None

    def items(self) -> dict[bytes, bytes]:
        return dict(self.held)

    def close(self) -> None:
        pass


class NoTap:
    """Reads nothing."""

    ifindex, vnet_header, uso, fds = 1, True, False, ()

    def steer(self, fd: int) -> None: ...
    def reads(self) -> Iterator[Any]:
        return iter(())

    def destroy(self) -> None: ...
    def close(self) -> None: ...


class NoProgram:
    fd = steering_fd = -1

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def maps() -> Iterator[dict[str, DictMap]]:
    """Of the plane made last."""
    opened: dict[str, DictMap] = {}

    def open_map(_: PlaneSettings, spec: abi.MapSpec) -> DictMap:
        return opened.setdefault(spec.name, DictMap(spec))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plane_inspect, "open_map", open_map)
        patch.setattr(filters, "attached", lambda _: set())
        patch.setattr(filters, "attach", lambda *_: {})
        patch.setattr(filters, "detach", lambda _: None)
        yield opened


def new_plane(maps: dict[str, DictMap], **sizes: int) -> PacketPlane:
    maps.clear()
    maps.update({name: DictMap(spec, sizes[name]) for spec in abi.MAPS if (name := spec.name) in sizes})
    settings = PlaneSettings(pin_path="/nonexistent/juneau")
    return PacketPlane(settings, NoProgram(), NoTap())  # type: ignore[arg-type]


def entry(subnet_id: int) -> SubnetEntry:
    network = IPv4Network((0x0A00_0000 + (subnet_id << 8), 24))
    return SubnetEntry(TenantId(subnet_id % 7 + 1, subnet_id), network, network[1], GATEWAY)


def vip(subnet_id: int, host: int = 3, mac: Mac = SERVICE) -> Vip:
    at = entry(subnet_id)
    return Vip(at.tenant, at.cidr[host], mac)


def nic(subnet_id: int, host: int = 10) -> Nic:
    at = entry(subnet_id)
    mac = Mac(b"\x02\x00" + at.cidr[host].packed)
    return Nic(1000 + subnet_id, f"jv{subnet_id}", at.tenant, at.cidr[host], mac)


def spec_of(vip: Vip, port: int) -> ServiceSpec:
    return ServiceSpec(1000, vip.tenant, VirtualAddr(vip.ip, port, Protocol.TCP), vip.mac)


@contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Function calls, Python's and C's: how much there was to do, the same each time."""
    calls = 0

    def on_event(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # what it calls back depends on what ran before
    sys.setprofile(on_event)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)
        gc.enable()


# The packet plane


def one_more(maps: dict[str, DictMap], count: int) -> tuple[int, int]:
    """Calls and map writes of a VIP with three services that comes and goes, beside `count` others."""
    plane = new_plane(maps)
    plane.apply(DesiredState(tuple(map(entry, range(1, count + 2))), tuple(map(nic, range(1, count + 2)))))
    for subnet_id in range(1, count + 1):
        plane.add_vip(vip(subnet_id))
        plane.bind_service(spec_of(vip(subnet_id), 80))
    newcomer = vip(count + 1)

    def come_and_go() -> None:
        plane.add_vip(newcomer)
        for port in (80, 81, 82):
            plane.bind_service(spec_of(newcomer, port))
        for port in (80, 81, 82):
            plane.unbind_service(spec_of(newcomer, port))
        plane.remove_vip(newcomer)

    come_and_go()  # what is made at its first use is there now
    before = sum(opened.writes for opened in maps.values())
    with counting() as count_calls:
        come_and_go()
    return count_calls(), sum(opened.writes for opened in maps.values()) - before


def test_a_vip_costs_the_same_beside_ten_and_beside_two_hundred(maps: dict[str, DictMap]) -> None:
    few = one_more(maps, 10)
    assert few == one_more(maps, 200)
    assert few[1] == 2 * (2 + 3), "ARP, the VIP and three services, once there and once gone"


HOSTS = {"gateway": 1, "service": 3, "pod": 10}
vips = st.builds(
    lambda subnet_id, host, last: vip(subnet_id, HOSTS[host], Mac(bytes((0x0A, 0, 0, 0, 0, last)))),
    st.integers(1, 2),
    st.sampled_from(sorted(HOSTS)),
    st.integers(1, 2),
)


@given(st.lists(st.tuples(st.booleans(), vips), max_size=12), st.lists(vips, max_size=3))
def test_one_vip_at_a_time_gives_what_programming_all_would(
    maps: dict[str, DictMap], steps: list[tuple[bool, Vip]], given_vips: list[Vip]
) -> None:
    """Gateways, Pods, the desired state's VIPs and those added meet at the same addresses."""
    plane = new_plane(maps)
    state = DesiredState((entry(1), entry(2)), (nic(1), nic(2)), tuple(given_vips))
    plane.apply(state)
    for is_added, which in steps:
        (plane.add_vip if is_added else plane.remove_vip)(which)
    macs = dict(plane._macs)
    writes = {name: opened.writes for name, opened in maps.items()}
    plane.apply(state)
    assert {name: opened.writes for name, opened in maps.items()} == writes, "nothing was left to do"
    assert plane._macs == macs


def test_a_vip_that_found_the_map_full_leaves_nothing_behind(maps: dict[str, DictMap]) -> None:
    plane = new_plane(maps, virtual_service_map=2)
    state = DesiredState(tuple(map(entry, (1, 2, 3))))
    plane.apply(state)
    plane.add_vip(vip(1))
    plane.add_vip(vip(2))
    arp = maps["arp_table"].items()
    with pytest.raises(PlaneError, match="write virtual_service_map: all 2 entries are taken"):
        plane.add_vip(vip(3))
    assert maps["arp_table"].items() == arp
    plane.apply(state)  # nor does it come back and fail
    plane.remove_vip(vip(1))
    plane.add_vip(vip(3))


# The node


class Three(VirtualService):
    """Three bindings."""

    tcp_ports, udp_ports = (7, 8), (7,)

    def handle_udp(self, request: Any, responder: Any) -> None: ...


def view_of(count: int) -> ClusterView:
    names = {name: Vpc(name, number) for number, name in enumerate(("a", "b", "c"), 1)}
    subnets = [
        Subnet(f"s{n}", "abc"[n % 3], n + 2, at.cidr, at.gateway, GATEWAY, None, None)
        for n in range(count)
        for at in [entry(n + 2)]
    ]
    return ClusterView(names, {subnet.name: subnet for subnet in subnets})


@asynccontextmanager
async def node_of(plane: PacketPlane, service: VirtualService, count: int) -> Any:
    node = Node(plane, [service])
    try:
        await node.apply(view_of(count), [])
        yield node
    finally:
        await node.close()


async def test_one_more_subnet_is_the_same_work_at_ten_and_at_two_hundred(maps: dict[str, DictMap]) -> None:
    async def steps(count: int) -> list[int]:
        plane = new_plane(maps)
        async with node_of(plane, Three(), count) as node:
            found = []
            for target in (count + 1, count, count):
                before = sum(opened.writes for opened in maps.values())
                await node.apply(view_of(target), [])
                found.append(sum(opened.writes for opened in maps.values()) - before)
            return found

    few = await steps(10)
    assert few == await steps(200)
    assert few[0] == 3 + (2 * 2) + 3, "Subnet, route, gateway's ARP; two VIPs; three services"
    assert few[2] == 0, "what agrees is not written again"


def test_the_host_asks_a_service_once_per_subnet_and_change() -> None:
    asked: list[str] = []

    class Asked(Three):
        def address(self, subnet: Subnet) -> IPv4Address | None:
            asked.append(subnet.name)
            return super().address(subnet)

    desired = desired_bindings([Asked()], view_of(50))
    assert len(desired.specs) == 150
    assert sorted(asked) == sorted(set(asked))


async def test_bindings_that_find_the_map_full_say_so_and_the_others_stand(maps: dict[str, DictMap]) -> None:
    """Twelve Subnets need 12 gateways, 12 VIPs and 36 services."""
    plane = new_plane(maps, virtual_service_map=12 + 6 * 4)
    async with node_of(plane, Three(), 12) as node:
        rows = node.host.status()
        refused = [row.error for row in rows if row.error]
        assert len(rows) == 36
        assert len(node.registry.bindings()) == 36 - len(refused)
        assert refused
        assert all("all 36 entries are taken" in error for error in refused)
        assert node.registry.metrics.total("bind_errors") == len(refused)
        await node.apply(view_of(5), [])
        assert not any(row.error for row in node.host.status())


async def test_one_vpc_has_sockets_for_more_than_a_thousand_subnets(maps: dict[str, DictMap]) -> None:
    plane = new_plane(maps)
    vpcs = {"a": Vpc("a", 1)}
    subnets = {
        f"s{n}": Subnet(f"s{n}", "a", n, entry(n).cidr, entry(n).gateway, GATEWAY, None, None)
        for n in range(2, 1102)
    }
    node = Node(plane, [Three()])
    try:
        await node.apply(ClusterView(vpcs, subnets), [])
        assert not [row.error for row in node.host.status() if row.error]
        assert len(node.registry.bindings()) == 3 * 1100
    finally:
        await node.close()


# A packet


class Echo(Three):
    def handle_udp(self, request: Any, responder: Any) -> None:
        responder.write_response(request.payload)


def frame_of(pod: Nic, service: Vip, port: int, payload: bytes) -> bytes:
    packet = packets.udp(payload, src=str(pod.ip), dst=str(service.ip), dport=port)
    stamp = abi.Stamp(abi.STAMP_TAG, pod.tenant.subnet_id, abi.STAMP_TAG, pod.ifindex)
    return vnet.PLAIN + stamp.pack() + b"\x08\x00" + packet


async def echoes(node: Node, pod: socket.socket, frames: Sequence[bytes]) -> int:
    """Calls until all are answered, the loop's own included."""
    with counting() as count:
        node.plane._dispatcher.read_batch(partial(next, iter(frames), None), len(frames))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [pod.recv(2048)[-2:] for _ in frames] == [frame[-2:] for frame in frames]
    return count()


async def test_a_packet_costs_the_same_in_one_subnet_and_in_a_thousand(maps: dict[str, DictMap]) -> None:
    async def calls(count: int) -> list[int]:
        async with node_of(new_plane(maps), Echo(), count) as node:
            view = view_of(count)
            middle = view.subnets[f"s{count // 2}"]
            tenant, ip = view.tenant(middle), middle.cidr[10]
            pod = Nic(5, "jv5", tenant, ip, Mac(b"\x02\x00" + ip.packed))
            await node.apply(view, [pod])
            link, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            far_end.settimeout(5)
            node.plane._sender._sockets[node.plane._dispatcher.paths[5]] = link
            service = Vip(tenant, middle.cidr[3], SERVICE)
            batches = [[frame_of(pod, service, 7, b"%02d" % n) for n in range(size)] for size in (1, 1, 16)]
            with far_end:
                return [await echoes(node, far_end, batch) for batch in batches][1:]  # the first fills caches

    one, sixteen = alone = await calls(1)
    assert await calls(1000) == alone
    assert sixteen < 16 * one, "a batch shares its settling"
