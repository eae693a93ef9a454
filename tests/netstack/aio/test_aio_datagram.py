"""DatagramTransport: the same on kernel sockets and on the stack."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from aio_world import CLIENT, SERVER, Pair, World, until

from juneau.netstack.aio import datagram


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: asyncio.Queue[tuple[bytes, Any]] = asyncio.Queue()
        self.errors: list[Exception] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert type(data) is bytes
        self.received.put_nowait((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    async def next(self) -> tuple[bytes, Any]:
        return await asyncio.wait_for(self.received.get(), 5)


async def test_question_and_answer(world: World) -> None:
    transport, server = await world.bind_udp(Datagrams)
    addr = transport.get_extra_info("sockname")
    client_transport, client = await world.connect_udp(Datagrams, addr)
    client_transport.sendto(b"question")
    data, peer = await server.next()
    assert data == b"question"
    assert peer == client_transport.get_extra_info("sockname") or world.name == "juneau"  # ip 0 in the latter
    transport.sendto(b"answer", peer)
    assert await client.next() == (b"answer", addr)
    for end in (transport, client_transport):
        end.close()
    assert await server.lost is None
    assert await client.lost is None


@pytest.mark.parametrize("size", [1, 1422, 1423, 9_000, 65_507])
async def test_sizes_up_to_the_largest(world: World, size: int) -> None:
    transport, server = await world.bind_udp(Datagrams)
    client_transport, client = await world.connect_udp(Datagrams, transport.get_extra_info("sockname"))
    payload = bytes(i % 251 for i in range(size))
    client_transport.sendto(bytearray(payload))
    data, peer = await server.next()
    assert data == payload
    transport.sendto(memoryview(data), peer)
    assert (await client.next())[0] == payload
    transport.close()
    client_transport.close()


async def test_too_large_is_an_error_of_that_datagram(world: World) -> None:
    transport, server = await world.bind_udp(Datagrams)
    client_transport, client = await world.connect_udp(Datagrams, transport.get_extra_info("sockname"))
    client_transport.sendto(bytes(65_508))
    client_transport.sendto(b"fits")
    assert (await server.next())[0] == b"fits"
    assert [getattr(e, "errno", None) for e in client.errors] == [errno.EMSGSIZE]
    transport.close()
    client_transport.close()


async def test_a_closed_port_is_refused(world: World) -> None:
    transport, _ = await world.bind_udp(Datagrams)
    addr = transport.get_extra_info("sockname")
    transport.close()
    await asyncio.sleep(0.01)
    client_transport, client = await world.connect_udp(Datagrams, addr)
    client_transport.sendto(b"anybody?")
    await asyncio.wait_for(until(lambda: client.errors), 5)
    assert isinstance(client.errors[0], ConnectionRefusedError)
    assert not client_transport.is_closing()
    client_transport.close()


async def test_close_ends_once_and_later_sends_are_ignored(world: World) -> None:
    transport, protocol = await world.bind_udp(Datagrams)
    addr = transport.get_extra_info("sockname")
    transport.close()
    transport.close()
    transport.abort()
    assert transport.is_closing()
    assert await protocol.lost is None
    if world.name == "juneau":  # a kernel transport fails its assertions here
        transport.sendto(b"x", addr)
    assert not protocol.errors


async def test_sendto_wants_bytes(world: World) -> None:
    transport, _ = await world.bind_udp(Datagrams)
    with pytest.raises(TypeError):
        transport.sendto("text", ("127.0.0.1", 9))
    transport.close()


async def test_connected_endpoint_takes_one_address(world: World) -> None:
    transport, _ = await world.bind_udp(Datagrams)
    addr = transport.get_extra_info("sockname")
    client_transport, _ = await world.connect_udp(Datagrams, addr)
    assert client_transport.get_extra_info("peername") == addr
    with pytest.raises(ValueError, match="Invalid address"):
        client_transport.sendto(b"x", ("127.0.0.9", 9))
    client_transport.close()
    transport.close()


# What only the stack has


async def test_nobody_was_heard_from_there(pair: Pair) -> None:
    pair.server.route = None
    transport, protocol = await pair.server.create_datagram_endpoint(Datagrams, (SERVER, 53))
    transport.sendto(b"x", (CLIENT, 4000))
    assert [e.errno for e in protocol.errors] == [errno.EHOSTUNREACH]
    assert pair.server.stack.counters["udp.no_path"] == 1


async def test_answers_follow_the_last_path(pair: Pair) -> None:
    transport, protocol = await pair.server.create_datagram_endpoint(Datagrams, (SERVER, 53))
    pair.server.route = None
    client, _ = await pair.client.create_datagram_endpoint(Datagrams, (CLIENT, 4000), (SERVER, 53))
    client.sendto(b"1")
    await protocol.next()
    paths = []
    pair.server._send = lambda packets: paths.extend(p.path for p in packets)  # type: ignore[method-assign]
    packet = _packet_of(pair, b"2", (CLIENT, 4000))
    pair.server.receive(packet, "elsewhere", pair.clock())
    pair.server.settle()
    await protocol.next()
    transport.sendto(b"answer", (CLIENT, 4000))
    await asyncio.sleep(0)
    assert paths == ["elsewhere"]


def _packet_of(pair: Pair, payload: bytes, source: tuple[str, int]) -> bytes:
    """What the client's stack would send."""
    from juneau.netstack.types import Endpoint, parse_ip

    stack = pair.client.stack
    udp = stack.udp_bind(Endpoint(parse_ip(source[0]), 0))
    udp.local = Endpoint(*udp.local[:1], source[1])
    udp.send(payload, Endpoint(parse_ip(SERVER), 53), "wire")
    (packet,) = stack.take_packets(pair.clock())
    return packet.to_bytes()


async def test_paths_are_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram, "PEERS", 2)
    pair.server.route = None
    transport, protocol = await pair.server.create_datagram_endpoint(Datagrams, (SERVER, 53))
    for port in (1001, 1002, 1001, 1003):
        pair.server.receive(_packet_of(pair, b"x", (CLIENT, port)), "wire", pair.clock())
        pair.server.settle()
        await protocol.next()
    for port in (1001, 1002, 1003):
        transport.sendto(b"y", (CLIENT, port))
    assert len(protocol.errors) == 1  # 1002, heard from longest ago


async def test_a_failing_protocol_stays_open(pair: Pair, errors: list[dict[str, Any]]) -> None:
    class Failing(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            raise RuntimeError(data.decode())

    _, protocol = await pair.server.create_datagram_endpoint(Failing, (SERVER, 53))
    client, _ = await pair.client.create_datagram_endpoint(Datagrams, (CLIENT, 0), (SERVER, 53))
    client.sendto(b"one")
    client.sendto(b"two")
    await protocol.next()
    await protocol.next()
    assert [str(e["exception"]) for e in errors] == ["one", "two"]
    errors.clear()


async def test_extra_info(pair: Pair) -> None:
    transport, _ = await pair.server.create_datagram_endpoint(
        Datagrams, (SERVER, 53), extra={"tenant": "red", "service": "dns"}
    )
    assert transport.get_extra_info("tenant") == "red"
    assert transport.get_extra_info("sockname") == (SERVER, 53)
    assert transport.get_extra_info("peername", "none") == "none"
    assert transport.get_extra_info("socket").type is socket.SOCK_DGRAM


async def test_bind_errors(pair: Pair) -> None:
    await pair.server.create_datagram_endpoint(Datagrams, (SERVER, 53))
    for local, code in (((SERVER, 53), errno.EADDRINUSE), (("10.9.9.9", 53), errno.EADDRNOTAVAIL)):
        with pytest.raises(OSError) as caught:
            await pair.server.create_datagram_endpoint(Datagrams, local)
        assert caught.value.errno == code
