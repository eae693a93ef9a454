"""Kubernetes DNS specification 1.1.0, by table: records, NODATA and NXDOMAIN are three things."""

from __future__ import annotations

from dataclasses import replace

import dns.flags
import dns.rcode
import pytest
from dns_world import ALPHA, BARE, BETA, PODS, SUFFIX, VIEW, World, rows

from juneau.model.ids import TenantId

NODATA, NXDOMAIN = "NODATA", "NXDOMAIN"
BIG = [f"big.many.{SUFFIX} A 10.80.1.{n}" for n in range(40)]


def outcome(response) -> str | list[str]:
    """The three kinds of answer, told apart as a resolver does (RFC 2308)."""
    code = dns.rcode.to_text(response.rcode())
    if code not in ("NOERROR", "NXDOMAIN"):
        return code
    if response.answer and code == "NOERROR":
        return rows(response.answer)
    assert not response.answer
    (soa,) = response.authority
    assert (soa.rdtype.name, soa.ttl, soa[0].minimum) == ("SOA", 5, 5)
    assert str(response.question[0].name).endswith(str(soa.name))
    return NODATA if code == "NOERROR" else NXDOMAIN


TABLE = [
    # 1-3, 14, 18: Services with an address
    ("dns-version.cluster.local.", "TXT", ['dns-version.cluster.local. TXT "1.1.0"']),
    ("dns-version.cluster.local.", "A", NODATA),
    (f"web.default.{SUFFIX}", "A", [f"web.default.{SUFFIX} A 10.96.0.10"]),
    (f"web.default.{SUFFIX}", "AAAA", NODATA),
    (f"web.default.{SUFFIX}", "MX", NODATA),
    (f"web.default.{SUFFIX}", "TXT", NODATA),
    (f"web.default.{SUFFIX}", "HTTPS", NODATA),
    (f"web.default.{SUFFIX}", "SOA", NODATA),
    # 4: SRV of named ports
    (
        f"_http._tcp.web.default.{SUFFIX}",
        "SRV",
        [f"_http._tcp.web.default.{SUFFIX} SRV 0 100 80 web.default.{SUFFIX}"],
    ),
    (f"_http._tcp.web.default.{SUFFIX}", "A", NODATA),
    (f"_http._udp.web.default.{SUFFIX}", "SRV", NXDOMAIN),
    (f"_nope._tcp.web.default.{SUFFIX}", "SRV", NXDOMAIN),
    (f"_._tcp.web.default.{SUFFIX}", "SRV", NXDOMAIN),
    (f"_tcp.web.default.{SUFFIX}", "SRV", NODATA),
    (f"_udp.web.default.{SUFFIX}", "SRV", NXDOMAIN),
    # 5, 9: PTR
    ("10.0.96.10.in-addr.arpa.", "PTR", [f"10.0.96.10.in-addr.arpa. PTR web.default.{SUFFIX}"]),
    ("10.0.96.10.in-addr.arpa.", "A", NODATA),
    ("10.0.80.10.in-addr.arpa.", "PTR", [f"10.0.80.10.in-addr.arpa. PTR db-0.db.default.{SUFFIX}"]),
    ("11.0.80.10.in-addr.arpa.", "PTR", NXDOMAIN),
    ("20.0.96.10.in-addr.arpa.", "PTR", NXDOMAIN),  # another tenant's
    ("96.10.in-addr.arpa.", "PTR", NODATA),
    ("97.10.in-addr.arpa.", "PTR", NXDOMAIN),
    # 6, 7, 8, 16, 17: headless
    (f"db.default.{SUFFIX}", "A", [f"db.default.{SUFFIX} A 10.80.0.10", f"db.default.{SUFFIX} A 10.80.0.11"]),
    (f"db.default.{SUFFIX}", "AAAA", NODATA),
    (f"noports.default.{SUFFIX}", "A", [f"noports.default.{SUFFIX} A 10.80.0.{n}" for n in (10, 11)]),
    (f"sleeping.default.{SUFFIX}", "A", NXDOMAIN),
    (f"eager.default.{SUFFIX}", "A", [f"eager.default.{SUFFIX} A 10.80.0.14"]),
    (f"db-0.db.default.{SUFFIX}", "A", [f"db-0.db.default.{SUFFIX} A 10.80.0.10"]),
    (f"10-80-0-11.db.default.{SUFFIX}", "A", [f"10-80-0-11.db.default.{SUFFIX} A 10.80.0.11"]),
    (f"10-80-0-10.db.default.{SUFFIX}", "A", NXDOMAIN),  # it has a hostname
    (f"db-0.noports.default.{SUFFIX}", "A", NXDOMAIN),  # not its subdomain
    (f"10-80-0-12.db.default.{SUFFIX}", "A", NXDOMAIN),  # not ready
    (f"db-0.web.default.{SUFFIX}", "A", NXDOMAIN),
    (
        f"_pg._tcp.db.default.{SUFFIX}",
        "SRV",
        [
            f"_pg._tcp.db.default.{SUFFIX} SRV 0 50 13432 {host}.db.default.{SUFFIX}"
            for host in ("10-80-0-11", "db-0")
        ],
    ),
    # 10: ExternalName
    (f"outside.default.{SUFFIX}", "CNAME", [f"outside.default.{SUFFIX} CNAME www.example.com."]),
    (f"x.outside.default.{SUFFIX}", "A", NXDOMAIN),
    (
        f"inside.default.{SUFFIX}",
        "A",
        [f"inside.default.{SUFFIX} CNAME web.default.{SUFFIX}", f"web.default.{SUFFIX} A 10.96.0.10"],
    ),
    (
        f"hop.default.{SUFFIX}",
        "A",
        [
            f"hop.default.{SUFFIX} CNAME inside.default.{SUFFIX}",
            f"inside.default.{SUFFIX} CNAME web.default.{SUFFIX}",
            f"web.default.{SUFFIX} A 10.96.0.10",
        ],
    ),
    (f"loop.default.{SUFFIX}", "A", [f"loop.default.{SUFFIX} CNAME loop.default.{SUFFIX}"]),
    # 11: Pods by address
    ("10-80-0-13.other.pod.cluster.local.", "A", ["10-80-0-13.other.pod.cluster.local. A 10.80.0.13"]),
    ("10-80-0-13.other.pod.cluster.local.", "AAAA", NODATA),
    ("10-80-0-13.default.pod.cluster.local.", "A", NXDOMAIN),
    ("10-80-0-99.default-b.pod.cluster.local.", "A", NXDOMAIN),  # the other Vpc's
    ("10-80-0-250.default.pod.cluster.local.", "A", NXDOMAIN),
    ("10-80-0.default.pod.cluster.local.", "A", NXDOMAIN),
    ("010-80-0-13.other.pod.cluster.local.", "A", NXDOMAIN),
    # 12: empty non-terminals
    ("cluster.local.", "A", NODATA),
    ("svc.cluster.local.", "A", NODATA),
    ("pod.cluster.local.", "A", NODATA),
    ("dns.cluster.local.", "A", NODATA),
    (f"default.{SUFFIX}", "A", NODATA),
    (f"many.{SUFFIX}", "A", NODATA),
    (f"hidden.{SUFFIX}", "A", NXDOMAIN),
    (f"nowhere.{SUFFIX}", "A", NXDOMAIN),
    # 13: the apex
    ("cluster.local.", "NS", ["cluster.local. NS ns.dns.cluster.local."]),
    ("ns.dns.cluster.local.", "A", ["ns.dns.cluster.local. A 10.80.0.2"]),
    ("ns.dns.cluster.local.", "AAAA", NODATA),
    # 15: too long, unknown
    (f"a.b.c.web.default.{SUFFIX}", "A", NXDOMAIN),
    (f"a.web.default.{SUFFIX}", "A", NXDOMAIN),
    (f"web.nowhere.{SUFFIX}", "A", NXDOMAIN),
    ("web.default.cluster.local.", "A", NXDOMAIN),
    # policy
    (f"secret.hidden.{SUFFIX}", "A", NXDOMAIN),
    (f"given.default.{SUFFIX}", "A", [f"given.default.{SUFFIX} A 10.96.0.21"]),
    (f"given-to-some.default.{SUFFIX}", "A", NXDOMAIN),
    (f"given-headless.default.{SUFFIX}", "A", NXDOMAIN),  # its Pods' addresses mean nothing here
    (f"b-0.given-headless.default.{SUFFIX}", "A", NXDOMAIN),
    ("98.0.80.10.in-addr.arpa.", "PTR", NXDOMAIN),
    # not names of ours: labels, not bytes, decide
    ("d.f.ip6.arpa.", "PTR", NODATA),
    ("1.0.0.0.d.f.ip6.arpa.", "PTR", NXDOMAIN),
    ("1.1.168.192.in-addr.arpa.", "PTR", NXDOMAIN),
    ("lb._dns-sd._udp.0.0.80.10.in-addr.arpa.", "PTR", NXDOMAIN),
]


@pytest.mark.parametrize(("name", "rtype", "expected"), TABLE)
def test_answers(name, rtype, expected):
    response = World().ask(name, rtype)
    assert outcome(response) == (sorted(expected) if isinstance(expected, list) else expected)
    assert response.flags & dns.flags.AA
    assert response.flags & dns.flags.RA


@pytest.mark.parametrize(
    ("tenant", "name", "expected"),
    [
        (BETA, f"web.default.{SUFFIX}", NXDOMAIN),
        (BETA, f"secret.hidden.{SUFFIX}", [f"secret.hidden.{SUFFIX} A 10.96.0.20"]),
        (BETA, f"hidden.{SUFFIX}", NODATA),
        (BETA, f"given-headless.default.{SUFFIX}", [f"given-headless.default.{SUFFIX} A 10.80.0.98"]),
        (BETA, f"many.{SUFFIX}", NXDOMAIN),
        (
            BETA,
            "10-80-0-99.default-b.pod.cluster.local.",
            ["10-80-0-99.default-b.pod.cluster.local. A 10.80.0.99"],
        ),
        (BARE, f"given.default.{SUFFIX}", NXDOMAIN),  # no Service routing at all
        (BARE, f"default.{SUFFIX}", NODATA),
    ],
)
def test_each_vpc_has_its_own_view(tenant, name, expected):
    assert outcome(World().ask(name, tenant=tenant)) == expected


def test_answers_of_one_vpc_are_never_kept_for_another():
    world = World()
    for _ in range(2):
        assert outcome(world.ask(f"web.default.{SUFFIX}", tenant=ALPHA)) != NXDOMAIN
        assert outcome(world.ask(f"web.default.{SUFFIX}", tenant=BETA)) == NXDOMAIN
        assert outcome(world.ask("10.0.96.10.in-addr.arpa.", "PTR", tenant=BETA)) == NXDOMAIN


def test_apex_soa():
    response = World().ask("cluster.local.", "SOA")
    (soa,) = response.answer[0]
    assert str(soa.mname) == "ns.dns.cluster.local."
    assert str(soa.rname) == "hostmaster.cluster.local."
    assert (soa.refresh, soa.retry, soa.expire, soa.minimum, response.answer[0].ttl) == (
        7200,
        1800,
        86400,
        5,
        5,
    )


def test_glue():
    srv = World().ask(f"_pg._tcp.db.default.{SUFFIX}", "SRV")
    assert rows(srv.additional) == [
        f"10-80-0-11.db.default.{SUFFIX} A 10.80.0.11",
        f"db-0.db.default.{SUFFIX} A 10.80.0.10",
    ]
    assert rows(World().ask("cluster.local.", "NS").additional) == ["ns.dns.cluster.local. A 10.80.0.2"]


def test_alias_to_nothing_is_nxdomain_behind_the_alias():
    response = World().ask(f"dangling.default.{SUFFIX}")
    assert response.rcode() == dns.rcode.NXDOMAIN  # RFC 6604: of the last name
    assert rows(response.answer) == [f"dangling.default.{SUFFIX} CNAME nothing.default.{SUFFIX}"]
    assert response.authority


def test_headless_answers_are_shuffled():
    world = World()
    firsts = {str(world.ask(f"db.default.{SUFFIX}").answer[0][0]) for _ in range(30)}
    assert firsts == {"10.80.0.10", "10.80.0.11"}


@pytest.mark.parametrize(
    "name", [f"web.default.{SUFFIX}", f"no.default.{SUFFIX}", "cluster.local.", "1.0.80.10.in-addr.arpa."]
)
def test_a_view_that_is_not_synced_is_servfail_never_nxdomain(name):
    assert outcome(World().unsynced().ask(name)) == "SERVFAIL"


def test_unknown_tenant_is_servfail():
    assert outcome(World().ask(f"web.default.{SUFFIX}", tenant=TenantId(2, 100))) == "SERVFAIL"
    assert outcome(World().ask("example.com", tenant=TenantId(9, 900))) == "SERVFAIL"


def test_a_new_view_is_seen_at_once():
    world = World()
    assert outcome(world.ask(f"late.default.{SUFFIX}")) == NXDOMAIN
    late = replace(VIEW.services["default", "web"], name="late")
    world.view = replace(VIEW, services=VIEW.services | {("default", "late"): late})
    assert outcome(world.ask(f"late.default.{SUFFIX}")) == [f"late.default.{SUFFIX} A 10.96.0.10"]


def test_big_set_over_tcp_is_whole():
    assert rows(World().ask(f"big.many.{SUFFIX}", tcp=True).answer) == sorted(BIG)
    assert len([p for p in PODS if p.namespace == "many"]) == 40


def test_zone_may_have_another_name():
    world = World(domain="corp.internal")
    assert outcome(world.ask("web.default.svc.corp.internal.")) == [
        "web.default.svc.corp.internal. A 10.96.0.10"
    ]
