from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_fakes import FakeMaps, FakeStack, settle, spec, subnet, view

from juneau.model.cluster import Pod
from juneau.model.ids import Mac, Protocol, ServiceId, TenantId
from juneau.services import FunctionService, Listener, Registry, ServiceError, ServiceHost, VirtualService
from juneau.services.dns.service import DnsService
from juneau.services.framework import reserved_address, service_mac
from juneau.services.host import Name, Start, Stop, reconcile

A, B = subnet("a-net", "a", 100), subnet("b-net", "b", 200)


class Echo(VirtualService):
    tcp_ports = (7,)
    udp_ports = (7,)

    def __init__(self):
        self.log = []

    async def start(self):
        self.log.append("start")

    async def stop(self):
        self.log.append("stop")

    async def handle_tcp(self, reader, writer):
        writer.write(await reader.read(100))

    def handle_udp(self, request, responder):
        responder.write_response(request.payload)


class World:
    def __init__(self, *services):
        self.maps = FakeMaps()
        self.stacks = {n: FakeStack() for n in (1, 2, 3)}
        self.registry = Registry(self.maps, self.stacks.__getitem__)
        self.host = ServiceHost(self.registry, services)

    def bound(self):
        return sorted((s.tenant.subnet_id, str(s.addr)) for s in self.maps.services)

    def errors(self):
        return [row.error for row in self.host.status() if row.error]


# The plan

keys = st.builds(
    Name, st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from(Protocol), st.integers(1, 2)
)
specs = st.builds(
    lambda port, mac: spec(port, service_mac=Mac(bytes((2, 0, 0, 0, 0, mac)))),
    st.integers(1, 3),
    st.integers(0, 1),
)
worlds = st.dictionaries(keys, specs, max_size=6)


@given(worlds, worlds)
def test_carrying_out_the_plan_gives_what_is_desired(desired, running):
    world = dict(running)
    plan = reconcile(desired, running)
    for step in plan:
        if isinstance(step, Stop):
            del world[step.name]
        else:
            assert step.name not in world, "what runs is stopped before it starts again"
            world[step.name] = step.spec
    assert world == desired
    assert reconcile(desired, world) == []
    assert len(plan) <= len(desired) + len(running)
    assert plan == sorted(plan, key=lambda step: isinstance(step, Start)), "stops come first"


# The host


async def test_every_service_in_every_subnet():
    world = World(Echo(), DnsService(upstreams=()))
    await world.host.update(view(A, B))
    assert world.bound() == [
        (vni, addr)
        for vni in (100, 200)
        for addr in ("10.80.0.2:53/tcp", "10.80.0.2:53/udp", "10.80.0.3:7/tcp", "10.80.0.3:7/udp")
    ]
    assert {(v.tenant, v.mac) for v in world.maps.vips if str(v.ip) == "10.80.0.2"} == {
        (TenantId(1, 100), A.dns_mac),
        (TenantId(2, 200), B.dns_mac),
    }
    assert world.host.status()[0] == ("dns", "a", "a-net", "10.80.0.2:53/tcp", "")
    await world.host.close()
    await world.host.close()
    assert world.bound() == []


async def test_subnets_come_and_go_and_the_others_are_not_touched():
    world = World(Echo())
    await world.host.update(view(A, B))
    transport = world.stacks[1].connect(7)
    await world.host.update(view(A, B))
    steps = list(world.maps.steps)
    await world.host.update(view(A))
    assert world.bound() == [(100, "10.80.0.3:7/tcp"), (100, "10.80.0.3:7/udp")]
    assert world.maps.steps[len(steps) :] == ["unbind_service", "unbind_service", "remove_vip"]
    assert transport.state == "open"
    await world.host.update(view(A, replace(B, vni=201)))
    assert {vni for vni, _ in world.bound()} == {100, 201}
    await world.host.close()


async def test_handlers_know_vpc_and_subnet_by_name():
    async def handle(reader, writer):
        writer.write(f"{writer.get_extra_info('vpc')}/{writer.get_extra_info('subnet')}".encode())

    world = World(FunctionService(handle, tcp_ports=(80,)))
    await world.host.update(view(A, B))
    transports = [world.stacks[n].connect(80) for n in (1, 2)]
    await settle()
    assert [bytes(t.sent) for t in transports] == [b"a/a-net", b"b/b-net"]
    await world.host.close()


async def test_foreign_protocols_and_tls_reach_the_stack():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    class Foreign(VirtualService):
        def listeners(self):
            return (
                Listener(Protocol.TCP, 80, protocol_factory=asyncio.Protocol),
                Listener(Protocol.TCP, 443, protocol_factory=asyncio.Protocol, ssl=context),
                Listener(Protocol.TCP, 8443, Echo().handle_tcp, ssl=context),
            )

    world = World(Foreign())
    await world.host.update(view(A))
    assert world.errors() == []
    asked = {port: options.get("ssl") for (_, port), options in world.stacks[1].asked.items()}
    assert asked == {80: None, 443: context, 8443: context}
    await world.host.close()


async def test_a_failing_bind_is_shown_and_tried_again_and_hurts_no_other(caplog):
    world = World(Echo(), DnsService(upstreams=()))
    world.stacks[1].fail = {"create_server"}
    await world.host.update(view(A, B))
    assert [vni for vni, _ in world.bound()] == [100, 100, 200, 200, 200, 200]
    assert len(world.errors()) == 2
    assert "address in use" in world.errors()[0]
    assert "tried again" in caplog.text
    world.stacks[1].fail = set()
    await world.host.update(view(A, B))
    assert (len(world.bound()), world.errors()) == (8, [])
    await world.host.close()


async def test_a_service_that_does_not_start_is_tried_again(caplog):
    class Shy(Echo):
        tries = 0

        async def start(self):
            self.tries += 1
            if self.tries < 2:
                raise RuntimeError("not yet")

    world = World(Shy(), DnsService(upstreams=()))
    await world.host.update(view(A))
    assert {addr for _, addr in world.bound()} == {"10.80.0.2:53/tcp", "10.80.0.2:53/udp"}
    assert set(world.errors()) == {"start shy: not yet"}
    await world.host.update(view(A))
    assert (len(world.bound()), world.errors()) == (4, [])
    await world.host.close()


async def test_start_and_stop_hooks_run_once():
    echo = Echo()
    world = World(echo)
    for _ in range(3):
        await world.host.update(view(A))
    await world.host.close()
    await world.host.update(view(A))
    assert (echo.log, world.bound()) == (["start", "stop"], [])


async def test_address_taken_by_a_pod_or_not_there():
    pod = Pod("default", "squatter", "a", "a-net", IPv4Address("10.80.0.3"), Mac(b"\x02" * 6))
    world = World(Echo())
    tiny = replace(B, cidr=IPv4Network("10.80.0.0/30"))
    await world.host.update(view(A, tiny, pods={("default", "squatter"): pod}))
    assert world.bound() == []
    assert set(world.errors()) == {
        "10.80.0.3 is taken by pod default/squatter",
        "subnet b-net (10.80.0.0/30) has no address for it",
    }
    await world.host.close()


async def test_updates_do_not_overlap():
    world = World(Echo())
    world.stacks[1].pause = asyncio.Event()
    updates = [asyncio.create_task(world.host.update(v)) for v in (view(A, B), view(A), view())]
    await settle()
    assert world.host.view.subnets == {}, "services see the newest view at once"
    world.stacks[1].pause.set()
    await asyncio.gather(*updates)
    assert world.bound() == []
    await world.host.close()


async def test_services_choose_their_subnets():
    class OnlyB(Echo):
        def applies_to(self, subnet, vpc):
            return vpc.name == "b"

    world = World(OnlyB())
    await world.host.update(view(A, B))
    assert {vni for vni, _ in world.bound()} == {200}
    await world.host.close()


class Twin(Echo):
    name = "echo"


class Thief(Echo):
    service_id = ServiceId.DNS


class Low(Echo):
    service_id = 999


class Mute(VirtualService):
    pass


@pytest.mark.parametrize(
    ("services", "message"),
    [
        ([Echo(), Twin()], "'echo' is given twice"),
        ([DnsService(), Thief()], "'dns' and 'thief' share the id 1"),
        ([Low()], "has the id 999, allowed 1000 and up"),
        ([Mute()], "'mute' listens nowhere"),
    ],
)
async def test_services_that_cannot_run(services, message):
    with pytest.raises(ServiceError, match=message):
        World(*services)


# Addresses


def test_reserved_addresses():
    assert reserved_address(A, 3) == IPv4Address("10.80.0.3")
    assert reserved_address(A, 254) == IPv4Address("10.80.0.254")
    for none in (0, 1, 255, 256, -1):  # network, gateway, broadcast, outside
        assert reserved_address(A, none) is None


def test_service_macs_are_stable_local_and_distinct():
    macs = {service_mac(vpc, net, n) for vpc in "ab" for net in "xy" for n in (2, 3)}
    assert len(macs) == 8
    assert all(mac[0] & 3 == 2 and mac[:2] != b"\x02\x4a" for mac in macs)
    assert str(service_mac("guest", "guest-net", 3)) == "0a:e2:c9:41:33:be"
