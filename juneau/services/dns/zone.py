"""The cluster zone as one Vpc may see it: Kubernetes DNS specification 1.1.0.

Every name is a node with its record sets, or nothing. From that alone follow the three answers that
resolvers must be able to tell apart: records, no such records (NODATA), no such name (NXDOMAIN).
What the caller's Vpc may not reach is no such name.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address
from typing import Final, TypeAlias, TypeVar

from juneau.model.cluster import ClusterView, Pod, Service, ServicePort, Vpc
from juneau.model.ids import Protocol
from juneau.model.policy import is_endpoint, resolvable_from
from juneau.services.dns import names
from juneau.services.dns.message import U16, Answer, Rcode, Record, Type

SPEC_VERSION: Final = "1.1.0"
NS_LABELS: Final = (b"ns", b"dns")
PROTOCOLS: Final = {b"_tcp": Protocol.TCP, b"_udp": Protocol.UDP}
ALWAYS_THERE: Final = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that tell nothing about anyone. Others exist for a Vpc that has something in them."""

Shuffled = TypeVar("Shuffled")
Node: TypeAlias = Mapping[int, Sequence[Record]]

NAME_OFFSETS: Final[Mapping[int, int]] = {Type.SRV: 6, Type.NS: 0}
"""Where the target's name begins in a record's data."""

RFC8482: Final = b"\x07RFC8482\x00"
RFC8482_TTL: Final = 8482


class Zone:
    """Answers from one view. Cheap to make: what it needs it indexes when first asked."""

    def __init__(self, view: ClusterView, *, domain: str, ttl: int, serial: int, rng: random.Random) -> None:
        self.view, self.ttl, self.serial = view, ttl, serial
        self.origin = names.encode(domain.lower())
        self._origin_labels = names.labels_of(self.origin)
        self._shuffle = rng.shuffle
        self._endpoints: dict[tuple[str, str], tuple[Pod, ...]] = {}
        self._namespaces: dict[str, frozenset[str]] = {}
        self._pointers: dict[str, Mapping[IPv4Address, Sequence[bytes]]] = {}

    def contains(self, name: bytes) -> bool:
        """By labels: bytes may look like our suffix inside a label."""
        depth = len(self._origin_labels)
        return name.endswith(self.origin) and names.labels_of(name)[-depth:] == self._origin_labels

    def answer(self, name: bytes, qtype: int, caller: Vpc, server: IPv4Address | None) -> Answer:
        """For a name that the zone contains. `server` is where the caller finds us."""
        found = self.node(name, caller, server)
        return answer_from(
            found, name, qtype, self.soa(self.origin), self._glue(found, qtype, caller, server)
        )

    def node(self, name: bytes, caller: Vpc, server: IPv4Address | None) -> Node | None:
        relative = names.labels_of(name)[: -len(self._origin_labels)]
        match relative:
            case []:
                return {Type.SOA: [self.soa(name)], Type.NS: [self._record(name, Type.NS, self._ns_name)]}
            case [b"dns-version"]:
                text = SPEC_VERSION.encode()
                return {Type.TXT: [self._record(name, Type.TXT, bytes((len(text),)) + text)]}
            case [b"ns", b"dns"]:
                return {Type.A: [self._a(name, server)] if server else []}
            case [b"dns"] | [b"svc"] | [b"pod"]:
                return {}
            case [namespace, b"svc" | b"pod"]:
                return {} if _text(namespace) in self._visible_namespaces(caller) else None
            case [*left, service, namespace, b"svc"]:
                return self._service_node(name, left, _text(service), _text(namespace), caller)
            case [dashed, namespace, b"pod"]:
                return self._pod_node(name, _text(dashed), _text(namespace), caller)
        return None

    def soa(self, owner: bytes) -> Record:
        """RFC 2308: its TTL and last field say how long an absence may be remembered."""
        numbers = (self.serial & 0xFFFFFFFF, 7200, 1800, 86400, self.ttl)
        data = self._ns_name + names.join(b"hostmaster", suffix=self.origin)
        return Record(owner, Type.SOA, self.ttl, data + b"".join(n.to_bytes(4, "big") for n in numbers))

    @cached_property
    def _ns_name(self) -> bytes:
        return names.join(*NS_LABELS, suffix=self.origin)

    # Services

    def _service_node(
        self, name: bytes, left: list[bytes], service_name: str, namespace: str, caller: Vpc
    ) -> Node | None:
        service = self.view.services.get((namespace, service_name))
        if service is None or not resolvable_from(service, caller):
            return None
        if service.external_name:
            return None if left else self._external(name, service)
        if service.cluster_ip is None and not self._reachable(service, caller):
            return None  # headless without a ready endpoint
        match left:
            case []:
                return {Type.A: [self._a(name, ip) for ip in self._service_ips(service)]}
            case [b"_tcp" | b"_udp" as proto]:
                return {} if any(p.name and p.proto == PROTOCOLS[proto] for p in service.ports) else None
            case [port, b"_tcp" | b"_udp" as proto]:
                return self._srv_node(name, service, _text(port), PROTOCOLS[proto])
            case [hostname]:
                return self._hostname_node(name, service, _text(hostname))
        return None

    def _external(self, name: bytes, service: Service) -> Node | None:
        try:
            target = names.encode(service.external_name.lower())
        except ValueError:
            return None
        return {Type.CNAME: [self._record(name, Type.CNAME, target)]}

    def _srv_node(self, name: bytes, service: Service, port_label: str, proto: Protocol) -> Node | None:
        ports = [p for p in service.ports if p.name and p.proto == proto and f"_{p.name}" == port_label]
        if not ports:
            return None
        targets = list(self._targets(service))
        weight = max(1, 100 // len(targets))
        records = [
            self._record(name, Type.SRV, b"".join(map(U16.pack, (0, weight, _port(service, port)))) + target)
            for port in ports
            for target in targets
        ]
        return {Type.SRV: self._shuffled(records)}

    def _targets(self, service: Service) -> Iterator[bytes]:
        base = self._service_name(service)
        if service.cluster_ip is not None:
            yield base
            return
        for hostname in sorted({hostname_of(pod, service) for pod in self.endpoints(service)}):
            yield names.join(hostname.encode(), suffix=base)

    def _hostname_node(self, name: bytes, service: Service, hostname: str) -> Node | None:
        if service.cluster_ip is not None:
            return None
        ips = [pod.ip for pod in self.endpoints(service) if hostname_of(pod, service) == hostname]
        return {Type.A: self._shuffled([self._a(name, ip) for ip in ips])} if ips else None

    def _service_ips(self, service: Service) -> list[IPv4Address]:
        if service.cluster_ip is not None:
            return [service.cluster_ip]
        return self._shuffled([pod.ip for pod in self.endpoints(service)])

    def _reachable(self, service: Service, caller: Vpc) -> bool:
        """Pod addresses mean something in the Pods' own Vpc only."""
        return service.vpc == caller.name and bool(self.endpoints(service))

    def endpoints(self, service: Service) -> tuple[Pod, ...]:
        key = service.namespace, service.name
        if key not in self._endpoints:
            pods = self._pods_by_place.get((service.vpc, service.namespace), ())
            self._endpoints[key] = tuple(pod for pod in pods if is_endpoint(service, pod))
        return self._endpoints[key]

    def _glue(
        self, node: Node | None, qtype: int, caller: Vpc, server: IPv4Address | None
    ) -> tuple[Record, ...]:
        """Addresses of the names in an SRV or NS answer."""
        skip = NAME_OFFSETS.get(qtype)
        if node is None or skip is None:
            return ()
        targets = dict.fromkeys(record.data[skip:] for record in node.get(qtype, ()))
        nodes = [self.node(target, caller, server) or {} for target in targets]
        return tuple(record for found in nodes for record in found.get(Type.A, ()))

    # Pods and namespaces

    def _pod_node(self, name: bytes, dashed: str, namespace: str, caller: Vpc) -> Node | None:
        """CoreDNS's `pods verified`, in the caller's Vpc: there is such a Pod, or no such name."""
        try:
            ip = IPv4Address(dashed.replace("-", ".")) if dashed.count("-") == 3 else None
        except AddressValueError:
            return None
        pod = self.view.pods_by_vpc_ip.get((caller.name, ip)) if ip else None
        if pod is None or pod.namespace != namespace:
            return None
        return {Type.A: [self._a(name, pod.ip)]}

    def _visible_namespaces(self, caller: Vpc) -> frozenset[str]:
        if caller.name not in self._namespaces:
            of_services = {s.namespace for s in self.view.services.values() if resolvable_from(s, caller)}
            of_pods = {namespace for vpc, namespace in self._pods_by_place if vpc == caller.name}
            self._namespaces[caller.name] = frozenset(
                of_services | of_pods | (ALWAYS_THERE & self.view.namespaces)
            )
        return self._namespaces[caller.name]

    @cached_property
    def _pods_by_place(self) -> Mapping[tuple[str, str], list[Pod]]:
        places: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in self.view.pods.values():
            places[pod.vpc, pod.namespace].append(pod)
        return places

    # Pointers

    def pointers(self, caller: Vpc) -> Mapping[IPv4Address, Sequence[bytes]]:
        """Names of addresses as `caller` may know them: Services first, then named endpoints."""
        if caller.name not in self._pointers:
            self._pointers[caller.name] = self._build_pointers(caller)
        return self._pointers[caller.name]

    def _build_pointers(self, caller: Vpc) -> Mapping[IPv4Address, Sequence[bytes]]:
        services: defaultdict[IPv4Address, list[bytes]] = defaultdict(list)
        hosts: defaultdict[IPv4Address, list[bytes]] = defaultdict(list)
        for service in self.view.services.values():
            if service.external_name or not resolvable_from(service, caller):
                continue
            base = self._service_name(service)
            if service.cluster_ip is not None:
                services[service.cluster_ip].append(base)
            elif service.vpc == caller.name:
                for pod in self.endpoints(service):
                    if has_hostname(pod, service):
                        hosts[pod.ip].append(names.join(pod.hostname.encode(), suffix=base))
        return hosts | services

    # Records

    def _service_name(self, service: Service) -> bytes:
        return names.join(service.name.encode(), service.namespace.encode(), b"svc", suffix=self.origin)

    def _record(self, owner: bytes, rtype: int, data: bytes) -> Record:
        return Record(owner, rtype, self.ttl, data)

    def _a(self, owner: bytes, ip: IPv4Address) -> Record:
        return Record(owner, Type.A, self.ttl, ip.packed)

    def _shuffled(self, items: list[Shuffled]) -> list[Shuffled]:
        """Clients take the first: let it not be the same one for all."""
        self._shuffle(items)
        return items


def answer_from(
    node: Node | None, name: bytes, qtype: int, soa: Record, additional: tuple[Record, ...] = ()
) -> Answer:
    """RFC 1034 section 4.3.2 and RFC 2308 for a zone without delegations."""
    if node is None:
        return Answer(Rcode.NXDOMAIN, True, (), (soa,))
    if qtype == Type.ANY:
        return any_answer(name, aa=True)
    records = node.get(qtype) or node.get(Type.CNAME)
    if not records:
        return Answer(Rcode.NOERROR, True, (), (soa,))
    return Answer(Rcode.NOERROR, True, tuple(records), (), additional)


def any_answer(name: bytes, *, aa: bool = False) -> Answer:
    """RFC 8482 section 4.2: something small instead of everything."""
    return Answer(Rcode.NOERROR, aa, (Record(name, Type.HINFO, RFC8482_TTL, RFC8482),))


def hostname_of(pod: Pod, service: Service) -> str:
    return pod.hostname if has_hostname(pod, service) else str(pod.ip).replace(".", "-")


def has_hostname(pod: Pod, service: Service) -> bool:
    """A Pod's hostname counts below the Service that its subdomain names."""
    return bool(pod.hostname) and pod.subdomain == service.name


def _port(service: Service, port: ServicePort) -> int:
    """Of a headless Service it is the Pod's own port that answers."""
    if service.cluster_ip is None and isinstance(port.target_port, int) and port.target_port:
        return port.target_port
    return port.port


def _text(label: bytes) -> str:
    """Never fails; what is not ASCII is the name of nothing."""
    return label.decode("latin-1")
