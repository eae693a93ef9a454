"""The program on the interfaces: clsact and a direct-action bpf filter on ingress of each host veth.

Everything here blocks and is meant to be called outside the event loop or in a worker thread. pyroute2's
synchronous IPRoute fails in a thread whose loop is running; should that be the caller's, a thread is made.
(The kernel may lack `matchall` and `gact`; a direct-action bpf filter needs neither.)
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from juneau.packetplane.types import Nic, PlaneError, PlaneSettings

_P = ParamSpec("_P")
_T = TypeVar("_T")

_INGRESS: Final = 0xFFFF_FFF2
"""TC_H_CLSACT with TC_H_MIN_INGRESS."""
_ETH_P_ALL: Final = 0x0003
_PRIORITY, _HANDLE = 1, 1


def filter_name(settings: PlaneSettings) -> str:
    """Tells our filters from another plane's."""
    return f"{settings.tap_name}:pod_egress"


def _off_loop(function: Callable[_P, _T]) -> Callable[_P, _T]:
    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return function(*args, **kwargs)
        with ThreadPoolExecutor(1) as worker:
            return worker.submit(function, *args, **kwargs).result()

    return call


@_off_loop
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


@_off_loop
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


@_off_loop
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


@_off_loop
def remove_link(name: str) -> bool:
    """False: there was none."""
    with IPRoute() as netlink:
        found = netlink.link_lookup(ifname=name)
        for ifindex in found:
            netlink.link("del", index=ifindex)
        return bool(found)
