"""Active open, and how it fails."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from aio_world import CLIENT, SERVER, Pair, Recorder

NOBODY = "10.0.0.77"


async def within(awaitable: Any, seconds: float = 10) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def test_cancelling_forgets_the_half_open_connection(pair: Pair) -> None:
    pair.cut = True
    opening = asyncio.ensure_future(pair.client.create_connection(Recorder, SERVER, 80))
    await asyncio.sleep(0.01)
    assert len(list(pair.client.stack.tcp.connections())) == 1
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not list(pair.client.stack.tcp.connections())


async def test_a_timeout_of_the_application(pair: Pair) -> None:
    pair.cut = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await pair.client.open_connection(SERVER, 80)
    assert not list(pair.client.stack.tcp.connections())


async def test_no_path(pair: Pair) -> None:
    pair.client.route = None
    with pytest.raises(OSError) as caught:
        await pair.client.open_connection(SERVER, 80)
    assert caught.value.errno == errno.EHOSTUNREACH
    with pytest.raises(ConnectionRefusedError):
        await within(pair.client.open_connection(SERVER, 80, path="wire"))


async def test_local_address(pair: Pair) -> None:
    await pair.server.create_server(Recorder, SERVER, 80)
    transport, _ = await pair.client.create_connection(Recorder, SERVER, 80, local_addr=(CLIENT, 4321))
    assert transport.get_extra_info("sockname") == (CLIENT, 4321)
    with pytest.raises(OSError) as caught:
        await pair.client.create_connection(Recorder, SERVER, 80, local_addr=(NOBODY, 0))
    assert caught.value.errno == errno.EADDRNOTAVAIL
    with pytest.raises(OSError):
        await pair.client.create_connection(Recorder, SERVER, 80, local_addr=(CLIENT, 4321))
    transport.abort()


async def test_a_peer_that_speaks_first_and_goes(pair: Pair) -> None:
    """Everything may arrive before the task that opened the connection runs again."""

    class Hasty(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"hello")
            transport.close()

    await pair.server.create_server(Hasty, SERVER, 80)
    _, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    assert await within(protocol.lost) is None
    assert protocol.data == b"hello"
    assert protocol.calls == ["made", "data", "eof", "lost"]


async def test_a_peer_that_speaks_first_and_resets(pair: Pair) -> None:
    class Hasty(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"hello")
            asyncio.get_running_loop().call_soon(transport.abort)

    await pair.server.create_server(Hasty, SERVER, 80)
    _, protocol = await pair.client.create_connection(Recorder, SERVER, 80)
    assert isinstance(await within(protocol.lost), ConnectionResetError)


async def test_factory_that_fails(pair: Pair) -> None:
    await pair.server.create_server(Recorder, SERVER, 80)

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await pair.client.create_connection(factory, SERVER, 80)
    assert not list(pair.client.stack.tcp.connections())
