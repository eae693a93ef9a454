"""Our StreamReader is asyncio's to whoever reads: the same bytes, errors and pauses, whatever is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.netstack.aio.streams import PIECE_BYTES, StreamReader

LIMIT = 6_000
FRAME = bytes(range(10, 256)) * 100


class Transport:
    """Notes when it is told to stop and to go on."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")


def piece(size: int, *, kind: type = memoryview, newline: bool = False) -> Any:
    data = FRAME[:size] + (b"\n" if newline else b"")
    return memoryview(b"header" + data)[6:] if kind is memoryview else kind(data)


SIZES = st.sampled_from([1, 100, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 9_000, 20_000])
FEEDS = st.builds(
    lambda size, kind, newline: ("feed", piece(size, kind=kind, newline=newline)),
    SIZES, st.sampled_from([memoryview, bytes, bytearray]), st.booleans(),
)  # fmt: skip
READS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([0, 1, 100, PIECE_BYTES, 9_000, 65_536])),
    st.tuples(st.just("readexactly"), st.sampled_from([0, 1, 5_000, 30_000])),
    st.tuples(st.just("readline")),
    st.tuples(st.just("readuntil"), st.sampled_from([b"\n", b"\r\n"])),
)
CALLS = st.lists(st.one_of(FEEDS, READS, st.tuples(st.just("at_eof")), st.tuples(st.just("cancel"))))


async def play(make: Callable[[], asyncio.StreamReader], calls: list[tuple[Any, ...]]) -> list[object]:
    """What the calls give, and what the transport was told. A read that waits is finished by what comes."""
    reader, transport, seen = make(), Transport(), []
    reader.set_transport(transport)  # type: ignore[arg-type]
    reading: asyncio.Task[Any] | None = None

    async def turn() -> None:
        nonlocal reading
        for _ in range(3):
            await asyncio.sleep(0)
        if reading is not None and reading.done():
            error = None if reading.cancelled() else reading.exception()
            gone = reading.cancelled() or error is not None
            seen.append(repr(error) if gone else reading.result())
            seen.append(getattr(error, "partial", None))
            reading = None

    for name, *arguments in [*calls, ("eof",), ("read", -1), ("at_eof",)]:
        if name == "feed":
            reader.feed_data(*arguments)
        elif name == "eof":
            reader.feed_eof()
        elif name == "at_eof":
            seen.append(reader.at_eof())
        elif name == "cancel" and reading is not None:
            reading.cancel()
        elif name.startswith("read") and reading is None:
            reading = asyncio.create_task(getattr(reader, name)(*arguments))
        await turn()
        seen.append(tuple(transport.told))
    assert reading is None
    return seen


@given(CALLS)
def test_the_same_as_asyncios(calls: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        theirs = await play(lambda: asyncio.StreamReader(LIMIT), calls)
        assert await play(lambda: StreamReader(LIMIT), calls) == theirs

    asyncio.run(main())


async def test_a_large_piece_is_handed_on_as_it_is() -> None:
    reader, data = StreamReader(), bytes(PIECE_BYTES)
    reader.feed_data(data)
    assert await reader.read(65_536) is data


async def test_small_pieces_do_not_pin_what_they_are_views_of() -> None:
    reader, data = StreamReader(), bytearray(b"12345678")
    view = memoryview(data)
    reader.feed_data(view[:2])
    view.release()
    data.clear()  # BufferError if a view were left
    assert await reader.read(10) == b"12"


async def test_what_a_cancelled_read_was_woken_for_is_read_next() -> None:
    reader = StreamReader()
    reading = asyncio.create_task(reader.read(65_536))
    await asyncio.sleep(0)
    reader.feed_data(piece(9_000))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await reader.read(65_536) == FRAME[:9_000]


async def test_a_transport_that_cannot_pause_is_asked_once() -> None:
    class Deaf(Transport):
        def pause_reading(self) -> None:
            super().pause_reading()
            raise NotImplementedError

    reader, transport = StreamReader(LIMIT), Deaf()
    reader.set_transport(transport)  # type: ignore[arg-type]
    for _ in range(3):
        reader.feed_data(piece(20_000))
    assert transport.told == ["pause"]
    assert len(await reader.read(100_000)) == 60_000
