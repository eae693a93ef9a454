"""The kernel's own sockets: server and client in a namespace each, a veth between them."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from bench.handler import PORTS
from bench.model import ASYNCIO, BULK_ONLY, ROOT, UVLOOP, BenchError, Peer, Settings, network, within
from bench.peers.extra import EXTRAS

SERVER_ADDRESS: Final = "10.80.0.3"


@contextmanager
def uvloop(settings: Settings) -> Iterator[Peer]:
    with _kernel(UVLOOP, "uvloop", settings) as peer:
        yield peer


@contextmanager
def bulk_only(settings: Settings) -> Iterator[Peer]:
    with _kernel(BULK_ONLY, "uvloop", settings) as peer:
        yield peer


@contextmanager
def asyncio(settings: Settings) -> Iterator[Peer]:
    with _kernel(ASYNCIO, "asyncio", settings) as peer:
        yield peer


@contextmanager
def _kernel(name: str, loop: str, settings: Settings) -> Iterator[Peer]:
    server, client = new_names("kernel")
    command = [*settings.server(), *within(server), sys.executable, "-m", "bench.server", loop]
    with network(server, client), serving(command) as process:
        ports = {**PORTS, **{extra.service: extra.port for extra in EXTRAS}}
        enter = [*settings.client(), *within(client)]
        yield Peer(name=name, address=SERVER_ADDRESS, ports=ports, enter=enter, pids=lambda: [process.pid])


def new_names(what: str) -> tuple[str, str]:
    """Of a server's and a client's namespace; several benches can run at once."""
    name = f"jbench-{what}-{secrets.token_hex(3)}"
    return f"{name}-s", f"{name}-c"


@contextmanager
def serving(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A server that prints a line when it is ready. Raises BenchError where it does not."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise BenchError(f"{' '.join(command)}: exit {process.wait(10)} before it was ready")
            yield process
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
