"""DNS: hot answers, asked by dnsperf."""

from __future__ import annotations

import re
import tempfile
from typing import Final

from bench.model import COMPILED, JUNEAU, BenchError, Metric, Peer, Workload
from bench.peers.dns import NAMES, PEERS
from bench.peers.process import installed

CLIENTS: Final = 8
OUTSTANDING: Final = 150
"""Of all clients. A socket's default buffer, which dnsmasq cannot change, holds 193 of these queries."""
TIMEOUT_S: Final = 1
"""Until dnsperf counts a query as lost."""
GRACE_S: Final = 10.0


def measure(peer: Peer, seconds: float) -> dict[str, float]:
    """Raises BenchError where a query was lost, or answered with anything but NOERROR."""
    with tempfile.NamedTemporaryFile("w", suffix=".dnsperf") as queries:
        queries.write("".join(f"{name} A\n" for name in NAMES))
        queries.flush()
        before = peer.cpu_s()
        completed, rate = parse(_dnsperf(peer, queries.name, seconds))
        return {"dns": rate, "dns-cpu": (peer.cpu_s() - before) * 1e6 / completed}


def _dnsperf(peer: Peer, queries: str, seconds: float) -> str:
    address, port = peer.at("dns")
    load = ("-c", str(CLIENTS), "-q", str(OUTSTANDING), "-l", f"{seconds:g}", "-t", str(TIMEOUT_S))
    command = (installed("dnsperf"), "-s", address, "-p", port, "-d", queries, *load)
    return peer.client(*command, timeout=seconds + GRACE_S)


def parse(output: str) -> tuple[int, float]:
    """Answers, and answers per second, out of dnsperf's report. Raises BenchError as `measure` does."""
    completed, lost, good = (
        _count(label, output) for label in ("Queries completed:", "Queries lost:", "NOERROR")
    )
    if lost or good != completed or not completed:
        raise BenchError(f"{completed} queries answered, {good} of them with NOERROR, {lost} lost")
    (rate,) = re.findall(r"Queries per second: +([\d.]+)", output)
    return completed, float(rate)


def _count(label: str, output: str) -> int:
    """What is not in the report did not happen."""
    found = re.search(rf"{label} +(\d+)", output)
    return int(found[1]) if found else 0


WORKLOADS: Final = (
    Workload(
        name="dns",
        unit="answers/s",
        better="higher",
        peers=(JUNEAU, COMPILED, *PEERS),
        measure=measure,
        what=f"hot answers, none lost; {len(NAMES)} names, dnsperf with {OUTSTANDING} queries in flight",
        also=(Metric("dns-cpu", "µs of the server's CPU an answer", "lower"),),
    ),
)
