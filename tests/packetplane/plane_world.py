"""Pods for root tests: network namespaces with a veth each, under names nobody else uses, gone afterwards."""

from __future__ import annotations

import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface

from juneau.model.ids import Mac, TenantId
from juneau.packetplane import DesiredState, Nic, PacketPlane, PlaneSettings, SubnetEntry, Vip, cleanup

GATEWAY_MAC = Mac("02:00:00:00:00:01")
Result = subprocess.CompletedProcess[str]
VIP_MAC = Mac("02:00:00:00:00:03")


def run(*command: str, timeout: float = 10, check: bool = True) -> Result:
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if check and result.returncode:
        raise AssertionError(f"{' '.join(command)}: {result.stdout}{result.stderr}")
    return result


def within(netns: str) -> tuple[str, ...]:
    """`ip netns exec` wants to remount `/` and cannot in a chroot; nsenter works everywhere."""
    return ("nsenter", f"--net=/run/netns/{netns}")


@dataclass
class Pod:
    netns: str
    nic: Nic

    @property
    def ip(self) -> str:
        return str(self.nic.ip)

    def exec(
        self, *command: str, timeout: float = 10, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return run(*within(self.netns), *command, timeout=timeout, check=check)

    def python(self, code: str, timeout: float = 10, check: bool = True) -> Result:
        return self.exec("/usr/bin/python3", "-c", code, timeout=timeout, check=check)

    def emit(self, *frames: bytes) -> None:
        """Send raw frames out of the Pod's interface."""
        code = (
            "import socket, sys\n"
            "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)\n"
            "s.bind(('eth0', 0))\n"
            "for f in sys.argv[1:]: s.send(bytes.fromhex(f))"
        )
        self.exec("/usr/bin/python3", "-c", code, *(frame.hex() for frame in frames))

    def snmp(self, protocol: str, name: str) -> int:
        """A counter of the Pod's kernel."""
        lines = self.exec("cat", "/proc/net/snmp").stdout.splitlines()
        names, values = (line.split() for line in lines if line.startswith(f"{protocol}: "))
        return int(values[names.index(name)])

    def pings(self, ip: str, *more: str) -> bool:
        return self.exec("ping", "-c1", "-W1", *more, ip, check=False).returncode == 0


@dataclass
class World:
    settings: PlaneSettings
    plane: PacketPlane
    subnets: list[SubnetEntry] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    vips: list[Vip] = field(default_factory=list)

    def subnet(self, tenant: TenantId, interface: str) -> SubnetEntry:
        """`interface`: the gateway's address and the prefix."""
        at = IPv4Interface(interface)
        entry = SubnetEntry(tenant, at.network, at.ip, GATEWAY_MAC)
        self.subnets.append(entry)
        return entry

    def pod(self, subnet: SubnetEntry, ip: str, *, mtu: int = 1450) -> Pod:
        tag = secrets.token_hex(4)
        netns, host = f"jt-{tag}", f"jt{tag}"
        mac = Mac(b"\x02\x00" + IPv4Address(ip).packed)
        run("ip", "netns", "add", netns)
        run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", netns)
        inside = (*within(netns), "ip")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "link", "set", "eth0", "address", str(mac), "mtu", str(mtu), "up")
        run(*inside, "addr", "add", f"{ip}/{subnet.cidr.prefixlen}", "dev", "eth0")
        run(*inside, "route", "add", "default", "via", str(subnet.gateway))
        run("ip", "link", "set", host, "mtu", str(mtu), "up")
        nic = Nic(socket.if_nametoindex(host), host, subnet.tenant, IPv4Address(ip), mac)
        self.pods.append(Pod(netns, nic))
        return self.pods[-1]

    def vip(self, subnet: SubnetEntry, ip: str) -> Vip:
        self.vips.append(Vip(subnet.tenant, IPv4Address(ip), VIP_MAC))
        return self.vips[-1]

    def desired(self) -> DesiredState:
        return DesiredState(tuple(self.subnets), tuple(pod.nic for pod in self.pods), tuple(self.vips))

    def apply(self) -> None:
        self.plane.apply(self.desired())

    def ethtool_host(self, pod: Pod, *features: str) -> None:
        """Change offloads of the host side of a Pod's veth."""
        run("ethtool", "-K", pod.nic.ifname, *features)

    def remove_pod(self, pod: Pod) -> None:
        self.pods.remove(pod)
        delete_pod(pod)


def delete_pod(pod: Pod) -> None:
    run("ip", "link", "del", pod.nic.ifname, check=False)
    run("ip", "netns", "del", pod.netns, check=False)


def new_settings(**changes: object) -> PlaneSettings:
    tag = secrets.token_hex(4)
    return PlaneSettings(tap_name=f"jt{tag}", pin_path=f"/sys/fs/bpf/jt-{tag}", **changes)  # type: ignore[arg-type]


@contextmanager
def world(**changes: object) -> Iterator[World]:
    settings = new_settings(**changes)
    made = None
    try:
        made = World(settings, PacketPlane.open(settings))
        yield made
        made.plane.close()
    finally:
        for pod in made.pods if made else []:
            delete_pod(pod)
        cleanup(settings)
