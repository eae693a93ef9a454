"""What the services see of the cluster: an immutable snapshot, whoever produced it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

from juneau.model.ids import Mac, Protocol, TenantId

DEFAULT_VPC = "default"


@dataclass(frozen=True, slots=True)
class Vpc:
    name: str
    vpc_id: int
    nat_source_subnet: str = ""
    """Non-empty makes the Vpc a provider: its Services may be called from other Vpcs."""
    consume: bool = False

    @property
    def is_provider(self) -> bool:
        return bool(self.nat_source_subnet)

    @property
    def service_enabled(self) -> bool:
        """`spec.service: {}` alone enables nothing."""
        return self.consume or self.is_provider


@dataclass(frozen=True, slots=True)
class Subnet:
    name: str
    vpc: str
    vni: int
    cidr: IPv4Network
    gateway: IPv4Address
    gateway_mac: Mac
    dns: IPv4Address | None
    dns_mac: Mac | None


@dataclass(frozen=True, slots=True)
class ServicePort:
    name: str
    port: int
    proto: Protocol
    target_port: int | str = 0


@dataclass(frozen=True, slots=True)
class Service:
    namespace: str
    name: str
    vpc: str = DEFAULT_VPC
    """The owner: annotation `juneau.loutres.me/vpc`."""
    cluster_ip: IPv4Address | None = None
    """None: headless."""
    ports: tuple[ServicePort, ...] = ()
    external_name: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False
    allowed_consumers: frozenset[str] = frozenset()
    """Empty: every consumer Vpc."""
    publish_not_ready: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    namespace: str
    name: str
    vpc: str
    subnet: str
    ip: IPv4Address
    mac: Mac
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""
    ready: bool = True


@dataclass(frozen=True)
class ClusterView:
    """One consistent look at the cluster. Replace it as a whole; never mutate it."""

    vpcs: Mapping[str, Vpc] = field(default_factory=dict)
    subnets: Mapping[str, Subnet] = field(default_factory=dict)
    services: Mapping[tuple[str, str], Service] = field(default_factory=dict)
    """Keyed by (namespace, name)."""
    pods: Mapping[tuple[str, str], Pod] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset({"default"})
    synced: bool = True
    """False: answers from here would be lies; a resolver says SERVFAIL, never NXDOMAIN."""

    @cached_property
    def vpc_by_id(self) -> Mapping[int, Vpc]:
        return {vpc.vpc_id: vpc for vpc in self.vpcs.values()}

    @cached_property
    def subnet_by_vni(self) -> Mapping[int, Subnet]:
        return {subnet.vni: subnet for subnet in self.subnets.values()}

    @cached_property
    def pods_by_vpc_ip(self) -> Mapping[tuple[str, IPv4Address], Pod]:
        return {(pod.vpc, pod.ip): pod for pod in self.pods.values()}

    def tenant(self, subnet: Subnet) -> TenantId:
        return TenantId(self.vpcs[subnet.vpc].vpc_id, subnet.vni)
