"""Admitted manifests → what to make. Pure and deterministic: the same manifests give the same plan.

Numbers and addresses follow the cluster's allocators: Vpc `default` is 1 and others count from 2, VNIs
count from 2, Pods take the first free address from `.4`. MACs are hashes, so a Pod keeps its own over a
restart of the lab.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from juneau.control import resources as res
from juneau.control.admission import SERVICE_CIDR, Given, reserved
from juneau.control.manifests import Manifest
from juneau.model.cluster import DEFAULT_VPC, ClusterView, Pod, Service, ServicePort, Subnet, Vpc
from juneau.model.ids import DEFAULT_VPC_ID, UNDERLAY_VNI, Mac, Protocol

CLUSTER_DOMAIN: Final = "cluster.local"
MTU: Final = 1450
"""1500 less VXLAN over IPv4 (RFC 7348 section 5): 50 bytes."""

_MAX_NAMESERVERS: Final = 3
_NETNS_NAME_MAX: Final = 200
"""File names end at 255 bytes; Pod and namespace names together may be 317."""


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    name: str
    argv: tuple[str, ...]
    """Empty: the manifest gives no command, and a lab has no images to take one from."""
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class PodPlan:
    namespace: str
    name: str
    hostname: str
    netns: str
    """Name under /run/netns."""
    host_ifname: str
    subnet: str
    ip: IPv4Address
    prefix_len: int
    mac: Mac
    gateway: IPv4Address
    mtu: int
    containers: tuple[ContainerPlan, ...]
    resolv_conf: str
    """Text of the Pod's own /etc/resolv.conf; "": it sees the machine's."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class LabPlan:
    view: ClusterView
    pods: tuple[PodPlan, ...]
    endpoints: tuple[res.VpcEndpoint, ...] = ()
    """Kept, not served yet."""


def make_plan(manifests: Sequence[Manifest], *, lab: str, mtu: int = MTU) -> LabPlan:
    """`manifests` must be admitted; `lab` makes the names of kernel objects its own."""
    given = Given(manifests)
    vpcs = _vpcs(given)
    subnets = _subnets(given)
    pods = [pod for _, pod in given.of(res.Pod)]
    placed = dict(zip([p.key for p in pods], _addresses(pods, subnets), strict=True))
    view = ClusterView(
        vpcs=vpcs,
        subnets=subnets,
        services={(s.namespace, s.name): s for s in _services(given)},
        pods={(p.namespace, p.name): p for p in (_pod(p, subnets[p.subnet], placed[p.key]) for p in pods)},
        namespaces=_namespaces(given),
    )
    plans = tuple(_pod_plan(p, view, lab=lab, mtu=mtu) for p in pods)
    return LabPlan(view, plans, tuple(endpoint for _, endpoint in given.of(res.VpcEndpoint)))


def stable_mac(*name: str) -> Mac:
    """A locally administered unicast address that is the same each time."""
    return Mac(b"\x02" + blake2b("\0".join(name).encode(), digest_size=5).digest())


def first_free(cidr: IPv4Network, taken: Iterable[IPv4Address]) -> IPv4Address:
    """First-fit, lowest first. Raises ValueError when `cidr` is full."""
    used = {int(ip) for ip in taken} | {int(ip) for ip in reserved(cidr)}
    for ip in range(int(cidr.network_address), int(cidr.broadcast_address) + 1):
        if ip not in used:
            return IPv4Address(ip)
    raise ValueError(f"allocate an address of {cidr}: all are taken")


def host_ifname(lab: str, namespace: str, name: str) -> str:
    """Interface names end at 15 bytes, so it is a hash; the alias carries the Pod's name."""
    return "jv" + _hash(lab, namespace, name, size=6)


def netns_prefix(lab: str) -> str:
    return f"juneau.{lab}."


def _netns_name(lab: str, namespace: str, name: str) -> str:
    full = f"{netns_prefix(lab)}{namespace}.{name}"
    return full if len(full) <= _NETNS_NAME_MAX else netns_prefix(lab) + _hash(namespace, name, size=16)


def _hash(*name: str, size: int) -> str:
    return blake2b("\0".join(name).encode(), digest_size=size).hexdigest()


def _vpcs(given: Given) -> dict[str, Vpc]:
    names = [name for name in (vpc.name for _, vpc in given.of(res.Vpc)) if name != DEFAULT_VPC]
    ids = {DEFAULT_VPC: DEFAULT_VPC_ID} | {n: DEFAULT_VPC_ID + 1 + i for i, n in enumerate(names)}
    return {name: _vpc(name, vpc_id, given.vpcs.get(name)) for name, vpc_id in ids.items()}


def _vpc(name: str, vpc_id: int, vpc: res.Vpc | None) -> Vpc:
    if vpc is None:  # `default`, not in the manifests: as the controller's bootstrap makes it
        return Vpc(name, vpc_id, nat_source_subnet=res.DEFAULT)
    return Vpc(name, vpc_id, nat_source_subnet=vpc.spec.nat_source_subnet, consume=vpc.spec.consume)


def _subnets(given: Given) -> dict[str, Subnet]:
    subnets = [subnet for _, subnet in given.of(res.Subnet)]
    return {s.name: _subnet(s, vni) for vni, s in enumerate(subnets, UNDERLAY_VNI + 1)}


def _subnet(subnet: res.Subnet, vni: int) -> Subnet:
    base = subnet.spec.cidr.network_address
    return Subnet(
        name=subnet.name,
        vpc=subnet.spec.vpc,
        vni=vni,
        cidr=subnet.spec.cidr,
        gateway=base + 1,
        gateway_mac=stable_mac("gateway", subnet.name),
        dns=base + 2,
        dns_mac=stable_mac("dns", subnet.name),
    )


def _addresses(pods: Sequence[res.Pod], subnets: Mapping[str, Subnet]) -> Iterator[IPv4Address]:
    """One per Pod, in order. Pinned addresses are set aside first."""
    taken: dict[str, set[IPv4Address]] = {name: set() for name in subnets}
    for pod in pods:
        if pod.pinned_address:
            taken[pod.subnet].add(IPv4Address(pod.pinned_address))
    for pod in pods:
        ip = IPv4Address(pod.pinned_address) if pod.pinned_address else None
        ip = ip or first_free(subnets[pod.subnet].cidr, taken[pod.subnet])
        taken[pod.subnet].add(ip)
        yield ip


def _services(given: Given) -> Iterator[Service]:
    services = [service for _, service in given.of(res.Service)]
    taken = {IPv4Address(s.spec.cluster_ip) for s in services if _is_address(s)}
    following = iter(range(int(SERVICE_CIDR.network_address) + 1, int(SERVICE_CIDR.broadcast_address)))
    for service in services:
        if service.spec.type == "ExternalName" or service.spec.cluster_ip == "None":
            ip = None
        elif service.spec.cluster_ip:
            ip = IPv4Address(service.spec.cluster_ip)
        else:
            ip = next(a for a in map(IPv4Address, following) if a not in taken)
        yield _service(service, ip)


def _is_address(service: res.Service) -> bool:
    return service.spec.type != "ExternalName" and service.spec.cluster_ip not in ("", "None")


def _service(service: res.Service, cluster_ip: IPv4Address | None) -> Service:
    return Service(
        namespace=service.metadata.namespace,
        name=service.name,
        vpc=service.vpc,
        cluster_ip=cluster_ip,
        ports=tuple(
            ServicePort(p.name, p.port, Protocol[p.protocol], p.target_port or p.port)
            for p in service.spec.ports
            if p.protocol in Protocol.__members__  # SCTP cannot be carried
        ),
        external_name=service.spec.external_name if service.spec.type == "ExternalName" else "",
        selector=service.spec.selector,
        shared=service.shared,
        allowed_consumers=service.allowed_consumers,
        publish_not_ready=service.spec.publish_not_ready_addresses,
    )


def _namespaces(given: Given) -> frozenset[str]:
    named = {namespace.name for _, namespace in given.of(res.Namespace)}
    used = {m.resource.metadata.namespace for m in given.manifests if m.resource.namespaced}
    return frozenset(named | used | {res.DEFAULT})


def _pod(pod: res.Pod, subnet: Subnet, ip: IPv4Address) -> Pod:
    return Pod(
        namespace=pod.metadata.namespace,
        name=pod.name,
        vpc=subnet.vpc,
        subnet=subnet.name,
        ip=ip,
        mac=stable_mac("pod", subnet.vpc, subnet.name, pod.metadata.namespace, pod.name),
        labels=pod.metadata.labels,
        hostname=pod.spec.hostname,
        subdomain=pod.spec.subdomain,
    )


def _pod_plan(pod: res.Pod, view: ClusterView, *, lab: str, mtu: int) -> PodPlan:
    namespace, name = pod.metadata.namespace, pod.name
    placed, subnet = view.pods[namespace, name], view.subnets[pod.subnet]
    return PodPlan(
        namespace=namespace,
        name=name,
        hostname=pod.spec.hostname or name.split(".")[0],
        netns=_netns_name(lab, namespace, name),
        host_ifname=host_ifname(lab, namespace, name),
        subnet=subnet.name,
        ip=placed.ip,
        prefix_len=subnet.cidr.prefixlen,
        mac=placed.mac,
        gateway=subnet.gateway,
        mtu=mtu,
        containers=tuple(_container(c) for c in pod.spec.containers),
        resolv_conf=resolv_conf(pod, subnet),
    )


def _container(container: res.Container) -> ContainerPlan:
    return ContainerPlan(
        name=container.name,
        argv=(*container.command, *container.args) if container.command else (),
        env=tuple((e.name, e.value) for e in container.env),
        cwd=container.working_dir,
    )


def resolv_conf(pod: res.Pod, subnet: Subnet) -> str:
    """What the Pod webhook would inject; "" where it leaves the Pod alone."""
    config = pod.spec.dns_config
    if pod.spec.dns_policy == "None":
        return _resolv_conf(config.nameservers, config.searches, _options(config))
    skip = pod.metadata.annotation("dns-inject-skip") == "true" or subnet.vpc == DEFAULT_VPC
    if (
        skip
        or subnet.dns is None
        or pod.spec.dns_policy not in ("", "ClusterFirst", "ClusterFirstWithHostNet")
    ):
        return ""
    servers = list(dict.fromkeys([str(subnet.dns), *config.nameservers]))
    domain = f"svc.{CLUSTER_DOMAIN}"
    searches = config.searches or [f"{pod.metadata.namespace}.{domain}", domain, CLUSTER_DOMAIN]
    options = _options(config)
    if not any(option.startswith("ndots:") for option in options):
        options.append("ndots:5")
    return _resolv_conf(servers, searches, options)


def _options(config: res.DnsConfig) -> list[str]:
    return [o.name if o.value is None else f"{o.name}:{o.value}" for o in config.options]


def _resolv_conf(servers: Sequence[str], searches: Sequence[str], options: Sequence[str]) -> str:
    lines = [f"nameserver {server}" for server in servers[:_MAX_NAMESERVERS]]
    lines += [f"search {' '.join(searches)}"] if searches else []
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join(lines) + "\n"
