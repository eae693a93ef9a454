"""Subnets by the thousand: how long binding takes. What a packet then costs is `packet`."""

from __future__ import annotations

import json
import os
import sys
from typing import Final

from bench.model import JUNEAU, ROOT, Metric, Peer, Sample, Workload, run

COUNTS: Final = {"register": 1_000, "register-100": 100, "register-1": 1}
_TIMEOUT_S: Final = 180.0


def _register(peer: Peer, seconds: float) -> Sample:
    """`seconds` do not matter: it takes what it takes."""
    environment = f"PYTHONPATH={ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    command = ("env", environment, sys.executable, "-m", "bench.register")
    return {
        name: float(json.loads(run(*command, str(count), timeout=_TIMEOUT_S))["seconds"])
        for name, count in COUNTS.items()
    }


WORKLOADS: Final = (
    Workload(
        name="register",
        unit="s",
        better="lower",
        peers=(JUNEAU,),
        measure=_register,
        once=True,
        also=(Metric("register-100", "s", "lower"), Metric("register-1", "s", "lower")),
        what="three listeners bound in each of 1,000 Subnets; in 100; in one",
    ),
)
