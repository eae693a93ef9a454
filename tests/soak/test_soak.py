"""`make soak`: a lab under load for JUNEAU_SOAK_S seconds (300). Nothing may be lost, left or grow."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/lab"))
from labcli import TWO_VPCS, LabCli, pod  # noqa: E402

sys.path.insert(0, str(ROOT))
from bench.load import program  # noqa: E402
from bench.model import MANY_PORTS  # noqa: E402

pytestmark = [pytest.mark.soak, pytest.mark.root]

SECONDS = int(os.environ.get("JUNEAU_SOAK_S", "300"))
WARM_UP_S = max(SECONDS // 10, 5)
GROWTH_BYTES = 64 << 20
PODS = pod("blue", "blue", "10.80.0.10") + pod("green", "green", "10.80.0.10")
MAY_DROP = {"bpf.ipv6", "bpf.broadcast"}
"""What Pods' own kernels send unasked."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCli]:
    lab = LabCli(tmp_path)
    lab.env["PYTHONPATH"] = str(ROOT)
    lab.up(TWO_VPCS + PODS, "--service", "bench.service:Bench")
    for name in ("blue", "green"):
        lab.in_pod(name, "sh", "-c", MANY_PORTS)
    yield lab
    lab.run("lab", "down")


def load(lab: LabCli, name: str, workload: str, until: float) -> int:
    """Rounds of one of the bench's workloads; every one must succeed."""
    rounds = 0
    while time.monotonic() < until:
        done = lab.in_pod(name, str(program()), workload, "10.80.0.3", "9000", "3")
        assert done.returncode == 0, f"{name} {workload}: {done.stderr}"
        rounds += 1
    return rounds


def resolve(lab: LabCli, name: str, until: float) -> int:
    rounds = 0
    while time.monotonic() < until:
        asked = ["dig", "+tries=1", "+time=5", "@10.80.0.2", "dns-version.cluster.local", "TXT", "+short"]
        done = lab.in_pod(name, *asked, *(["+tcp"] if rounds % 2 else []))
        assert '"1.1.0"' in done.stdout, f"{name}: {done.stdout}{done.stderr}"
        rounds += 1
    return rounds


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run_all(lab: LabCli, seconds: float) -> None:
    until = time.monotonic() + seconds
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(load, lab, "blue", w, until) for w in ("crr", "up")]
        jobs += [pool.submit(load, lab, "green", w, until) for w in ("crr", "down")]
        jobs += [pool.submit(resolve, lab, name, until) for name in ("blue", "green")]
        for job in jobs:
            assert job.result() > 0


@pytest.mark.timeout(SECONDS * 2 + 120)
def test_nothing_is_lost_left_or_grows(lab: LabCli):
    pid = lab.json("lab", "status")["pid"]
    run_all(lab, WARM_UP_S)
    before = resident(pid)
    run_all(lab, SECONDS)
    assert resident(pid) - before < GROWTH_BYTES
    time.sleep(2)
    assert lab.json("conns") == [], "every connection ended"
    lost = {name: count for name, count in lab.json("drops")["plane"].items() if count}
    assert set(lost) <= MAY_DROP, lost
    assert "Traceback" not in lab.log()


def test_the_client_of_the_bench_is_there():
    done = subprocess.run([program()], capture_output=True, check=False)
    assert b"load COMMAND ADDRESS PORT SECONDS" in done.stderr
