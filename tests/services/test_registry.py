from __future__ import annotations

import asyncio

import pytest
from service_fakes import POD, FakeMaps, FakeStack, settle, spec

from juneau.model.ids import Mac, Protocol, TenantId
from juneau.services.limits import TcpLimits, UdpLimits
from juneau.services.metrics import Labels
from juneau.services.registry import AlreadyBound, BindError, InvalidSpec, Registry

TENANT = TenantId(1, 100)


class World:
    def __init__(self) -> None:
        self.maps = FakeMaps()
        self.stacks = {1: FakeStack(), 2: FakeStack()}
        self.stack = self.stacks[1]
        self.registry = Registry(self.maps, self.stacks.__getitem__)

    def count(self, event: str, service: str = "t", tenant: TenantId = TENANT) -> int:
        return self.registry.metrics.snapshot().get(Labels(tenant, service), {}).get(event, 0)

    def is_empty(self) -> bool:
        stacks = self.stacks.values()
        nothing_programmed = not (self.maps.services or self.maps.vips)
        return nothing_programmed and not any(s.addresses or s.servers or s.endpoints for s in stacks)


@pytest.fixture
async def world():
    world = World()
    yield world
    await world.registry.close()
    assert world.is_empty()


async def silent(reader, writer):
    await reader.read()


# Reserve, program, commit


async def test_tcp_binding_is_programmed_in_order_and_undone_in_reverse(world):
    binding = await world.registry.listen_tcp(spec(), silent)
    assert world.stack.steps == ["add_address", "create_server"]
    assert world.maps.steps == ["add_vip", "bind_service"]
    await binding.unregister()
    assert world.stack.steps[2:] == ["close_server", "remove_address"]
    assert world.maps.steps[2:] == ["unbind_service", "remove_vip"]
    assert world.registry.bindings() == ()


@pytest.mark.parametrize("step", ["add_vip", "bind_service"])
@pytest.mark.parametrize("proto", [Protocol.TCP, Protocol.UDP])
async def test_failing_map_write_leaves_nothing(world, step, proto):
    world.maps.fail = {step}
    bind = world.registry.listen_tcp if proto == Protocol.TCP else world.registry.register_udp_handler
    with pytest.raises(BindError, match=f"10.80.0.3:8080/{proto.name.lower()} .*no space left"):
        await bind(spec(proto=proto), silent)
    assert world.is_empty()
    assert world.registry.bindings() == ()
    world.maps.fail = set()
    await bind(spec(proto=proto), silent)


async def test_failing_listen_leaves_nothing_and_keeps_the_vip_of_others(world):
    await world.registry.listen_tcp(spec(80), silent)
    world.stack.fail = {"create_server"}
    with pytest.raises(BindError, match="address in use"):
        await world.registry.listen_tcp(spec(81), silent)
    assert len(world.maps.services) == len(world.maps.vips) == len(world.stack.addresses) == 1


async def test_second_binding_is_refused_also_while_the_first_is_under_way(world):
    world.stack.pause = asyncio.Event()
    first = asyncio.create_task(world.registry.listen_tcp(spec(), silent, name="first"))
    await settle()
    with pytest.raises(AlreadyBound, match="first answers there"):
        await world.registry.listen_tcp(spec(), silent)
    world.stack.pause.set()
    await first
    assert world.maps.services == {spec()}, "the loser must not undo the winner's entry"
    with pytest.raises(AlreadyBound):
        await world.registry.create_server(spec(), asyncio.Protocol)
    assert world.maps.services == {spec()}


async def test_cancelled_bind_leaves_nothing(world):
    world.stack.pause = asyncio.Event()
    task = asyncio.create_task(world.registry.listen_tcp(spec(), silent))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.is_empty()


@pytest.mark.parametrize("proto", [Protocol.TCP, Protocol.UDP])
async def test_registry_closed_while_a_bind_is_under_way(world, proto):
    world.stack.pause = asyncio.Event()
    bind = world.registry.listen_tcp if proto == Protocol.TCP else world.registry.register_udp_handler
    task = asyncio.create_task(bind(spec(proto=proto), silent))
    await settle()
    await world.registry.close()
    world.stack.pause.set()
    with pytest.raises(BindError, match="unregistered before it was bound"):
        await task
    assert world.is_empty()
    world.stack.pause = None
    await bind(spec(proto=proto), silent)


async def test_a_bind_that_was_overtaken_leaves_the_address_to_the_next(world):
    world.stack.pause = asyncio.Event()
    first = asyncio.create_task(world.registry.listen_tcp(spec(), silent))
    await settle()
    await world.registry.close()
    resume, world.stack.pause = world.stack.pause, None
    second = await world.registry.listen_tcp(spec(), silent)
    world.stack.fail = {"create_server"}  # as a stack does whose address is taken
    resume.set()
    with pytest.raises(BindError):
        await first
    assert world.registry.bindings() == (second,)
    assert world.maps.services == {spec()}


async def test_same_address_in_two_vpcs_and_both_protocols(world):
    other = TenantId(2, 200)
    await world.registry.listen_tcp(spec(53), silent)
    await world.registry.register_udp_handler(spec(53, Protocol.UDP), lambda *_: None)
    binding = await world.registry.listen_tcp(spec(53, tenant=other), silent)
    await binding.unregister()
    assert world.maps.services == {spec(53), spec(53, Protocol.UDP)}
    assert not world.stacks[2].addresses
    assert world.stack.connect(53).state == "open"


async def test_vip_lives_as_long_as_its_last_binding(world):
    one = await world.registry.listen_tcp(spec(80), silent)
    two = await world.registry.listen_tcp(spec(81), silent)
    await one.unregister()
    assert len(world.maps.vips) == len(world.stack.addresses) == 1
    await two.unregister()
    assert not world.maps.vips
    assert not world.stack.addresses


async def test_one_vip_has_one_mac(world):
    await world.registry.listen_tcp(spec(80), silent)
    with pytest.raises(BindError, match="has the MAC 0a:00:00:00:00:03 already, not 0a:00:00:00:00:04"):
        await world.registry.listen_tcp(spec(81, service_mac=Mac("0a:00:00:00:00:04")), silent)


async def test_unregister_is_idempotent_and_a_context_manager(world):
    async with await world.registry.listen_tcp(spec(), silent) as binding:
        await asyncio.gather(binding.unregister(), binding.unregister())
    await binding.unregister()
    again = await world.registry.listen_tcp(spec(), silent)
    await binding.unregister()
    assert again.active
    assert world.maps.services == {spec()}


async def test_failing_undo_step_does_not_stop_the_next(world, caplog):
    binding = await world.registry.listen_tcp(spec(), silent, name="t")
    world.maps.fail = {"unbind_service"}
    await binding.unregister()
    assert not world.stack.servers
    assert not world.maps.vips
    assert world.registry.metrics.total("unbind_errors") == 1
    assert "unbind t at 10.80.0.3:8080/tcp (vpc 1, subnet 100)" in caplog.text
    world.maps.services.clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"proto": Protocol.UDP}, "protocol is <Protocol.UDP: 17>, allowed <Protocol.TCP: 6> here"),
        ({"port": 0}, "port is 0, allowed 1..65535"),
        ({"port": 65536}, "port is 65536"),
        ({"service_mac": b"\x0a\0\0\0\0"}, "MAC has 5 bytes, allowed 6"),
        ({"service_mac": Mac("0b:00:00:00:00:00")}, "group address"),
        ({"tenant": TenantId(1, 0)}, "subnet id is 0, allowed 1..16777215"),
        ({"tenant": TenantId(1, 2**24)}, "subnet id is 16777216"),
        ({"tenant": TenantId(0, 1)}, "vpc id is 0"),
    ],
)
async def test_bad_spec(world, changes, message):
    with pytest.raises(InvalidSpec, match="bind service 1000: ") as error:
        await world.registry.listen_tcp(spec(**changes), silent)
    assert message in str(error.value)
    assert world.maps.steps == []


async def test_handler_must_be_callable(world):
    with pytest.raises(InvalidSpec, match="handler is None"):
        await world.registry.register_udp_handler(spec(53, Protocol.UDP), None)


# Streams: what a handler does hurts its own connection only


async def listen(world, handle, **options):
    return await world.registry.listen_tcp(spec(), handle, name="t", **options)


async def test_handler_knows_tenant_service_and_client(world):
    seen = {}

    async def handle(reader, writer):
        seen.update({k: writer.get_extra_info(k) for k in ("tenant", "service", "spec", "peername", "vpc")})
        writer.write(b"got " + await reader.readline())

    await listen(world, handle, extra={"vpc": "guest"})
    transport = world.stack.connect()
    transport.protocol.data_received(b"hi\n")
    await settle()
    assert bytes(transport.sent) == b"got hi\n"
    assert transport.state == "closed", "a handler that returns without closing is closed"
    assert seen == {"tenant": TENANT, "service": "t", "spec": spec(), "peername": POD, "vpc": "guest"}
    assert world.count("tcp.served") == world.count("tcp.accepted") == 1


@pytest.mark.parametrize(
    "error", [ValueError("boom"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
async def test_failing_handler_is_reset_logged_and_counted(world, caplog, error):
    async def handle(reader, writer):
        if await reader.readline() == b"fail\n":
            raise error
        writer.write(b"fine")

    await listen(world, handle)
    good, bad = world.stack.connect(), world.stack.connect()
    bad.protocol.data_received(b"fail\n")
    await settle()
    good.protocol.data_received(b"\n")
    await settle()
    assert (bad.state, good.state, bytes(good.sent)) == ("reset", "closed", b"fine")
    assert world.count("tcp.handler_errors") == 1
    assert "service t at 10.80.0.3:8080/tcp: handler failed" in caplog.text
    assert "vpc=1 subnet=100 client=10.80.0.10" in caplog.text


async def test_log_does_not_flood(world, caplog):
    async def handle(reader, writer):
        raise ValueError("boom")

    await listen(world, handle)
    for _ in range(50):
        world.stack.connect()
    await settle()
    assert world.count("tcp.handler_errors") == 50
    assert len(caplog.records) <= 20  # ten a second, and a second may pass


async def test_client_that_goes_away_is_no_handler_error(world, caplog):
    async def handle(reader, writer):
        await reader.readexactly(10)

    await listen(world, handle)
    world.stack.connect().reset_by_peer()
    await settle()
    assert (world.count("tcp.client_gone"), world.count("tcp.handler_errors")) == (1, 0)
    assert caplog.records == []


async def test_connection_limits_reset_the_next_one(world):
    await listen(world, silent, limits=TcpLimits(connections=3, connections_per_client=2))
    mine = [world.stack.connect() for _ in range(3)]
    others = [world.stack.connect(peer=(f"10.80.0.{n}", 1)) for n in (20, 21)]
    await settle()
    assert [t.state for t in mine + others] == ["open", "open", "reset", "open", "reset"]
    assert (world.count("tcp.refused_per_client"), world.count("tcp.refused_connections")) == (1, 1)
    mine[0].protocol.eof_received()
    await settle()
    assert world.stack.connect().state == "open", "a slot comes back with its connection's end"


async def test_idle_connection_is_reset_and_a_busy_one_is_not(world):
    await listen(world, silent, limits=TcpLimits(idle_s=0.1))
    idle, busy = world.stack.connect(), world.stack.connect()
    async with asyncio.timeout(5):
        while idle.state == "open":
            busy.receive(b".")
            await asyncio.sleep(0.01)
    assert (idle.state, busy.state) == ("reset", "open")
    assert world.count("tcp.idle") == 1


async def test_handler_that_outlives_its_connection_is_cancelled_in_the_end(world):
    stopped = asyncio.Event()

    async def handle(reader, writer):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await listen(world, handle, limits=TcpLimits(idle_s=0.02))
    world.stack.connect().reset_by_peer()
    async with asyncio.timeout(5):
        await stopped.wait()
    assert world.count("tcp.handler_outlived") == 1


async def test_unregister_resets_connections_and_cancels_handlers(world):
    cancelled = []

    async def handle(reader, writer):
        try:
            await reader.read()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    binding = await listen(world, handle)
    transport = world.stack.connect()
    await settle()
    await binding.unregister()
    assert (transport.state, cancelled) == ("reset", [1])


async def test_handler_may_unregister_its_own_binding(world):
    async def handle(reader, writer):
        await binding.unregister()
        done.set()

    done = asyncio.Event()
    binding = await listen(world, handle)
    world.stack.connect()
    async with asyncio.timeout(5):
        await done.wait()
    assert world.registry.bindings() == ()


# Datagrams


async def bind_udp(world, handle, **options):
    return await world.registry.register_udp_handler(spec(53, Protocol.UDP), handle, name="t", **options)


async def test_plain_and_async_udp_handlers_answer(world):
    def plain(request, responder):
        responder.write_response(b"plain " + request.payload)

    async def slow(request, responder):
        await asyncio.sleep(0)
        responder.write_response(f"{request.client_ip} {request.client_port} {request.tenant}".encode())

    binding = await bind_udp(world, plain)
    assert world.stack.datagram(b"x", 53).sent == [(b"plain x", POD)], "at once, in the reader's turn"
    await binding.unregister()
    await bind_udp(world, slow)
    transport = world.stack.datagram(b"x", 53)
    await settle()
    assert transport.sent == [(f"{POD[0]} {POD[1]} {TENANT}".encode(), POD)]


async def test_slow_udp_handlers_are_bounded_and_never_block_the_reader(world):
    gate = asyncio.Event()

    async def slow(request, responder):
        await gate.wait()
        responder.write_response(request.payload)

    await bind_udp(world, slow, limits=UdpLimits(workers=2, queue=3))
    for n in range(8):
        transport = world.stack.datagram(b"%d" % n, 53)
    await settle()
    assert (transport.sent, world.count("udp.dropped_queue_full")) == ([], 3)
    gate.set()
    await settle()
    assert sorted(data for data, _ in transport.sent) == [b"%d" % n for n in range(5)]


async def test_failing_udp_handlers_are_counted_and_logged(world, caplog):
    async def late(request, responder):
        raise asyncio.CancelledError if request.payload == b"c" else ValueError("late")

    def early(request, responder):
        raise ValueError("early")

    binding = await bind_udp(world, early)
    world.stack.datagram(b"x", 53)
    assert world.count("udp.handler_errors") == 1
    await binding.unregister()
    await bind_udp(world, late)
    world.stack.datagram(b"x", 53)
    world.stack.datagram(b"c", 53)
    await settle()
    assert world.count("udp.handler_errors") == 2
    assert "vpc=1 subnet=100 client=10.80.0.10" in caplog.text


async def test_udp_handler_that_hangs_is_given_up(world):
    async def hang(request, responder):
        await asyncio.Event().wait()

    await bind_udp(world, hang, limits=UdpLimits(timeout_s=0.01))
    world.stack.datagram(b"x", 53)
    async with asyncio.timeout(5):
        while not world.count("udp.handler_timeouts"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_response_after_unregister_is_dropped(world):
    kept = []
    binding = await bind_udp(world, lambda request, responder: kept.append(responder))
    transport = world.stack.datagram(b"x", 53)
    await binding.unregister()
    kept[0].write_response(b"late")
    assert transport.sent == []


# Whole servers


async def test_create_server_and_datagram_endpoint_take_any_protocol(world):
    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)

    class EchoUdp(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, addr):
            self.transport.sendto(data, addr)

    server = await world.registry.create_server(spec(), Echo)
    endpoint = await world.registry.create_datagram_endpoint(spec(53, Protocol.UDP), EchoUdp)
    transport = world.stack.connect()
    transport.protocol.data_received(b"hi")
    assert bytes(transport.sent) == b"hi"
    assert transport.get_extra_info("tenant") == TENANT
    assert world.stack.datagram(b"x", 53).sent == [(b"x", POD)]
    assert isinstance(endpoint.protocol, EchoUdp)
    server.close()
    assert world.maps.services == {spec(), spec(53, Protocol.UDP)}, "closing is not unregistering"
    await server.unregister()
    assert transport.state == "reset"
    assert world.maps.services == {spec(53, Protocol.UDP)}


async def test_counts_of_a_departed_binding_are_kept_in_sum(world):
    binding = await listen(world, silent)
    world.stack.connect()
    await binding.unregister()
    assert world.count("tcp.accepted") == 0
    assert world.registry.metrics.total("tcp.accepted") == 1


async def test_prometheus_shows_the_counters(world):
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    world.registry.metrics.export(registry)
    await listen(world, silent)
    world.stack.connect()
    labels = {"vpc": "1", "subnet": "100", "service": "t", "event": "tcp.accepted"}
    assert registry.get_sample_value("juneau_service_events_total", labels) == 1
