"""DNS over real stacks, as a Pod's resolver meets it: UDP, and TCP as RFC 7766 has it."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address
from typing import Any

import dns.message
import pytest
from service_fakes import settle
from service_stacks import count, node
from upstream import reply_to, upstream

from juneau.model.cluster import Service
from juneau.model.ids import TenantId
from juneau.services.dns.service import DnsService

DNS = "10.80.0.2"
SERVICES = {
    ("default", name): Service("default", name, vpc, IPv4Address("10.96.0.10"))
    for name, vpc in (("web", "a"), ("other", "b"))
}


def ask(name: str, rtype: str = "A", **make) -> bytes:
    return dns.message.make_query(name, rtype, **make).to_wire()


def framed(*messages: bytes) -> bytes:
    return b"".join(len(m).to_bytes(2, "big") + m for m in messages)


def unframed(stream: bytes) -> list:
    found = []
    while stream:
        size = int.from_bytes(stream[:2], "big")
        found.append(dns.message.from_wire(stream[2 : 2 + size]))
        stream = stream[2 + size :]
    return found


async def test_dns_over_udp_tells_each_vpc_its_own():
    async with node(DnsService(upstreams=()), services=SERVICES) as n:
        codes = {
            (vpc, name): dns.message.from_wire(
                await n.datagram(ask(f"{name}.default.svc.cluster.local"), 53, vpc=vpc, ip=DNS)
            ).rcode()
            for vpc in (1, 2)
            for name in ("web", "other")
        }
        assert codes == {(1, "web"): 0, (1, "other"): 3, (2, "web"): 3, (2, "other"): 0}
        assert count(n, "dns.queries_udp", "dns") == 2
        assert count(n, "dns.NXDOMAIN", "dns", TenantId(2, 200)) == 1


async def test_dns_over_tcp_pipelined_and_half_closed():
    queries = [ask("web.default.svc.cluster.local", id=n) for n in range(50)]
    async with node(DnsService(upstreams=()), services=SERVICES) as n:
        answers = unframed(await n.fetch(framed(*queries), 53, ip=DNS))
        assert sorted(m.id for m in answers) == list(range(50))
        assert all(m.answer for m in answers)


async def test_dns_over_tcp_byte_by_byte():
    async with node(DnsService(upstreams=()), services=SERVICES) as n:
        reader, writer = await n.connect(53, ip=DNS)
        for byte in framed(ask("web.default.svc.cluster.local", id=9)):
            writer.write(bytes((byte,)))
            await settle(4)
        size = int.from_bytes(await reader.readexactly(2), "big")
        assert dns.message.from_wire(await reader.readexactly(size)).id == 9
        writer.close()


async def test_dns_over_tcp_answers_what_is_ready_first():
    async with node(DnsService(upstreams=["127.0.0.1:1"], server_timeout_s=1), services=SERVICES) as n:
        stream = framed(ask("example.com", id=1), ask("web.default.svc.cluster.local", id=2))
        answers = unframed(await n.fetch(stream, 53, ip=DNS))
        assert [(m.id, m.rcode()) for m in answers] == [(2, 0), (1, 2)], "and the slow one is still answered"


@pytest.mark.parametrize(
    "first", [b"", b"\0", framed(ask("a.b"))[:9]], ids=["silent", "half a length", "half a query"]
)
async def test_dns_over_tcp_closes_an_idle_client(first):
    async with node(DnsService(upstreams=(), tcp_idle_s=0.1), services=SERVICES) as n:
        reader, writer = await n.connect(53, ip=DNS)
        writer.write(first)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("size", [0, 1, 11])
async def test_dns_over_tcp_closes_on_what_is_no_message(size):
    good = framed(ask("web.default.svc.cluster.local", id=3))
    async with node(DnsService(upstreams=()), services=SERVICES) as n:
        stream = good + framed(bytes(size)) + good
        assert len(unframed(await n.fetch(stream, 53, ip=DNS))) == 1


async def test_dns_over_tcp_gives_up_a_client_that_does_not_read(caplog):
    """It asks and asks; what it does not take is bounded, then it is reset. No handler error."""
    async with node(DnsService(upstreams=(), tcp_idle_s=0.2), services=SERVICES) as n:
        _, writer = await n.connect(53, ip=DNS)
        writer.transport.pause_reading()
        with pytest.raises(ConnectionError):
            await ask_for_ever(writer)
        assert count(n, "tcp.handler_errors", "dns") == 0
        writer.close()
    assert caplog.records == []


async def ask_for_ever(writer) -> None:
    burst = framed(*[ask("web.default.svc.cluster.local")] * 1000)
    while True:
        writer.write(burst)
        await writer.drain()


async def test_dns_survives_any_datagram():
    async with node(DnsService(upstreams=()), services=SERVICES) as n:
        transport, _ = await n.wires[1].pod.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(DNS, 53)
        )
        for size in range(40):
            transport.sendto(bytes(range(size)))
        transport.sendto(bytes(40_000))
        assert await n.datagram(ask("web.default.svc.cluster.local"), 53, ip=DNS)
        assert count(n, "udp.handler_errors", "dns") == 0
        transport.close()


async def test_dns_over_tcp_has_few_queries_of_one_connection_in_flight():
    async with upstream(lambda *_: None) as server:
        service = DnsService(
            upstreams=[server.address], tcp_in_flight=2, server_timeout_s=0.2, budget_s=0.2, cache_entries=0
        )
        async with node(service, services=SERVICES) as n:
            reader, writer = await n.connect(53, ip=DNS)
            writer.write(framed(*(ask(f"slow{i}.example.com", id=i) for i in range(6))))
            await asyncio.sleep(0.1)
            assert len(server.asked) == 2
            writer.write_eof()
            answers = unframed(await reader.read())
            assert sorted((m.id, m.rcode()) for m in answers) == [(i, 2) for i in range(6)]
            writer.close()


async def test_dns_is_forwarded_for_udp_and_whole_for_tcp():
    def many(query: Any, tcp: bool) -> Any:
        return reply_to(
            query, *(f"big.example.com. 9 A 192.0.2.{n}" for n in range(99 if tcp else 3)), tc=not tcp
        )

    async with upstream(many) as server, node(DnsService(upstreams=[server.address])) as n:
        udp = dns.message.from_wire(await n.datagram(ask("big.example.com"), 53, ip=DNS))
        (tcp,) = unframed(await n.fetch(framed(ask("big.example.com")), 53, ip=DNS))
    assert (len(udp.answer[0]), len(tcp.answer[0])) == (3, 99)
