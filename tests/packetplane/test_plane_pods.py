"""What BPF lets through between Pods, and under which name it drops the rest."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from frames import BROADCAST, arp, ethernet, ipv4, udp
from plane_town import ONE, OTHER, Town
from plane_world import GATEWAY_MAC, VIP_MAC, Pod, within

from juneau.packetplane import inspect
from juneau.packetplane.bpf import abi

pytestmark = pytest.mark.root

LISTEN = """
import socket
s = socket.create_server(("0.0.0.0", 7000)); print("up", flush=True)
c, peer = s.accept(); c.sendall(("%s " % peer[0]).encode() + c.recv(99)); c.close()
"""
DIAL = """
import socket, sys
c = socket.create_connection(("%s", 7000), timeout=3); c.sendall(b"hello"); print(c.recv(99).decode())
"""


def tcp_says(server: Pod, client: Pod, serve: str = LISTEN, dial: str = DIAL) -> str:
    command = [*within(server.netns), "/usr/bin/python3", "-c", serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            return client.python(dial % server.ip).stdout.strip()
        finally:
            process.kill()


def changed(town: Town, *frames: bytes) -> dict[str, int]:
    before = town.counted()
    town.a1.emit(*frames)
    after = town.counted()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@contextmanager
def tampered(town: Town, spec: abi.MapSpec, key: bytes, value: bytes | None) -> Iterator[None]:
    """A map as only a bug or a race could make it."""
    opened = inspect.open_map(town.world.settings, spec)
    before = opened.get(key)
    try:
        opened.delete(key) if value is None else opened.set(key, value)
        yield
    finally:
        opened.delete(key) if before is None else opened.set(key, before)
        opened.close()


def test_pods_of_a_subnet_reach_one_another(town: Town) -> None:
    assert "ttl=64" in town.a1.exec("ping", "-c1", "-W1", town.a2.ip).stdout
    assert tcp_says(town.a2, town.a1) == "10.80.0.10 hello"


def test_pods_of_other_subnets_of_the_vpc_are_one_hop_away(town: Town) -> None:
    assert "ttl=63" in town.a1.exec("ping", "-c1", "-W1", town.b1.ip).stdout
    assert tcp_says(town.b1, town.a1) == "10.80.0.10 hello"
    assert tcp_says(town.a1, town.b1) == "10.80.1.10 hello"


def test_large_transfers_are_routed_whole(town: Town) -> None:
    """Superframes with partial checksums take the routed way too."""
    answer = f"hello{'x' * 3_000_000}"
    serve = LISTEN.replace("c.recv(99)", "c.recv(99) + b'x' * 3000000")
    dial = DIAL.replace("c.recv(99).decode()", "len(b''.join(iter(lambda: c.recv(99999), b'')))")
    assert tcp_says(town.b1, town.a1, serve, dial) == str(len(f"{town.a1.ip} {answer}"))


@pytest.mark.parametrize("ip", ["10.80.0.10", "10.80.1.10"])
def test_the_same_address_in_two_vpcs_is_two_pods(town: Town, ip: str) -> None:
    """By switching and by routing."""
    ours, theirs = (town.c1, town.a1) if ip == town.a1.ip else (town.d1, town.b1)
    before = ours.snmp("Icmp", "InEchos"), theirs.snmp("Icmp", "InEchos")
    assert town.c2.pings(ip)
    assert (ours.snmp("Icmp", "InEchos"), theirs.snmp("Icmp", "InEchos")) == (before[0] + 1, before[1])


def test_nothing_crosses_vpcs(town: Town) -> None:
    """Not by ARP, not with the right MAC, not through the gateway."""
    own = town.a1.nic.mac
    probe = ipv4(town.a1.ip, town.c2.ip, udp())
    assert changed(
        town,
        ethernet(BROADCAST, own, 0x0806, arp(1, own, town.a1.ip, town.c2.ip)),
        ethernet(town.c2.nic.mac, own, 0x0800, probe),
        ethernet(GATEWAY_MAC, own, 0x0800, probe),
    ) == {"arp_unknown": 1, "unknown_mac": 1, "no_neighbour": 1}


A1, A1_MAC, A2 = "10.80.0.10", bytes.fromhex("02000a50000a"), "10.80.0.11"
A2_MAC = bytes.fromhex("02000a50000b")

BAD = {
    "spoofed_mac": ethernet(A2_MAC, b"\x02\0\0\0\0\x99", 0x0800, ipv4(A1, A2, udp())),
    "spoofed_mac of a neighbour": ethernet(GATEWAY_MAC, A2_MAC, 0x0800, ipv4(A1, "10.80.1.10", udp())),
    "spoofed_mac towards a vip": ethernet(VIP_MAC, A2_MAC, 0x0800, ipv4(A1, "10.80.0.3", udp())),
    "spoofed_ip": ethernet(A2_MAC, A1_MAC, 0x0800, ipv4("10.80.0.99", A2, udp())),
    "spoofed_ip of a neighbour towards a vip": ethernet(
        VIP_MAC, A1_MAC, 0x0800, ipv4(A2, "10.80.0.3", udp())
    ),
    "spoofed_ip 0.0.0.0": ethernet(BROADCAST, A1_MAC, 0x0800, ipv4("0.0.0.0", "255.255.255.255", udp())),
    "spoofed_arp ip": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, A2, "10.80.0.1")),
    "spoofed_arp mac": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A2_MAC, A1, "10.80.0.1")),
    "spoofed_mac arp": ethernet(BROADCAST, A2_MAC, 0x0806, arp(1, A2_MAC, A2, "10.80.0.1")),
    "arp_not_request": ethernet(A2_MAC, A1_MAC, 0x0806, arp(2, A1_MAC, A1, A2)),
    "arp_own_address announced": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, A1, A1)),
    "arp_own_address probed": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, "0.0.0.0", A1)),
    "arp_unknown": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, A1, "10.80.0.77")),
    "arp_unknown of another subnet": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, A1, "10.80.1.10")),
    "malformed arp": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, A1, A2)[:20]),
    "malformed arp hardware": ethernet(BROADCAST, A1_MAC, 0x0806, arp(1, A1_MAC, A1, A2, hardware=6)),
    "malformed ihl": ethernet(A2_MAC, A1_MAC, 0x0800, ipv4(A1, A2, udp(), first=0x44)),
    "malformed version": ethernet(A2_MAC, A1_MAC, 0x0800, ipv4(A1, A2, udp(), first=0x65)),
    "malformed total": ethernet(A2_MAC, A1_MAC, 0x0800, ipv4(A1, A2, udp(), total=999)),
    "malformed total below header": ethernet(A2_MAC, A1_MAC, 0x0800, ipv4(A1, A2, udp(), total=19)),
    "malformed short": ethernet(A2_MAC, A1_MAC, 0x0800, ipv4(A1, A2)[:19]),
    "vlan": ethernet(A2_MAC, A1_MAC, 0x8100, b"\0\x05\x08\0" + ipv4(A1, A2, udp())),
    "vlan stacked": ethernet(A2_MAC, A1_MAC, 0x88A8, b"\0\x05\x08\0" + ipv4(A1, A2, udp())),
    "not_ip": ethernet(A2_MAC, A1_MAC, 0x88CC, bytes(40)),
    "not_ip length": ethernet(A2_MAC, A1_MAC, 0x0028, bytes(40)),
    "broadcast": ethernet(BROADCAST, A1_MAC, 0x0800, ipv4(A1, "10.80.0.255", udp())),
    "broadcast multicast": ethernet(b"\1\0\x5e\0\0\xfb", A1_MAC, 0x0800, ipv4(A1, "224.0.0.251", udp())),
    "broadcast to a vip": ethernet(BROADCAST, A1_MAC, 0x0800, ipv4(A1, "10.80.0.3", udp())),
    "ttl_exceeded": ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "10.80.1.10", udp(), ttl=1)),
    "no_route": ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "192.0.2.1", udp())),
    "to_gateway": ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "10.80.0.1", udp())),
    "to_gateway of another subnet": ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "10.80.1.1", udp())),
    "foreign_vip": ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "10.80.1.3", udp())),
    "no_neighbour": ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "10.80.1.77", udp())),
    "unknown_mac": ethernet(b"\x02\0\0\0\0\x77", A1_MAC, 0x0800, ipv4(A1, A2, udp())),
    "unknown_mac own": ethernet(A1_MAC, A1_MAC, 0x0800, ipv4(A1, A2, udp())),
    "unknown_mac stamped": ethernet(
        bytes.fromhex("024a00010001"), A1_MAC, 0x0800, ipv4(A1, "10.80.0.99", udp())
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_frame_goes_nowhere_and_is_counted(town: Town, case: str) -> None:
    reason = case.split()[0]
    assert changed(town, BAD[case]) == {reason: 1}


def test_arp_answers_come_from_the_table(town: Town) -> None:
    for ip, mac in (("10.80.0.1", GATEWAY_MAC), ("10.80.0.3", VIP_MAC), (town.a2.ip, town.a2.nic.mac)):
        town.a1.exec("ip", "neigh", "flush", "dev", "eth0")
        town.a1.pings(ip, "-W", "0.1")
        assert f"{ip} lladdr {mac}" in town.a1.exec("ip", "neigh", "show", "dev", "eth0").stdout


def test_ipv6_is_dropped_and_counted(town: Town) -> None:
    before = town.world.plane.drops()["bpf.ipv6"]
    town.a1.emit(ethernet(A2_MAC, A1_MAC, 0x86DD, bytes(60)))
    assert town.world.plane.drops()["bpf.ipv6"] > before


def test_a_route_into_another_vpc_leads_nowhere(town: Town) -> None:
    """The last line: even a wrong route does not cross."""
    key = abi.RouteKey(32 + 24, ONE.vpc_id, bytes([10, 90, 0, 0])).pack()
    probe = ethernet(GATEWAY_MAC, A1_MAC, 0x0800, ipv4(A1, "10.90.0.12", udp()))
    with tampered(town, abi.ROUTE_MAP, key, abi.u32(OTHER.subnet_id)):
        assert changed(town, probe) == {"cross_vpc": 1}


def test_a_subnet_on_its_way_out(town: Town) -> None:
    probe = ethernet(A2_MAC, A1_MAC, 0x0800, ipv4(A1, A2, udp()))
    with tampered(town, abi.SUBNET_MAP, abi.u32(ONE.subnet_id), None):
        assert changed(town, probe) == {"unknown_subnet": 1}


def test_no_tap_is_a_counted_drop(town: Town) -> None:
    probe = ethernet(VIP_MAC, A1_MAC, 0x0800, ipv4(A1, "10.80.0.3", udp()))
    with tampered(town, abi.CONFIG_MAP, abi.u32(0), abi.PlaneConfig(0).pack()):
        assert changed(town, probe) == {"no_tap": 1}
    assert changed(town, probe) == {"to_service": 1}


def test_a_pod_taken_from_the_desired_state_can_send_nothing(town: Town) -> None:
    made = town.world
    made.pods.remove(town.a2)
    try:
        made.apply()
        before = town.counted()["unknown_nic"]
        assert not town.a2.pings(town.a1.ip, "-W", "0.1")
        assert not town.a1.pings(town.a2.ip, "-W", "0.1")
        assert town.counted()["unknown_nic"] > before
    finally:
        made.pods.append(town.a2)
        made.apply()
    assert town.a2.pings(town.a1.ip)
