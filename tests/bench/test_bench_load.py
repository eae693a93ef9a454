"""The compiled client against `bench.handler` on loopback."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bench.handler import Handler, UdpEcho, handle
from bench.load import program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no cc")
SECONDS = "0.2"


@pytest.fixture
async def ports() -> AsyncIterator[dict[str, str]]:
    loop = asyncio.get_running_loop()
    streams = await asyncio.start_server(handle, "127.0.0.1", 0)
    protocol = await loop.create_server(Handler, "127.0.0.1", 0)
    udp, _ = await loop.create_datagram_endpoint(UdpEcho, ("127.0.0.1", 0))
    yield {
        "streams": str(streams.sockets[0].getsockname()[1]),
        "protocol": str(protocol.sockets[0].getsockname()[1]),
        "udp": str(udp.get_extra_info("sockname")[1]),
    }
    udp.close()
    for server in (streams, protocol):
        server.close()
    await asyncio.sleep(0.05)  # the handlers see that their clients have gone


async def run(*arguments: str) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program(), *arguments, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode or 0, out.decode(), err.decode()


async def load(command: str, port: str, *options: str) -> dict[str, Any]:
    code, out, err = await run(command, "127.0.0.1", port, SECONDS, *options)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("service", ["streams", "protocol"])
async def test_up_is_counted_by_the_server(ports: dict[str, str], service: str):
    found = await load("up", ports[service])
    assert found["bytes"] > 0
    assert found["bytes"] % (256 * 1024) == 0
    assert found["mbit_s"] == pytest.approx(found["bytes"] * 8e-6 / found["seconds"], rel=0.02)


@pytest.mark.parametrize("service", ["streams", "protocol"])
async def test_down(ports: dict[str, str], service: str):
    found = await load("down", ports[service])
    assert found["bytes"] > 0
    assert 0.2 <= found["seconds"] < 2


@pytest.mark.parametrize("service", ["streams", "protocol"])
async def test_round_trips(ports: dict[str, str], service: str):
    found = await load("rr", ports[service])
    percentiles = [found[f"{name}_us"] for name in ("min", "p50", "p90", "p99", "p999", "max")]
    assert percentiles[0] > 0
    assert percentiles == sorted(percentiles)
    assert found["count"] * found["p50_us"] < 2e6


@pytest.mark.parametrize("at_once", ["1", "8"])
@pytest.mark.parametrize("service", ["streams", "protocol"])
async def test_connect_request_close(ports: dict[str, str], service: str, at_once: str):
    found = await load("crr", ports[service], "-c", at_once)
    assert found["count"] >= int(at_once)
    assert found["per_s"] == pytest.approx(found["count"] / found["seconds"], rel=0.02)


async def test_many_connections_all_get_answers(ports: dict[str, str]):
    found = await load("many", ports["streams"], "-c", "50", "-s", "100")
    assert found["count"] >= 50
    assert found["p99_us"] > 0


async def test_requests_at_a_rate_are_as_many_as_the_time_allows(ports: dict[str, str]):
    found = await load("paced", ports["streams"], "-r", "500")
    assert found["count"] == 100  # 0.2 s


async def test_a_paced_request_s_time_starts_when_it_was_due():
    """A server that stalls once: every request that was due meanwhile is late, not just the one sent."""

    async def stalling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(0.1)
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(stalling, "127.0.0.1", 0)
    found = await load("paced", str(server.sockets[0].getsockname()[1]), "-r", "500")
    server.close()
    assert found["max_us"] > 80_000
    assert found["p50_us"] < found["p90_us"]
    assert found["p90_us"] > 60_000  # half of the 0.2 s was stalled


@pytest.mark.parametrize("window", ["1", "16"])
async def test_udp_loses_nothing_on_loopback(ports: dict[str, str], window: str):
    found = await load("udp", ports["udp"], "-w", window)
    assert found["received"] == found["count"] > 0
    assert found["lost"] == 0
    assert found["sent"] - found["received"] <= int(window)


async def test_udp_counts_what_is_lost():
    class Every10thIsLost(UdpEcho):
        seen = 0

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.seen += 1
            if self.seen % 10:
                super().datagram_received(data, addr)

    loop = asyncio.get_running_loop()
    udp, _ = await loop.create_datagram_endpoint(Every10thIsLost, ("127.0.0.1", 0))
    found = await load("udp", str(udp.get_extra_info("sockname")[1]), "-w", "4", "-s", "64")
    udp.close()
    assert found["lost"] >= 1
    assert found["received"] < found["sent"]


async def test_idle_connections_are_held_until_stdin_ends(ports: dict[str, str]):
    pipe = asyncio.subprocess.PIPE
    arguments = ("idle", "127.0.0.1", ports["streams"], "20", "-c", "30")
    client = await asyncio.create_subprocess_exec(program(), *arguments, stdin=pipe, stdout=pipe)
    assert client.stdout is not None
    assert client.stdin is not None
    assert json.loads(await client.stdout.readline())["open"] == 30
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.wait(), 0.2)
    client.stdin.close()
    assert await asyncio.wait_for(client.wait(), 5) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("up",), "load COMMAND"),
        (("fly", "127.0.0.1", "9", "1"), "load COMMAND"),
        (("up", "localhost", "9", "1"), "ADDRESS"),
        (("up", "127.0.0.1", "9", "0"), "SECONDS"),
        (("udp", "127.0.0.1", "9", "1", "-s", "5"), "-s: allowed 16..1400"),
    ],
)
async def test_wrong_arguments(arguments: tuple[str, ...], complaint: str):
    code, out, err = await run(*arguments)
    assert code in (1, 2)
    assert (out, err[: len(complaint)]) == ("", complaint)


async def test_nobody_there_is_an_error_and_no_figure():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = str(server.sockets[0].getsockname()[1])
    server.close()
    code, out, err = await run("rr", "127.0.0.1", port, "1")
    assert (code, out) == (1, "")
    assert "connect: Connection refused" in err
