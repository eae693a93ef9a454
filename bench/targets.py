"""What juneau is to reach: ratios to a peer, or to itself under other circumstances, and plain bounds."""

from __future__ import annotations

from typing import Final

from bench.model import JUNEAU, UVLOOP, Target

PYTCP: Final = "pmd-pytcp"
UNBOUND: Final = "unbound"
MANY_SUBNETS: Final = "juneau, many Subnets"

TARGETS: Final[tuple[Target, ...]] = (
    Target(workload="up", against=UVLOOP, at_least=3.5, note="gVisor with offload: 3.5"),
    Target(workload="down", against=UVLOOP, at_least=0.7, note="gVisor's best: 0.51"),
    Target(workload="up", against=PYTCP, at_least=150),
    Target(workload="down", against=PYTCP, at_least=150),
    Target(workload="connects", against=UVLOOP, at_least=1.0, note="gVisor's best: 0.65"),
    Target(workload="rtt", against=UVLOOP, at_most=1.5, note="gVisor's best: 1.74"),
    Target(workload="http", against=UVLOOP, at_least=0.8),
    Target(workload="dns", against=UNBOUND, at_least=1.0, note="unbound with one thread"),
    Target(workload="small-beside-up", at_most=5.0),
    Target(workload="small-beside-up", against="small-alone", at_most=10),
    Target(workload="small-beside-down", at_most=5.0),
    Target(workload="small-beside-down", against="small-alone", at_most=10),
    Target(
        workload="idle-memory", at_most=6.0, note="RSS; for the kernel's sockets, RSS without the kernel's"
    ),
    Target(workload="idle-wakeups", at_most=0.0, note="more than without the connections, in 5 s"),
    Target(workload="register", at_most=5.0),
    Target(workload="packet", of=MANY_SUBNETS, against=JUNEAU, at_most=1.1),
    Target(workload="memory", against="memory-before", at_most=1.1),
)
