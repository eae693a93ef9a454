"""Two tenants on one server: one moves bulk, the other's small requests come on time, or do not."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Final

from bench.load import program
from bench.model import JUNEAU, UVLOOP, BenchError, Metric, Peer, Sample, Workload
from bench.workloads.tcp import GRACE_S

RATE: Final = 1_000
_LEAD_S: Final = 0.3
"""Of the bulk, so that it is at full speed."""


def _small(peer: Peer, seconds: float) -> float:
    """99th percentile of the small requests' latency, ms."""
    tenant = peer.neighbour or peer
    arguments = ("paced", *tenant.at("streams"), f"{seconds:g}", "-r", str(RATE))
    return float(tenant.load(*arguments, timeout=seconds + GRACE_S)["p99_us"]) / 1e3


def _beside(direction: str) -> Callable[[Peer, float], Sample]:
    def measure(peer: Peer, seconds: float) -> Sample:
        length = f"{seconds + 2 * _LEAD_S:g}"
        with peer.running(str(program()), direction, *peer.at("streams"), length) as bulk:
            time.sleep(_LEAD_S)
            p99_ms = _small(peer, seconds)
            return {
                f"small-beside-{direction}": p99_ms,
                f"bulk-beside-{direction}": _speed(bulk, seconds + GRACE_S),
            }

    return measure


def _speed(bulk: subprocess.Popen[str], timeout: float) -> float:
    """A tenant alone again would look good: a bulk that was over before is an error."""
    if bulk.poll() is not None:
        raise BenchError(f"the bulk client ended too early: {bulk.communicate()[1].strip()}")
    try:
        out, err = bulk.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise BenchError("the bulk client does not end") from None
    if bulk.returncode:
        raise BenchError(f"the bulk client: {err.strip()}")
    return float(json.loads(out)["mbit_s"])


def _with_bulk(direction: str, what: str) -> Workload:
    return Workload(
        name=f"small-beside-{direction}",
        unit="ms",
        better="lower",
        peers=(JUNEAU, UVLOOP),
        measure=_beside(direction),
        also=(Metric(f"bulk-beside-{direction}", "Mbit/s", "higher"),),
        what=f"the same while another tenant {what} as fast as it can",
    )


WORKLOADS: Final = (
    Workload(
        name="small-alone",
        unit="ms",
        better="lower",
        peers=(JUNEAU, UVLOOP),
        measure=_small,
        what=f"99th percentile of {RATE:,} requests of 64 bytes a second, each timed from when it was due",
    ),
    _with_bulk("up", "uploads"),
    _with_bulk("down", "downloads"),
)
