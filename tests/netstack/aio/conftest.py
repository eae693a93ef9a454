"""Every test here runs on asyncio's loop and on uvloop; those that ask for `world` also on kernel
sockets and on two stacks, without and with offload.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aio_world import JuneauWorld, KernelWorld, Pair, Tls, World


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


WORLDS: dict[str, Callable[[], World]] = {
    "kernel": KernelWorld,
    "juneau": lambda: JuneauWorld(offload=False),
    "juneau-offload": lambda: JuneauWorld(offload=True),
}


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = WORLDS[request.param]()
    yield made
    await made.close()
    await asyncio.sleep(0)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.close()
    await asyncio.sleep(0)


@pytest.fixture(autouse=True)
async def errors() -> AsyncIterator[list[dict[str, Any]]]:
    """What reached the loop's exception handler: nothing, unless the test takes it out."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    yield errors
    assert not errors


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder: Path = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=service.test"]
        + ["-addext", "subjectAltName=DNS:service.test"],
        check=True,
        capture_output=True,
        timeout=30,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return Tls(server, ssl.create_default_context(cafile=str(cert)))
