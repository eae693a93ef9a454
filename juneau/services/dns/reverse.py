"""Reverse zones that must not leak: private addresses are answered here, whoever owns them elsewhere.

RFC 6303. A PTR is per Vpc: an address names what the caller's Vpc means by it, never another tenant's.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from juneau.model.cluster import Vpc
from juneau.services.dns import names
from juneau.services.dns.message import Answer, Record, Type
from juneau.services.dns.zone import Node, Zone, answer_from

LOCAL_NETWORKS: Final = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.2.0/24", "192.168.0.0/16", "198.51.100.0/24", "203.0.113.0/24", "255.255.255.255/32"),
        ),
    )
)
LOCAL_IP6: Final = ("c.f", "d.f", "8.e.f", "9.e.f", "a.e.f", "b.e.f")
"""fc00::/7 and fe80::/10, as their names end."""


def answer_reverse(zone: Zone, name: bytes, qtype: int, caller: Vpc) -> Answer | None:
    """None: not ours to answer."""
    labels = names.labels_of(name)
    match labels[-2:]:
        case [b"in-addr", b"arpa"]:
            return _answer_ip4(zone, name, labels[:-2], qtype, caller)
        case [b"ip6", b"arpa"]:
            return _answer_ip6(zone, name, labels[:-2], qtype)
    return None


def _answer_ip4(zone: Zone, name: bytes, labels: list[bytes], qtype: int, caller: Vpc) -> Answer | None:
    octets = _octets(labels)
    exact = len(octets) == len(labels)
    prefix = IPv4Network((bytes(octets).ljust(4, b"\0"), 8 * len(octets)))
    pointers = zone.pointers(caller)
    local = _local_network(zone, prefix, caller)
    if exact and len(octets) == 4 and prefix.network_address in pointers:
        local = local or prefix
    if local is None:
        return None
    origin = _origin(local, octets)
    node = _node(zone, name, prefix, caller) if exact else None
    if node is None and name == origin:
        node = {Type.SOA: [zone.soa(name)]}
    return answer_from(node, name, qtype, zone.soa(origin))


def _node(zone: Zone, name: bytes, prefix: IPv4Network, caller: Vpc) -> Node | None:
    pointers = zone.pointers(caller)
    if prefix.prefixlen == 32:
        found = pointers.get(IPv4Address(prefix.network_address))
        return {Type.PTR: [Record(name, Type.PTR, zone.ttl, target) for target in found]} if found else None
    return {} if any(ip in prefix for ip in pointers) else None


def _local_network(zone: Zone, prefix: IPv4Network, caller: Vpc) -> IPv4Network | None:
    """The private network, or the Subnet of the caller's Vpc, that `prefix` is part of."""
    own = (subnet.cidr for subnet in zone.view.subnets.values() if subnet.vpc == caller.name)
    return next((network for network in (*LOCAL_NETWORKS, *own) if prefix.subnet_of(network)), None)


def _origin(network: IPv4Network, octets: list[int]) -> bytes:
    """Zones are cut at octets: 172.16.0.0/12 is sixteen of them."""
    size = min(-(-network.prefixlen // 8), len(octets))
    return names.join(*(str(o).encode() for o in reversed(octets[:size])), suffix=names.IN_ADDR_ARPA)


def _octets(labels: list[bytes]) -> list[int]:
    """The address that the labels spell from the right, as far as it goes."""
    octets: list[int] = []
    for label in reversed(labels[-4:]):
        if not (
            label.isdigit() and len(label) <= 3 and int(label) < 256 and str(int(label)).encode() == label
        ):
            break
        octets.append(int(label))
    return octets


def _answer_ip6(zone: Zone, name: bytes, labels: list[bytes], qtype: int) -> Answer | None:
    for ending in LOCAL_IP6:
        wanted = ending.encode().split(b".")
        if labels[-len(wanted) :] == wanted:
            origin = names.join(*wanted, suffix=names.IP6_ARPA)
            node: Node | None = {Type.SOA: [zone.soa(name)]} if name == origin else None
            return answer_from(node, name, qtype, zone.soa(origin))
    return None
