"""Opening, restarting, crashing, cleaning up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from mini_tcp import MiniTcp
from plane_world import VIP_MAC, World, delete_pod, new_settings, run

from juneau.model.ids import Protocol, ServiceSpec, TenantId, VirtualAddr
from juneau.packetplane import Nic, PacketPlane, PlaneError, PlaneSettings, cleanup, filters, inspect
from juneau.packetplane.bpf import abi, bpffs
from juneau.packetplane.bpf.maps import open_pin

pytestmark = pytest.mark.root

ONE = TenantId(7, 1)
SPEC = ServiceSpec(1001, ONE, VirtualAddr(IPv4Address("10.80.0.3"), 80, Protocol.TCP), VIP_MAC)


@contextmanager
def place(settings: PlaneSettings) -> Iterator[World]:
    """A world whose plane the test closes as it likes; all traces go at the end."""
    made = World(settings, PacketPlane.open(settings))
    try:
        subnet = made.subnet(ONE, "10.80.0.1/24")
        made.pod(subnet, "10.80.0.10")
        made.pod(subnet, "10.80.0.11")
        made.vip(subnet, "10.80.0.3")
        made.apply()
        yield made
    finally:
        for pod in made.pods:
            delete_pod(pod)
        cleanup(settings)


def traces(made: World) -> list[str]:
    settings = made.settings
    found = [settings.tap_name] if os.path.exists(f"/sys/class/net/{settings.tap_name}") else []
    found += [settings.pin_path] if os.path.exists(settings.pin_path) else []
    for pod in made.pods:
        found += run("tc", "filter", "show", "dev", pod.nic.ifname, "ingress").stdout.splitlines()[:1]
        found += ["clsact"] if "clsact" in run("tc", "qdisc", "show", "dev", pod.nic.ifname).stdout else []
    return found


def map_keys(settings: PlaneSettings, spec: abi.MapSpec) -> set[bytes]:
    opened = inspect.open_map(settings, spec)
    try:
        return set(opened.keys())
    finally:
        opened.close()


def test_close_leaves_nothing() -> None:
    with place(new_settings()) as made:
        assert len(traces(made)) == 2 + 2 * len(made.pods)
        made.plane.close()
        assert traces(made) == []


def test_cleanup_after_a_crash_says_what_it_removed() -> None:
    with place(new_settings()) as made:
        made.plane.close(keep_pins=True)
        removed = cleanup(made.settings)
        assert traces(made) == []
        assert f"tap {made.settings.tap_name}" in removed
        assert f"pin {made.settings.pin_path}/nic_map" in removed
        assert len([line for line in removed if line.startswith("filter of")]) == 2
        assert cleanup(made.settings) == []


def test_a_restart_finds_tap_and_maps_and_drops_what_is_stale() -> None:
    with place(new_settings()) as made:
        made.plane.bind_service(SPEC)
        ifindex = made.plane.tap_ifindex
        made.plane.close(keep_pins=True)
        assert made.pods[0].pings(made.pods[1].ip)
        held = {spec: map_keys(made.settings, spec) for spec in abi.MAPS}
        made.plane = PacketPlane.open(made.settings)
        try:
            assert made.plane.tap_ifindex == ifindex
            assert {spec: map_keys(made.settings, spec) for spec in abi.MAPS} == held
            made.remove_pod(made.pods[1])
            made.apply()
            assert len(map_keys(made.settings, abi.NIC_MAP)) == 1
            assert map_keys(made.settings, abi.VIRTUAL_SERVICE_MAP) == {
                abi.VirtualServiceKey(1, SPEC.addr.ip.packed, 0, 0).pack()
            }
        finally:
            made.plane.close()


def test_maps_of_another_layout_are_replaced() -> None:
    with place(new_settings(flow_entries=64)) as made:
        made.plane.close(keep_pins=True)
        assert bpffs.remove_misfits(made.settings.pin_path, 64) == []
        larger = replace(made.settings, flow_entries=128)
        plane = PacketPlane.open(larger)
        flows = inspect.open_map(larger, abi.FLOW_MAP)
        assert flows.max_entries == 128
        flows.close()
        plane.close()


def test_a_second_plane_of_the_same_name_is_refused_and_harms_nothing() -> None:
    with place(new_settings()) as made:
        with pytest.raises(PlaneError, match=f"open tap {made.settings.tap_name}.*another juneau"):
            PacketPlane.open(made.settings)
        assert made.pods[0].pings(made.pods[1].ip)
        assert len(traces(made)) == 2 + 2 * len(made.pods)
        made.plane.close()


def test_two_planes_side_by_side_leave_each_other_alone() -> None:
    with place(new_settings()) as made, place(new_settings()) as other:
        made.plane.close()
        cleanup(made.settings)
        assert len(traces(other)) == 2 + 2 * len(other.pods)
        other.plane.close()


def test_a_program_that_does_not_compile_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "pod_egress.c").write_text("int pod_egress(struct __sk_buff *skb) { return nonsense; }")
    settings = new_settings(bpf_source=tmp_path)
    with pytest.raises(PlaneError, match=r"use of undeclared identifier 'nonsense'"):
        PacketPlane.open(settings)
    assert cleanup(settings) == []


async def test_the_reader_survives_the_loss_of_the_tap() -> None:
    with place(new_settings()) as made:
        plane = made.plane
        stack = MiniTcp(plane.send, plane.link)
        plane.start(asyncio.get_running_loop(), {7: stack}.get)
        old = plane.tap_ifindex
        await asyncio.to_thread(filters.remove_link, made.settings.tap_name)
        async with asyncio.timeout(5):
            while not plane.counters["rx.reopened"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert plane.tap_ifindex != old
        await asyncio.to_thread(made.pods[0].pings, "10.80.0.3", "-W", "0.1")
        assert [packet.proto for packet in stack.seen] == [1]
        assert plane.counters["rx.read_error"] == 1
        await asyncio.to_thread(plane.close)
        assert traces(made) == []


async def test_apply_runs_beside_the_loop() -> None:
    """Netlink in a worker thread, map changes on the loop, packets all the while."""
    with place(new_settings()) as made:
        plane = made.plane
        stack = MiniTcp(plane.send, plane.link)
        plane.start(asyncio.get_running_loop(), {7: stack}.get)
        for _ in range(5):
            applied = asyncio.create_task(asyncio.to_thread(made.apply))
            for _ in range(20):
                plane.bind_service(SPEC)
                plane.unbind_service(SPEC)
                await asyncio.sleep(0)
            plane.bind_service(SPEC)
            await applied
        assert abi.VirtualServiceKey(1, SPEC.addr.ip.packed, 80, 6).pack() in map_keys(
            made.settings, abi.VIRTUAL_SERVICE_MAP
        )
        await asyncio.to_thread(plane.close)


def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with place(new_settings()) as made:
        made.plane.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_tap_name_that_the_kernel_would_cut_is_refused() -> None:
    with pytest.raises(PlaneError, match=r"allowed 1\.\.15"):
        PacketPlane.open(PlaneSettings(tap_name="a-name-that-is-too-long"))


@pytest.fixture(scope="module")
def standing() -> Iterator[World]:
    """For tests that leave the plane as they found it."""
    with place(new_settings()) as made:
        yield made
        made.plane.close()


def test_the_tap_is_quiet(standing: World) -> None:
    name = standing.settings.tap_name
    assert Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").read_text().strip() == "1"
    shown = run("ip", "-d", "addr", "show", "dev", name).stdout
    assert "inet" not in shown
    assert "persist on" in shown
    assert "mtu 1450" in shown


def test_counters_and_flows_are_readable_from_outside(standing: World) -> None:
    switched = abi.PlaneCounter.PASS_SWITCHED
    before = inspect.read_counters(standing.settings)[switched]
    assert standing.pods[0].pings(standing.pods[1].ip)
    assert inspect.read_counters(standing.settings)[switched] == before + 2
    assert inspect.read_flows(standing.settings) == []


def test_no_plane_is_said_so() -> None:
    with pytest.raises(PlaneError, match="is the plane up"):
        inspect.read_flows(new_settings())


def test_a_pin_opens_close_on_exec(standing: World) -> None:
    fd = open_pin(f"{standing.settings.pin_path}/nic_map")
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_a_missing_interface_is_named_and_the_others_work(standing: World) -> None:
    ghost = Nic(2**30, "jt-ghost", ONE, IPv4Address("10.80.0.66"), VIP_MAC)
    desired = replace(standing.desired(), nics=(ghost, *standing.desired().nics))
    with pytest.raises(PlaneError, match="attach filter to jt-ghost"):
        standing.plane.apply(desired)
    assert standing.pods[0].pings(standing.pods[1].ip)
    standing.apply()


def test_apply_repairs_what_others_changed(standing: World) -> None:
    standing.plane.bind_service(SPEC)
    wanted = map_keys(standing.settings, abi.VIRTUAL_SERVICE_MAP)
    services = inspect.open_map(standing.settings, abi.VIRTUAL_SERVICE_MAP)
    for key in wanted:
        services.delete(key)
    services.set(abi.VirtualServiceKey(9, bytes(4), 1, 6).pack(), bytes(12))
    services.close()
    filters.detach([standing.pods[0].nic.ifindex])
    standing.apply()
    assert map_keys(standing.settings, abi.VIRTUAL_SERVICE_MAP) == wanted
    assert standing.pods[0].pings(standing.pods[1].ip)
    standing.plane.unbind_service(SPEC)
