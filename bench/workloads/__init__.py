"""What is measured, in the order of the report."""

from __future__ import annotations

from typing import Final

from bench.model import Workload
from bench.workloads import dns, http, idle, sharing, subnets, tcp, udp

WORKLOADS: Final[tuple[Workload, ...]] = (
    *idle.WORKLOADS,  # first: memory that was used and freed before would hide what a connection takes
    *tcp.WORKLOADS,
    *udp.WORKLOADS,
    *http.WORKLOADS,
    *dns.WORKLOADS,
    *sharing.WORKLOADS,
    *subnets.WORKLOADS,
)
