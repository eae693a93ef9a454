"""Microseconds TCP itself costs, without kernel or event loop: python -m bench.tcp_micro

Superframes of 44 segments in order and in swapped pairs, superframes sent and acknowledged, whole short
connections. The tenth percentile is printed: on a busy machine the median measures the neighbours.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from time import perf_counter

from juneau.netstack.counters import Counters
from juneau.netstack.events import Event
from juneau.netstack.limits import Limits
from juneau.netstack.tcp import TcpConnection, TcpLayer, TcpListener, TcpOptions
from juneau.netstack.types import Endpoint, Link, TxPacket
from juneau.netstack.wire.ipv4 import Ipv4Header

OURS, THEIRS = Endpoint(0x0A000001, 80), Endpoint(0x0A000002, 40_000)
SYN_OPTIONS = bytes.fromhex("02040582 0402 080a 00000001 00000000 01 03030a")
IP = Ipv4Header(0x45, 0, 0, 0, 0x4000, 64, 6, 0, THEIRS.ip, OURS.ip)
MSS = 1_398
SIZE = 44 * MSS


class Bench:
    def __init__(self) -> None:
        self.events: list[Event] = []
        link = Link(mtu=1_450, checksum_offload=True, tso=True)
        rng = random.Random(1)
        self.tcp = TcpLayer(link, Limits(), TcpOptions(), rng, b"k" * 16, Counters(), self.events)
        self.listener: TcpListener = self.tcp.listen(OURS, backlog=1_000)
        self.now = 1_000_000
        self.port = 1_024
        self.iss = 0

    def receive(
        self, seq: int, ack: int, flags: int, payload: bytes = b"", options: bytes | None = None
    ) -> None:
        if options is None:
            options = struct.pack("!III", 0x0101080A, self.now // 1_000, 0)
        words = (20 + len(options)) << 10 | flags
        header = struct.pack(
            "!HHIIHHHH", self.port, OURS.port, seq, (self.iss + ack) % 2**32, words, 8_000, 0, 0
        )
        segment = memoryview(header + options + payload)
        self.tcp.receive(IP.src, IP.dst, IP.tos, segment, "path", self.now, True)

    def settle(self) -> list[TxPacket]:
        self.events.clear()
        packets = self.tcp.take_packets(self.now)
        self.tcp.next_timeout()
        return packets

    def connect(self) -> TcpConnection:
        self.port += 1
        self.receive(100, 0, 0x02, options=SYN_OPTIONS)
        (answer,) = self.settle()
        (self.iss,) = struct.unpack_from("!I", answer.header, 24)
        self.receive(101, 1, 0x10)
        conn = self.listener.accept()
        assert conn is not None
        return conn


def measure(name: str, step: Callable[[], int], count: int) -> None:
    """`step` returns how many units it did."""
    times = []
    for _ in range(count):
        start = perf_counter()
        units = step()
        times.append((perf_counter() - start) * 1e6 / units)
    print(f"{name:32} {sorted(times)[count // 10]:7.2f} us")


def upload(swapped: bool) -> Callable[[], int]:
    bench = Bench()
    conn = bench.connect()
    payload = bytes(SIZE)
    at = 101

    def step() -> int:
        nonlocal at
        for offset in (SIZE, 0) if swapped else (0, SIZE):
            bench.receive((at + offset) % 2**32, 1, 0x10, payload)
            conn.read(1 << 30)
            bench.settle()
        at += 2 * SIZE
        bench.now += 50
        return 2

    return step


def download() -> Callable[[], int]:
    bench = Bench()
    conn = bench.connect()
    conn.snd.cc.cwnd = 4 << 20
    data = bytes(256 * 1024)
    acked = 1

    def step() -> int:
        nonlocal acked
        while conn.send_queue_bytes < 1 << 20:
            conn.send(data, bench.now)
        packets = bench.settle()
        for packet in packets:
            acked += sum(map(len, packet.payload))
            bench.receive(101, acked, 0x10)
        bench.now += 50
        return len(packets)

    return step


def short() -> Callable[[], int]:
    bench = Bench()

    def step() -> int:
        conn = bench.connect()
        bench.settle()
        bench.receive(101, 1, 0x18, b"x")
        conn.read(100)
        conn.send(b"y", bench.now)
        bench.settle()
        bench.receive(102, 2, 0x11)
        conn.close(bench.now)
        bench.settle()
        bench.receive(103, 3, 0x10)
        bench.settle()
        bench.now += 200
        return 1

    return step


def main() -> None:
    measure("superframe in, ACK out", upload(swapped=False), 3_000)
    measure("superframe in, pairs swapped", upload(swapped=True), 3_000)
    measure("superframe out, ACK in", download(), 1_000)
    measure("connect, 1 byte each way, close", short(), 3_000)


if __name__ == "__main__":
    main()
