"""The transport seen by a protocol: the same calls in the same order on kernel sockets and on the stack."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

import pytest
from aio_world import SERVER, Pair, Recorder, World, addr_of, is_reset, is_uvloop_kernel, until

from juneau.netstack.limits import MIB, Limits


async def within(awaitable: Any, seconds: float = 10) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


class Link:
    """One connection with a Recorder at both ends."""

    def __init__(self, world: World, **keep: bool | None) -> None:
        self.world, self.keep = world, keep

    async def __aenter__(self) -> Link:
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        def factory() -> Recorder:
            accepted.put_nowait(Recorder(keep_open=self.keep.get("server")))
            return accepted._queue[-1]  # type: ignore[attr-defined]

        self.listener = await self.world.create_server(factory)
        _, self.client = await self.world.create_connection(
            lambda: Recorder(keep_open=self.keep.get("client")), addr_of(self.listener)
        )
        self.server = await within(accepted.get())
        await within(self.server.made)
        return self

    async def __aexit__(self, *_: object) -> None:
        for end in (self.server, self.client):
            end.transport.abort()
        for end in (self.server, self.client):
            await within(end.lost)
        self.listener.close()
        await within(self.listener.wait_closed())


async def test_order_of_calls(world: World) -> None:
    async with Link(world) as link:
        link.client.transport.write(b"x" * 200_000)
        link.client.transport.write_eof()
        await within(link.server.eof)
        assert await within(link.server.lost) is None
        assert await within(link.client.lost) is None
        assert link.server.calls == ["made", "data", "eof", "lost"]
        assert link.client.calls == ["made", "eof", "lost"]
        assert len(link.server.data) == 200_000


async def test_eof_received_true_keeps_the_transport_open(world: World) -> None:
    async with Link(world, server=True) as link:
        link.client.transport.write_eof()
        await within(link.server.eof)
        await asyncio.sleep(0.02)
        assert link.server.calls == ["made", "eof"]
        assert not link.server.transport.is_closing()
        link.server.transport.write(b"answer")
        assert await link.client.has(6) == b"answer"
        link.server.transport.close()
        assert await within(link.client.lost) is None


async def test_both_halves_closed_leaves_closing_to_the_application(world: World) -> None:
    async with Link(world, server=True, client=True) as link:
        link.client.transport.write_eof()
        await within(link.server.eof)
        link.server.transport.write_eof()
        await within(link.client.eof)
        await asyncio.sleep(0.05)
        assert link.server.calls == link.client.calls == ["made", "eof"]
        for end in (link.server, link.client):
            end.transport.close()
            assert await within(end.lost) is None


async def test_paused_data_outlives_the_connection(world: World) -> None:
    """Both FINs are acknowledged while the data waits; it is still delivered, then EOF."""
    async with Link(world, server=True, client=True) as link:
        link.server.transport.pause_reading()
        link.client.transport.write(b"wait" * 1_000)
        link.client.transport.write_eof()
        await asyncio.sleep(0.02)
        link.server.transport.write_eof()
        await within(link.client.eof)
        link.client.transport.close()
        await asyncio.sleep(0.05)
        assert link.server.calls == ["made"]
        link.server.transport.resume_reading()
        await within(link.server.eof)
        assert link.server.data == b"wait" * 1_000
        assert link.server.calls == ["made", "data", "eof"]


async def test_pause_and_resume_reading(world: World) -> None:
    async with Link(world) as link:
        transport = link.server.transport
        assert transport.is_reading()
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        link.client.transport.write(b"wait for it")
        await asyncio.sleep(0.05)
        assert link.server.data == b""
        transport.resume_reading()
        transport.resume_reading()
        assert link.server.data == b"", "delivered from inside resume_reading"
        assert await link.server.has(11) == b"wait for it"


async def test_pausing_inside_data_received(world: World) -> None:
    async with Link(world) as link:
        server = link.server
        deliveries: list[int] = []

        def one_then_pause(data: bytes) -> None:
            assert server.transport.is_reading()
            server.transport.pause_reading()
            deliveries.append(len(data))
            asyncio.get_running_loop().call_soon(server.transport.resume_reading)

        server.on_data = one_then_pause
        link.client.transport.write(bytes(1_500_000))

        await within(until(lambda: sum(deliveries) == 1_500_000))
        assert max(deliveries) <= 256 * 1024


async def test_a_paused_reader_closes_the_window(world: World) -> None:
    async with Link(world) as link:
        link.server.transport.pause_reading()
        transport = link.client.transport
        transport.write(bytes(12 * 1024 * 1024))
        await asyncio.sleep(0.1)
        assert transport.get_write_buffer_size() > 2 * 1024 * 1024
        link.server.transport.resume_reading()
        assert len(await link.server.has(12 * 1024 * 1024)) == 12 * 1024 * 1024
        assert link.client.calls[-2:] == ["pause", "resume"]


async def test_write_buffer_limits(world: World) -> None:
    async with Link(world) as link:
        transport = link.client.transport
        if not is_uvloop_kernel(world):
            assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
        assert transport.get_write_buffer_size() == 0
        transport.set_write_buffer_limits(high=1_000)
        assert transport.get_write_buffer_limits() == (250, 1_000)
        transport.set_write_buffer_limits(low=100)
        assert transport.get_write_buffer_limits() == (100, 400)
        for wrong in ({"high": 1, "low": 2}, {"high": -1}):
            with pytest.raises(ValueError):
                transport.set_write_buffer_limits(**wrong)


async def test_pause_writing_is_paired(world: World) -> None:
    async with Link(world) as link:
        link.server.transport.pause_reading()
        transport = link.client.transport
        transport.set_write_buffer_limits(high=0)
        for _ in range(48):
            transport.write(bytes(262_144))
        assert link.client.calls == ["made", "pause"]
        link.server.transport.resume_reading()
        await link.server.has(48 * 262_144)
        await until(lambda: link.client.calls[-1] == "resume")
        assert link.client.calls == ["made", "pause", "resume"]
        assert transport.get_write_buffer_size() == 0


async def test_close_is_once_and_writes_after_it_are_ignored(world: World) -> None:
    async with Link(world) as link:
        transport = link.client.transport
        transport.write(b"last")
        transport.close()
        transport.close()
        assert transport.is_closing()
        assert not transport.is_reading()
        transport.pause_reading()
        transport.resume_reading()
        transport.write_eof()
        assert await within(link.client.lost) is None
        assert await within(link.server.lost) is None
        assert link.client.calls == ["made", "lost"]
        assert link.server.calls == ["made", "data", "eof", "lost"]
        if not is_uvloop_kernel(world):  # which raises "the handler is closed"
            transport.abort()
            transport.write(b"ignored")
            assert transport.get_write_buffer_size() == 0


async def test_writes_to_a_lost_connection_are_logged_from_the_fifth(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    if is_uvloop_kernel(world):
        pytest.skip("uvloop raises RuntimeError for a write to a closed handle")
    async with Link(world) as link:
        transport = link.client.transport
        transport.abort()
        await within(link.client.lost)
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                transport.write(b"x")
            quiet = len(caplog.records)
            for _ in range(4):
                transport.write(b"x")
        assert (quiet, bool(caplog.records)) == (0, True)


async def test_abort_drops_what_was_not_sent(world: World) -> None:
    async with Link(world) as link:
        link.server.transport.pause_reading()
        link.client.transport.write(bytes(12 * 1024 * 1024))
        link.client.transport.abort()
        assert link.client.transport.is_closing()
        assert link.client.calls[-1] != "lost", "connection_lost comes from the loop"
        assert await within(link.client.lost) is None


async def test_reset_while_writing(world: World) -> None:
    """The peer goes with data unread: RST. Both sides hear it once."""
    async with Link(world) as link:
        link.server.transport.pause_reading()
        link.client.transport.write(b"never read")
        await asyncio.sleep(0.05)
        link.server.transport.close()
        assert await within(link.server.lost) is None
        error = await within(link.client.lost)
        assert is_reset(error)
        assert link.client.calls == ["made", "lost"]


async def test_set_protocol(world: World) -> None:
    async with Link(world) as link:
        other = Recorder()
        other.connection_made(link.server.transport)
        assert link.server.transport.get_protocol() is link.server
        link.server.transport.set_protocol(other)
        assert link.server.transport.get_protocol() is other
        link.client.transport.write(b"to the other")
        assert await other.has(12) == b"to the other"
        link.client.transport.close()
        assert await within(other.lost) is None
        assert link.server.calls == ["made"]
        link.server.connection_lost(None)  # for the exit above


class Buffered(asyncio.BufferedProtocol):
    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.sizes: list[int] = []
        self.eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        self.sizes.append(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.data += self.buffer[:nbytes]
        self.buffer.extend(b"")  # BufferError if the transport still holds a view

    def eof_received(self) -> None:
        self.eof.set_result(None)


@pytest.mark.parametrize("size", [1, 999, 300_000])
async def test_buffered_protocol(world: World, size: int) -> None:
    made: list[Buffered] = []

    def factory() -> Buffered:
        made.append(Buffered(size))
        return made[-1]

    server = await world.create_server(factory)
    transport, _ = await world.create_connection(asyncio.Protocol, addr_of(server))
    payload = bytes(range(256)) * (4 if size == 1 else 1_000)
    transport.write(payload)
    transport.close()
    await until(lambda: made)
    await within(made[0].eof)
    assert made[0].data == payload
    server.close()


@pytest.mark.parametrize("method", ["on_data", "on_eof"])
async def test_a_protocol_that_fails_is_reported_and_lost(
    world: World, errors: list[dict[str, Any]], method: str
) -> None:
    async with Link(world) as link:

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        setattr(link.server, method, fail)
        link.client.transport.write(b"x")
        link.client.transport.write_eof()
        error = await within(link.server.lost)
        assert isinstance(error, ZeroDivisionError)
        assert [type(e["exception"]) for e in errors] == [ZeroDivisionError]
        errors.clear()
        await within(link.client.lost)


async def test_empty_get_buffer(world: World, errors: list[dict[str, Any]]) -> None:
    lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    class Empty(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray()

        def connection_lost(self, exc: Exception | None) -> None:
            lost.set_result(exc)

    server = await world.create_server(Empty)
    transport, _ = await world.create_connection(asyncio.Protocol, addr_of(server))
    transport.write(b"x")
    assert isinstance(await within(lost), RuntimeError)
    assert len(errors) == 1
    errors.clear()
    transport.close()
    server.close()


# What only the stack has


async def test_send_queue_up_to_the_limit_counts_as_in_the_kernel() -> None:
    pair = Pair(snd_limit=100_000)
    server = await pair.server.create_server(Recorder, port=80)
    transport, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    pair.cut = True
    transport.write(bytes(100_000))
    assert transport.get_write_buffer_size() == 0
    transport.write(bytes(65_536))
    assert (transport.get_write_buffer_size(), protocol.calls) == (65_536, ["made"])
    transport.write(b"x")
    assert (transport.get_write_buffer_size(), protocol.calls) == (65_537, ["made", "pause"])
    transport.close()
    await asyncio.sleep(0.01)
    assert protocol.calls == ["made", "pause"], "what is above the limit is still ours to flush"
    server.close()
    pair.close()
    await within(protocol.lost)


async def test_close_hands_the_rest_to_the_stack(pair: Pair) -> None:
    await pair.server.create_server(Recorder, port=80)
    transport, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    pair.cut = True
    transport.write(bytes(1_000_000))
    transport.close()
    assert await within(protocol.lost, 1) is None
    assert len(list(pair.client.stack.tcp.connections())) == 1, "the orphan"


async def test_a_reset_is_reported_while_reading_is_paused(pair: Pair) -> None:
    """Here ours departs: a kernel transport hears of it when reading resumes."""
    accepted: list[Recorder] = []

    def factory() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    await pair.server.create_server(factory, port=80)
    transport, _ = await pair.client.create_connection(Recorder, SERVER, 80)
    await until(lambda: accepted and accepted[0].made.done())
    accepted[0].transport.pause_reading()
    transport.write(b"never read")
    await asyncio.sleep(0.01)
    transport.abort()
    assert is_reset(await within(accepted[0].lost))
    assert accepted[0].calls == ["made", "lost"]


async def test_data_just_before_a_reset_is_delivered(pair: Pair) -> None:
    accepted: list[Recorder] = []

    def factory() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    await pair.server.create_server(factory, port=80)
    transport, _ = await pair.client.create_connection(Recorder, SERVER, 80)
    transport.write(b"last words")
    pair.client.settle()
    transport.abort()
    await until(lambda: accepted)
    assert is_reset(await within(accepted[0].lost))
    assert accepted[0].calls == ["made", "data", "lost"]


async def test_socket_object(pair: Pair) -> None:
    """aiohttp, uvicorn and asyncssh look at it."""
    await pair.server.create_server(Recorder, port=80)
    transport, _ = await pair.client.create_connection(Recorder, SERVER, 80)
    sock = transport.get_extra_info("socket")
    assert (sock.family, sock.type, sock.proto) == (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    assert sock.getpeername() == (SERVER, 80)
    assert sock.getsockname() == transport.get_extra_info("sockname")
    assert sock.fileno() == -1
    for option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
        for value in (1, 0):
            sock.setsockopt(*option, value)
            assert sock.getsockopt(*option) == value
    for name, value in ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 3), (socket.TCP_KEEPCNT, 4)):
        sock.setsockopt(socket.IPPROTO_TCP, name, value)
        assert sock.getsockopt(socket.IPPROTO_TCP, name) == value
    with pytest.raises(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_DEBUG, 1)


async def test_extra_path_and_tcp_info(pair: Pair) -> None:
    seen: list[Any] = []
    extra = {"tenant": "red", "service": "web"}
    await pair.server.start_server(lambda _, writer: seen.append(writer), port=80, extra=extra)
    transport, _ = await pair.client.create_connection(Recorder, SERVER, 80)
    await until(lambda: seen)
    (writer,) = seen
    assert [writer.get_extra_info(name) for name in ("tenant", "service", "path")] == ["red", "web", "wire"]
    assert writer.get_extra_info("tcp_info") is not None
    assert transport.get_extra_info("tenant") is None
    writer.close()
    transport.close()


async def test_above_the_quota_the_connection_with_most_to_send_is_reset() -> None:
    pair = Pair(limits=Limits(unsent_bytes=4 * MIB))
    ends: list[Recorder] = []

    def accept() -> Recorder:
        ends.append(Recorder())
        return ends[-1]

    await pair.server.create_server(accept, SERVER, 7)
    for _ in range(3):
        await pair.client.create_connection(Recorder, SERVER, 7)
    await until(lambda: len(ends) == 3 and all(end.made.done() for end in ends))
    pair.cut = True
    for end, size in zip(ends, (1, 3, 2), strict=True):
        end.transport.write(bytes(size * MIB))
    error = await within(ends[1].lost)
    assert error.errno == errno.ENOBUFS
    queues = [conn.send_queue_bytes for conn in pair.server.stack.tcp.connections()]
    assert sorted(queues) == [1 * MIB, 2 * MIB]
    assert pair.server.stack.counters.snapshot()["tcp.unsent_quota"] == 1
    pair.close()
    await asyncio.sleep(0)
