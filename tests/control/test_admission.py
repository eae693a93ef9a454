"""Rules one by one: each line of a refused set, and that a good set has none."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_text import endpoint, pod, service, subnet, vpc

from juneau.control import admission, manifests


def review(*documents: str) -> list[str]:
    found = admission.review(manifests.parse("---\n".join(documents), "f"))
    return [str(problem).split(": ", 1)[1] for problem in found]


BLUE = (vpc("blue"), subnet("a", "blue"))
POOL = "{endpointPool: {cidrs: [%s]}}"


def test_a_good_set_has_no_problem():
    assert not review(
        *BLUE,
        vpc(
            "green",
            "{service: {provider: {natSourceSubnet: b}}, endpointPool: {cidrs: [10.8.0.0/28, 10.81.0.1/32]}}",
        ),
        subnet("b", "green"),
        subnet("b2", "green", "10.80.1.0/28"),
        subnet("default", "default", "10.16.0.0/16"),
        pod("p", "a", "10.80.0.10"),
        pod("q", "b", "10.80.0.10"),
        pod("r"),
        service("web", vpc="blue"),
        service("headless", "{clusterIP: None}", vpc="green"),
        service("ext", "{type: ExternalName, externalName: example.org}"),
        endpoint("e", "green"),
    )


CASES = {
    "duplicate": ([*BLUE, vpc("blue")], "Vpc blue: already defined at f:1 (rename or remove one of the two)"),
    "duplicate pod": ([*BLUE, pod("p", "a"), pod("p", "a")], "Pod default/p: already defined at f:11"),
    "unknown vpc": (
        [vpc("red"), subnet("a", "blue")],
        "Subnet a: spec.vpc: there is no Vpc blue (Vpcs here: red)",
    ),
    "overlap": (
        [*BLUE, subnet("b", "blue", "10.80.0.128/25")],
        "Subnet b: spec.cidr 10.80.0.128/25 overlaps Subnet a 10.80.0.0/24 of the same Vpc",
    ),
    "overlap, wider second": (
        [*BLUE, subnet("b", "blue", "10.80.0.0/16")],
        "Subnet b: spec.cidr 10.80.0.0/16 overlaps Subnet a 10.80.0.0/24 of the same Vpc",
    ),
    "loopback": (
        [vpc("blue"), subnet("a", "blue", "127.1.0.0/24")],
        "Subnet a: spec.cidr 127.1.0.0/24: no unicast addresses (take a range of 10.0.0.0/8)",
    ),
    "multicast": (
        [vpc("blue"), subnet("a", "blue", "224.0.0.0/24")],
        "Subnet a: spec.cidr 224.0.0.0/24: no unicast addresses",
    ),
    "pool of reserved addresses": (
        [vpc("blue", POOL % "240.0.0.0/24")],
        "Vpc blue: endpoint pool 240.0.0.0/24: no unicast addresses",
    ),
    "/30": (
        [vpc("blue"), subnet("a", "blue", "10.0.0.0/30")],
        "Subnet a: spec.cidr 10.0.0.0/30: prefix /30, allowed /16 to /28",
    ),
    "/15": (
        [vpc("blue"), subnet("a", "blue", "10.0.0.0/15")],
        "Subnet a: spec.cidr 10.0.0.0/15: prefix /15, allowed",
    ),
    "default subnet elsewhere": (
        [vpc("blue"), subnet("default", "blue")],
        "Subnet default: Subnet default and Vpc",
    ),
    "other subnet in default": (
        [subnet("a", "default")],
        "Subnet a: Subnet default and Vpc default go only with",
    ),
    "route table": (
        [vpc("blue"), subnet("a", "blue", more=", routeTable: rt")],
        "Subnet a: spec.routeTable: there is no",
    ),
    "network acl": (
        [vpc("blue"), subnet("a", "blue", more=", networkACL: n")],
        "Subnet a: spec.networkACL: there is no",
    ),
    "service cidr": (
        [vpc("blue", "{service: {consume: true}}"), subnet("a", "blue", "10.96.0.0/24")],
        "Subnet a: spec.cidr 10.96.0.0/24 overlaps the Service CIDR 10.96.0.0/12",
    ),
    "nat source missing": (
        [vpc("blue", "{service: {provider: {natSourceSubnet: x}}}")],
        "Vpc blue: spec.service.provider.natSourceSubnet: there is no Subnet x",
    ),
    "nat source foreign": (
        [vpc("green", "{service: {provider: {natSourceSubnet: a}}}"), *BLUE],
        "Vpc green: spec.service.provider.natSourceSubnet: Subnet a belongs to Vpc blue",
    ),
    "pool /15": ([vpc("blue", POOL % "10.0.0.0/15")], "Vpc blue: endpoint pool 10.0.0.0/15: prefix /15"),
    "pool in subnet": (
        [vpc("blue", POOL % "10.80.0.240/28"), subnet("a", "blue")],
        "Vpc blue: endpoint pool 10.80.0.240/28 overlaps Subnet a 10.80.0.0/24",
    ),
    "pool in service cidr": (
        [vpc("blue", POOL % "10.100.0.0/16")],
        "Vpc blue: endpoint pool 10.100.0.0/16 overlaps",
    ),
    "pool in itself": (
        [vpc("blue", POOL % "10.0.0.0/24, 10.0.0.9/32")],
        "Vpc blue: endpoint pool 10.0.0.0/24 overlaps 1",
    ),
    "endpoint without pool": (
        [*BLUE, endpoint("e", "blue")],
        "VpcEndpoint e: Vpc blue has no spec.endpointPool",
    ),
    "endpoint without vpc": ([*BLUE, endpoint("e", "red")], "VpcEndpoint e: spec.vpc: there is no Vpc red"),
    "pod without subnet": ([*BLUE, pod("p")], "Pod default/p: in no Subnet, and there is no Subnet default"),
    "pod, unknown subnet": (
        [*BLUE, pod("p", "x")],
        "Pod default/p: annotation juneau.loutres.me/subnet: there is no Subnet x (Subnets here: a)",
    ),
    "security groups": (
        [*BLUE, pod("p", "a").replace("{juneau", "{juneau.loutres.me/security-groups: web, juneau")],
        "Pod default/p: annotation juneau.loutres.me/security-groups: not supported yet",
    ),
    "enforced security groups": (
        [vpc("blue", "{enforceSecurityGroups: true}"), subnet("a", "blue"), pod("p", "a")],
        "Pod default/p: Vpc blue has enforceSecurityGroups",
    ),
    "host network": ([*BLUE, pod("p", "a", spec="{hostNetwork: true}")], "Pod default/p: spec.hostNetwork"),
    "containers": (
        [*BLUE, pod("p", "a", spec="{containers: [{name: c}, {name: c}]}")],
        "Pod default/p: two containers share a name",
    ),
    "address taken": (
        [*BLUE, pod("p", "a", "10.80.0.10"), pod("q", "a", "10.80.0.10")],
        "Pod default/q: annotation juneau.loutres.me/address 10.80.0.10: taken by Pod default/p",
    ),
    "address outside": (
        [*BLUE, pod("p", "a", "10.80.1.1")],
        "Pod default/p: annotation juneau.loutres.me/address 10.80.1.1: o",
    ),
    "address malformed": (
        [*BLUE, pod("p", "a", "10.80.0.300")],
        "Pod default/p: annotation juneau.loutres.me/address 10.80.0.3",
    ),
    "service, unknown vpc": (
        [service("s", vpc="red")],
        "Service default/s: annotation juneau.loutres.me/vpc: there is no",
    ),
    "service without ports": ([service("s", "{}")], "Service default/s: spec.ports: required"),
    "unnamed ports": (
        [service("s", "{ports: [{port: 1}, {port: 2}]}")],
        "Service default/s: spec.ports: several ports",
    ),
    "port twice": (
        [service("s", "{ports: [{port: 1, name: a}, {port: 1, name: b}]}")],
        "Service default/s: spec.ports: a port is given twice",
    ),
    "cluster ip": (
        [service("s", "{clusterIP: 1.2.3.4, ports: [{port: 1}]}")],
        "Service default/s: spec.clusterIP 1.2.3.4: not",
    ),
    "cluster ip taken": (
        [service(n, "{clusterIP: 10.96.0.9, ports: [{port: 1}]}") for n in "st"],
        "Service default/t: spec.clusterIP 10.96.0.9: taken by Service default/s",
    ),
    "external name": (
        [service("s", "{type: ExternalName}")],
        "Service default/s: spec.externalName: required",
    ),
}


@pytest.mark.parametrize(("documents", "line"), CASES.values(), ids=CASES.keys())
def test_what_is_refused(documents: list[str], line: str):
    found = review(*documents)
    assert len(found) == 1, found
    assert found[0].startswith(line)


@pytest.mark.parametrize("last", [0, 1, 2, 3, 255])
def test_reserved_addresses_are_not_for_pods(last: int):
    (line,) = review(*BLUE, pod("p", "a", f"10.80.0.{last}"))
    assert "reserved in Subnet a" in line


@pytest.mark.parametrize("last", [4, 254])
def test_first_and_last_pod_address(last: int):
    assert not review(*BLUE, pod("p", "a", f"10.80.0.{last}"))


def test_subnet_has_room_for_eleven_pods_in_a_28():
    documents = [vpc("blue"), subnet("a", "blue", "10.0.0.0/28")]
    assert not review(*documents, *(pod(f"p{i}", "a") for i in range(11)))
    (line,) = review(*documents, *(pod(f"p{i}", "a") for i in range(13)))
    assert line == "Pod default/p11: Subnet a 10.0.0.0/28 has no address left"


@pytest.mark.parametrize(
    ("cidr", "last"),
    [("10.0.0.0/24", [0, 1, 2, 3, 255]), ("10.0.0.0/29", [0, 1, 2, 3, 7]), ("10.0.0.0/30", [0, 1, 2, 3])],
)
def test_exclusion_rule(cidr: str, last: list[int]):
    assert admission.reserved(IPv4Network(cidr)) == {IPv4Address(f"10.0.0.{n}") for n in last}


networks = st.builds(
    lambda vpc, third, prefix: (vpc, IPv4Network((0x0A50_0000 | third << 8, prefix), strict=False)),
    st.sampled_from(["blue", "green"]),
    st.integers(0, 7),
    st.integers(20, 26),
)


@given(st.lists(networks, max_size=12))
def test_overlaps_are_those_of_every_pair_in_order(placed: list[tuple[str, IPv4Network]]):
    found = manifests.parse("---\n".join(subnet(f"s{n}", v, str(c)) for n, (v, c) in enumerate(placed)))
    expected = [
        f"s{j} overlaps s{i}"
        for (i, (vpc, one)), (j, (other_vpc, other)) in combinations(enumerate(placed), 2)
        if vpc == other_vpc and one.overlaps(other)
    ]
    rule = admission._overlaps(admission.Given(found))
    told = [problem.what.split()[1] + " overlaps " + problem.cause.split()[4] for problem in rule]
    assert told == expected


def test_a_thousand_subnets_of_a_vpc_are_judged_without_comparing_every_pair(monkeypatch: pytest.MonkeyPatch):
    comparisons = 0
    overlaps = IPv4Network.overlaps

    def counted(one: IPv4Network, other: IPv4Network) -> bool:
        nonlocal comparisons
        comparisons += 1
        return overlaps(one, other)

    many = [subnet(f"s{n}", "blue", f"10.{n >> 8}.{n & 255}.0/24") for n in range(1000)]
    found = manifests.parse("---\n".join([vpc("blue"), *many]))
    monkeypatch.setattr(IPv4Network, "overlaps", counted)
    assert admission.review(found) == []
    assert comparisons < 10 * len(many)
