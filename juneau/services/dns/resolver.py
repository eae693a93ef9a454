"""From a query to its answer: at once if it is known here, otherwise awaitable.

Order: the caller's view of the cluster zone, private reverse zones, what upstream said before, upstream.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from juneau.model.cluster import ClusterView, Subnet, Vpc
from juneau.model.ids import TenantId
from juneau.services.dns.cache import NEVER, Hot, HotAnswers, HotKey, Known
from juneau.services.dns.forwarder import Count, Forwarder, lookalike
from juneau.services.dns.message import (
    CLASS_IN,
    TC,
    TCP_MAX,
    Answer,
    Query,
    Rcode,
    Record,
    Reject,
    Type,
    build_answer,
    build_reject,
    parse_query,
)
from juneau.services.dns.reply import Reply, build_from_reply, records_of
from juneau.services.dns.reverse import answer_reverse
from juneau.services.dns.settings import DnsSettings, Upstream, parse_upstream, read_resolv_conf
from juneau.services.dns.zone import Zone, any_answer

MAX_CHAIN: Final = 10
"""Aliases followed for one query."""
KEPT_RCODES: Final = frozenset({Rcode.NOERROR, Rcode.NXDOMAIN})
RCODE_EVENTS: Final = {int(rcode): f"dns.{rcode.name}" for rcode in Rcode}
META_TYPES: Final = range(128, 256)
"""RFC 6895 section 3.1: transfers, TKEY, TSIG and the like are no data; ANY is answered before."""

_NO_ANSWERS: Final[dict[HotKey, Hot]] = {}

Pending: TypeAlias = Callable[[], Awaitable[bytes]]
"""An answer that must be asked for; nothing happens, and nothing is left behind, until it is called."""

Outcome: TypeAlias = bytes | Pending | None


class Caller(NamedTuple):
    vpc: Vpc
    subnet: Subnet


class Alias(NamedTuple):
    """An answer so far, and the outside name that the rest of it is about."""

    records: tuple[Record, ...]
    target: bytes


class Resolver:
    """One per node. Answers of different Vpcs share nothing but this object."""

    def __init__(
        self,
        settings: DnsSettings,
        view: Callable[[], ClusterView],
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._settings, self._view, self._clock = settings, view, clock
        self._forwarder = Forwarder(settings, clock=clock)
        self._rng = rng or random.Random()
        self._zone = self._make_zone(ClusterView(synced=False))
        self._hot = HotAnswers()
        self._upstreams = self._read_upstreams()
        self._vpc_upstreams = {
            vpc: tuple(map(parse_upstream, servers)) for vpc, servers in settings.vpc_upstreams.items()
        }

    def resolve(
        self, message: bytes, tenant: TenantId, events: Counter[str], *, tcp: bool = False
    ) -> Outcome:
        """The answer to any bytes: bytes, None: silence, or a call that gives bytes later. Never raises.

        What happens is counted in `events`.
        """
        view = self._view()
        if view is not self._zone.view:
            self._zone = self._make_zone(view)
            self._hot.clear()
        hot = self._hot.tenants.get(tenant, _NO_ANSWERS).get((message[2:],) if tcp else message[2:])
        if hot is not None and (hot.until is NEVER or self._clock() < hot.until):
            for event in hot.events:
                events[event] += 1
            return message[:2] + hot.wire
        return self._resolve(message, tenant, partial(_add, events), tcp=tcp)

    def _resolve(self, message: bytes, tenant: TenantId, count: Count, *, tcp: bool) -> Outcome:
        try:
            query = parse_query(message)
        except Reject as reject:
            if reject.rcode is None:
                count("dns.ignored")
                return None
            count(_event(reject.rcode))
            return build_reject(message, reject.rcode)
        outcome = self._outcome(query, tenant, count, tcp=tcp)
        if isinstance(outcome, Known):
            wire = self._finish_reply(query, outcome.reply, count, tcp=tcp, age=outcome.age)
            self._hot.put(
                tenant,
                tcp,
                message,
                Hot(wire[2:], ("dns.cache.hits", _event(outcome.reply.rcode)), outcome.until),
            )
            return wire
        if not isinstance(outcome, Answer):
            return outcome
        wire = self._finish(query, outcome, count, tcp=tcp)
        if len(outcome.answers) < 2 and outcome.rcode in KEPT_RCODES:  # several are shuffled each time
            self._hot.put(tenant, tcp, message, Hot(wire[2:], (_event(outcome.rcode),), NEVER))
        return wire

    def servers_of(self, vpc: str) -> Sequence[Upstream]:
        return self._vpc_upstreams.get(vpc, self._upstreams)

    def _finish(self, query: Query, answer: Answer, count: Count, *, tcp: bool) -> bytes:
        count(_event(answer.rcode))
        return build_answer(query, answer, TCP_MAX if tcp else query.udp_limit)

    def _outcome(
        self, query: Query, tenant: TenantId, count: Count, *, tcp: bool
    ) -> Answer | Known | Pending:
        if refused := _refuse(query):
            return refused
        caller = self._caller(tenant)
        if caller is None:
            count("dns.unknown_tenant")
            return Answer(Rcode.SERVFAIL)
        local = self._look_up(query.qname, query.qtype, caller)
        if isinstance(local, Alias):
            return partial(self._follow, query, local, caller, count, tcp=tcp)
        if local is not None:
            return local
        if query.qtype == Type.ANY:
            return any_answer(query.qname)
        if (known := self._forwarder.lookup(query, caller.vpc.vpc_id)) is not None:
            count("dns.cache.hits")
            return known
        return self._may_not_ask(caller, count) or partial(self._forward, query, caller, count, tcp=tcp)

    def _caller(self, tenant: TenantId) -> Caller | None:
        view = self._view()
        subnet = view.subnet_by_vni.get(tenant.subnet_id)
        vpc = view.vpcs.get(subnet.vpc) if subnet else None
        if subnet is None or vpc is None or vpc.vpc_id != tenant.vpc_id:
            return None
        return Caller(vpc, subnet)

    # What is known here

    def _look_up(self, qname: bytes, qtype: int, caller: Caller) -> Answer | Alias | None:
        """None: ask outside."""
        answer = self._own(qname, qtype, caller)
        if answer is None or not answer.answers:
            return answer
        chain: list[Record] = []
        for _ in range(MAX_CHAIN):
            chain.extend(answer.answers)
            last = chain[-1]
            if last.rtype != Type.CNAME or qtype == Type.CNAME:
                return answer._replace(answers=tuple(chain))
            if any(record.owner == last.data for record in chain):
                return answer._replace(answers=tuple(chain))  # a loop: say so much and no more
            following = self._own(last.data, qtype, caller)
            if following is None:
                return Alias(tuple(chain), last.data)
            answer = following
            if not answer.answers:
                return answer._replace(answers=tuple(chain))
        return Answer(Rcode.SERVFAIL)

    def _own(self, name: bytes, qtype: int, caller: Caller) -> Answer | None:
        """From this node's view; SERVFAIL while it knows nothing. None: the name is not ours."""
        zone = self._zone
        if zone.contains(name):
            synced = zone.view.synced
            return (
                zone.answer(name, qtype, caller.vpc, caller.subnet.dns) if synced else Answer(Rcode.SERVFAIL)
            )
        answer = answer_reverse(zone, name, qtype, caller.vpc)
        return Answer(Rcode.SERVFAIL) if answer is not None and not zone.view.synced else answer

    def _make_zone(self, view: ClusterView) -> Zone:
        settings = self._settings
        return Zone(view, domain=settings.domain, ttl=settings.ttl_s, serial=int(time.time()), rng=self._rng)

    # What is asked outside

    def _may_not_ask(self, caller: Caller, count: Count) -> Answer | None:
        if not self.servers_of(caller.vpc.name):
            if caller.vpc.name in self._vpc_upstreams:
                return Answer(Rcode.REFUSED)
            count("dns.forward.no_upstream")
            return Answer(Rcode.SERVFAIL)
        if not self._forwarder.may_ask(caller.vpc.vpc_id):
            count("dns.forward.too_many")
            return Answer(Rcode.SERVFAIL)
        return None

    async def _forward(self, query: Query, caller: Caller, count: Count, *, tcp: bool) -> bytes:
        reply = await self._ask(query, caller, count, tcp=tcp)
        if reply is None:
            return self._finish(query, Answer(Rcode.SERVFAIL), count, tcp=tcp)
        return self._finish_reply(query, reply, count, tcp=tcp)

    async def _ask(self, query: Query, caller: Caller, count: Count, *, tcp: bool) -> Reply | None:
        if (known := self._forwarder.lookup(query, caller.vpc.vpc_id)) is not None:
            return known.reply
        if self._may_not_ask(caller, count) is not None:  # others came between
            return None
        count("dns.forward.queries")
        vpc = caller.vpc
        return await self._forwarder.ask(query, vpc.vpc_id, self.servers_of(vpc.name), count, tcp=tcp)

    async def _follow(self, query: Query, alias: Alias, caller: Caller, count: Count, *, tcp: bool) -> bytes:
        """Complete an alias that leads outside. That upstream's answer was cut short must survive."""
        reply = await self._ask(lookalike(query, alias.target), caller, count, tcp=True)
        if reply is None:
            answer = Answer(Rcode.SERVFAIL, True, alias.records)
        else:
            question = lookalike(query, alias.target)._replace(edns=None)
            answer = _completed(alias, build_from_reply(question, reply, TCP_MAX), query.qtype)
        wire = self._finish(query, answer, count, tcp=tcp)
        cut = reply is not None and reply.truncated
        return wire[:2] + bytes((wire[2] | TC >> 8,)) + wire[3:] if cut else wire

    def _finish_reply(self, query: Query, reply: Reply, count: Count, *, tcp: bool, age: int = 0) -> bytes:
        count(_event(reply.rcode))
        return build_from_reply(query, reply, TCP_MAX if tcp else query.udp_limit, age=age)

    def _read_upstreams(self) -> tuple[Upstream, ...]:
        if self._settings.upstreams is None:
            return read_resolv_conf(self._settings.resolv_conf)
        return tuple(map(parse_upstream, self._settings.upstreams))


def _refuse(query: Query) -> Answer | None:
    """What no name can answer."""
    if query.edns is not None and query.edns.version != 0:
        return Answer(Rcode.BADVERS)
    if query.qclass != CLASS_IN:
        return Answer(Rcode.REFUSED)
    if query.qtype == Type.OPT:
        return Answer(Rcode.FORMERR)
    if query.qtype in META_TYPES and query.qtype != Type.ANY:
        return Answer(Rcode.REFUSED)
    return None


def _completed(alias: Alias, message: bytes, qtype: int) -> Answer:
    try:
        rcode, found = Rcode(message[3] & 0x0F), tuple(records_of(message, qtype))
    except ValueError:  # Malformed too
        return Answer(Rcode.SERVFAIL, True, alias.records)
    return Answer(rcode, True, alias.records + found)


def _add(events: Counter[str], event: str) -> None:
    events[event] += 1


def _event(rcode: int) -> str:
    return RCODE_EVENTS.get(rcode, "dns.rcode_other")
