"""pmd-pytcp: the other TCP/IP stack in Python, on a TAP whose kernel end is the client's interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.handler import STREAMS_PORT
from bench.model import MTU, ROOT, Peer, Settings, ip, many_ports, run, within
from bench.peers.kernel import SERVER_ADDRESS, new_names
from bench.peers.process import made, serving

SERVER: Final = ROOT / "bench" / "peers" / "pytcp_server.py"
TAP: Final = "tap0"
NAME: Final = "pmd-pytcp"


@contextmanager
def pytcp(settings: Settings) -> Iterator[Peer]:
    """It owns one address of the client's network: no veth, so its stack is all there is between them."""
    python = made(NAME, "bin/python")
    with _namespace() as client:
        words = [TAP, f"{SERVER_ADDRESS}/24", str(MTU), str(STREAMS_PORT)]
        command = [*settings.server(), *within(client), python, "-O", str(SERVER), *words]
        with serving(command) as server:
            server.until(lambda: server.says("made"))
            run(*within(client), "ip", "link", "set", TAP, "up", "mtu", str(MTU))
            run(*within(client), "ip", "address", "add", "10.80.0.10/24", "dev", TAP)
            server.until(lambda: server.says("ready"))
            yield Peer(
                name=NAME,
                address=SERVER_ADDRESS,
                ports={"streams": STREAMS_PORT},
                enter=[*settings.client(), *within(client)],
                pids=lambda: [server.pid],
            )


@contextmanager
def _namespace() -> Iterator[str]:
    _, client = new_names("pytcp")
    ip("netns", "add", client)
    try:
        many_ports(client)
        yield client
    finally:
        ip("netns", "del", client)
