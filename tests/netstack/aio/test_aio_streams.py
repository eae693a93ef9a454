"""StreamReader and StreamWriter: the same on kernel sockets and on the stack."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import weakref
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest
from aio_world import Pair, World, addr_of, is_reset

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
TOTAL = 4 * 1024 * 1024


async def within(awaitable: Awaitable[Any], seconds: float = 20) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def end(server: Any, *writers: Writer) -> None:
    for writer in writers:
        writer.close()
    server.close()


async def test_echo(world: World) -> None:
    server = await world.start_server(echo)
    reader, writer = await world.open_connection(addr_of(server))
    for message in (b"a", b"bc" * 700, b"d" * 70_000):
        writer.write(message)
        assert await within(reader.readexactly(len(message))) == message
    writer.write_eof()
    assert await within(reader.read()) == b""
    await end(server, writer)
    await within(writer.wait_closed())


@pytest.mark.parametrize("chunk", [1_000, 65_536, 1_000_000])
async def test_upload(world: World, chunk: int) -> None:
    digest: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handle(reader: Reader, writer: Writer) -> None:
        sha, size = hashlib.sha256(), 0
        while data := await reader.read(262_144):
            sha.update(data)
            size += len(data)
        digest.set_result(f"{size} {sha.hexdigest()}")
        writer.close()

    server = await world.start_server(handle)
    _, writer = await world.open_connection(addr_of(server))
    await _send_all(writer, chunk)
    writer.close()
    assert await within(digest) == _expected(chunk)
    server.close()


@pytest.mark.parametrize("chunk", [1_000, 65_536, 1_000_000])
async def test_download(world: World, chunk: int) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        await _send_all(writer, chunk)
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    data = await within(reader.read())
    assert f"{len(data)} {hashlib.sha256(data).hexdigest()}" == _expected(chunk)
    await end(server, writer)


def _chunks(size: int) -> list[bytes]:
    return [(i % 65_521).to_bytes(4, "big") * (size // 4) for i in range(TOTAL // size)]


def _expected(size: int) -> str:
    data = b"".join(_chunks(size))
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


async def _send_all(writer: Writer, size: int) -> None:
    for piece in _chunks(size):
        writer.write(piece)
        await within(writer.drain())


async def test_both_ways_at_once(world: World) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        sending = asyncio.create_task(_send_all(writer, 65_536))
        received = await reader.read()
        await sending
        writer.write(len(received).to_bytes(4, "big"))
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    sending = asyncio.create_task(_send_all(writer, 65_536))
    size = len(b"".join(_chunks(65_536)))
    data = await within(reader.readexactly(size))
    assert data == b"".join(_chunks(65_536))
    await within(sending)
    writer.write_eof()
    assert await within(reader.read()) == size.to_bytes(4, "big")
    await end(server, writer)


async def test_half_close_then_the_answer(world: World) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        request = await reader.read()
        writer.write(request * 500)
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    assert writer.can_write_eof()
    writer.write(b"x" * 100)
    writer.write_eof()
    assert await within(reader.read()) == b"x" * 50_000
    await end(server, writer)
    await within(writer.wait_closed())


async def test_half_close_of_the_server(world: World) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def handle(reader: Reader, writer: Writer) -> None:
        writer.write(b"greeting")
        writer.write_eof()
        received.set_result(await reader.read())
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    assert await within(reader.read()) == b"greeting"
    assert not writer.is_closing()
    writer.write(b"y" * 100_000)
    await within(writer.drain())
    writer.close()
    assert await within(received) == b"y" * 100_000
    server.close()


async def test_write_after_write_eof(world: World) -> None:
    server = await world.start_server(echo)
    _, writer = await world.open_connection(addr_of(server))
    writer.write_eof()
    writer.write_eof()
    with pytest.raises(RuntimeError):
        writer.write(b"x")
    await end(server, writer)


async def test_close_with_data_pending_loses_nothing(world: World) -> None:
    size = 6_000_000

    async def handle(reader: Reader, writer: Writer) -> None:
        writer.write(bytes(size))
        assert writer.transport.get_write_buffer_size() > 0
        writer.close()
        assert writer.is_closing()
        await writer.wait_closed()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    assert len(await within(reader.read())) == size
    await end(server, writer)


async def test_reset_reaches_a_parked_reader(world: World) -> None:
    """Unread data at close is a RST on either side; a kernel transport's `abort` alone is a FIN."""

    async def handle(reader: Reader, writer: Writer) -> None:
        writer.transport.pause_reading()
        writer.write(b"go")
        await asyncio.sleep(0.05)
        writer.transport.abort()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    assert await within(reader.read(10)) == b"go"
    writer.write(b"never read")
    with pytest.raises(ConnectionResetError) as caught:
        await within(reader.read(10))
    assert is_reset(caught.value)
    with pytest.raises(ConnectionResetError):
        await within(writer.drain())
    with pytest.raises(ConnectionResetError):
        await within(writer.wait_closed())
    server.close()


async def test_abort_is_a_reset(pair: Pair) -> None:
    """Here ours departs: a kernel transport's peer would see EOF."""

    async def handle(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.transport.abort()

    server = await pair.server.start_server(handle, port=80)
    reader, writer = await pair.client.open_connection("10.0.0.1", 80)
    writer.write(b"x")
    with pytest.raises(ConnectionResetError) as caught:
        await within(reader.read(10))
    assert is_reset(caught.value)
    server.close()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_our_own_end_wakes_a_parked_reader(world: World, how: str) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    parked = asyncio.create_task(reader.read(1))
    await asyncio.sleep(0.01)
    getattr(writer.transport, how)()
    assert await within(parked) == b""
    await within(writer.wait_closed())
    server.close()


async def test_nothing_is_left_for_the_garbage_collector(pair: Pair) -> None:
    """Transports and protocols go with their last reference: memory stays flat between collections."""
    seen: list[weakref.ref[Any]] = []

    async def handle(reader: Reader, writer: Writer) -> None:
        seen.extend(
            (weakref.ref(writer.transport), weakref.ref(writer.transport.get_protocol()), weakref.ref(writer))
        )
        writer.write(await reader.read(1))
        writer.close()

    server = await pair.server.start_server(handle, port=80)
    gc.disable()
    try:
        reader, writer = await pair.client.open_connection("10.0.0.1", 80)
        seen.append(weakref.ref(writer.transport))
        writer.write(b"x")
        assert await within(reader.read()) == b"x"
        writer.close()
        await within(writer.wait_closed())
        server.close()
        await within(server.wait_closed())
        del reader, writer
        await asyncio.sleep(0.01)
        assert [ref() for ref in seen] == [None] * 4
    finally:
        gc.enable()


async def test_cancelled_read_leaves_the_stream_usable(world: World) -> None:
    server = await world.start_server(echo)
    reader, writer = await world.open_connection(addr_of(server))
    reading = asyncio.create_task(reader.read(10))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await reader.readexactly(1)
    writer.write(b"still there")
    assert await within(reader.readexactly(11)) == b"still there"
    await end(server, writer)


async def test_backpressure_stops_a_writer_and_cancelling_its_drain_is_safe(world: World) -> None:
    go = asyncio.Event()
    received: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def handle(reader: Reader, writer: Writer) -> None:
        await go.wait()
        received.set_result(len(await reader.read()))
        writer.close()

    server = await world.start_server(handle)
    _, writer = await world.open_connection(addr_of(server))
    sent = 0
    blocked = False
    while not blocked:
        writer.write(bytes(65_536))
        sent += 65_536
        try:
            async with asyncio.timeout(0.25):
                await writer.drain()
        except TimeoutError:
            blocked = True
        assert sent < 16 * 1024 * 1024, "nothing pushes back"
    assert writer.transport.get_write_buffer_size() > writer.transport.get_write_buffer_limits()[0]
    go.set()
    await within(writer.drain())
    writer.close()
    assert await within(received) == sent
    server.close()


async def test_reader_limits(world: World) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        writer.write(b"line\n" + b"z" * 300 + b"\nrest")
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server), limit=100)
    assert await within(reader.readline()) == b"line\n"
    with pytest.raises(asyncio.LimitOverrunError):
        await within(reader.readuntil(b"\n"))
    assert await within(reader.readexactly(301)) == b"z" * 300 + b"\n"
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await within(reader.readexactly(10))
    assert caught.value.partial == b"rest"
    assert reader.at_eof()
    await end(server, writer)


async def test_writelines_and_bytes_like(world: World) -> None:
    server = await world.start_server(echo)
    reader, writer = await world.open_connection(addr_of(server))
    writer.writelines([b"one ", bytearray(b"two "), memoryview(b"three "), b""])
    writer.writelines(bytes([65 + i % 26]) * 50_000 for i in range(4))
    buffer = bytearray(b"kept")
    writer.write(buffer)
    buffer[:] = b"XXXX"  # the transport must have taken a copy
    expected = b"one two three " + b"".join(bytes([65 + i]) * 50_000 for i in range(4)) + b"kept"
    assert await within(reader.readexactly(len(expected))) == expected
    writer.write(b"")
    await end(server, writer)


async def test_type_errors_send_nothing(world: World) -> None:
    server = await world.start_server(echo)
    reader, writer = await world.open_connection(addr_of(server))
    for wrong in ("text", 3, [b"x"]):
        with pytest.raises(TypeError):
            writer.write(wrong)  # type: ignore[arg-type]
    if "uvloop" not in type(writer.transport).__module__:  # which sends what came before the wrong one
        with pytest.raises(TypeError):
            writer.writelines([b"good", "bad"])  # type: ignore[list-item]
    writer.write(b"only this")
    writer.write_eof()
    assert await within(reader.read()) == b"only this"
    await end(server, writer)


async def test_handler_that_fails_is_reported_and_closes(pair: Pair, errors: list[dict[str, Any]]) -> None:
    """As asyncio does since 3.12; 3.11 leaves the connection open."""

    async def handle(reader: Reader, writer: Writer) -> None:
        writer.write(b"bye")
        raise ZeroDivisionError

    server = await pair.server.start_server(handle, port=80)
    reader, writer = await pair.client.open_connection("10.0.0.1", 80)
    assert await within(reader.read()) == b"bye"
    assert [type(e["exception"]) for e in errors] == [ZeroDivisionError]
    errors.clear()
    await end(server, writer)


async def test_handler_that_is_cancelled_closes(pair: Pair) -> None:
    async def handle(reader: Reader, writer: Writer) -> None:
        writer.write(b"bye")
        raise asyncio.CancelledError

    server = await pair.server.start_server(handle, port=80)
    reader, writer = await pair.client.open_connection("10.0.0.1", 80)
    assert await within(reader.read()) == b"bye"
    await end(server, writer)


async def test_plain_callback(world: World) -> None:
    def handle(reader: Reader, writer: Writer) -> None:
        writer.write(b"sync")
        writer.close()

    server = await world.start_server(handle)
    reader, writer = await world.open_connection(addr_of(server))
    assert await within(reader.read()) == b"sync"
    await end(server, writer)


async def test_refused(world: World) -> None:
    with pytest.raises(ConnectionRefusedError):
        await within(world.open_connection(world.free_address()))


async def test_extra_info(world: World) -> None:
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def handle(reader: Reader, writer: Writer) -> None:
        seen.set_result((writer.get_extra_info("peername"), writer.get_extra_info("sockname")))
        writer.close()

    server = await world.start_server(handle)
    _, writer = await world.open_connection(addr_of(server))
    mine = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    assert mine[1] == addr_of(server)
    assert await within(seen) == mine
    assert writer.get_extra_info("nothing") is None
    assert writer.get_extra_info("nothing", 7) == 7
    await end(server, writer)


async def test_many_at_once(world: World) -> None:
    server = await world.start_server(echo, backlog=200)

    async def client(number: int) -> None:
        reader, writer = await world.open_connection(addr_of(server))
        message = number.to_bytes(4, "big") * 1_000
        writer.write(message)
        writer.write_eof()
        assert await reader.read() == message
        writer.close()
        await writer.wait_closed()

    await within(asyncio.gather(*(client(i) for i in range(100))))
    server.close()
