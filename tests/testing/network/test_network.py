"""Hosts, links and what goes wrong between them, seen by ordinary asyncio programs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from juneau.netstack.types import Misuse
from juneau.netstack.wire import pcapng
from juneau.testing.network import Network

BODY = bytes(range(256)) * 1024  # 256 KiB


async def echo(reader, writer):
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def serve(handler=echo, port=7):
    server = await asyncio.start_server(handler, "0.0.0.0", port)
    await server.serve_forever()


async def ask(host, port, data):
    reader, writer = await asyncio.open_connection(host, port)

    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    try:
        sending = asyncio.create_task(send())
        got = await reader.read()
        await sending
    finally:
        writer.close()
    await writer.wait_closed()
    return got


def pair(net, **link):
    server, client = net.host("server", "10.0.0.1", boot=serve), net.host("client", "10.0.0.2")
    net.link(server, client, **link)
    return server, client


async def patient_ask(host, port, data):
    while True:
        try:
            return await ask(host, port, data)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "link",
    [
        {},
        {"delay_ms": 20},
        {"delay_ms": 20, "loss": 0.02},
        {"delay_ms": 5, "jitter_ms": 5, "reorder": 0.1, "duplicate": 0.05},
        {"delay_ms": 5, "corrupt": 0.01},
        {"delay_ms": 5, "bandwidth": 10_000_000, "queue_bytes": 30_000},
    ],
    ids=lambda link: ",".join(f"{k}={v}" for k, v in link.items()) or "lan",
)
def test_bytes_arrive_whatever_the_link_does(link):
    with Network(seed=3) as net:
        _, client = pair(net, **link)
        assert net.run(patient_ask("server", 7, BODY), on=client, timeout=600) == BODY
        if "loss" in link:
            assert net.wire.fates["lost"] > 3


def test_round_trips_take_the_links_time():
    with Network() as net:
        _, client = pair(net, delay_ms=20)

        async def main():
            await asyncio.sleep(1)
            loop, seen = asyncio.get_running_loop(), []
            began = loop.time()
            reader, writer = await asyncio.open_connection("server", 7)
            seen.append(loop.time() - began)
            writer.write(b"x")
            await reader.readexactly(1)
            seen.append(loop.time() - began)
            writer.close()
            return seen

        assert net.run(main(), on=client) == pytest.approx([0.04, 0.08])


def test_a_host_talks_to_itself():
    with Network() as net:
        here = net.host("here", "192.168.1.9", boot=serve)

        async def main():
            await asyncio.sleep(1)
            return [await ask(name, 7, BODY) for name in ("127.0.0.1", "localhost", "here", "192.168.1.9")]

        assert net.run(main(), on=here) == [BODY] * 4


def test_names():
    with Network() as net:
        net.host("server", "10.0.0.1", "10.0.0.9")
        client = net.host("client")
        assert client.ip == "10.0.0.2"

        async def main():
            loop = asyncio.get_running_loop()
            infos = await loop.getaddrinfo("server", "http", type=socket.SOCK_STREAM)
            assert [info[4] for info in infos] == [("10.0.0.1", 80), ("10.0.0.9", 80)]
            assert socket.getaddrinfo("SERVER.", 80, type=socket.SOCK_STREAM) == infos
            assert await loop.getnameinfo(("10.0.0.9", 80)) == ("server", "http")
            assert socket.gethostbyname("client") == "10.0.0.2"
            assert socket.gethostname() == "client"
            for name in ("example.org", "::1"):
                with pytest.raises(socket.gaierror, match="not a host of this network"):
                    await loop.getaddrinfo(name, 80)
            with pytest.raises(socket.gaierror, match="IPv4 only"):
                await loop.getaddrinfo("server", 80, family=socket.AF_INET6)

        net.run(main(), on=client)
        for bad in ("server", "SERVER", "", "a b", "localhost"):
            with pytest.raises(Misuse):
                net.host(bad)
        with pytest.raises(Misuse, match="server has the address"):
            net.host("other", "10.0.0.9")


def test_a_closed_port_refuses_and_nobody_home_times_out():
    with Network() as net:
        _, client = pair(net, delay_ms=1)

        async def main():
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("server", 9)
            with pytest.raises(TimeoutError):
                await asyncio.open_connection("10.99.0.1", 9)
            with pytest.raises(OSError, match="not a host of this network"):
                await asyncio.open_connection("nowhere", 9)
            return asyncio.get_running_loop().time()

        assert net.run(main(), on=client, timeout=600) > 60  # all SYNs were tried


def test_a_partition_holds_packets_back_and_heals():
    with Network(seed=1) as net:
        server, client = pair(net, delay_ms=5)

        async def main():
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_connection("server", 7)
            net.partition(server, client)
            writer.write(b"hello")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(5), 10)
            net.heal(server, client)
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            assert net.wire.fates["down"] > 3

        net.run(main(), on=client, timeout=60)
        assert net.wire._directions["client", "server"].impairment.delay == 5000  # the link is as it was


def test_a_one_way_partition_lets_the_other_way_through():
    with Network() as net:
        server, client = net.host("server"), net.host("client")
        arrived = []

        async def listen(name):
            class Note(asyncio.DatagramProtocol):
                def datagram_received(self, data, addr):
                    arrived.append((name, data))

            await asyncio.get_running_loop().create_datagram_endpoint(Note, ("0.0.0.0", 99))

        async def say(to):
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(to, 99))
            transport.sendto(b"hi")

        async def main():
            for host in (server, client):
                await host.run(listen(host.name))
            net.partition(server, client, one_way=True)
            await server.run(say("client"))
            await client.run(say("server"))
            await asyncio.sleep(1)

        net.run(main(), on=client)
        assert arrived == [("server", b"hi")]


def test_a_crash_is_silent_and_a_restart_resets():
    with Network(seed=5) as net:
        server, client = pair(net, delay_ms=5)
        events = []

        async def main():
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_connection("server", 7)
            writer.write(b"x")
            await reader.readexactly(1)
            sent = net.wire.fates["delivered"]
            server.crash()
            await asyncio.sleep(30)
            assert net.wire.fates["delivered"] == sent  # no FIN, no RST
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.open_connection("server", 7), 5)
            server.restart()
            writer.write(b"y")
            with pytest.raises(ConnectionResetError):  # it knows nothing of this connection
                await reader.read()
            events.append(net.now)
            await asyncio.sleep(1)
            assert await ask("server", 7, b"again") == b"again"

        net.run(main(), on=client, timeout=120)
        assert events[0] == pytest.approx(36, abs=1)


def test_a_crash_cancels_the_hosts_tasks_and_timers_without_a_network():
    log = []

    async def stubborn():
        loop = asyncio.get_running_loop()
        loop.call_later(100, log.append, "timer of the dead")
        _, writer = await asyncio.open_connection("client", 7)
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        finally:
            try:
                await asyncio.open_connection("client", 7)
            except OSError as exc:
                log.append(type(exc).__name__ + " " + str(exc))
            try:
                writer.write(b"farewell")
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                await asyncio.sleep(5)
            finally:
                log.append("gone")

    with Network() as net:
        doomed, client = net.host("doomed"), net.host("client", boot=serve)

        async def main():
            await asyncio.sleep(1)
            task = doomed.create_task(stubborn())
            await asyncio.sleep(1)
            delivered = net.wire.fates["delivered"]
            doomed.crash()
            assert not doomed.up
            with pytest.raises(asyncio.CancelledError):
                await task
            assert net.now == 2  # at once
            await asyncio.sleep(200)
            assert net.wire.fates["delivered"] == delivered
            with pytest.raises(OSError, match="doomed is down"):
                doomed.create_task(stubborn())
            with pytest.raises(OSError, match="doomed is down"):
                doomed.crash()

        net.run(main(), on=client)
    assert log == ["cancelled", "OSError [Errno 100] host doomed has crashed: Network is down", "gone"]


def test_boot_runs_on_every_start_and_its_failure_fails_the_run():
    starts = []

    async def boot():
        starts.append(asyncio.get_running_loop().time())
        if len(starts) == 3:
            raise KeyError("third")
        await asyncio.sleep(1e6)

    with Network() as net:
        host, other = net.host("host", boot=boot), net.host("other")

        async def main():
            for _ in range(5):
                await asyncio.sleep(1)
                host.restart()

        with pytest.raises(KeyError, match="third"):
            net.run(main(), on=other)
    assert starts == [0, 1, 2]


def test_without_a_host_there_is_no_network():
    async def main():
        await asyncio.open_connection("a", 7)

    with Network() as net:
        net.host("a")
        net.host("b")
        with pytest.raises(Misuse, match=r"which host\?"):
            net.run(main())


# The same seed, the same packets


async def busy(net, clients):
    """Five clients at once, one of them cut off for a while, the server restarted."""

    async def work(host, n):
        for _ in range(4):
            data = os.urandom(3000 * (n + 1))
            while True:
                try:
                    async with asyncio.timeout(3):
                        assert await ask("server", 7, data) == data
                    break
                except OSError:
                    await asyncio.sleep(0.25)

    async def trouble():
        await asyncio.sleep(0.2)
        net.partition(net.hosts["server"], clients[0])
        await asyncio.sleep(2)
        net.heal()
        net.hosts["server"].restart()

    async with asyncio.TaskGroup() as group:
        group.create_task(trouble())
        for n, host in enumerate(clients):
            group.create_task(host.run(work(host, n)))


def record(seed, path):
    with Network(seed=seed, capture=path) as net:
        server = net.host("server", "10.0.0.1", boot=serve)
        clients = [net.host(f"client{i}") for i in range(5)]
        net.link(server, clients, loss=0.05, delay_ms=10, jitter_ms=5, reorder=0.05, duplicate=0.02)
        net.run(busy(net, clients), on=clients[0], timeout=300)
    return Path(path).read_bytes()


def test_the_same_seed_gives_the_same_capture_byte_for_byte(tmp_path):
    first = record(11, tmp_path / "a.pcapng")
    assert record(11, tmp_path / "b.pcapng") == first
    assert record(12, tmp_path / "c.pcapng") != first
    packets = list(pcapng.read_packets(first))
    assert len(packets) > 300
    comments = {packet.comment for packet in packets}
    assert {"lost", "duplicated", "down", None} <= comments
    assert {packet.interface for packet in packets} == {"server", *(f"client{i}" for i in range(5))}


def test_other_processes_record_the_same_whatever_their_hash_seed(tmp_path):
    expected = hashlib.sha256(record(11, tmp_path / "a.pcapng")).hexdigest()
    program = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); import test_network as t;"
        "junk = [object() for _ in range(int(sys.argv[3]))];"
        "print(hashlib.sha256(t.record(11, sys.argv[2])).hexdigest())"
    )
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                program,
                str(Path(__file__).parent),
                str(tmp_path / "p.pcapng"),
                hash_seed * 4,
            ],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_the_example_of_the_docs_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "network-in-a-process.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert list(pcapng.read_packets((tmp_path / "run.pcapng").read_bytes()))
