"""Where the server's time goes: `python -m bench.profile [WORKLOAD…]`, as a Markdown table of µs per unit.

py-spy (which `bench/prepare` installs) looks at the lab's process a thousand times a second while a workload
runs; the process's CPU time, shared out by what it was seen at. Root.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.model import Peer, Settings
from bench.peers.juneau import juneau
from bench.workloads import WORKLOADS

RATE: Final = 1_000
SECONDS: Final = 3.0
SLEEPING: Final = "epoll"

_SYSTEM_CALLS: Final = {"send": "kernel: send", "read": "kernel: read", "epoll": SLEEPING}
_ROOMS: Final = (
    ("juneau/packetplane/", "packetplane"),
    ("juneau/netstack/aio/", "netstack.aio"),
    ("juneau/netstack/tcp/", "netstack: TCP"),
    ("juneau/netstack/", "netstack: IP, UDP"),
    ("juneau/services/", "services"),
    ("asyncio/runners.py", "uvloop"),
    ("asyncio/", "asyncio"),
    (".py", "handler, libraries"),
)
ROOMS: Final = (*_SYSTEM_CALLS.values(), *(room for _, room in _ROOMS))
_PER_UNIT: Final[dict[str, tuple[str, Callable[[float], float]]]] = {
    "up": ("64 KiB", lambda mbit_s: mbit_s * 1e6 / 8 / 65_536),
    "down": ("64 KiB", lambda mbit_s: mbit_s * 1e6 / 8 / 65_536),
    "connects": ("connection", float),
    "rtt": ("round trip", lambda us: 1e6 / us),
    "http": ("request", float),
    "udp": ("datagram", float),
    "dns": ("answer", float),
}


class Profile(NamedTuple):
    workload: str
    unit: str
    cpu_us: float
    """Of the server, per unit."""
    shares: dict[str, float]
    """By room; of the time it was not waiting in epoll."""


def room_of(stack: str) -> str:
    """Of one sampled stack, outermost frame first, separated by semicolons."""
    frames = stack.split(";")
    leaf = frames[-1]
    if ".py" not in leaf:
        for call, room in _SYSTEM_CALLS.items():
            if re.match(rf"_*(libc_)?{call}", leaf):
                return room
    for frame in reversed(frames):
        for part, room in _ROOMS:
            if part in frame:
                return room
    return "uvloop"


def shares(lines: Iterable[str]) -> dict[str, float]:
    """Of py-spy's raw format: a stack, a blank, a count. Worker threads, which wait, are left out."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if "concurrent/futures/thread.py" not in stack and stack:
            found[room_of(stack)] += int(count)
    found.pop(SLEEPING, None)
    total = sum(found.values()) or 1
    return {room: count / total for room, count in found.items()}


def profile(peer: Peer, workload: str, seconds: float) -> Profile:
    measure = next(each.measure for each in WORKLOADS if each.name == workload)
    unit, per_second = _PER_UNIT[workload]
    (pid,) = peer.server_pids()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw")
        started, before = time.monotonic(), peer.cpu_s()
        measured = measure(peer, seconds)  # undisturbed, for the CPU time
        cpu_s, elapsed = peer.cpu_s() - before, time.monotonic() - started
        spy = _start_spy(pid, raw, seconds)
        measure(peer, seconds)
        spy.wait(30)
        found = shares(raw.read_text().splitlines())
    figure = measured[workload] if isinstance(measured, Mapping) else measured
    assert figure is not None  # only peers that lack something measure None
    return Profile(workload, unit, cpu_s * 1e6 / (per_second(figure) * min(seconds, elapsed)), found)


def _start_spy(pid: int, raw: Path, seconds: float) -> subprocess.Popen[bytes]:
    spy = str(Path(sys.executable).with_name("py-spy"))
    command = [spy, "record", "-p", str(pid), "-r", str(RATE), "-n", "-f", "raw", "-o", str(raw)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*command, "-d", str(max(1, round(seconds)))], stdout=quiet, stderr=quiet)


def table(profiles: Iterable[Profile]) -> str:
    columns = list(profiles)
    lines = ["| µs | " + " | ".join(f"{p.workload}, per {p.unit}" for p in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for room in (room for room in ROOMS if room != SLEEPING):
        cells = (f"{p.cpu_us * p.shares.get(room, 0):.1f}" for p in columns)
        lines.append(f"| {room} | " + " | ".join(cells) + " |")
    lines.append("| **all** | " + " | ".join(f"**{p.cpu_us:.1f}**" for p in columns) + " |")
    return "\n".join(lines)


def main(names: list[str]) -> None:
    for name in names:
        if name not in _PER_UNIT:
            raise SystemExit(f"bench.profile: no workload {name!r} (there are {', '.join(_PER_UNIT)})")
    with juneau(Settings()) as peer:
        print(table(profile(peer, name, SECONDS) for name in names or _PER_UNIT))


if __name__ == "__main__":
    main(sys.argv[1:])
