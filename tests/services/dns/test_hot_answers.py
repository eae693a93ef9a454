"""Answers kept by the bytes that asked are the answers that working them out would give."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any, Final

import dns.flags
import dns.message
import pytest
from dns_world import ALPHA, BARE, BETA, SUFFIX, VIEW, World
from hypothesis import given
from hypothesis import strategies as st

from juneau.model.ids import TenantId
from juneau.services.dns import resolver
from juneau.services.dns.cache import HOT_MAX_QUERY, HOT_PER_TENANT

TENANTS: Final = [ALPHA, BETA, BARE, TenantId(9, 900)]
NAMES: Final = [
    *(f"{name}.default.{SUFFIX}" for name in ("web", "inside", "hop", "loop", "given", "nothing", "eager")),
    f"_http._tcp.web.default.{SUFFIX}",
    f"secret.hidden.{SUFFIX}",
    SUFFIX,
    "ns.dns.cluster.local.",
    "dns-version.cluster.local.",
    "10-80-0-10.default.pod.cluster.local.",
    "10.0.80.10.in-addr.arpa.",
    "10.0.96.10.in-addr.arpa.",
    "example.com.",
]


@st.composite
def queries(draw: st.DrawFn) -> bytes:
    """What clients vary: letters' case, type, flags, EDNS, its size and DO, sometimes junk behind."""
    name = draw(st.sampled_from(NAMES))
    mixed = "".join(draw(st.sampled_from([c.lower(), c.upper()])) if draw(st.booleans()) else c for c in name)
    query = dns.message.make_query(
        mixed, draw(st.sampled_from(["A", "AAAA", "SRV", "TXT", "PTR", "ANY", "SOA"]))
    )
    query.id = draw(st.integers(0, 0xFFFF))
    query.flags = draw(st.sampled_from([0, dns.flags.RD, dns.flags.CD, dns.flags.RD | dns.flags.AD]))
    if draw(st.booleans()):
        query.use_edns(draw(st.integers(0, 1)), payload=draw(st.sampled_from([0, 512, 1232, 4096])))
        query.want_dnssec(draw(st.booleans()))
    return query.to_wire() + draw(st.sampled_from([b"", b"", b"", b"x"]))


def ask(world: World, wire: bytes, tenant: TenantId, tcp: bool) -> tuple[Any, Counter[str]]:
    world.events.clear()
    return world.raw(wire, tenant, tcp=tcp), world.events.copy()


@given(st.lists(st.tuples(queries(), st.sampled_from(TENANTS), st.booleans()), min_size=1, max_size=6))
def test_a_kept_answer_is_the_one_that_would_be_worked_out(asked: list[tuple[bytes, TenantId, bool]]) -> None:
    world, again = World(), random.Random(len(asked))
    cold = []
    for question in asked:
        cold.append(ask(world, *question))
        world.resolver._hot.clear()
    for question in asked:
        ask(world, *question)
    for (wire, tenant, tcp), (answer, events) in zip(asked, cold, strict=True):
        ident = again.randbytes(2)
        hot, counted = ask(world, ident + wire[2:], tenant, tcp)
        assert hot == (ident + answer[2:] if answer else answer)
        assert counted == events


def query(name: str = f"web.default.{SUFFIX}", rtype: str = "A") -> bytes:
    return dns.message.make_query(name, rtype, id=7).to_wire()


@pytest.fixture
def unparsable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From when it is called, no answer can be worked out any more."""

    def refuse(message: bytes) -> Any:
        raise AssertionError("worked out again")

    return lambda: monkeypatch.setattr(resolver, "parse_query", refuse)


def test_the_second_answer_is_not_worked_out(unparsable: Any) -> None:
    world = World()
    first = world.raw(query())
    unparsable()
    assert world.raw(b"\xab\xcd" + query()[2:]) == b"\xab\xcd" + first[2:]
    with pytest.raises(AssertionError, match="again"):
        world.raw(query(), tcp=True)  # another limit, another answer


def test_a_new_view_is_seen_at_once() -> None:
    world = World()
    before = world.ask(f"web.default.{SUFFIX}")
    web = VIEW.services["default", "web"]
    moved = replace(web, cluster_ip=IPv4Address("10.96.0.77"))
    world.view = replace(VIEW, services={**VIEW.services, ("default", "web"): moved})
    assert [str(r) for r in before.answer[0]] == ["10.96.0.10"]
    assert [str(r) for r in world.ask(f"web.default.{SUFFIX}").answer[0]] == ["10.96.0.77"]
    world.view = replace(VIEW, services={})
    assert world.ask(f"web.default.{SUFFIX}").rcode() == dns.rcode.NXDOMAIN
    world.view = VIEW
    assert [str(r) for r in world.ask(f"web.default.{SUFFIX}").answer[0]] == ["10.96.0.10"]


def test_a_policy_that_closes_is_seen_at_once() -> None:
    world = World()
    name = f"given.default.{SUFFIX}"
    assert world.ask(name, tenant=ALPHA).answer
    given = replace(VIEW.services["default", "given"], shared=False)
    world.view = replace(VIEW, services={**VIEW.services, ("default", "given"): given})
    assert world.ask(name, tenant=ALPHA).rcode() == dns.rcode.NXDOMAIN
    assert world.ask(name, tenant=BETA).answer


@pytest.mark.parametrize("first", [ALPHA, BETA])
def test_the_same_bytes_from_another_subnet_get_its_own_answer(first: TenantId, unparsable: Any) -> None:
    world = World()
    second = BETA if first is ALPHA else ALPHA
    answers = {tenant: world.raw(query(), tenant) for tenant in (first, second)}
    unparsable()
    assert answers == {tenant: world.raw(query(), tenant) for tenant in (second, first)}
    assert [answers[tenant][3] & 0x0F for tenant in (ALPHA, BETA)] == [dns.rcode.NOERROR, dns.rcode.NXDOMAIN]


def test_several_answers_keep_turning() -> None:
    world = World()
    firsts = {world.raw(query(f"db.default.{SUFFIX}"))[-4:] for _ in range(40)}
    assert len(firsts) == 2


def test_what_is_kept_is_bounded() -> None:
    world = World()
    for number in range(HOT_PER_TENANT + 10):
        world.raw(query(f"n{number}.default.{SUFFIX}"))
    assert len(world.resolver._hot.tenants[ALPHA]) <= HOT_PER_TENANT
    world.raw(
        dns.message.make_query(f"web.default.{SUFFIX}", "A", use_edns=0, pad=HOT_MAX_QUERY * 2).to_wire()
    )
    kept = world.resolver._hot.tenants[ALPHA]
    assert max(map(len, kept)) < HOT_MAX_QUERY
