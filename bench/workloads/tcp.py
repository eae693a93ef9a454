"""TCP: bulk, connections, round trips. The client is `bench/load`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from bench.model import ASYNCIO, BULK_ONLY, COMPILED, JUNEAU, UVLOOP, Peer, Workload

KERNEL: Final = (JUNEAU, UVLOOP, ASYNCIO)
MAIN: Final = (JUNEAU, COMPILED, UVLOOP, ASYNCIO)
PYTCP: Final = "pmd-pytcp"
GRACE_S: Final = 20.0


def load(service: str, reading: str, command: str, *options: str) -> Callable[[Peer, float], float]:
    """A measurement: run `load COMMAND` against `service`, take the figure called `reading`."""

    def measure(peer: Peer, seconds: float) -> float:
        arguments = (command, *peer.at(service), f"{seconds:g}", *options)
        return float(peer.load(*arguments, timeout=seconds + GRACE_S)[reading])

    return measure


def _workload(
    name: str,
    unit: str,
    better: Literal["higher", "lower"],
    measure: Callable[[Peer, float], float],
    what: str,
    peers: tuple[str, ...] = KERNEL,
) -> Workload:
    return Workload(name=name, unit=unit, better=better, measure=measure, what=what, peers=peers)


WORKLOADS: Final[tuple[Workload, ...]] = (
    _workload(
        "up",
        "Mbit/s",
        "higher",
        load("streams", "mbit_s", "up"),
        "bulk Pod → VIP, a StreamReader reads 64 KiB at a time; counted by the server",
        (*MAIN, BULK_ONLY, PYTCP),
    ),
    _workload(
        "down",
        "Mbit/s",
        "higher",
        load("streams", "mbit_s", "down"),
        "bulk VIP → Pod, a StreamWriter writes 64 KiB and drains",
        (*MAIN, BULK_ONLY, PYTCP),
    ),
    _workload(
        "protocol-up",
        "Mbit/s",
        "higher",
        load("protocol", "mbit_s", "up"),
        "bulk Pod → VIP, an asyncio.Protocol",
    ),
    _workload(
        "protocol-down",
        "Mbit/s",
        "higher",
        load("protocol", "mbit_s", "down"),
        "bulk VIP → Pod, an asyncio.Protocol that heeds pause_writing",
    ),
    _workload(
        "connects",
        "/s",
        "higher",
        load("streams", "per_s", "crr"),
        "connect, one byte each way, close; one after another",
        (*MAIN, PYTCP),
    ),
    _workload(
        "connects-8", "/s", "higher", load("streams", "per_s", "crr", "-c", "8"), "the same, eight at once"
    ),
    _workload(
        "rtt",
        "µs",
        "lower",
        load("streams", "p50_us", "rr"),
        "one byte there and back, median",
        (*MAIN, PYTCP),
    ),
    _workload(
        "many-100",
        "requests/s",
        "higher",
        load("streams", "per_s", "many", "-c", "100"),
        "64-byte requests on 100 connections, one in flight on each",
    ),
    _workload(
        "many-1000",
        "requests/s",
        "higher",
        load("streams", "per_s", "many", "-c", "1000"),
        "the same on 1,000 connections",
    ),
)
