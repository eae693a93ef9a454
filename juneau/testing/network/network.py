"""A network in a process: hosts, the wire between them, and the loop on which their programs run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from juneau.netstack.limits import Limits
from juneau.netstack.tcp import TcpOptions
from juneau.netstack.types import MILLISECOND, SECOND, Link, Micros, Misuse, parse_ip
from juneau.testing.clock import VirtualClock
from juneau.testing.network.calls import NetworkLoop
from juneau.testing.network.capture import Capture
from juneau.testing.network.environment import Environment
from juneau.testing.network.errors import Stuck
from juneau.testing.network.host import Host
from juneau.testing.network.loop import CURRENT_BOOT
from juneau.testing.network.names import Names
from juneau.testing.network.threads import Threads
from juneau.testing.wire import Impairment, SimulatedWire

T = TypeVar("T")
Hosts = Host | Iterable[Host]

LAN: Final = Impairment(delay=50)
"""What lies between hosts that were never linked: 50 µs, nothing lost."""
UNWIND: Final = 30 * SECOND
"""Virtual time that tasks left over at the end of a run get for their `finally`."""


class Network:
    """`seed` decides all that chance would: the fate of packets, which host runs first, ISNs, ports,
    `random` and `os.urandom`. `real=True` leaves `time`, `random`, `os.urandom` and `socket` alone.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        mtu: int = 1500,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        tcp: TcpOptions = TcpOptions(),  # noqa: B008 (frozen)
        capture: str | PathLike[str] | None = None,
        real: bool = False,
    ) -> None:
        self.seed, self.limits, self.tcp = seed, limits, tcp
        self.link_type = Link(mtu=mtu)
        self.clock = VirtualClock()
        self.wire = SimulatedWire(self.clock, seed=seed, impairment=LAN)
        self.names = Names()
        self.hosts: dict[str, Host] = {}
        self.loop = NetworkLoop(self, self.clock, seed=seed)
        self.threads = self._make_threads()
        self.environment = Environment(self, patch=not real)
        self._links: dict[tuple[str, str], Impairment] = {}
        self._capture = Capture(capture) if capture is not None else None
        if self._capture is not None:
            self.wire.log = self._capture.follow(lambda: self.clock.now)
        self.stalled = False
        """While the program blocks the loop in a call."""
        self._main: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.clock.now / SECOND

    # The map

    def host(
        self, name: str, *addresses: str, boot: Callable[[], Coroutine[Any, Any, object]] | None = None
    ) -> Host:
        """A host that is up. Without an address it gets the next of 10.0.0.0/16. `boot` is called on
        every start, and what it raises fails the run.
        """
        ips = tuple(map(parse_ip, addresses)) or (0x0A000001 + len(self.hosts),)
        taken = {ip: other.name for other in self.hosts.values() for ip in other.ips}
        for ip, text in zip(ips, addresses or ("",), strict=False):
            if ip in taken:
                raise Misuse(f"host {name}: {taken[ip]} has the address {text}")
        self.names.add(name, ips)
        host = self.hosts[name] = Host(self, name, ips, boot)
        return host

    def link(
        self,
        one: Hosts,
        other: Hosts,
        *,
        loss: float = 0.0,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        reorder_ms: float = 1.0,
        corrupt: float = 0.0,
        bandwidth: int = 0,
        queue_bytes: int = 0,
        one_way: bool = False,
    ) -> None:
        """What the way between two hosts (or groups) does to packets; see `Impairment`. Hosts that were
        never linked have a `LAN` between them. `bandwidth`: bits a second.
        """
        impairment = Impairment(
            loss=loss,
            delay=_micros(delay_ms),
            jitter=_micros(jitter_ms),
            duplicate=duplicate,
            reorder=reorder,
            reorder_delay=_micros(reorder_ms),
            corrupt=corrupt,
            bandwidth=bandwidth,
            queue_bytes=queue_bytes,
        )
        for source, target in _ways(one, other, one_way):
            self._links[source, target] = impairment
            self.wire.impair(impairment, source=source, target=target)

    def partition(self, one: Hosts, other: Hosts, *, one_way: bool = False) -> None:
        """Drop every packet between the two sides until `heal`. `one_way`: from `one` to `other` only."""
        for source, target in _ways(one, other, one_way):
            link = self._links.get((source, target), LAN)
            self.wire.impair(replace(link, down=True), source=source, target=target)

    def heal(self, one: Hosts | None = None, other: Hosts | None = None) -> None:
        """Undo `partition`, between two sides or everywhere; links are as they were."""
        everybody = tuple(self.hosts.values())
        for source, target in _ways(one or everybody, other or everybody, False):
            self.wire.impair(self._links.get((source, target)), source=source, target=target)

    # Running

    def run(self, main: Coroutine[Any, Any, T], *, on: Host | None = None, timeout: float | None = None) -> T:
        """Run until `main` is done, then cancel what is left, as `asyncio.run` does.

        `on`: the host whose program `main` is; it may be left out with a single host. `timeout` in
        virtual seconds: OutOfTime, a TimeoutError. Deadlock if nothing can ever happen any more.
        """
        if on is None and len(self.hosts) == 1:
            (on,) = self.hosts.values()
        with self.environment.entered(), self._deadline(timeout):
            task: asyncio.Task[T] = self.loop.create_task(main) if on is None else on.create_task(main)
            self._main = task
            try:
                result: T = self.loop.run_until_complete(task)
            except asyncio.CancelledError:
                if self._failure is None:
                    raise
            finally:
                self._main = None
                failure, self._failure = self._failure, None
                self._unwind()
            if failure is not None:
                raise failure
            return result

    def on_boot_done(self, task: asyncio.Task[Any]) -> None:
        """A failing `boot` ends the run."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._failure = self._failure or error
        if self._main is not None:
            self._main.cancel()

    @contextlib.contextmanager
    def _deadline(self, timeout: float | None) -> Iterator[None]:
        self.loop.deadline = None if timeout is None else self.clock.now + round(timeout * SECOND)
        try:
            yield
        finally:
            self.loop.deadline = None

    def _unwind(self) -> None:
        """Cancel the tasks that are left and let them finish, within bounds."""
        left = self.loop.tasks()
        for task in left:
            task.cancel()
        self.loop.deadline = self.clock.now + UNWIND
        try:
            self.loop.run_until_complete(
                asyncio.gather(*left, return_exceptions=True) if left else asyncio.sleep(0)
            )
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except (Stuck, asyncio.CancelledError):  # a callback left behind may cancel every task
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]

    def close(self) -> None:
        """End every host without a word and close the loop. Idempotent."""
        if self.loop.is_closed():
            return
        for host in self.hosts.values():
            if host.up:
                host.crash()
        with self.environment.entered():
            self._unwind()
            self.threads.kill()
        self.loop.close()
        if self._capture is not None:
            self._capture.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def drive(self, until: Callable[[], bool]) -> None:
        """Run the loop from outside it until `until()`, whoever stops it before."""
        self.loop.until = until
        try:
            while not until():
                self.loop.run_forever()
        finally:
            self.loop.until = None

    @contextlib.contextmanager
    def stall(self) -> Iterator[Callable[[Micros | None], bool]]:
        """The loop stands still; the function moves time to the next packet or timer, at most to a
        deadline, and says whether there was one.
        """
        boots = [host.boot for host in self.hosts.values() if host.up]
        if self.stalled:
            raise RuntimeError("blocking call within a blocking call")
        self.stalled = True

        def step(deadline: Micros | None) -> bool:
            due = [t for boot in boots if boot.alive and (t := boot.kernel_timeout()) is not None]
            if (packet := self.clock.next_deadline()) is not None:
                due.append(packet)
            when = min(due, default=None)
            if when is None or (deadline is not None and when > deadline):
                return False
            self.clock.run_until(max(when, self.clock.now))
            for boot in boots:
                if boot.alive and (t := boot.kernel_timeout()) is not None and t <= self.clock.now:
                    boot.on_kernel_timeout()
            return True

        try:
            yield step
        finally:
            self.stalled = False
            for boot in boots:
                if boot.alive and not self.loop.is_closed():
                    boot.end_stall()

    @contextlib.contextmanager
    def entered(self, on: Host) -> Iterator[None]:
        """Be code of `on` without being in the loop: blocking sockets run the network while they wait."""
        before = CURRENT_BOOT.get()
        CURRENT_BOOT.set(on.boot)
        try:
            with self.environment.entered():
                yield
        finally:
            CURRENT_BOOT.set(before)

    def _make_threads(self) -> Threads:
        threads = Threads(self)
        self.loop.before_turn = threads.run_ready
        self.loop.owner_thread = threads.takes_turns
        self.loop.parked_threads = threads.parked
        return threads

    # Captures

    def capture_packet(self, interface: str, direction: str, packet: bytes) -> None:
        """One packet at an edge of a host; costs nothing without a capture."""
        if self._capture is not None:
            self._capture.write(interface, direction, packet, self.clock.now)


def _micros(milliseconds: float) -> Micros:
    return round(milliseconds * MILLISECOND)


def _ways(one: Hosts, other: Hosts, one_way: bool) -> Iterator[tuple[str, str]]:
    for a in _group(one):
        for b in _group(other):
            if a is not b:
                yield a.name, b.name
                if not one_way:
                    yield b.name, a.name


def _group(hosts: Hosts) -> tuple[Host, ...]:
    return (hosts,) if isinstance(hosts, Host) else tuple(hosts)
