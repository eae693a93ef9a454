"""The same with a real kernel: a lab's system calls per superframe and per round trip, as strace counts them.

How many frames share a wake-up is the kernel's and the scheduler's doing, so these are upper bounds.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
from labcli import LabCli, pod

pytestmark = pytest.mark.root

HERE: Final = Path(__file__).parent
CLIENT: Final = HERE / "guard_client.py"
MANIFESTS: Final = """
apiVersion: juneau.loutres.me/v1alpha1
kind: Vpc
metadata: {name: v}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {name: v}
spec: {vpc: v, cidr: 10.80.0.0/24}
"""
READ: Final = "read"
SENDS: Final = ("sendto", "sendmsg")
WAITS: Final = ("epoll_wait", "epoll_pwait", "epoll_pwait2")


class Calls(NamedTuple):
    frames: int
    """Reads that got one."""
    empty: int
    sends: int
    waits: int
    others: int


class Limits(NamedTuple):
    """Of Calls, per superframe, round trip or connection."""

    frames: float
    empty: float
    sends: float
    waits: float
    others: float = 0.1
    """Memory from the kernel."""


COUNT: Final = {"up": 64, "down": 64, "echo": 2_000, "connect": 400, "udp": 1_000}
"""Of what the client does; MiB for the first two."""
PER_MIB: Final = 16
"""Superframes, were all of them full."""
LIMITS: Final = {
    # Each for itself: a read that gets it, one that finds no more, an answer, a wait. On a quiet machine
    # up takes 1.2, 0.3, 0.6, 0.5; down (ACKs read, superframes sent) 0.6, 0.1, 1.1, 0.1; connect 6, 2, 3, 4.
    "up": Limits(frames=1.5, empty=1.1, sends=1.1, waits=1.1),
    "down": Limits(frames=1.1, empty=1.1, sends=1.2, waits=1.1),
    "echo": Limits(frames=1.1, empty=1.1, sends=1.1, waits=1.1),
    "connect": Limits(frames=6.6, empty=6.6, sends=3.3, waits=6.6),
    "udp": Limits(frames=1.1, empty=1.1, sends=1.1, waits=1.1),
}


def exceeded(what: str, calls: Calls, count: int) -> dict[str, tuple[float, float]]:
    """What there is more of than may be, per superframe, round trip, connection: found, allowed."""
    units = count * (PER_MIB if what in ("up", "down") else 1)
    rows = zip(Calls._fields, calls, LIMITS[what], strict=True)
    return {field: (n / units, limit) for field, n, limit in rows if n / units > limit}


def counted(table: str) -> Calls:
    """What `strace -c` prints: % time, seconds, usecs/call, calls, errors if there were any, name."""
    rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(\d*) +(\w+)$", table, re.MULTILINE)
    calls = Counter({name: int(n) for n, _, name in rows if name != "total"})
    empty = sum(int(errors or 0) for _, errors, name in rows if name == READ)
    sends, waits = (sum(calls.pop(name, 0) for name in names) for names in (SENDS, WAITS))
    return Calls(calls.pop(READ, 0) - empty, empty, sends, waits, calls.total())


@contextmanager
def strace(pid: int, found: list[str]) -> Iterator[None]:
    """All threads of `pid`; the table is in `found` afterwards."""
    command = ["strace", "-f", "-c", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr is not None
        try:
            said = tracing.stderr.readline()
            assert "attached" in said, said
            yield
        finally:
            tracing.send_signal(signal.SIGINT)
            found.append(tracing.stderr.read())


class Town:
    """A lab with one Pod."""

    def __init__(self, folder: Path, service: str) -> None:
        self.lab = LabCli(folder)
        self.lab.env |= {"PYTHONPATH": str(HERE), "JUNEAU_BUSY_POLL_US": "0"}
        self.pid = self.lab.up(MANIFESTS + pod("client", "v"), "--service", service)["pid"]

    def calls(self, what: str, count: int) -> Calls:
        command = ("lab", "exec", "client", "--", "/usr/bin/python3", str(CLIENT), what, str(count))
        found: list[str] = []
        with self.lab.start(*command, stdin=subprocess.PIPE, stderr=None) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            with strace(self.pid, found):
                print(file=client.stdin, flush=True)
                assert client.stdout.readline() == "done\n"
            print(file=client.stdin, flush=True)
        print(found[0])  # for who reads of a failure
        return counted(found[0])

    def down(self) -> None:
        self.lab.run("lab", "down")
        assert self.lab.leftovers() == []


@cache
def lacking() -> str:
    """Why system calls cannot be counted here; empty: they can."""
    if shutil.which("strace") is None:
        return "no strace"
    tried = subprocess.run(["strace", "-c", "true"], capture_output=True, text=True, timeout=10, check=False)
    return tried.stderr.strip() if tried.returncode else ""


@pytest.fixture(autouse=True)
def _strace(require: Callable[[str], None]) -> None:
    require(lacking())


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("guard"), "guard_work:Handlers")
    yield town
    town.down()


@pytest.mark.parametrize("what", LIMITS)
def test_calls(town: Town, what: str) -> None:
    assert exceeded(what, town.calls(what, COUNT[what]), COUNT[what]) == {}


def test_what_is_too_much_is_found(tmp_path: Path) -> None:
    """Every batch is read and sent twice; one more wait, and one more of another kind."""
    spoilt = Town(tmp_path, "guard_spoilt:Handlers")
    try:
        found = exceeded("echo", spoilt.calls("echo", 200), 200)
    finally:
        spoilt.down()
    assert set(found) >= {"empty", "sends", "waits", "others"}
