"""What is measured, in the order of the report."""

from __future__ import annotations

from typing import Final

from bench.model import Workload
from bench.workloads import tcp

WORKLOADS: Final[tuple[Workload, ...]] = (*tcp.WORKLOADS,)
