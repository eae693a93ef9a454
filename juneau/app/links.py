"""Pods' interfaces: a network namespace and a veth pair each. Blocking; never on the loop's thread."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from juneau.app import netns
from juneau.control.plan import PodPlan

POD_IFNAME: Final = "eth0"
_NO_SUCH_DEVICE: Final = 19


def make(pods: Iterable[PodPlan], *, lab: str) -> dict[str, int]:
    """Host interface name → ifindex. A failure leaves what was made: undo it with `remove`."""
    from pyroute2 import IPRoute

    with IPRoute() as ipr:
        return {pod.host_ifname: _make_one(ipr, pod, lab) for pod in pods}


def remove(netns_names: Iterable[str], host_ifnames: Iterable[str]) -> list[str]:
    """Whatever of these exists; says what it removed. The processes inside are gone by now."""
    from pyroute2 import IPRoute

    removed = []
    with IPRoute() as ipr:
        for ifname in host_ifnames:
            removed += [f"veth {ifname}"] if _delete_link(ipr, ifname) else []
    removed += [f"network namespace {name}" for name in netns_names if netns.remove(name)]
    netns.release_folder()
    return removed


def _make_one(ipr: Any, pod: PodPlan, lab: str) -> int:
    netns.create(pod.netns)
    namespace = os.open(netns.path(pod.netns), os.O_RDONLY | os.O_CLOEXEC)
    peer = {"ifname": POD_IFNAME, "net_ns_fd": namespace, "address": str(pod.mac), "mtu": pod.mtu}
    try:
        ipr.link("add", ifname=pod.host_ifname, kind="veth", mtu=pod.mtu, peer=peer)
    finally:
        os.close(namespace)
    index = int(ipr.link_lookup(ifname=pod.host_ifname)[0])
    _disable_ipv6(pod.host_ifname)
    ipr.link("set", index=index, state="up", ifalias=f"juneau {lab} {pod.key}"[:255])
    netns.inside(pod.netns, lambda: _configure(pod))
    return index


def _configure(pod: PodPlan) -> None:
    """In the Pod's namespace: the Subnet is on the link, everything else is behind the gateway."""
    from pyroute2 import IPRoute

    _disable_ipv6("all")
    _disable_ipv6("default")
    with IPRoute() as ipr:
        lo, eth0 = ipr.link_lookup(ifname="lo")[0], ipr.link_lookup(ifname=POD_IFNAME)[0]
        ipr.link("set", index=lo, state="up")
        ipr.addr("add", index=eth0, address=str(pod.ip), prefixlen=pod.prefix_len)
        ipr.link("set", index=eth0, state="up")
        ipr.route("add", dst="default", gateway=str(pod.gateway), oif=eth0)


def _disable_ipv6(ifname: str) -> None:
    """IPv4 only; without this the kernel would chat on the link by itself."""
    with suppress(FileNotFoundError):  # a kernel without IPv6
        Path(f"/proc/sys/net/ipv6/conf/{ifname}/disable_ipv6").write_text("1")


def _delete_link(ipr: Any, ifname: str) -> bool:
    from pyroute2.netlink.exceptions import NetlinkError

    found = ipr.link_lookup(ifname=ifname)
    if not found:
        return False
    try:
        ipr.link("del", index=found[0])
    except NetlinkError as error:
        if error.code != _NO_SUCH_DEVICE:  # gone by itself, with its namespace
            raise
    return True
