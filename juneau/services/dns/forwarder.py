"""Asks the servers outside, and remembers what they say, per Vpc.

Every try has its own socket, so its own random port, and a random id; what does not match id,
question and server is ignored and the right answer still waited for (RFC 5452).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from juneau.netstack.types import Malformed
from juneau.services.dns.cache import Cache, Key, Known
from juneau.services.dns.message import CD, U16, Query, Rcode
from juneau.services.dns.reply import Reply, build_upstream_query, matches, parse_reply
from juneau.services.dns.settings import DnsSettings, Upstream

PENALTY_S: Final = 10.0
"""A server that did not answer is asked last for this long."""
ROUNDS: Final = 2
"""A lost datagram is likelier than a dead server: all are asked twice, within the budget."""
TRY_NEXT: Final = frozenset({Rcode.SERVFAIL, Rcode.REFUSED, Rcode.NOTIMP})

Count: TypeAlias = Callable[[str], None]


class Forwarder:
    """`lookup` what is known, otherwise `ask`."""

    def __init__(self, settings: DnsSettings, *, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._cache = Cache(settings.cache_entries)
        self._in_flight: Counter[int] = Counter()
        self._pending: dict[tuple[int, Key, bool], asyncio.Future[Reply | None]] = {}
        self._bad_until: dict[Upstream, float] = {}

    def lookup(self, query: Query, vpc_id: int) -> Known | None:
        """A remembered reply."""
        return self._cache.get(vpc_id, _key(query), self._clock())

    def may_ask(self, vpc_id: int) -> bool:
        """False: too many queries are out."""
        total = self._in_flight.total()
        return total < self._settings.in_flight and self._in_flight[vpc_id] < self._settings.in_flight_per_vpc

    async def ask(
        self, query: Query, vpc_id: int, servers: Sequence[Upstream], count: Count, *, tcp: bool
    ) -> Reply | None:
        """What the first willing server says; None: none did. With `tcp`, a truncated reply is asked
        for again over TCP. The same question of one Vpc is asked once at a time."""
        key = (vpc_id, _key(query), tcp)
        if (pending := self._pending.get(key)) is not None:
            count("dns.forward.joined")
            return await asyncio.shield(pending)
        future = self._pending[key] = asyncio.get_running_loop().create_future()
        self._in_flight[vpc_id] += 1
        reply = None
        try:
            reply = await self._ask(query, servers, count, tcp=tcp)
            self._remember(query, vpc_id, reply)
        finally:
            future.set_result(reply)
            del self._pending[key]
            self._in_flight[vpc_id] -= 1
            if not self._in_flight[vpc_id]:
                del self._in_flight[vpc_id]
        return reply

    def _remember(self, query: Query, vpc_id: int, reply: Reply | None) -> None:
        if reply is not None:
            lifetime = reply.lifetime(self._settings.cache_ttl_s, self._settings.negative_ttl_s)
            self._cache.put(vpc_id, _key(query), reply, lifetime, self._clock())

    async def _ask(
        self, query: Query, servers: Sequence[Upstream], count: Count, *, tcp: bool
    ) -> Reply | None:
        last: Reply | None = None
        try:
            async with asyncio.timeout(self._settings.budget_s):
                for _ in range(ROUNDS):
                    for server in self._in_order(servers):
                        reply = await self._try(query, server, count, tcp=tcp)
                        if reply is not None and reply.rcode not in TRY_NEXT:
                            return reply
                        last = reply or last
                    if last is not None:
                        break  # they answer, they just do not want to
        except TimeoutError:
            count("dns.forward.out_of_time")
        return last

    def _in_order(self, servers: Sequence[Upstream]) -> list[Upstream]:
        now = self._clock()
        return sorted(servers, key=lambda server: self._bad_until.get(server, 0.0) > now)

    async def _try(self, query: Query, server: Upstream, count: Count, *, tcp: bool) -> Reply | None:
        try:
            async with asyncio.timeout(self._settings.server_timeout_s):
                return await self._exchange(query, server, count, tcp=tcp)
        except (OSError, EOFError, Malformed) as error:  # TimeoutError is an OSError
            count("dns.forward.timeouts" if isinstance(error, TimeoutError) else "dns.forward.errors")
            self._bad_until[server] = self._clock() + PENALTY_S
            return None

    async def _exchange(self, query: Query, server: Upstream, count: Count, *, tcp: bool) -> Reply:
        reply = await _exchange_udp(query, server, count)
        if reply.rcode == Rcode.FORMERR:
            reply = await _exchange_udp(query, server, count, edns=False)  # older than EDNS
        if reply.truncated and tcp:
            count("dns.forward.tcp")
            reply = await _exchange_tcp(query, server)
        return reply


class _Asking(asyncio.DatagramProtocol):
    def __init__(self, query: Query, ident: int, count: Count) -> None:
        self._query, self._ident, self._count = query, ident, count
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not matches(data, self._query, self._ident):
            self._count("dns.forward.mismatched")
        elif not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


async def _exchange_udp(query: Query, server: Upstream, count: Count, *, edns: bool = True) -> Reply:
    """Connected: only this server's datagrams arrive, and its refusal is heard at once."""
    ident = secrets.randbits(16)
    transport, asking = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Asking(query, ident, count), remote_addr=(server.host, server.port)
    )
    try:
        transport.sendto(build_upstream_query(query, ident, edns=edns))
        return parse_reply(await asking.answer, query)
    finally:
        asking.answer.cancel()
        transport.close()


async def _exchange_tcp(query: Query, server: Upstream) -> Reply:
    ident = secrets.randbits(16)
    reader, writer = await asyncio.open_connection(*server)
    try:
        message = build_upstream_query(query, ident)
        writer.write(U16.pack(len(message)) + message)
        while True:
            (size,) = U16.unpack(await reader.readexactly(U16.size))
            answer = await reader.readexactly(size)
            if matches(answer, query, ident):
                return parse_reply(answer, query)
    finally:
        writer.close()


def _key(query: Query) -> Key:
    return Key(query.qname, query.qtype, query.do, bool(query.flags & CD))


def lookalike(query: Query, qname: bytes) -> Query:
    """The same question about another name: how an alias is followed."""
    return query._replace(question=qname + query.question[len(query.qname) :], qname=qname)
