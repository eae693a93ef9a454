"""A connection that holds little: what asyncio's constructors would set is there all the same."""

from __future__ import annotations

import asyncio

import pytest

from juneau.netstack.aio.streams import StreamProtocol, StreamWriter

NEVER_READ = {"_complete_fut"}


class Gone(asyncio.Transport):
    def is_closing(self) -> bool:
        return True  # since 3.13 a writer that is collected closes its transport if it is not


async def both() -> tuple[asyncio.StreamReaderProtocol, StreamProtocol, asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    return asyncio.StreamReaderProtocol(reader), StreamProtocol(reader), reader


async def test_protocol_and_writer_have_what_asyncios_have():
    theirs, ours, reader = await both()
    transport = Gone()
    loop = asyncio.get_running_loop()
    pairs = [
        (theirs, ours),
        (asyncio.StreamWriter(transport, theirs, reader, loop), StreamWriter(transport, ours, reader, loop)),
    ]
    for their, our in pairs:
        missing = [name for name in vars(their) if not hasattr(our, name)]
        assert set(missing) <= NEVER_READ


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
@pytest.mark.parametrize("asked", ["before", "after"])
async def test_waiting_for_the_end(error, asked):
    _, protocol, reader = await both()
    writer = StreamWriter(Gone(), protocol, reader, asyncio.get_running_loop())
    if asked == "before":
        waiter = asyncio.create_task(writer.wait_closed())
        await asyncio.sleep(0)
        assert not waiter.done()
        protocol.connection_lost(error)
    else:
        protocol.connection_lost(error)
        waiter = asyncio.create_task(writer.wait_closed())
    assert (await asyncio.gather(waiter, return_exceptions=True)) == [error]
