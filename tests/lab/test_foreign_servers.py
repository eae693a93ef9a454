"""aiohttp, uvicorn and aiosmtpd, unmodified, on virtual addresses; their usual clients in Pods."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labcli import TWO_VPCS, LabCli, pod

pytestmark = pytest.mark.root

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVICES = (
    EXAMPLES / "aiohttp_app.py:AiohttpApp",
    EXAMPLES / "asgi_app.py:AsgiApp",
    EXAMPLES / "smtp.py:Smtp",
    Path(__file__).with_name("foreign.py:StartTls"),
)
AIOHTTP, UVICORN, SMTP, STREAMS = (f"10.80.0.{offset}" for offset in (3, 4, 5, 6))
CONNECTS = ("-w", "%{num_connects}\\n")


@pytest.fixture(scope="module")
def cert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate and key of all virtual addresses in one PEM file."""
    file = tmp_path_factory.mktemp("cert") / "cert.pem"
    names = ",".join(f"IP:{address}" for address in (AIOHTTP, SMTP, STREAMS))
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=vip", "-addext", f"subjectAltName={names}"]
    subprocess.run([*command, "-keyout", f"{file}.key", "-out", file], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + Path(f"{file}.key").read_bytes())
    return file


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, cert: Path) -> Iterator[LabCli]:
    lab = LabCli(tmp_path_factory.mktemp("foreign"))
    lab.env["CERT"] = str(cert)
    pods = pod("blue", "blue", "10.80.0.10") + pod("green", "green", "10.80.0.10")
    status = lab.up(TWO_VPCS + pods, *(part for where in SERVICES for part in ("--service", str(where))))
    assert not [row for row in status["services"] if row["error"]]
    yield lab
    lab.run("lab", "down")
    assert lab.leftovers() == []


def run(town: LabCli, where: str, *command: str, **kwargs: str) -> str:
    done = town.in_pod(where, *command, **kwargs)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{town.log()}"
    return str(done.stdout)


def curl(town: LabCli, where: str, *arguments: str) -> list[str]:
    return run(town, where, "curl", "-sS", "--max-time", "20", *arguments).splitlines()


def python(town: LabCli, where: str, script: str) -> str:
    return run(town, where, sys.executable, "-c", script)


# HTTP/1.1


@pytest.mark.parametrize("where", ["blue", "green"])
def test_aiohttp_keeps_the_connection_alive(town: LabCli, where: str):
    url = f"http://{AIOHTTP}/"
    hello = f"hello 10.80.0.10, this is aiohttp in {where}"
    assert curl(town, where, *CONNECTS, url, url, url) == [hello, "1", hello, "0", hello, "0"]


def test_uvicorn_keeps_the_connection_alive(town: LabCli):
    url = f"http://{UVICORN}/"
    hello = "hello 10.80.0.10, this is uvicorn; GET of 0 bytes"
    assert curl(town, "blue", *CONNECTS, url, url) == [hello, "1", hello, "0"]


def test_bodies(town: LabCli, tmp_path: Path):
    body = tmp_path / "body"
    body.write_bytes(os.urandom(5_000_000))
    assert curl(town, "blue", "-T", str(body), f"http://{AIOHTTP}/count") == ["5000000"]
    chunked = ("-H", "Transfer-Encoding: chunked", "-T", str(body))
    assert curl(town, "blue", *chunked, f"http://{AIOHTTP}/count") == ["5000000"]
    (said,) = curl(town, "blue", *chunked, f"http://{UVICORN}/")
    assert said.endswith("PUT of 5000000 bytes")


def test_aiohttp_with_tls(town: LabCli, cert: Path):
    url = f"https://{AIOHTTP}/"
    hello = "hello 10.80.0.10, this is aiohttp in blue"
    assert curl(town, "blue", "--cacert", str(cert), *CONNECTS, url, url) == [hello, "1", hello, "0"]
    assert town.in_pod("blue", "curl", "-sS", url).returncode == 60, "and the certificate is checked"


def test_openssl_talks_https(town: LabCli, cert: Path):
    check = ("-CAfile", str(cert), "-verify_return_error", "-verify_ip", AIOHTTP)
    request = "GET / HTTP/1.1\r\nHost: vip\r\nConnection: close\r\n\r\n"
    for version in ("-tls1_2", "-tls1_3"):
        client = ("openssl", "s_client", "-connect", f"{AIOHTTP}:443", version, *check, "-ign_eof")
        said = run(town, "blue", *client, input=request)
        assert "Verify return code: 0 (ok)" in said
        assert "this is aiohttp in blue" in said


def test_aiohttps_client_and_its_websocket(town: LabCli, cert: Path):
    script = f"""
import aiohttp, asyncio, ssl

async def main():
    tls = ssl.create_default_context(cafile={str(cert)!r})
    async with aiohttp.ClientSession() as session:
        for base in ("http://{AIOHTTP}", "https://{AIOHTTP}"):
            async with session.get(base, ssl=tls) as response:
                print(response.status, (await response.text()).strip())
            async with session.ws_connect(base + "/echo", ssl=tls) as socket:
                for text in ("short", "x" * 300_000):
                    await socket.send_str(text)
                    assert (await socket.receive_str(timeout=10)) == text
            print(socket.close_code)

asyncio.run(main())
"""
    hello = "200 hello 10.80.0.10, this is aiohttp in green"
    assert python(town, "green", script).splitlines() == [hello, "1000"] * 2


@pytest.mark.parametrize("url", [f"ws://{AIOHTTP}/echo", f"wss://{AIOHTTP}/echo", f"ws://{UVICORN}/"])
def test_websockets(town: LabCli, cert: Path, url: str):
    # Its threaded client reads and writes one ssl object from two threads, and now and then loses what it
    # writes; on kernel sockets too.
    script = f"""
import asyncio, ssl
from websockets.asyncio.client import connect

async def main():
    tls = ssl.create_default_context(cafile={str(cert)!r}) if {url!r}.startswith("wss") else None
    async with connect({url!r}, ssl=tls) as socket:
        for text in ("short", "x" * 300_000):
            await socket.send(text)
            assert await asyncio.wait_for(socket.recv(), 10) == text
        await asyncio.wait_for(await socket.ping(), 10)
    print(socket.close_code)

asyncio.run(main())
"""
    assert python(town, "blue", script) == "1000\n"


# TLS that begins later


def test_aiosmtpd_with_starttls(town: LabCli, cert: Path):
    script = f"""
import smtplib, ssl

with smtplib.SMTP({SMTP!r}, timeout=10) as client:
    client.sendmail("a@example.org", ["b@example.org"], "without")
    client.starttls(context=ssl.create_default_context(cafile={str(cert)!r}))
    client.sendmail("a@example.org", ["b@example.org"], "with TLS" + 3_000 * "\\r\\na line" + " to the end")
    print(client.sock.version())
"""
    assert python(town, "green", script).startswith("TLSv1.")
    assert "plain mail in green: without" in town.log()
    assert "TLS mail in green: with TLS" in town.log()
    assert "a line to the end" in town.log()


def test_openssl_talks_smtp(town: LabCli, cert: Path):
    check = ("-CAfile", str(cert), "-verify_return_error", "-verify_ip", SMTP)
    client = ("openssl", "s_client", "-connect", f"{SMTP}:25", "-starttls", "smtp", *check, "-ign_eof")
    said = run(town, "blue", *client, input="EHLO pod\r\nQUIT\r\n")
    assert "Verify return code: 0 (ok)" in said
    assert "221 Bye" in said


def test_a_stream_writer_starts_tls(town: LabCli, cert: Path):
    check = ("-CAfile", str(cert), "-verify_return_error", "-verify_ip", STREAMS)
    client = ("openssl", "s_client", "-connect", f"{STREAMS}:2525", "-starttls", "smtp", *check, "-ign_eof")
    assert "by TLSv1.3 you said hello" in run(town, "blue", *client, input="hello\n")


def test_no_connection_is_left(town: LabCli):
    deadline = time.monotonic() + 10
    while left := town.json("conns"):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert {row["state"] for row in town.json("conns", "--all")} <= {"LISTEN", "TIME_WAIT"}
