"""Two Vpcs with the same addresses, and one that shares; dnspython asks and reads."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import dns.message
import dns.rrset

from juneau.model.cluster import ClusterView, Pod, Service, ServicePort, Subnet, Vpc
from juneau.model.ids import Mac, Protocol, TenantId
from juneau.services.dns.resolver import Resolver
from juneau.services.dns.settings import DnsSettings

ALPHA, BETA, BARE = TenantId(1, 100), TenantId(2, 200), TenantId(3, 300)
SUFFIX = "svc.cluster.local."
TCP, UDP = Protocol.TCP, Protocol.UDP


def subnet(name: str, vpc: str, vni: int) -> Subnet:
    net, mac = IPv4Network("10.80.0.0/24"), Mac("0a:00:00:00:00:02")
    return Subnet(name, vpc, vni, net, net[1], mac, net[2], mac)


def pod(vpc: str, name: str, ip: str, **fields: Any) -> Pod:
    fields.setdefault("namespace", "default")
    return Pod(name=name, vpc=vpc, subnet=f"{vpc}-net", ip=IPv4Address(ip), mac=Mac(b"\x0a" * 6), **fields)


def service(vpc: str, name: str, ip: str | None = None, *ports: tuple[str, int], **fields: Any) -> Service:
    fields.setdefault("namespace", "default")
    made = tuple(ServicePort(port, number, TCP, number + 8000) for port, number in ports)
    return Service(name=name, vpc=vpc, cluster_ip=IPv4Address(ip) if ip else None, ports=made, **fields)


SERVICES = [
    service("alpha", "web", "10.96.0.10", ("http", 80), ("", 81)),
    service("alpha", "db", None, ("pg", 5432), selector={"app": "db"}),
    service("alpha", "noports", None, selector={"app": "db"}),
    service("alpha", "sleeping", None, ("x", 1), selector={"app": "sleepy"}),
    service("alpha", "eager", None, ("x", 1), selector={"app": "sleepy"}, publish_not_ready=True),
    service("alpha", "big", None, selector={"app": "big"}, namespace="many"),
    service("alpha", "outside", external_name="www.example.com"),
    service("alpha", "inside", external_name="web.default.svc.cluster.local"),
    service("alpha", "hop", external_name="inside.default.svc.cluster.local."),
    service("alpha", "loop", external_name="loop.default.svc.cluster.local"),
    service("alpha", "dangling", external_name="nothing.default.svc.cluster.local"),
    service("beta", "secret", "10.96.0.20", ("http", 80), namespace="hidden"),
    service("beta", "given", "10.96.0.21", shared=True),
    service("beta", "given-headless", None, shared=True, selector={"app": "db"}),
    service("beta", "given-to-some", "10.96.0.22", shared=True, allowed_consumers=frozenset({"gamma"})),
]

PODS = [
    pod("alpha", "db-0", "10.80.0.10", labels={"app": "db"}, hostname="db-0", subdomain="db"),
    pod("alpha", "db-1", "10.80.0.11", labels={"app": "db", "more": "x"}),
    pod("alpha", "db-2", "10.80.0.12", labels={"app": "db"}, ready=False),
    pod("alpha", "elsewhere", "10.80.0.13", labels={"app": "db"}, namespace="other"),
    pod("alpha", "sleepy", "10.80.0.14", labels={"app": "sleepy"}, ready=False),
    pod("beta", "b-0", "10.80.0.98", labels={"app": "db"}, hostname="b-0", subdomain="given-headless"),
    pod("beta", "db-0", "10.80.0.99", labels={"app": "db"}, namespace="default-b"),
    *(pod("alpha", f"big-{n}", f"10.80.1.{n}", labels={"app": "big"}, namespace="many") for n in range(40)),
]

VIEW = ClusterView(
    vpcs={
        "alpha": Vpc("alpha", 1, consume=True),
        "beta": Vpc("beta", 2, nat_source_subnet="beta-net"),
        "bare": Vpc("bare", 3),
    },
    subnets={
        f"{vpc}-net": subnet(f"{vpc}-net", vpc, vni * 100)
        for vni, vpc in enumerate(("alpha", "beta", "bare"), 1)
    },
    services={(s.namespace, s.name): s for s in SERVICES},
    pods={(p.vpc + p.namespace, p.name): p for p in PODS},
    namespaces=frozenset({"default", "hidden", "many", "other", "empty"}),
)


class World:
    def __init__(self, view: ClusterView = VIEW, **settings: Any) -> None:
        self.view = view
        self.events: Counter[str] = Counter()
        self.now = 1000.0
        settings.setdefault("upstreams", ())
        self.resolver = Resolver(
            DnsSettings(**settings), lambda: self.view, clock=lambda: self.now, rng=random.Random(1)
        )

    def raw(self, wire: bytes, tenant: TenantId = ALPHA, *, tcp: bool = False) -> Any:
        return self.resolver.resolve(wire, tenant, self.events, tcp=tcp)

    def ask(
        self, name: str, rtype: str = "A", tenant: TenantId = ALPHA, *, tcp: bool = False, **make: Any
    ) -> Any:
        """The answer, read by dnspython, which checks that it belongs to the query."""
        query = dns.message.make_query(name, rtype, **make)
        wire = self.raw(query.to_wire(), tenant, tcp=tcp)
        assert isinstance(wire, bytes), f"not answered at once: {wire!r}"
        return read(query, wire)

    async def ask_later(
        self, name: str, rtype: str = "A", tenant: TenantId = ALPHA, *, tcp: bool = False, **make: Any
    ) -> Any:
        query = dns.message.make_query(name, rtype, **make)
        wire = self.raw(query.to_wire(), tenant, tcp=tcp)
        return read(query, await wire() if callable(wire) else wire)

    def unsynced(self) -> World:
        self.view = replace(self.view, synced=False)
        return self


def read(query: dns.message.Message, wire: bytes) -> Any:
    response = dns.message.from_wire(wire, raise_on_truncation=False, ignore_trailing=False)
    assert query.is_response(response)
    return response


def rows(section: list[dns.rrset.RRset]) -> list[str]:
    """Records as text, sorted."""
    return sorted(f"{rrset.name} {rdata.rdtype.name} {rdata}" for rrset in section for rdata in rrset)
