"""What a hot answer costs, counted: no stopwatch."""

from __future__ import annotations

import asyncio
import random
import sys
from types import FrameType
from typing import Any

import dns.message
from service_fakes import FakeMaps, subnet, view

from juneau.netstack.aio import AsyncStack
from juneau.netstack.stack import Stack
from juneau.netstack.types import Link, TxPacket
from juneau.services import Registry, ServiceHost
from juneau.services.dns.service import DnsService
from juneau.testing.packets import udp

CLIENTS, QUERIES = 4, 64
MOST_CALLS = 15
"""Python functions entered for one query and its answer, from the stack's edge to the stack's edge."""


async def test_a_batch_of_hot_answers_by_calls_and_packets() -> None:
    sent: list[TxPacket] = []
    stack = Stack(
        link=Link(checksum_offload=True, tso=True, uso=True), rng=random.Random(1), secret=bytes(16)
    )
    wire = AsyncStack(stack, sent.extend)
    host = ServiceHost(Registry(FakeMaps(), lambda vpc_id: wire), [DnsService(upstreams=())])
    await host.update(view(subnet("a-net", "a", 100)))
    query = dns.message.make_query("default.svc.cluster.local.", "A").to_wire()
    packets = [
        udp(query, src="10.80.0.10", dst="10.80.0.2", sport=40_000 + n % CLIENTS, dport=53)
        for n in range(QUERIES)
    ]
    await batch(wire, packets)  # from here on it is hot
    sent.clear()
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await batch(wire, packets)
    finally:
        sys.setprofile(None)
    await host.close()
    assert len(sent) == CLIENTS  # each is one system call
    assert sum(len(packet.payload) for packet in sent) == QUERIES
    assert calls / QUERIES <= MOST_CALLS


async def batch(wire: AsyncStack, packets: list[bytes]) -> None:
    for packet in packets:
        wire.receive(packet, "pod", 1, True)
    wire.settle()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
