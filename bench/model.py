"""The vocabulary: a Peer is measured by a Workload, a Target says what the ratio should reach.

Peers live in `bench.peers`, workloads in `bench.workloads`; this module knows none of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
"""The checkout."""
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "juneau" / "bench"
"""What is built or fetched for the bench; nothing of it belongs to the checkout."""
MTU: Final = 1450
"""Of every peer's veth: what a Pod behind VXLAN gets."""

JUNEAU: Final = "juneau"
COMPILED: Final = "juneau, compiled"
"""The same sources, compiled ahead of time: what an operator may take, not what is judged."""
UVLOOP: Final = "kernel, uvloop"
ASYNCIO: Final = "kernel, asyncio"
BULK_ONLY: Final = "kernel, uvloop, bulk only"
"""A second server, that nothing but bulk is asked of: what a server has served before changes its heap."""

SERVER_CPU: Final = 0
CLIENT_CPU: Final = 1


class BenchError(Exception):
    """A client failed: what it was and what it said."""


class Unavailable(Exception):
    """A peer that cannot be had here. The text is the reason, for the report."""


@dataclass(frozen=True)
class Settings:
    """How to bring peers up; the same for all of them."""

    pin: bool = True
    """Servers on one CPU, clients on another."""
    offload: bool = True
    """False: a juneau that segments and checksums in Python."""

    def server(self) -> list[str]:
        """Command prefix of a server."""
        return _taskset(SERVER_CPU) if self.pin else []

    def client(self) -> list[str]:
        return _taskset(CLIENT_CPU) if self.pin else []


def _taskset(cpu: int) -> list[str]:
    """One CPU only: nothing to choose between."""
    return ["taskset", "-c", str(cpu)] if (os.cpu_count() or 1) > max(SERVER_CPU, CLIENT_CPU) else []


@dataclass(kw_only=True)
class Peer:
    """A server that is up, and where a client for it runs."""

    name: str
    address: str
    ports: Mapping[str, int]
    """By service: "streams", "protocol", "udp", "http", "dns"."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Of services that are not at `address`."""
    enter: Sequence[str] = ()
    """Command prefix that runs a client: its namespace, its CPU."""
    pids: Callable[[], Sequence[int]] = tuple
    neighbour: Peer | None = None
    """The same server's other tenant, with a client of its own."""

    def at(self, service: str) -> tuple[str, str]:
        """Address and port of `service`, as words for a command."""
        return self.addresses.get(service, self.address), str(self.ports[service])

    def client(self, *command: str, timeout: float) -> str:
        """What `command` wrote to stdout, run in the client's namespace. Raises BenchError."""
        with self.running(*command) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                raise BenchError(f"{self.name}: {_shown(command)}: not over after {timeout:g} s") from None
        if process.returncode:
            raise BenchError(f"{self.name}: {_shown(command)}: exit {process.returncode}: {err.strip()}")
        return out

    def load(self, *arguments: str, timeout: float) -> dict[str, Any]:
        """What our own client (`bench/load/load.c`) measured."""
        from bench.load import program

        found: dict[str, Any] = json.loads(self.client(str(program()), *arguments, timeout=timeout))
        return found

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """`command` beside the body; killed, with what it started, if it outlives it."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*self.enter, *command], stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()

    def server_pids(self) -> list[int]:
        return list(self.pids())

    def rss_kib(self) -> int:
        """Resident memory of the server, KiB."""
        return sum(_status_kib(pid, "VmRSS") for pid in self.server_pids())

    def cpu_s(self) -> float:
        """CPU time the server has used so far, seconds."""
        return sum(_cpu_s(pid) for pid in self.server_pids())


PeerFactory: TypeAlias = Callable[[Settings], AbstractContextManager[Peer]]
"""Brings a peer up and down. Raises Unavailable."""


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    better: Literal["higher", "lower"]


Sample: TypeAlias = float | Mapping[str, float] | None
"""One measurement; by metric where a workload has several; None where a peer does not do that."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    name: str
    unit: str
    better: Literal["higher", "lower"]
    peers: tuple[str, ...]
    measure: Callable[[Peer, float], Sample]
    """Takes about the given seconds. Raises BenchError."""
    what: str = ""
    """One line for the reader of the table."""
    also: tuple[Metric, ...] = ()
    """What else `measure` returns; it then returns a mapping, its own name included."""
    once: bool = False
    """Too long for every round: measured in the first alone."""

    def metrics(self) -> tuple[Metric, ...]:
        return (Metric(self.name, self.unit, self.better), *self.also)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is to be reached in `workload`, a metric's name."""

    workload: str
    of: str = JUNEAU
    """Whose figure is judged."""
    against: str = ""
    """A peer, or another metric of the same peer; empty: a bound on the figure itself, not on a ratio."""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    def held(self, value: float) -> bool:
        low = self.at_least if self.at_least is not None else value
        high = self.at_most if self.at_most is not None else value
        return low <= value <= high

    def text(self) -> str:
        bounds = ((self.at_least, "≥"), (self.at_most, "≤"))
        return " and ".join(f"{sign} {bound:g}" for bound, sign in bounds if bound is not None)


@contextmanager
def network(server: str, client: str) -> Iterator[None]:
    """Two namespaces with these names, joined by a veth: 10.80.0.3 the server, 10.80.0.10 the client."""
    made: list[str] = []
    try:
        for netns in (server, client):
            ip("netns", "add", netns)
            made.append(netns)
        ip(*f"link add eth0 mtu {MTU} netns {server} type veth peer eth0 mtu {MTU} netns {client}".split())
        for netns, address in ((server, "10.80.0.3/24"), (client, "10.80.0.10/24")):
            inside = within(netns)
            run(*inside, "ip", "link", "set", "lo", "up")
            run(*inside, "ip", "link", "set", "eth0", "up")
            run(*inside, "ip", "address", "add", address, "dev", "eth0")
        many_ports(client)
        yield
    finally:
        for netns in made:
            ip("netns", "del", netns)


def within(netns: str) -> list[str]:
    """Command prefix. (`ip netns exec` wants to remount `/` and cannot in a chroot.)"""
    return ["nsenter", f"--net=/run/netns/{netns}"]


MANY_PORTS: Final = (
    "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range; echo 1 >/proc/sys/net/ipv4/tcp_tw_reuse"
)
"""For a client's shell: seconds of connect and close would use the ports up, each a minute in TIME-WAIT."""


def many_ports(netns: str) -> None:
    run(*within(netns), "sh", "-c", MANY_PORTS)


def ip(*words: str) -> None:
    run("ip", *words)


def run(*command: str, timeout: float = 10) -> str:
    """Raises BenchError with what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{_shown(command)}: {error}") from error
    if done.returncode:
        raise BenchError(f"{_shown(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _shown(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def _cpu_s(pid: int) -> float:
    """Of all its threads; the scheduler counts nanoseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
