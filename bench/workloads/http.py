"""HTTP: an aiohttp application, asked by wrk on connections that stay."""

from __future__ import annotations

import re
from typing import Final

from bench.model import ASYNCIO, COMPILED, JUNEAU, UVLOOP, BenchError, Peer, Workload
from bench.peers.process import installed

CONNECTIONS: Final = 8
GRACE_S: Final = 10.0


def measure(peer: Peer, seconds: float) -> float:
    """Requests per second. Raises BenchError where one failed. wrk knows whole seconds only."""
    address, port = peer.at("http")
    duration = max(1, round(seconds))
    load = ("-t", "1", "-c", str(CONNECTIONS), "-d", f"{duration}s")
    command = (installed("wrk"), *load, f"http://{address}:{port}/")
    return parse(peer.client(*command, timeout=duration + GRACE_S))


def parse(output: str) -> float:
    """Requests per second out of wrk's report, which names failures only where there were some."""
    if failed := re.findall(r"Socket errors: .*|Non-2xx or 3xx responses: .*", output):
        raise BenchError("; ".join(failed))
    (rate,) = re.findall(r"Requests/sec: +([\d.]+)", output)
    if not float(rate):
        raise BenchError("no request was answered")
    return float(rate)


WORKLOADS: Final = (
    Workload(
        name="http",
        unit="requests/s",
        better="higher",
        peers=(JUNEAU, COMPILED, UVLOOP, ASYNCIO),
        measure=measure,
        what=f"an aiohttp application; wrk, one thread, {CONNECTIONS} connections that stay",
    ),
)
