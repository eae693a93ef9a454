"""The queue between the stacks and one reader of a capture."""

from __future__ import annotations

import asyncio
import time

from juneau.app.capture import Place, Reader
from juneau.netstack.tap import Direction
from juneau.netstack.types import Path
from juneau.netstack.wire import pcapng
from juneau.testing.packets import echo

PING = echo(b"ping")


def place(path: Path) -> Place:
    return Place(f"blue/{path}", "blue", str(path))


async def read(reader: Reader) -> bytes:
    return b"".join([blocks async for blocks in reader.blocks()])


def see(reader: Reader, path: Path, way: Direction = "in", why: str | None = None) -> None:
    reader.see(way, (PING[:20], PING[20:]), path, time.monotonic_ns() // 1_000, why)


async def test_interfaces_directions_comments_and_the_time():
    reader = Reader(place=place)
    see(reader, "a")
    see(reader, "b", "out", "ip.why")
    reader.end()
    data = await read(reader)
    first, second = pcapng.read_packets(data)
    assert (first.interface, first.data, first.direction, first.comment) == ("blue/a", PING, 1, None)
    assert (second.interface, second.direction, second.comment) == ("blue/b", 2, "dropped: ip.why")
    assert abs(first.timestamp / 1e6 - time.time()) < 5
    assert list(pcapng.read_statistics(data)) == [("blue/a", 1, 0), ("blue/b", 1, 0)]


async def test_only_what_is_wanted():
    reader = Reader(place=place, wanted=lambda place: place.pod == "b")
    for path in "aba":
        see(reader, path)
    reader.end()
    assert [packet.interface for packet in pcapng.read_packets(await read(reader))] == ["blue/b"]


async def test_a_count_ends_it():
    reader = Reader(place=place, count=2)
    for _ in range(5):
        see(reader, "a")
    data = await asyncio.wait_for(read(reader), 5)
    assert list(pcapng.read_statistics(data)) == [("blue/a", 2, 0)]
    assert reader.lost == {}


async def test_a_slow_reader_loses_packets_and_is_told():
    reader = Reader(place=place, queue_bytes=1_000)
    for _ in range(100):
        see(reader, "a")
    reader.end()
    data = await read(reader)
    packets = len(list(pcapng.read_packets(data)))
    assert 5 < packets < 20
    assert list(pcapng.read_statistics(data)) == [("blue/a", 100, 100 - packets)]


async def test_what_was_read_makes_room():
    reader = Reader(place=place, queue_bytes=1_000)
    cutter = pcapng.BlockCutter()
    blocks = reader.blocks()
    for _ in range(100):
        see(reader, "a")
        cutter.feed(await asyncio.wait_for(anext(blocks), 5))
    assert (cutter.packets, reader.lost) == (100, {})


async def test_an_end_without_packets_is_an_end():
    reader = Reader(place=place)
    waiting = asyncio.create_task(read(reader))
    await asyncio.sleep(0)
    reader.end()
    assert list(pcapng.read_packets(await asyncio.wait_for(waiting, 5))) == []
