"""UDP: datagrams echoed, 64 in flight or one."""

from __future__ import annotations

from typing import Final

from bench.model import JUNEAU, Metric, Peer, Sample, Workload
from bench.targets import MANY_SUBNETS
from bench.workloads.tcp import GRACE_S, KERNEL, MAIN, load


def _echo(peer: Peer, seconds: float) -> Sample:
    arguments = ("udp", *peer.at("udp"), f"{seconds:g}", "-w", "64")
    found = peer.load(*arguments, timeout=seconds + GRACE_S)
    return {"udp": found["per_s"], "udp-lost": 100 * found["lost"] / found["sent"]}


def _cost(peer: Peer, seconds: float) -> float:
    """Of a datagram there and back, µs, with so many in flight that nobody sleeps."""
    return 1e6 / load("udp", "per_s", "udp", "-w", "64")(peer, seconds)


WORKLOADS: Final = (
    Workload(
        name="udp",
        unit="requests/s",
        better="higher",
        peers=MAIN,
        measure=_echo,
        also=(Metric("udp-lost", "%", "lower"),),
        what="64-byte datagrams echoed, 64 in flight",
    ),
    Workload(
        name="udp-rtt",
        unit="µs",
        better="lower",
        peers=KERNEL,
        measure=load("udp", "p50_us", "udp", "-w", "1"),
        what="64-byte datagrams echoed, one in flight, median",
    ),
    Workload(
        name="packet",
        unit="µs",
        better="lower",
        peers=(JUNEAU, MANY_SUBNETS),
        measure=_cost,
        what="time per datagram echoed, 64 in flight, with two Subnets and with 1,000",
    ),
)
