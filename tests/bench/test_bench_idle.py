"""Whether a server sleeps: the figures behind `idle-wakeups` and `idle-cpu`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.model import Peer
from bench.workloads import idle

SLEEPS = "import time; print(flush=True); time.sleep(60)"
WAKES = "import time; print(flush=True)\nwhile True: time.sleep(0.01)"
WORKS = "print(flush=True)\nwhile True: pass"


@pytest.mark.parametrize(
    ("program", "some_wakeups", "some_cpu"),
    [(SLEEPS, False, False), (WAKES, True, True), (WORKS, False, True)],
)
def test_who_wakes_up_is_seen(
    monkeypatch: pytest.MonkeyPatch, program: str, some_wakeups: bool, some_cpu: bool
):
    monkeypatch.setattr(idle, "_QUIET_S", 0.4)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            peer = Peer(name="p", address="", ports={}, pids=lambda: [process.pid])
            idle._quiet(peer)
            cpu_ms, wakeups = idle._quiet(peer)
        finally:
            process.kill()
    assert (wakeups >= 5, cpu_ms > 0) == (some_wakeups, some_cpu)
