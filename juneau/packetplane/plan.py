"""Desired state → contents of the maps → changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple, TypeAlias

from juneau.model.ids import ServiceId, ServiceSpec, Vip
from juneau.packetplane.bpf import abi
from juneau.packetplane.types import DesiredState, Nic, PlaneError, SubnetEntry

Contents = dict[bytes, bytes]
"""Of one map: key → value, as the kernel has them."""


Address: TypeAlias = tuple[int, bytes]
"""subnet_id and IPv4 address."""


class MapChange(NamedTuple):
    """Deletions go first."""

    delete: tuple[bytes, ...]
    update: tuple[tuple[bytes, bytes], ...]


def diff(desired: Mapping[bytes, bytes], actual: Mapping[bytes, bytes]) -> MapChange:
    """What turns `actual` into `desired`; empty when they agree."""
    stale = tuple(sorted(actual.keys() - desired.keys()))
    return MapChange(stale, tuple((k, v) for k, v in sorted(desired.items()) if actual.get(k) != v))


def check(desired: DesiredState) -> None:
    """Raises PlaneError for what maps cannot hold side by side: the later one would silently win."""
    _unique("subnet_id", (subnet.tenant.subnet_id for subnet in desired.subnets))
    _unique("ifindex", (nic.ifindex for nic in desired.nics))
    _unique("pod address", ((nic.tenant.subnet_id, str(nic.ip)) for nic in desired.nics))
    _unique("pod mac", ((nic.tenant.subnet_id, str(nic.mac)) for nic in desired.nics))
    known = {subnet.tenant for subnet in desired.subnets}
    used = [(nic.tenant, nic.ip) for nic in desired.nics] + [(vip.tenant, vip.ip) for vip in desired.vips]
    for tenant, ip in used:
        if tenant not in known:
            raise PlaneError(f"program {ip}: subnet {tenant} is not in the desired state")


def address_of(owner: Nic | Vip) -> Address:
    return owner.tenant.subnet_id, owner.ip.packed


class ByAddress:
    """A desired state, to look at one address of it without a walk over all."""

    def __init__(self, desired: DesiredState) -> None:
        self._subnets = {subnet.tenant.subnet_id: subnet for subnet in desired.subnets}
        self._nics = {address_of(nic): nic for nic in desired.nics}
        self._vips: dict[Address, list[Vip]] = {}
        for vip in desired.vips:
            self._vips.setdefault(address_of(vip), []).append(vip)

    def at(self, address: Address) -> DesiredState:
        """The part that has a say there: the Subnet, for its gateway, the NIC and the VIPs."""
        subnet, nic = self._subnets.get(address[0]), self._nics.get(address)
        return DesiredState(
            (subnet,) if subnet is not None else (),
            (nic,) if nic is not None else (),
            tuple(self._vips.get(address, ())),
        )


def _unique(what: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise PlaneError(f"program {what} {value}: given twice")
        seen.add(value)


def contents(
    desired: DesiredState, vips: Iterable[Vip], services: Iterable[ServiceSpec]
) -> dict[abi.MapSpec, Contents]:
    """Of every map that is reconciled. `vips` are all of them, the desired state's and those added since;
    where two share an address, the later one has it."""
    vips = list(vips)
    return {
        abi.SUBNET_MAP: dict(map(_subnet, desired.subnets)),
        abi.ROUTE_MAP: dict(map(_route, desired.subnets)),
        abi.NIC_MAP: dict(map(_nic, desired.nics)),
        abi.FDB_MAP: dict(map(_port, desired.nics)),
        # A VIP may sit on the gateway's address, never on a Pod's: Pods go last.
        abi.ARP_TABLE: {
            **dict(map(_gateway, desired.subnets)),
            **dict(map(arp_of_vip, vips)),
            **dict(map(_neighbour, desired.nics)),
        },
        abi.VIRTUAL_SERVICE_MAP: {**dict(map(vip_entry, vips)), **dict(map(service_entry, services))},
    }


def _subnet(subnet: SubnetEntry) -> tuple[bytes, bytes]:
    value = abi.SubnetValue(subnet.tenant.vpc_id, subnet.gateway.packed, subnet.gateway_mac)
    return abi.u32(subnet.tenant.subnet_id), value.pack()


def _route(subnet: SubnetEntry) -> tuple[bytes, bytes]:
    length = abi.ROUTE_TABLE_BITS + subnet.cidr.prefixlen
    key = abi.RouteKey(length, subnet.tenant.vpc_id, subnet.cidr.network_address.packed)
    return key.pack(), abi.u32(subnet.tenant.subnet_id)


def _gateway(subnet: SubnetEntry) -> tuple[bytes, bytes]:
    return _arp(subnet.tenant.subnet_id, subnet.gateway, 0, subnet.gateway_mac)


def _nic(nic: Nic) -> tuple[bytes, bytes]:
    return abi.u32(nic.ifindex), abi.NicValue(*nic.tenant, nic.ip.packed, nic.mac).pack()


def _port(nic: Nic) -> tuple[bytes, bytes]:
    return abi.FdbKey(nic.tenant.subnet_id, nic.mac).pack(), abi.u32(nic.ifindex)


def _neighbour(nic: Nic) -> tuple[bytes, bytes]:
    return _arp(nic.tenant.subnet_id, nic.ip, nic.ifindex, nic.mac)


def arp_of_vip(vip: Vip) -> tuple[bytes, bytes]:
    return _arp(vip.tenant.subnet_id, vip.ip, 0, vip.mac)


def _arp(subnet_id: int, ip: IPv4Address, ifindex: int, mac: bytes) -> tuple[bytes, bytes]:
    return abi.ArpKey(subnet_id, ip.packed).pack(), abi.ArpValue(ifindex, mac).pack()


def vip_entry(vip: Vip) -> tuple[bytes, bytes]:
    """The VIP itself: ICMP, closed ports and fragments reach the stack."""
    key = abi.VirtualServiceKey(vip.tenant.subnet_id, vip.ip.packed, 0, 0)
    return key.pack(), abi.VirtualServiceValue(ServiceId.ICMP, vip.mac).pack()


def service_entry(spec: ServiceSpec) -> tuple[bytes, bytes]:
    ip, port, proto = spec.addr
    key = abi.VirtualServiceKey(spec.tenant.subnet_id, ip.packed, port, proto)
    return key.pack(), abi.VirtualServiceValue(spec.service_id, spec.service_mac).pack()
