"""What wrk says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.model import ROOT, UVLOOP, BenchError, Unavailable
from bench.peers.process import installed
from bench.workloads.http import parse

GOOD = """\
Running 1s test @ http://127.0.0.1:18080/
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.22ms    1.59ms  11.40ms   85.76%
    Req/Sec     2.36k   154.20     2.59k    54.55%
  2582 requests in 1.10s, 862.35KB read
Requests/sec:   2348.12
Transfer/sec:    784.24KB
"""


def test_requests_per_second():
    assert parse(GOOD) == 2348.12


@pytest.mark.parametrize(
    "failure",
    ["  Non-2xx or 3xx responses: 2162", "  Socket errors: connect 0, read 3, write 0, timeout 0"],
)
def test_a_failed_request_is_no_figure(failure: str):
    with pytest.raises(BenchError, match=failure.strip()):
        parse(GOOD.replace("Requests/sec", f"{failure}\nRequests/sec"))


def test_silence_is_no_figure():
    with pytest.raises(BenchError, match="no request"):
        parse("Requests/sec:      0.00\n")


@pytest.mark.root
def test_juneau_answers_names_and_requests(require: Callable[[str], None], tmp_path: Path):
    """What only a lab shows: the application at its VIP, the names at the resolver's."""
    try:
        installed("wrk")
        installed("dnsperf")
    except Unavailable as lack:
        require(str(lack))
    command = [sys.executable, "-m", "bench", "--only", "http,dns", "--peers", UVLOOP]
    command += ["--rounds", "1", "--seconds", "0.2", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    samples = json.loads((tmp_path / "latest.json").read_text())["samples"]
    assert {peer for peer, (rate,) in samples["http"].items() if rate > 100} == {"juneau", UVLOOP}
    assert samples["dns"]["juneau"][0] > 1_000
