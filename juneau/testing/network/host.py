"""A host: a name, addresses, and from each start to its crash a stack and the tasks that run on it."""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from juneau.netstack.aio import AsyncStack
from juneau.netstack.aio.driver import deliver
from juneau.netstack.aio.errors import os_error
from juneau.netstack.events import Event
from juneau.netstack.stack import Stack
from juneau.netstack.types import Micros, Misuse, Path, TxPacket, format_ip
from juneau.testing.network.loop import CURRENT_BOOT

if TYPE_CHECKING:
    from juneau.testing.network.network import Network

T = TypeVar("T")

LOOPBACK_IP: Final = 0x7F000001
LOOPBACK_DELAY: Final[Micros] = 10
"""As a kernel's: an answer never comes within the instant of its question."""
FIRST_EPHEMERAL: Final = 49_152
KERNEL_BURST: Final = 1024
"""Packets a host sends at once while its program blocks."""
REAP_ROUNDS: Final = 100
"""How often the tasks of a crashed host are cancelled before they are given up."""


class KernelSide:
    """Users of connections that take their events even while the program blocks."""


class _HostStack(AsyncStack):
    default_source = 0

    def source(self, remote: int) -> int:
        return self.default_source


class Boot:
    """A host's life from start to crash. Tasks carry it in their context."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.alive = True
        self.context = contextvars.Context()
        self.context.run(CURRENT_BOOT.set, self)
        network = host.network
        random = self.random = Random(f"{network.seed}/{host.name}/{number}")
        self.bound_ports: set[int] = set()
        self._held: list[Event] = []
        stack = Stack(
            link=network.link_type,
            limits=network.limits,
            tcp=network.tcp,
            rng=random,
            secret=random.randbytes(32),
        )
        stack.loopback = True
        for ip in (*host.ips, LOOPBACK_IP):
            stack.add_address(ip)
        self.aio = _HostStack(
            stack,
            self._send,
            loop=network.loop,
            clock=lambda: network.clock.now,
            name=host.name,
            route=self._route,
        )
        self.aio.default_source = host.ips[0]

    def run(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call as code of this host."""
        return self.context.copy().run(call, *args, **kwargs)

    def source(self, remote_ip: int) -> int:
        """The address that goes with packets to `remote_ip`."""
        return remote_ip if remote_ip in self.aio.stack.addresses else self.host.ips[0]

    def free_port(self) -> int:
        """An ephemeral port that no socket here has bound."""
        free = [FIRST_EPHEMERAL + self.random.randrange(65_536 - FIRST_EPHEMERAL) for _ in range(64)]
        return next(port for port in free if port not in self.bound_ports)

    def check_free(self, ip: int, port: int) -> None:
        """OSError EADDRINUSE if a socket has bound the port or a server listens on it."""
        listening = any(
            end.local.port == port and (0 in (ip, end.local.ip) or ip == end.local.ip)
            for end in self.aio.stack.tcp.listeners()
        )
        if port and (listening or port in self.bound_ports):
            raise os_error(errno.EADDRINUSE, f"bind {(format_ip(ip), port)!r}")

    def receive(self, packet: bytes, source: str, vouched: bool) -> None:
        """A packet from the wire."""
        self.run(self._receive, packet, source, vouched)

    def _receive(self, packet: bytes, source: str, vouched: bool) -> None:
        if self.alive:
            self.aio.receive(packet, source, self.host.network.clock.now, csum_ok=vouched)
            self.settle()

    def settle(self) -> None:
        """Tell the program what happened and send what is due."""
        if self.host.network.stalled:
            self._settle_kernel()
        else:
            self.aio.settle()

    def _settle_kernel(self) -> None:
        """While the program blocks in a call, the kernel goes on: it acknowledges, and sockets fill up, but
        what is for asyncio waits until the loop turns again."""
        for event in self.aio.stack.take_events():
            user = getattr(event[0], "user", None)
            if isinstance(user, KernelSide):
                deliver(event)
            else:
                self._held.append(event)
        self._send(self.aio.stack.take_packets(self.host.network.clock.now, KERNEL_BURST))

    def kernel_timeout(self) -> Micros | None:
        return self.aio.stack.next_timeout()

    def on_kernel_timeout(self) -> None:
        self.aio.stack.handle_timeout(self.host.network.clock.now)
        self._settle_kernel()

    def end_stall(self) -> None:
        """Let asyncio have what it missed, once the loop turns again."""
        self.run(self.host.network.loop.call_soon, self._deliver_held)

    def _deliver_held(self) -> None:
        held, self._held = self._held, []
        if self.alive:
            for event in held:
                deliver(event)
            self.aio.settle()

    def _send(self, packets: list[TxPacket]) -> None:
        if not self.alive:
            return
        network = self.host.network
        for packet in packets:
            if int.from_bytes(packet.header[16:20], "big") in self.aio.stack.addresses:
                raw = packet.to_bytes()
                network.capture_packet(f"{self.host.name} lo", "out", raw)
                network.clock.call_at(
                    network.clock.now + LOOPBACK_DELAY, partial(self.run, self._loop_back, raw)
                )
            else:
                network.wire.send_tx(self.host.name, packet)

    def _loop_back(self, raw: bytes) -> None:
        if self.alive:
            self.aio.receive(raw, "lo", self.host.network.clock.now, csum_ok=True)
            self.settle()

    def _route(self, ip: int) -> Path | None:
        """One wire joins everybody, so that every address is on it."""
        return "lo" if ip in self.aio.stack.addresses else format_ip(ip)


class Host:
    """Made by `Network.host`. It runs at once; `boot` is what it does on every start."""

    def __init__(
        self,
        network: Network,
        name: str,
        ips: tuple[int, ...],
        boot: Callable[[], Coroutine[Any, Any, object]] | None,
    ) -> None:
        self.network, self.name, self.ips = network, name, ips
        self._on_start = boot
        self._boots = 0
        self._boot: Boot | None = None
        self._start()

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.ip} {'up' if self.up else 'down'}>"

    @property
    def ip(self) -> str:
        return format_ip(self.ips[0])

    @property
    def up(self) -> bool:
        return self._boot is not None

    @property
    def aio(self) -> AsyncStack:
        """The stack as asyncio sees it. OSError ENETDOWN while the host is down."""
        return self.boot.aio

    @property
    def boot(self) -> Boot:
        if self._boot is None:
            raise os_error(errno.ENETDOWN, f"host {self.name} is down")
        return self._boot

    def create_task(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run `coro` on this host; everything it starts belongs to the host too."""
        try:
            boot = self.boot
        except OSError:
            coro.close()
            raise
        return boot.run(self.network.loop.create_task, coro, name=name)

    async def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run `coro` on this host and wait for it. CancelledError if the host crashes."""
        return await self.create_task(coro)

    def crash(self) -> None:
        """Power off: no FIN, no RST. Its stack is gone, its tasks are cancelled without a network,
        its timers never fire. Peers find out by their timeouts.
        """
        boot = self.boot
        self._boot, boot.alive = None, False
        self.network.wire.detach(self.name)
        boot.run(boot.aio.close)
        self._reap(boot, 0)

    def restart(self) -> None:
        """Start again, crashing first if it is up. What it knew of connections is lost."""
        if self.up:
            self.crash()
        self._start()

    def _start(self) -> None:
        self._boots += 1
        boot = self._boot = Boot(self, self._boots)
        self.network.wire.attach(self.name, boot.receive)
        for ip in self.ips:
            self.network.wire.add_address(self.name, ip)
        if self._on_start is not None:
            task = boot.run(self.network.loop.create_task, self._on_start(), name=f"{self.name} boot")
            task.add_done_callback(self.network.on_boot_done)

    def _reap(self, boot: Boot, rounds: int) -> None:
        """Cancel until nothing is left: a `finally` that waits has nothing to wait for any more."""
        left = self.network.loop.tasks(boot)
        for task in left:
            task.cancel(f"host {self.name} crashed")
            if rounds >= REAP_ROUNDS:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        if left and rounds < REAP_ROUNDS:
            context = contextvars.Context()
            self.network.loop.call_soon(self._reap, boot, rounds + 1, context=context)


def current_boot() -> Boot:
    """Raises Misuse outside a host, OSError ENETDOWN on one that has crashed."""
    boot = CURRENT_BOOT.get()
    if boot is None:
        raise Misuse("which host? (run this by net.run(..., on=host), host.run or host.create_task)")
    if not boot.alive:
        raise os_error(errno.ENETDOWN, f"host {boot.host.name} has crashed")
    return boot
