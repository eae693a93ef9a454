"""The program on the interfaces: clsact and a direct-action bpf filter on ingress of each host veth.

pyroute2's synchronous IPRoute fails inside a running event loop: everything here blocks and is called outside
the loop or in a worker thread. (The kernel may lack `matchall` and `gact`; a bpf filter alone needs neither.)
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from juneau.packetplane.types import Nic, PlaneError, PlaneSettings

_INGRESS: Final = 0xFFFF_FFF2
"""TC_H_CLSACT with TC_H_MIN_INGRESS."""
_ETH_P_ALL: Final = 0x0003
_PRIORITY, _HANDLE = 1, 1


def filter_name(settings: PlaneSettings) -> str:
    """Tells our filters from another plane's."""
    return f"{settings.tap_name}:pod_egress"


def attach(settings: PlaneSettings, nics: Iterable[Nic], program_fd: int) -> dict[Nic, str]:
    """Attach or replace; returns the NICs where the kernel would not, and why. One bad NIC stops no other."""
    failed = {}
    with IPRoute() as netlink:
        for nic in nics:
            try:
                _attach(netlink, nic.ifindex, program_fd, filter_name(settings))
            except NetlinkError as err:
                failed[nic] = str(err)
    return failed


def _attach(netlink: Any, ifindex: int, program_fd: int, name: str) -> None:
    try:
        netlink.tc("add", "clsact", ifindex)
    except NetlinkError as err:
        if err.code != errno.EEXIST:
            raise
    netlink.tc(
        "replace-filter",
        "bpf",
        ifindex,
        handle=_HANDLE,
        parent=_INGRESS,
        prio=_PRIORITY,
        protocol=_ETH_P_ALL,
        fd=program_fd,
        name=name,
        direct_action=True,
    )


def attached(settings: PlaneSettings) -> set[int]:
    """ifindexes of this network namespace that carry our filter."""
    with IPRoute() as netlink:
        return set(_attached(netlink, filter_name(settings)))


def _attached(netlink: Any, name: str) -> list[int]:
    found = []
    for link in netlink.get_links():
        try:
            filters = list(netlink.get_filters(link["index"], parent=_INGRESS))
        except NetlinkError:
            continue  # no clsact there, or the link has just gone
        if any(_name_of(entry) == name for entry in filters):
            found.append(link["index"])
    return found


def _name_of(entry: Any) -> str | None:
    options = entry.get_attr("TCA_OPTIONS")
    name = options.get_attr("TCA_BPF_NAME") if options is not None and hasattr(options, "get_attr") else None
    return name if isinstance(name, str) else None


def detach(ifindexes: Iterable[int]) -> None:
    """Remove clsact with all that is on it; links that are gone are fine."""
    with IPRoute() as netlink:
        for ifindex in ifindexes:
            _detach(netlink, ifindex)


def _detach(netlink: Any, ifindex: int) -> None:
    try:
        netlink.tc("del", "clsact", ifindex)
    except NetlinkError as err:
        if err.code not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
            raise PlaneError(f"remove filter of ifindex {ifindex}: {err} (needs root)") from err


def remove_link(name: str) -> bool:
    """False: there was none."""
    with IPRoute() as netlink:
        found = netlink.link_lookup(ifname=name)
        for ifindex in found:
            netlink.link("del", index=ifindex)
        return bool(found)
