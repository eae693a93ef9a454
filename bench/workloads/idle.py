"""10,000 connections that do nothing: what each costs in memory, and whether the server sleeps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from bench.load import program
from bench.model import JUNEAU, UVLOOP, BenchError, Metric, Peer, Sample, Workload

CONNECTIONS: Final = 10_000
_HOLD_S: Final = 60
_QUIET_S: Final = 5.0
_SETTLE_S: Final = 1.0


def _idle(peer: Peer, seconds: float) -> Sample:
    """Longer than `seconds`: a quiet time without the connections, and the same with them."""
    time.sleep(_SETTLE_S)
    before = peer.rss_kib()
    _, wakeups_without = _quiet(peer)
    command = (str(program()), "idle", *peer.at("streams"), str(_HOLD_S), "-c", str(CONNECTIONS))
    with peer.running(*command) as client:
        assert client.stdout is not None
        assert client.stdin is not None
        opened = client.stdout.readline()
        if not opened:
            raise BenchError(f"{peer.name}: {_said(client.stderr)}")
        time.sleep(_SETTLE_S)
        after = peer.rss_kib()
        cpu_ms, wakeups = _quiet(peer)
        client.stdin.close()
        client.wait(10)
    time.sleep(_SETTLE_S)
    return {
        "idle-memory": (after - before) / CONNECTIONS,
        "idle-wakeups": max(wakeups - wakeups_without, 0),
        "idle-cpu": cpu_ms,
        "idle-open": CONNECTIONS / json.loads(opened)["seconds"],
    }


def _quiet(peer: Peer) -> tuple[float, int]:
    """CPU time in milliseconds and wake-ups of the server while nothing is asked of it."""
    cpu_s, wakeups = peer.cpu_s(), _wakeups(peer)
    time.sleep(_QUIET_S)
    return (peer.cpu_s() - cpu_s) * 1e3, _wakeups(peer) - wakeups


def _wakeups(peer: Peer) -> int:
    """How often its threads have gone to sleep so far."""
    count = 0
    for pid in peer.server_pids():
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            found = [line for line in status.read_text().splitlines() if line.startswith("voluntary_")]
            count += sum(int(line.split()[1]) for line in found)
    return count


def _said(stream: object) -> str:
    return str(getattr(stream, "read", str)()).strip() or "the client ended without a word"


WORKLOADS: Final = (
    Workload(
        name="idle-memory",
        unit="KiB",
        better="lower",
        peers=(JUNEAU, UVLOOP),
        measure=_idle,
        once=True,
        also=(
            Metric("idle-wakeups", "in 5 s", "lower"),
            Metric("idle-cpu", "ms in 5 s", "lower"),
            Metric("idle-open", "/s", "higher"),
        ),
        what="RSS for each of 10,000 idle connections; then, with all of them open, nothing for 5 s",
    ),
)
