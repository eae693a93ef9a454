"""The driver: when it delivers, sends and arms its timer. Time is virtual, the stack a stand-in or real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aio_world import SERVER, Pair
from virtual_loop import VirtualLoop, run

from juneau.netstack.aio.driver import LATE, Driver
from juneau.netstack.aio.streams import StreamWriter
from juneau.netstack.events import Readable
from juneau.netstack.types import SECOND, Link, Micros, TxPacket

PACKET = TxPacket("wire", b"x")


class StandIn:
    """A stack that does as the test says and notes what it is asked."""

    def __init__(self, *, tso: bool = False) -> None:
        self.link = Link(checksum_offload=tso, tso=tso)
        self.log: list[Any] = []
        self.deadline: Micros | None = None
        self.waiting = 0
        self.in_hurry = False
        self.events: list[Any] = []
        self.on_timeout: Callable[[Micros], None] = lambda now: None

    def receive(self, *args: Any, **kw: Any) -> None:
        self.log.append("receive")

    def handle_timeout(self, now: Micros) -> None:
        self.log.append(("timeout", now))
        if self.deadline is not None and self.deadline <= now:
            self.deadline = None
        self.on_timeout(now)

    def next_timeout(self) -> Micros | None:
        return self.deadline

    @property
    def wants_output(self) -> bool:
        return True

    def quiet_until(self, at: Micros) -> bool:
        return self.deadline is None or self.deadline >= at

    def take_packets(self, now: Micros, budget: int) -> list[TxPacket]:
        count = min(budget, self.waiting)
        self.waiting -= count
        self.log.append(("packets", count))
        return [PACKET] * count


def drive(
    check: Callable[[VirtualLoop, StandIn, Any], Any], *, early: float = 0.0, tso: bool = False
) -> StandIn:
    async def main(loop: VirtualLoop) -> StandIn:
        loop.early = early
        stack: Any = StandIn(tso=tso)
        driver = Driver(stack, lambda packets: stack.log.append(("send", len(packets))), clock=loop.micros)
        await check(loop, stack, driver)
        return stack  # type: ignore[no-any-return]

    return run(main)


def timeouts(stack: StandIn) -> list[Micros]:
    return [entry[1] for entry in stack.log if entry[0] == "timeout"]


def test_several_calls_of_one_turn_settle_once() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        for _ in range(5):
            driver.wake()
        assert stack.log == []
        await asyncio.sleep(0)
        assert stack.log == [("packets", 0)]
        await asyncio.sleep(0)
        assert len(stack.log) == 1

    drive(check)


@pytest.mark.parametrize(("tso", "burst"), [(False, 256), (True, 32)])
def test_others_get_a_turn_after_each_burst(tso: bool, burst: int) -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        stack.waiting = 2 * burst + 1
        driver.settle()
        loop.call_soon(stack.log.append, "other")
        for _ in range(3):
            await asyncio.sleep(0)
        sends = [entry for entry in stack.log if entry == "other" or entry[0] == "send"]
        assert sends == [("send", burst), ("send", burst), "other", ("send", 1)]

    drive(check, tso=tso)


class Told:
    """An application's end: notes when it is told, and answers in its own turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stack: StandIn) -> None:
        self.loop, self.stack = loop, stack

    def on_readable(self) -> None:
        self.stack.log.append("told")
        self.loop.call_soon(self._answer)

    def _answer(self) -> None:
        self.stack.log.append("answer")
        self.stack.waiting += 1


@pytest.mark.parametrize(
    ("hurry", "order"),
    [
        (False, ["told", "answer", ("packets", 2)]),
        (True, [("packets", 1), "told", "answer", ("packets", 1)]),
    ],
)
def test_an_answer_carries_the_ack_unless_the_peer_waits_for_it(hurry: bool, order: list[Any]) -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        conn: Any = SimpleNamespace(user=Told(loop, stack))
        stack.waiting, stack.in_hurry = 1, hurry  # the ACK
        stack.events.append(Readable(conn))
        driver.settle()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [entry for entry in stack.log if entry[0] != "send"] == order

    drive(check)


def test_the_timer_fires_at_the_deadline_and_once() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        deadline = stack.deadline = loop.micros() + 3 * SECOND
        driver.settle()
        await asyncio.sleep(60)
        assert timeouts(stack) == [deadline]

    drive(check)


def test_a_timer_that_fires_early_still_counts() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        deadline = stack.deadline = loop.micros() + 3 * SECOND
        driver.settle()
        await asyncio.sleep(60)
        assert timeouts(stack) == [deadline]

    drive(check, early=0.001)


def test_an_earlier_deadline_moves_the_timer_a_later_one_does_not() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        start = loop.micros()
        for deadline in (5, 9, 2):
            stack.deadline = start + deadline * SECOND
            driver.settle()
        loop.fired = 0
        await asyncio.sleep(60)
        assert timeouts(stack) == [start + 2 * SECOND]
        assert loop.fired == 2  # the timer and this sleep

    drive(check)


def late(loop: VirtualLoop, stack: StandIn) -> list[Any]:
    return [entry for entry in stack.log if entry == "receive" or entry[0] == "timeout"]


def test_a_late_timer_lets_the_link_be_read_first() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        stack.deadline = loop.micros() + 1_000
        driver.settle()
        loop.now += (1_000 + 2 * LATE) / 1e6  # the loop was busy
        loop.call_soon(loop.call_soon, driver.receive, b"", "wire", 0)  # libuv polls after its timers
        await asyncio.sleep(0.001)
        assert late(loop, stack) == ["receive", ("timeout", loop.micros() - 1_000)]

    drive(check)


def test_a_deadline_found_passed_lets_the_link_be_read_first() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        stack.deadline = loop.micros() - 1
        driver.settle()
        assert not timeouts(stack)
        loop.call_soon(driver.receive, b"", "wire", 0)  # what the poll of this turn finds
        await asyncio.sleep(0.001)
        assert late(loop, stack) == ["receive", ("timeout", loop.micros() - 1_000)]

    drive(check)


def test_a_deferred_timeout_does_not_run_ahead_of_time() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        start = loop.micros()
        stack.deadline = start - 1
        driver.settle()
        stack.deadline = start + 9 * SECOND  # an ACK moved it
        driver.settle()
        await asyncio.sleep(60)
        assert timeouts(stack) == [start, start + 9 * SECOND]

    drive(check)


def test_a_link_that_answers_inside_send() -> None:
    async def main(loop: VirtualLoop) -> None:
        stack: Any = StandIn()
        depth: list[int] = []

        def send(packets: list[TxPacket]) -> None:
            depth.append(driver._settling)
            if len(depth) < 3:
                stack.waiting = 1
                driver.receive(b"", "wire", 0)
                driver.settle()

        driver = Driver(stack, send, clock=loop.micros)
        stack.waiting = 1
        driver.settle()
        assert len(depth) == 1
        await asyncio.sleep(0.001)
        assert len(depth) == 3

    run(main)


def test_events_for_what_the_application_has_forgotten_go_nowhere() -> None:
    async def check(loop: VirtualLoop, stack: StandIn, driver: Driver) -> None:
        class Gone:
            user = None

        gone: Any = Gone()
        stack.events = [Readable(gone)]
        driver.settle()

    drive(check)


# With real stacks


async def _pair(loop: VirtualLoop) -> tuple[Pair, Any, Any, StreamWriter]:
    """A connection with an echo handler, past its first message."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    pair = Pair(clock=loop.micros)
    server = await pair.server.start_server(echo, SERVER, 80)
    reader, writer = await pair.client.open_connection(SERVER, 80)
    writer.write(b"x")
    assert await reader.read(1) == b"x"
    return pair, server, reader, writer


def test_idle_connections_fire_no_timers() -> None:
    async def main(loop: VirtualLoop) -> None:
        pair, _, reader, writer = await _pair(loop)
        await asyncio.sleep(2)  # delayed ACKs, the last of the retransmission timer
        loop.fired = pair.packets = 0
        await asyncio.sleep(60)
        assert (loop.fired - 1, pair.packets) == (0, 0)
        writer.write(b"y")
        assert await reader.read(1) == b"y"
        writer.close()
        pair.close()

    run(main)


def test_connect_gives_up() -> None:
    async def main(loop: VirtualLoop) -> None:
        pair = Pair(clock=loop.micros)
        pair.cut = True
        with pytest.raises(TimeoutError):
            await pair.client.open_connection(SERVER, 80)
        pair.close()

    run(main)


def test_a_parked_reader_hears_of_a_peer_that_is_gone() -> None:
    """The peer vanishes with data under way: TimeoutError, never b""."""

    async def main(loop: VirtualLoop) -> None:
        pair, _, reader, writer = await _pair(loop)
        pair.cut = True
        writer.write(b"into the void")
        with pytest.raises(TimeoutError):
            await reader.read(1)
        with pytest.raises(TimeoutError):
            await writer.drain()
        with pytest.raises(TimeoutError):
            await writer.wait_closed()
        pair.close()

    run(main)


def test_keepalive_finds_a_peer_that_is_gone() -> None:
    async def main(loop: VirtualLoop) -> None:
        pair, _, reader, writer = await _pair(loop)
        sock = writer.get_extra_info("socket")
        for level, name, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        ):
            sock.setsockopt(level, name, value)
        pair.cut = True
        start = loop.now
        with pytest.raises(TimeoutError):
            await reader.read(1)
        assert loop.now - start == pytest.approx(10 + 3 * 5, abs=0.1)
        pair.close()

    run(main)


def test_orphans_end_and_nothing_is_left() -> None:
    async def main(loop: VirtualLoop) -> None:
        pair, server, _, writer = await _pair(loop)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(600)
        assert not list(pair.client.stack.tcp.connections())
        assert not list(pair.server.stack.tcp.connections())
        assert not pair.client.ends
        assert not pair.server.ends
        pair.close()

    run(main)
