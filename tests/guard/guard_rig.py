"""The path of a packet through user space, on a real event loop; the kernel at both its ends is played.

Real: TapReader, Dispatcher, AsyncStack, registry, service host, handlers, Sender. Played: the queue that
frames are read from, the socket they are sent to, the clock, and the loop's timers (by that clock).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final, cast

import uvloop

from juneau.model.cluster import ClusterView, Service, ServicePort, Subnet, Vpc
from juneau.model.ids import Mac, Protocol, TenantId
from juneau.netstack.aio import AsyncStack
from juneau.netstack.stack import Stack
from juneau.netstack.types import Link
from juneau.packetplane.dispatcher import Dispatcher
from juneau.packetplane.reader import TapReader
from juneau.packetplane.sender import Sender
from juneau.packetplane.types import Nic, PlaneSettings, ReturnPath
from juneau.services import Registry, ServiceHost, VirtualService

TENANT: Final = TenantId(1, 100)
POD_IP, VIP, DNS_VIP = "10.80.0.10", "10.80.0.3", "10.80.0.2"
NIC: Final = Nic(5, "jv5", TENANT, IPv4Address(POD_IP), Mac("02:00:0a:50:00:0a"))
_MAC: Final = Mac("0a:00:00:00:00:01")
_NET: Final = IPv4Network("10.80.0.0/24")
FRAME_BYTES: Final = 10 + 14
"""vnet header and Ethernet"""
EXCHANGE_US: Final = 500
"""Between one batch of frames and the next: below every timer, and a hundred pass the shorter ones."""
LINK: Final = Link(1450, True, True, max_superframe=65_521, uso=True)
VIEW: Final = ClusterView(
    vpcs={"a": Vpc("a", TENANT.vpc_id, consume=True)},
    subnets={"a": Subnet("a", "a", TENANT.subnet_id, _NET, _NET[1], _MAC, _NET[2], _MAC)},
    services={
        ("default", "web"): Service(
            "default", "web", "a", IPv4Address("10.96.0.10"), (ServicePort("http", 80, Protocol.TCP),)
        )
    },
)


class Clock:
    """`time.monotonic_ns` while `patched`: what the stack does by the clock is then the same each time."""

    def __init__(self) -> None:
        self.ns = 10**12

    def advance(self, us: int) -> None:
        self.ns += us * 1000
        time.monotonic_ns = self.ns.conjugate  # a C function, as the real one: profilers see no difference

    @contextmanager
    def patched(self) -> Iterator[None]:
        original = time.monotonic_ns
        try:
            self.advance(0)
            yield
        finally:
            time.monotonic_ns = original


class LoopMixin:
    """Readers and timers are for the rig to fire."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self.soon = self.timers = 0
        self._armed: dict[int, asyncio.TimerHandle] = {}
        """By id: handles of one time are equal."""

    def time(self) -> float:
        return self.clock.ns / 1e9

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        self.readers[fd] = callback, args

    def remove_reader(self, fd: int) -> bool:
        return self.readers.pop(fd, None) is not None

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        handle = asyncio.TimerHandle(when, callback, args, cast(Any, self), context)
        self._armed[id(handle)] = handle
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._armed.pop(id(handle), None)

    def fire_timers(self) -> None:
        now = self.time()
        for handle in sorted(timer for timer in self._armed.values() if timer.when() <= now):
            if self._armed.pop(id(handle), None) is not None:  # else an earlier one cancelled it
                handle._run()


class AsyncioLoop(LoopMixin, asyncio.SelectorEventLoop):
    pass


class UvLoop(LoopMixin, uvloop.Loop):
    pass


class CountingMixin:
    """Counts `call_soon`; apart, as a method in Python makes objects of its own."""

    soon: int

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.soon += 1
        return super().call_soon(callback, *args, context=context)  # type: ignore[misc]


class CountingAsyncioLoop(CountingMixin, AsyncioLoop):
    pass


class CountingUvLoop(CountingMixin, UvLoop):
    pass


LOOPS: Final[dict[str, tuple[type[Any], type[Any]]]] = {
    "asyncio": (AsyncioLoop, CountingAsyncioLoop),
    "uvloop": (UvLoop, CountingUvLoop),
}


class Queue:
    """The TAP, with one queue. Counts are of one exchange: integers above 256 would be objects to count."""

    ifindex, vnet_header, uso, name, fds = 1, True, True, "guard", (1000,)

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.taken = self.empty = 0

    def reads(self) -> list[tuple[int, Callable[[], bytes | None]]]:
        return [(self.fds[0], self.read)]

    def read(self) -> bytes | None:
        if self.frames:
            self.taken += 1
            return self.frames.popleft()
        self.empty += 1
        return None

    def close(self) -> None: ...


class PodSocket:
    """The packet socket of the Pod's interface."""

    def __init__(self) -> None:
        self.sent: deque[tuple[bytes, ...]] = deque()
        self.sends = 0

    def send(self, data: bytes, *_: object) -> None:
        self.sends += 1
        self.sent.append((data,))

    def sendmsg(self, buffers: tuple[bytes, ...], *_: object) -> None:
        self.sends += 1
        self.sent.append(buffers)

    def take(self) -> list[bytes]:
        """The IPv4 packets sent, superframes in one piece."""
        packets = [b"".join(pieces)[FRAME_BYTES:] for pieces in self.sent]
        self.sent.clear()
        return packets

    def close(self) -> None: ...


class NoMaps:
    def bind_service(self, spec: object) -> None: ...
    def unbind_service(self, spec: object) -> None: ...
    def add_vip(self, vip: object) -> None: ...
    def remove_vip(self, vip: object) -> None: ...


class Rig:
    """Made on the loop that runs it."""

    def __init__(self, service: VirtualService) -> None:
        self.loop: Any = asyncio.get_running_loop()
        settings, counters = PlaneSettings(busy_poll_us=0), Counter[str]()
        path = ReturnPath(NIC)
        self.queue, self.socket = Queue(), PodSocket()
        self.sender = Sender(settings, counters, lambda *_: _MAC)
        self.sender._sockets[path] = cast(Any, self.socket)
        self.stack = AsyncStack(
            Stack(link=LINK, rng=random.Random(1), secret=bytes(32)),
            self.sender.send,
            loop=self.loop,
            route=lambda _: path,
        )
        self.dispatcher = Dispatcher(lambda _: self.stack, counters, vnet_header=True)
        self.dispatcher.paths = {NIC.ifindex: path}
        self.counters = counters
        self.reader = TapReader(cast(Any, self.queue), self.dispatcher, settings, counters, lambda _: None)
        self.registry = Registry(NoMaps(), lambda _: self.stack)
        self.host = ServiceHost(self.registry, [service])
        self.fires = self.turns = 0

    async def __aenter__(self) -> Rig:
        await self.host.update(VIEW)
        self.reader.start(self.loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.reader.stop()
        await self.host.close()
        await self.registry.close()
        self.stack.close()
        self.sender.close()

    def begin(self, frames: Sequence[bytes]) -> None:
        """The kernel has `frames` for us; nothing else has happened for a while."""
        self.loop.clock.advance(EXCHANGE_US)
        self.queue.frames.extend(frames)
        self.queue.taken = self.queue.empty = self.socket.sends = 0
        self.fires = self.turns = 0

    async def turn(self) -> None:
        """One of the loop: readable if there are frames, as epoll says it."""
        if self.queue.frames:
            self.fires += 1
            callback, args = self.loop.readers[self.queue.fds[0]]
            self.loop.call_soon(callback, *args)
        self.turns += 1
        await asyncio.sleep(0)

    async def run(self) -> None:
        """Turns until nothing is left to do; needs a loop that counts."""
        self.loop.fire_timers()
        while True:
            before = self.loop.soon + bool(self.queue.frames) + 1  # what `turn` itself schedules
            await self.turn()
            if self.loop.soon == before and not self.queue.frames:
                return

    async def run_again(self, turns: int) -> None:
        self.loop.fire_timers()
        for _ in range(turns):
            await self.turn()
