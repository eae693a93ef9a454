"""The short ways say, at the same moments, byte for byte what the long ones say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tcp_kit import Pair, WireModel
from test_transfer import STREAM, links, options, wires

from juneau.netstack.tcp import TcpConnection, TcpOptions, output
from juneau.netstack.tcp.chunks import Chunks
from juneau.netstack.types import MILLISECOND, SECOND, Link

BULK = bytes(n * n % 251 for n in range(3_000_000))
SHORT_WAYS = ((output, "send_small"), (output, "send_superframes"), (TcpConnection, "receive_predicted"))


def conversation(pair: Pair, up: bytes, down: bytes, chunk: int, waiting: int) -> list[tuple[object, ...]]:
    """Every packet: when, from where. A piece is written once fewer than `waiting` bytes are queued."""
    log: list[tuple[object, ...]] = []
    for name, host in (("a", pair.a), ("b", pair.b)):
        host.take = noting(host.take, lambda tx, name=name: log.append((pair.now, name, tx.to_bytes())))  # type: ignore[method-assign]
    _conn, client, server = pair.connect(up, down)
    client.chunk = server.chunk = chunk
    pair.limit_outgoing = waiting
    pair.run(until=2_000 * SECOND)
    assert (bytes(client.received or b""), bytes(server.received or b"")) == (down, up)
    return log


def noting(take: Callable[[], list[Any]], note: Callable[[Any], object]) -> Callable[[], list[Any]]:
    def noted() -> list[Any]:
        taken = take()
        for tx in taken:
            note(tx)
        return taken

    return noted


@pytest.mark.interpreted
@given(
    options, links, wires, st.integers(0, 2**16), st.sampled_from([1, 50, 700, 3_000]),
    st.sampled_from([1, 900, 6_000]), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_packets_the_long_way(options, link, wire, seed, chunk, waiting, both):
    up, down = STREAM[: chunk * 40], STREAM[: chunk * 30] if both else b""
    agree(lambda: conversation(Pair(options, link=link, wire=wire, seed=seed), up, down, chunk, waiting))


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(20))
def test_the_same_packets_while_much_is_lost(seed):
    wire = WireModel(loss=0.15, delay=5 * MILLISECOND)
    options = TcpOptions(nodelay=True)
    agree(lambda: conversation(Pair(options, wire=wire, seed=seed), STREAM[:60_000], b"", 700, 6_000))


SUPERFRAMES = Link(checksum_offload=True, tso=True)


@pytest.mark.interpreted
@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("push_segments", [0, 1])
def test_the_same_superframes_the_long_way(loss, push_segments):
    options = TcpOptions(push_segments=push_segments)
    wire = WireModel(loss=loss, delay=2 * MILLISECOND)
    up, down = BULK, BULK[:300_000]
    agree(lambda: conversation(Pair(options, link=SUPERFRAMES, wire=wire), up, down, 65_536, 400_000))


def agree(run: Callable[[], list[tuple[object, ...]]]) -> None:
    short = run()
    with ExitStack() as long:
        for owner, name in SHORT_WAYS:
            long.enter_context(mock.patch.object(owner, name, return_value=False))
        assert run() == short


@pytest.mark.interpreted
def test_small_messages_go_the_short_ways():
    taken = {name: 0 for _, name in SHORT_WAYS}
    with ExitStack() as stack:
        for owner, name in SHORT_WAYS:
            way = getattr(owner, name)

            def counted(*args: Any, way: Any = way, name: str = name) -> bool:
                took: bool = way(*args)
                taken[name] += took
                return took

            stack.enter_context(mock.patch.object(owner, name, counted))
        pair = Pair(TcpOptions(), wire=WireModel(delay=5 * MILLISECOND))
        conversation(pair, STREAM[:500], STREAM[:500], 10, 1)
    assert taken["send_small"] >= 2 * 49, "all but the last ones, which have the FIN"
    assert taken["receive_predicted"] >= 2 * 49


@pytest.mark.interpreted
def test_bulk_goes_the_short_way():
    sent = []

    def counted(*args: Any) -> bool:
        before = len(args[2])
        took = send_superframes(*args)
        sent.append(len(args[2]) - before)
        return took

    send_superframes = output.send_superframes
    with mock.patch.object(output, "send_superframes", counted):
        pair = Pair(TcpOptions(), link=SUPERFRAMES, wire=WireModel(delay=2 * MILLISECOND))
        conversation(pair, BULK, b"", 65_536, 400_000)
    assert sum(sent) * 65_536 > len(BULK) / 2
    assert max(sent) > 1


def test_small_pieces_out_of_order_do_not_stay_small():
    """A hundred chunks of a byte each, joined as holes are filled, are one."""
    packet = memoryview(bytes(100))
    whole = Chunks()
    for _ in range(100):
        one = Chunks()
        one.append(packet[:1])
        whole.extend(one)
    assert [len(piece) for piece in whole.take(1_000)] == [100]
