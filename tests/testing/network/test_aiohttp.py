"""aiohttp's client and server, unmodified, over links that lose, networks that part and hosts that die."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from juneau.testing.network import Network


async def hello(request):
    return web.json_response({"hello": request.match_info["name"], "from": request.remote})


async def upload(request):
    return web.Response(body=(await request.read())[::-1])


async def chat(request):
    socket = web.WebSocketResponse(heartbeat=20)
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data.upper())
    return socket


async def serve():
    app = web.Application()
    app.add_routes([web.get("/hello/{name}", hello), web.post("/upload", upload), web.get("/chat", chat)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 80).start()
    await asyncio.Event().wait()


def network(seed=1, capture=None, **link):
    net = Network(seed=seed, capture=capture)
    server, client = net.host("server", boot=serve), net.host("client")
    net.link(server, client, **link)
    return net, server, client


async def ready(session):
    while True:
        try:
            async with session.get("http://server/hello/x"):
                return
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.01)


def test_requests_keep_alive_upload_and_websocket():
    net, _, client = network(delay_ms=10, loss=0.03)
    body = bytes(range(256)) * 2000

    async def main():
        async with aiohttp.ClientSession() as session:
            await ready(session)
            for i in range(20):
                async with session.get(f"http://server/hello/{i}") as response:
                    assert await response.json() == {"hello": str(i), "from": client.ip}
            async with session.post("http://server/upload", data=body) as response:
                assert await response.read() == body[::-1]
            async with session.ws_connect("ws://server/chat") as socket:
                for word in ("one", "two"):
                    await socket.send_str(word)
                    assert await socket.receive_str() == word.upper()
                third = asyncio.create_task(socket.receive_str())
                await asyncio.sleep(120)  # pings go through
                await socket.send_str("three")
                assert await third == "THREE"

    with net:
        net.run(main(), on=client, timeout=300)
        assert net.wire.fates["lost"] > 3


def test_a_partition_is_a_timeout_and_healing_brings_the_next_request_through():
    net, server, client = network(delay_ms=5)

    async def main():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=4)) as session:
            await ready(session)
            net.partition(server, client)
            began = net.now
            with pytest.raises(TimeoutError):
                await session.get("http://server/hello/a")
            assert net.now - began == pytest.approx(4, abs=0.01)
            net.heal()
            async with session.get("http://server/hello/b") as response:
                assert (await response.json())["hello"] == "b"

    with net:
        net.run(main(), on=client, timeout=60)


def test_a_websocket_notices_a_dead_server_by_its_heartbeat():
    net, server, client = network(delay_ms=5)

    async def main():
        async with aiohttp.ClientSession() as session:
            await ready(session)
            async with session.ws_connect("ws://server/chat", heartbeat=10) as socket:
                server.crash()
                began = net.now
                message = await socket.receive()
                assert message.type in (aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSED)
                assert 10 < net.now - began < 20
            server.restart()
            await ready(session)

    with net:
        net.run(main(), on=client, timeout=120)


def test_many_clients_of_a_server_that_restarts():
    net, server, _ = network(seed=4, delay_ms=5, loss=0.02)
    clients = [net.host(f"c{i}") for i in range(8)]
    net.link(server, clients, delay_ms=15, loss=0.05)

    async def work(n):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
            done = 0
            while done < 10:
                try:
                    async with session.get(f"http://server/hello/{n}") as response:
                        assert (await response.json())["hello"] == str(n)
                        done += 1
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.2)

    async def main():
        async with asyncio.TaskGroup() as group:
            for n, host in enumerate(clients):
                group.create_task(host.run(work(n)))
            for _ in range(3):
                await asyncio.sleep(0.5)
                server.restart()

    with net:
        net.run(main(), on=net.hosts["client"], timeout=300)


def test_the_same_seed_gives_the_same_capture(tmp_path):
    def record(seed, path):
        net, server, client = network(seed=seed, capture=path, delay_ms=10, loss=0.05)

        async def main():
            async with aiohttp.ClientSession() as session:
                await ready(session)
                for i in range(10):
                    form = aiohttp.FormData(
                        {"n": str(i)}, default_to_multipart=True
                    )  # its boundary is random
                    async with session.post("http://server/upload", data=form) as response:
                        assert b"boundary" not in await response.read()
                server.restart()
                await ready(session)

        with net:
            net.run(main(), on=client, timeout=60)
        return path.read_bytes()

    first = record(1, tmp_path / "a")
    assert record(1, tmp_path / "b") == first
    assert record(2, tmp_path / "c") != first
