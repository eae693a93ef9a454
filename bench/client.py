"""The load: blocking kernel sockets, one number on stdout. `client.py ADDRESS PORT WORKLOAD SECONDS`."""

from __future__ import annotations

import socket
import statistics
import sys
import time
from typing import Final

_BLOCK: Final = bytes(1 << 18)


def connect(address: str, port: int) -> socket.socket:
    sock = socket.create_connection((address, port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def up(address: str, port: int, seconds: float) -> float:
    """Mbit/s, counted by the server."""
    sock = connect(address, port)
    start = time.perf_counter()
    sock.sendall(b"up\n")
    while time.perf_counter() - start < seconds:
        sock.sendall(_BLOCK)
    sock.shutdown(socket.SHUT_WR)
    total = int(sock.makefile().readline())
    return total * 8 / (time.perf_counter() - start) / 1e6


def down(address: str, port: int, seconds: float) -> float:
    """Mbit/s."""
    sock = connect(address, port)
    start, total, buffer = time.perf_counter(), 0, bytearray(1 << 18)
    sock.sendall(b"down %d\n" % (1 << 40))
    while time.perf_counter() - start < seconds:
        total += sock.recv_into(buffer)
    elapsed = time.perf_counter() - start
    sock.close()
    return total * 8 / elapsed / 1e6


def connects(address: str, port: int, seconds: float) -> float:
    """Connect, one byte each way, close: per second, one after another."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        sock = connect(address, port)
        sock.sendall(b"echo\nx")
        if sock.recv(1) != b"x":
            raise SystemExit("no echo")
        sock.close()
        count += 1
    return count / (time.perf_counter() - start)


def rtt(address: str, port: int, seconds: float) -> float:
    """Median one-byte round trip, microseconds."""
    sock = connect(address, port)
    sock.sendall(b"echo\n")
    samples, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds:
        sent = time.perf_counter()
        sock.sendall(b"x")
        if sock.recv(1) != b"x":
            raise SystemExit("no echo")
        samples.append((time.perf_counter() - sent) * 1e6)
    return statistics.median(samples)


WORKLOADS: Final = {"up": up, "down": down, "connects": connects, "rtt": rtt}

if __name__ == "__main__":
    _, address, port, workload, seconds = sys.argv
    print(f"{WORKLOADS[workload](address, int(port), float(seconds)):.1f}")
