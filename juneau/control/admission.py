"""What a set of manifests may say. Pure: one `Problem` per thing that is wrong.

The rules are the webhooks' own, plus what a controller would only report later in a condition but a
lab can say at once, since it gets all manifests together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from itertools import combinations
from typing import Final, TypeVar

from juneau.control.manifests import Manifest, ManifestError, Problem
from juneau.control.resources import DEFAULT, Namespace, Pod, Service, Subnet, Vpc, VpcEndpoint

SERVICE_CIDR: Final = IPv4Network("10.96.0.0/12")
"""kubeadm's and kind's default; ClusterIPs come from here."""

NOT_UNICAST: Final = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3")))
"""Nobody can have such an address (RFC 1122 3.2.1.3)."""

SUBNET_PREFIX: Final = range(16, 29)
POOL_PREFIX: Final = range(16, 33)

_R = TypeVar("_R", Vpc, Subnet, VpcEndpoint, Pod, Service, Namespace)


def admit(manifests: Sequence[Manifest]) -> None:
    """Raises ManifestError with every broken rule."""
    problems = review(manifests)
    if problems:
        raise ManifestError(problems)


def review(manifests: Sequence[Manifest]) -> list[Problem]:
    given = Given(manifests)
    return [problem for rule in _RULES for problem in rule(given)]


def reserved(cidr: IPv4Network) -> frozenset[IPv4Address]:
    """Addresses no Pod gets: network, gateway, DNS, the first service and broadcast."""
    first = int(cidr.network_address)
    inside = [first, first + 1, first + 2, first + 3, int(cidr.broadcast_address)]
    return frozenset(IPv4Address(ip) for ip in inside if IPv4Address(ip) in cidr)


class Given:
    """The manifests by kind; the first of a duplicated name counts."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self.manifests = manifests

    def of(self, kind: type[_R]) -> Iterator[tuple[Manifest, _R]]:
        for manifest in self.manifests:
            if isinstance(manifest.resource, kind):
                yield manifest, manifest.resource

    @cached_property
    def vpcs(self) -> dict[str, Vpc]:
        return {vpc.name: vpc for _, vpc in reversed(list(self.of(Vpc)))}

    @cached_property
    def subnets(self) -> dict[str, Subnet]:
        return {subnet.name: subnet for _, subnet in reversed(list(self.of(Subnet)))}

    def has_vpc(self, name: str) -> bool:
        """Vpc `default` exists from the start, as the controller's bootstrap has it."""
        return name == DEFAULT or name in self.vpcs

    @cached_property
    def subnets_by_vpc(self) -> dict[str, list[Subnet]]:
        found: dict[str, list[Subnet]] = {}
        for subnet in self.subnets.values():
            found.setdefault(subnet.spec.vpc, []).append(subnet)
        return found

    def service_enabled(self, vpc: str) -> bool:
        spec = self.vpcs[vpc].spec if vpc in self.vpcs else None
        return bool(spec and (spec.consume or spec.nat_source_subnet))


def _duplicates(given: Given) -> Iterator[Problem]:
    first: dict[tuple[str, str, str], str] = {}
    for manifest in given.manifests:
        where = first.setdefault(manifest.resource.key, manifest.where)
        if where is not manifest.where:
            yield manifest.problem(f"already defined at {where}", "rename or remove one of the two")


def _vpcs(given: Given) -> Iterator[Problem]:
    for manifest, vpc in given.of(Vpc):
        yield from _pool(given, manifest, vpc)
        source = vpc.spec.nat_source_subnet
        if not source:
            continue
        subnet = given.subnets.get(source)
        if subnet is None:
            yield manifest.problem(f"spec.service.provider.natSourceSubnet: there is no Subnet {source}")
        elif subnet.spec.vpc != vpc.name:
            cause = f"spec.service.provider.natSourceSubnet: Subnet {source} belongs to Vpc {subnet.spec.vpc}"
            yield manifest.problem(cause, f"name a Subnet of Vpc {vpc.name}")


def _pool(given: Given, manifest: Manifest, vpc: Vpc) -> Iterator[Problem]:
    cidrs = vpc.spec.endpoint_pool.cidrs if vpc.spec.endpoint_pool else []
    for cidr in cidrs:
        if cidr.prefixlen not in POOL_PREFIX:
            yield manifest.problem(f"endpoint pool {cidr}: prefix /{cidr.prefixlen}, allowed /16 to /32")
        if any(map(cidr.overlaps, NOT_UNICAST)):
            yield manifest.problem(
                f"endpoint pool {cidr}: no unicast addresses", "take a range of 10.0.0.0/8"
            )
        if cidr.overlaps(SERVICE_CIDR):
            yield manifest.problem(f"endpoint pool {cidr} overlaps the Service CIDR {SERVICE_CIDR}")
        for subnet in given.subnets_by_vpc.get(vpc.name, ()):
            if cidr.overlaps(subnet.spec.cidr):
                cause = f"endpoint pool {cidr} overlaps Subnet {subnet.name} {subnet.spec.cidr}"
                yield manifest.problem(cause, "take a range outside the Vpc's Subnets")
    for one, other in combinations(cidrs, 2):
        if one.overlaps(other):
            yield manifest.problem(f"endpoint pool {one} overlaps {other} of the same pool")


def _subnets(given: Given) -> Iterator[Problem]:
    for manifest, subnet in given.of(Subnet):
        vpc, cidr = subnet.spec.vpc, subnet.spec.cidr
        if not given.has_vpc(vpc):
            yield manifest.problem(f"spec.vpc: there is no Vpc {vpc}", _known("Vpcs", given.vpcs))
        if (subnet.name == DEFAULT) != (vpc == DEFAULT):
            yield manifest.problem(
                "Subnet default and Vpc default go only with each other", "use other names"
            )
        if cidr.prefixlen not in SUBNET_PREFIX:
            cause = f"spec.cidr {cidr}: prefix /{cidr.prefixlen}, allowed /16 to /28"
            yield manifest.problem(
                cause, "gateway, DNS and a first service need room" if cidr.prefixlen > 28 else ""
            )
        if any(map(cidr.overlaps, NOT_UNICAST)):
            yield manifest.problem(f"spec.cidr {cidr}: no unicast addresses", "take a range of 10.0.0.0/8")
        if given.service_enabled(vpc) and cidr.overlaps(SERVICE_CIDR):
            yield manifest.problem(f"spec.cidr {cidr} overlaps the Service CIDR {SERVICE_CIDR}")
        if subnet.spec.route_table and (vpc == DEFAULT or subnet.spec.route_table != vpc):
            cause = f"spec.routeTable: there is no RouteTable {subnet.spec.route_table} of Vpc {vpc}"
            yield manifest.problem(cause, "leave it out for the Vpc's main table")
        if subnet.spec.network_acl:
            yield manifest.problem(f"spec.networkACL: there is no NetworkACL {subnet.spec.network_acl}")


def _overlaps(given: Given) -> Iterator[Problem]:
    subnets = list(given.of(Subnet))
    for first, second in sorted(_overlapping([subnet for _, subnet in subnets])):
        (_, one), (manifest, other) = subnets[first], subnets[second]
        if one.name != other.name:
            cause = f"spec.cidr {other.spec.cidr} overlaps Subnet {one.name} {one.spec.cidr} of the same Vpc"
            yield manifest.problem(cause, "only Subnets of different Vpcs may overlap")


def _overlapping(subnets: Sequence[Subnet]) -> Iterator[tuple[int, int]]:
    """Indexes of overlapping Subnets of one Vpc, the smaller first. CIDRs are nested or apart: walking them
    by Vpc and address, wider ones first, those around the present one are a stack."""
    around: list[int] = []
    by_place = sorted(range(len(subnets)), key=lambda i: _place(subnets[i]))
    for index in by_place:
        while around and not _within(subnets[index], subnets[around[-1]]):
            around.pop()
        for outer in around:
            yield min(outer, index), max(outer, index)
        around.append(index)


def _place(subnet: Subnet) -> tuple[str, int, int]:
    return subnet.spec.vpc, int(subnet.spec.cidr.network_address), subnet.spec.cidr.prefixlen


def _within(inner: Subnet, outer: Subnet) -> bool:
    return inner.spec.vpc == outer.spec.vpc and inner.spec.cidr.overlaps(outer.spec.cidr)


def _endpoints(given: Given) -> Iterator[Problem]:
    for manifest, endpoint in given.of(VpcEndpoint):
        vpc = given.vpcs.get(endpoint.spec.vpc)
        if not given.has_vpc(endpoint.spec.vpc):
            yield manifest.problem(
                f"spec.vpc: there is no Vpc {endpoint.spec.vpc}", _known("Vpcs", given.vpcs)
            )
        elif vpc is None or vpc.spec.endpoint_pool is None:
            yield manifest.problem(
                f"Vpc {endpoint.spec.vpc} has no spec.endpointPool", "declare one with its cidrs"
            )


def _pods(given: Given) -> Iterator[Problem]:
    for manifest, pod in given.of(Pod):
        names = [container.name for container in pod.spec.containers]
        if len(set(names)) != len(names):
            yield manifest.problem("two containers share a name")
        if pod.spec.host_network:
            yield manifest.problem(
                "spec.hostNetwork: such a Pod is in no Subnet", "a lab runs Pods of Subnets only"
            )
        elif pod.subnet in given.subnets:
            continue
        elif pod.metadata.annotation("subnet"):
            hint = _known("Subnets", given.subnets)
            yield manifest.problem(
                f"annotation juneau.loutres.me/subnet: there is no Subnet {pod.subnet}", hint
            )
        else:
            hint = "add the annotation juneau.loutres.me/subnet"
            yield manifest.problem("in no Subnet, and there is no Subnet default to fall back on", hint)


def _not_here(given: Given) -> Iterator[Problem]:
    """Refused rather than ignored: the manifest asks for protection or interfaces that would not be there."""
    for manifest, pod in given.of(Pod):
        for key in ("security-groups", "networks", "elastic-ip"):
            if pod.metadata.annotation(key):
                yield manifest.problem(
                    f"annotation juneau.loutres.me/{key}: not supported yet", "leave it out"
                )
        subnet = given.subnets.get(pod.subnet)
        vpc = given.vpcs.get(subnet.spec.vpc) if subnet else None
        if vpc is not None and vpc.spec.enforce_security_groups:
            cause = f"Vpc {vpc.name} has enforceSecurityGroups, and there are no SecurityGroups yet"
            yield manifest.problem(cause, "leave enforceSecurityGroups out of the Vpc")


def _addresses(given: Given) -> Iterator[Problem]:
    taken: dict[tuple[str, IPv4Address], Pod] = {}
    for manifest, pod in given.of(Pod):
        subnet, text = given.subnets.get(pod.subnet), pod.pinned_address
        if subnet is None or not text:
            continue
        where, cidr = f"annotation juneau.loutres.me/address {text}", subnet.spec.cidr
        address = _ipv4(text)
        if address is None:
            yield manifest.problem(
                f"{where}: not an IPv4 address", "write it as 10.80.0.10, without a prefix"
            )
        elif address not in cidr:
            yield manifest.problem(f"{where}: outside Subnet {subnet.name} {cidr}")
        elif address in reserved(cidr):
            hint = (
                "the network, .1 gateway, .2 DNS, .3 first service and broadcast addresses are not for Pods"
            )
            yield manifest.problem(f"{where}: reserved in Subnet {subnet.name}", hint)
        elif (other := taken.setdefault((subnet.name, address), pod)) is not pod:
            yield manifest.problem(
                f"{where}: taken by {other}", "choose another, or leave it out to get a free one"
            )


def _room(given: Given) -> Iterator[Problem]:
    wanted: dict[str, int] = {}
    for manifest, pod in given.of(Pod):
        subnet = given.subnets.get(pod.subnet)
        if subnet is None:
            continue
        cidr = subnet.spec.cidr
        wanted[subnet.name] = wanted.get(subnet.name, 0) + 1
        if wanted[subnet.name] == cidr.num_addresses - len(reserved(cidr)) + 1:
            yield manifest.problem(f"Subnet {subnet.name} {cidr} has no address left")


def _services(given: Given) -> Iterator[Problem]:
    taken: dict[IPv4Address, Service] = {}
    for manifest, service in given.of(Service):
        if not given.has_vpc(service.vpc):
            hint = _known("Vpcs", given.vpcs)
            yield manifest.problem(f"annotation juneau.loutres.me/vpc: there is no Vpc {service.vpc}", hint)
        yield from _service_ports(manifest, service)
        text = service.spec.cluster_ip
        if service.spec.type == "ExternalName" or text in ("", "None"):
            continue
        address = _ipv4(text)
        if address is None or address not in SERVICE_CIDR:
            yield manifest.problem(
                f"spec.clusterIP {text}: not an address of the Service CIDR {SERVICE_CIDR}"
            )
        elif (other := taken.setdefault(address, service)) is not service:
            yield manifest.problem(f"spec.clusterIP {text}: taken by {other}")


def _service_ports(manifest: Manifest, service: Service) -> Iterator[Problem]:
    ports = service.spec.ports
    if service.spec.type == "ExternalName":
        if not service.spec.external_name:
            yield manifest.problem("spec.externalName: required with type ExternalName")
        return
    if not ports and service.spec.cluster_ip != "None":
        yield manifest.problem("spec.ports: required")
    if len(ports) > 1 and (not all(p.name for p in ports) or len({p.name for p in ports}) < len(ports)):
        yield manifest.problem("spec.ports: several ports need a name each")
    if len({(p.port, p.protocol) for p in ports}) < len(ports):
        yield manifest.problem("spec.ports: a port is given twice")


def _ipv4(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None


def _known(kind: str, names: Iterable[str]) -> str:
    return f"{kind} here: {', '.join(sorted(names)) or 'none'}"


_RULES: Final[tuple[Callable[[Given], Iterator[Problem]], ...]] = (
    _duplicates,
    _vpcs,
    _subnets,
    _overlaps,
    _endpoints,
    _pods,
    _not_here,
    _addresses,
    _room,
    _services,
)
