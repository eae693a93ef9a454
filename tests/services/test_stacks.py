"""Services over real stacks: the registry, the example and DNS as a Pod meets them."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import dns.message
import pytest
from service_fakes import settle
from service_stacks import POD_IP, Node

from juneau.model.cluster import Service
from juneau.model.ids import TenantId
from juneau.services import FunctionService, TcpLimits, load_service
from juneau.services.dns.service import DnsService
from juneau.services.metrics import Labels

HELLO = f"{Path(__file__).parents[2]}/examples/hello.py"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
DNS = "10.80.0.2"
SERVICES = {
    ("default", name): Service("default", name, vpc, IPv4Address("10.96.0.10"))
    for name, vpc in (("web", "a"), ("other", "b"))
}


@asynccontextmanager
async def node(*services, **fields):
    offload = fields.pop("offload", False)
    node = Node(services, offload=offload)
    try:
        async with asyncio.timeout(20):
            await node.up(**fields)
            yield node
    finally:
        await node.close()


def count(node: Node, event: str, service: str, tenant: TenantId = TenantId(1, 100)) -> int:  # noqa: B008
    return node.registry.metrics.snapshot().get(Labels(tenant, service), {}).get(event, 0)


@pytest.mark.parametrize("name", ["Hello", "handle"])
async def test_hello_tells_each_vpc_who_it_is(name):
    service = load_service(f"{HELLO}:{name}", tcp_ports=() if name == "Hello" else (8080,))
    async with node(service) as n:
        one, two = [await n.fetch(GET, 8080, vpc=vpc) for vpc in (1, 2)]
    assert one.partition(b"\r\n\r\n")[2] == f"hello {POD_IP}, this is hello of a (1/100)\n".encode()
    assert two.partition(b"\r\n\r\n")[2] == f"hello {POD_IP}, this is hello of b (2/200)\n".encode()
    assert one.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("offload", [False, True])
async def test_megabytes_both_ways(offload):
    async def handle(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    data = hashlib.shake_256(b"seed").digest(3_000_000)
    async with node(FunctionService(handle, tcp_ports=(7,)), offload=offload) as n:
        reader, writer = await n.connect(7)

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        _, back = await asyncio.gather(send(), reader.read())
        writer.close()
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


async def test_bad_handlers_harm_nobody():
    """One raises, one never reads, one never closes, one writes without drain; the last is served."""

    async def handle(reader, writer):
        match (await reader.readline()).strip():
            case b"raise":
                raise ValueError("boom")
            case b"hang":
                await asyncio.Event().wait()
            case b"flood":
                for _ in range(200):
                    writer.write(bytes(100_000))
        writer.write(b"fine")

    async with node(FunctionService(handle, name="t", tcp_ports=(7,))) as n:
        clients = {name: await n.connect(7) for name in (b"raise", b"hang", b"flood")}
        for name, (_, writer) in clients.items():
            writer.write(name + b"\n")
        assert await n.fetch(b"\n", 7) == b"fine"
        with pytest.raises(ConnectionResetError):
            await clients[b"raise"][0].read()
        flood = await clients[b"flood"][0].read()
        assert len(flood) == 20_000_004
        assert count(n, "tcp.handler_errors", "t") == 1
        for _, writer in clients.values():
            writer.close()


async def test_idle_is_counted_in_bytes_not_in_reads():
    """A server that only pushes is busy; a client that says nothing is reset."""

    async def handle(reader, writer):
        if await reader.readline():
            for _ in range(30):
                writer.write(b".")
                await asyncio.sleep(0.02)

    service = FunctionService(handle, name="t", tcp_ports=(7,))
    service.tcp_limits = TcpLimits(idle_s=0.2)
    async with node(service) as n:
        quiet = await n.connect(7)
        assert await n.fetch(b"go\n", 7) == b"." * 30
        with pytest.raises(ConnectionResetError):
            await quiet[0].read()
        assert count(n, "tcp.idle", "t") == 1
        quiet[1].close()


async def test_over_the_limit_is_reset_and_unbound_is_refused():
    async def handle(reader, writer):
        await reader.read()

    service = FunctionService(handle, name="t", tcp_ports=(7,))
    service.tcp_limits = TcpLimits(connections=1)
    async with node(service) as n:
        first, second = await n.connect(7), await n.connect(7)
        with pytest.raises(ConnectionResetError):
            await second[0].read()
        with pytest.raises(ConnectionRefusedError):
            await n.connect(8)
        await n.host.close()
        with pytest.raises(ConnectionResetError):
            await first[0].read()
        assert n.registry.bindings() == ()
        for _, writer in (first, second):
            writer.close()


async def test_the_writer_is_the_stacks_own():
    """Its `start_tls` works on uvloop as well."""

    async def handle(reader, writer):
        seen.append(type(writer).__module__)
        writer.write(b"ok")

    seen: list[str] = []
    async with node(FunctionService(handle, tcp_ports=(7,))) as n:
        assert await n.fetch(b"", 7) == b"ok"
    assert seen == ["juneau.netstack.aio.streams"]


# DNS


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
