"""Manifests as values.

Our own kinds refuse unknown fields, since a typing error there silently opens or closes a network.
Core kinds ignore them, as any client of the API does: real Pods carry far more than a lab needs.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

API_VERSION: Final = "juneau.loutres.me/v1alpha1"
ANNOTATION: Final = "juneau.loutres.me/"
DEFAULT: Final = "default"

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)


def _subdomain(name: str) -> str:
    if not _SUBDOMAIN.fullmatch(name):
        raise ValueError(f"{name!r} is not a DNS-1123 name (lower-case letters, digits, '-' and '.')")
    return name


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise ValueError(f"{name!r} is not a DNS-1123 label (at most 63 lower-case letters, digits and '-')")
    return name


def _cidr(value: object) -> IPv4Network:
    """The masked form: `10.240.0.5/24` is `10.240.0.0/24`, as the mutating webhook has it."""
    if isinstance(value, IPv4Network):
        return value
    if not isinstance(value, str) or "/" not in value:
        raise ValueError(f"{value!r} is not an IPv4 CIDR (write it as 10.80.0.0/24)")
    try:
        return IPv4Network(value, strict=False)
    except ValueError:
        raise ValueError(f"{value!r} is not an IPv4 CIDR (write it as 10.80.0.0/24)") from None


Subdomain: TypeAlias = Annotated[str, AfterValidator(_subdomain)]
Label: TypeAlias = Annotated[str, AfterValidator(_label)]
Cidr: TypeAlias = Annotated[IPv4Network, BeforeValidator(_cidr)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class ObjectMeta(Lenient):
    name: Subdomain
    namespace: Label = DEFAULT
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    def annotation(self, key: str) -> str:
        """The value of `juneau.loutres.me/<key>`; "" when absent."""
        return self.annotations.get(ANNOTATION + key, "").strip()


class _Named:
    """What all kinds share; `namespaced` kinds print as namespace/name."""

    namespaced: ClassVar[bool] = False
    kind: str
    metadata: ObjectMeta

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.kind, self.metadata.namespace if self.namespaced else "", self.name)

    def __str__(self) -> str:
        kind, namespace, name = self.key
        return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


# --- our kinds: cluster-scoped ------------------------------------------------------------------


class Provider(Strict):
    nat_source_subnet: Annotated[str, Field(min_length=1)]


class VpcService(Strict):
    provider: Provider | None = None
    consume: bool = False


class EndpointPool(Strict):
    cidrs: Annotated[list[Cidr], Field(min_length=1)]


class VpcSpec(Strict):
    service: VpcService | None = None
    enforce_security_groups: bool = False
    endpoint_pool: EndpointPool | None = None

    @property
    def nat_source_subnet(self) -> str:
        return self.service.provider.nat_source_subnet if self.service and self.service.provider else ""

    @property
    def consume(self) -> bool:
        return self.service is not None and self.service.consume


class _Own(_Named, Strict):
    api_version: Literal["juneau.loutres.me/v1alpha1"] = API_VERSION
    status: dict[str, Any] | None = None
    """Written by controllers; accepted so that `kubectl get -o yaml` can be fed back, then ignored."""


class Vpc(_Own):
    kind: Literal["Vpc"] = "Vpc"
    metadata: ObjectMeta
    spec: VpcSpec = Field(default_factory=VpcSpec)


class SubnetSpec(Strict):
    vpc: Annotated[str, Field(min_length=1)]
    cidr: Cidr
    route_table: str = ""
    network_acl: Annotated[str, Field(alias="networkACL")] = ""


class Subnet(_Own):
    kind: Literal["Subnet"] = "Subnet"
    metadata: ObjectMeta
    spec: SubnetSpec


class ServiceReference(Strict):
    namespace: Label
    name: Label


class VpcEndpointSpec(Strict):
    vpc: Annotated[str, Field(min_length=1)]
    service: ServiceReference
    dns_names: list[str] = Field(default_factory=list)


class VpcEndpoint(_Own):
    kind: Literal["VpcEndpoint"] = "VpcEndpoint"
    metadata: ObjectMeta
    spec: VpcEndpointSpec


# --- core kinds -----------------------------------------------------------------------------------


class EnvVar(Lenient):
    name: str
    value: str = ""


class Container(Lenient):
    name: Label
    image: str = ""
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[EnvVar] = Field(default_factory=list)
    working_dir: str = ""


class DnsOption(Lenient):
    name: str
    value: str | None = None


class DnsConfig(Lenient):
    nameservers: list[str] = Field(default_factory=list)
    searches: list[str] = Field(default_factory=list)
    options: list[DnsOption] = Field(default_factory=list)


class PodSpec(Lenient):
    containers: list[Container] = Field(default_factory=list)
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    dns_policy: str = ""
    dns_config: DnsConfig = Field(default_factory=DnsConfig)


class Pod(_Named, Lenient):
    namespaced: ClassVar[bool] = True
    api_version: Literal["v1"] = "v1"
    kind: Literal["Pod"] = "Pod"
    metadata: ObjectMeta
    spec: PodSpec = Field(default_factory=PodSpec)

    @property
    def subnet(self) -> str:
        return self.metadata.annotation("subnet") or DEFAULT

    @property
    def pinned_address(self) -> str:
        return self.metadata.annotation("address")


class ServicePort(Lenient):
    name: str = ""
    port: Annotated[int, Field(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    target_port: int | str = 0


class ServiceSpec(Lenient):
    type: str = "ClusterIP"
    cluster_ip: Annotated[str, Field(alias="clusterIP")] = ""
    ports: list[ServicePort] = Field(default_factory=list)
    selector: dict[str, str] = Field(default_factory=dict)
    external_name: str = ""
    publish_not_ready_addresses: bool = False


class Service(_Named, Lenient):
    namespaced: ClassVar[bool] = True
    api_version: Literal["v1"] = "v1"
    kind: Literal["Service"] = "Service"
    metadata: ObjectMeta
    spec: ServiceSpec = Field(default_factory=ServiceSpec)

    @property
    def vpc(self) -> str:
        return self.metadata.annotation("vpc") or DEFAULT

    @property
    def shared(self) -> bool:
        return self.metadata.annotation("shared-service") == "true"

    @property
    def allowed_consumers(self) -> frozenset[str]:
        listed = self.metadata.annotation("shared-service-allowed-consumer-vpcs").split(",")
        return frozenset(name.strip() for name in listed) - {""}


class Namespace(_Named, Lenient):
    api_version: Literal["v1"] = "v1"
    kind: Literal["Namespace"] = "Namespace"
    metadata: ObjectMeta


Resource: TypeAlias = Vpc | Subnet | VpcEndpoint | Pod | Service | Namespace

KINDS: Final[dict[tuple[str, str], type[Resource]]] = {
    (API_VERSION, "Vpc"): Vpc,
    (API_VERSION, "Subnet"): Subnet,
    (API_VERSION, "VpcEndpoint"): VpcEndpoint,
    ("v1", "Pod"): Pod,
    ("v1", "Service"): Service,
    ("v1", "Namespace"): Namespace,
}
