"""Runs in a Pod: WHAT COUNT, once a line comes in; says `ready` before and `done` after."""

from __future__ import annotations

import socket
import sys

VIP, STREAMS, DATAGRAMS = "10.80.0.3", 7, 9
MIB = 1 << 20


def connect(first: bytes) -> socket.socket:
    stream = socket.create_connection((VIP, STREAMS), 10)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(first + b"\n")
    return stream


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def up(count: int) -> None:
    stream = connect(b"up")
    ready()
    for _ in range(count):
        stream.sendall(bytes(MIB))


def down(count: int) -> None:
    ready()
    stream = connect(b"down")
    left = count * MIB
    while left > 0:
        left -= len(stream.recv(MIB))


def echo(count: int) -> None:
    stream = connect(b"echo")
    ready()
    for _ in range(count):
        stream.send(b"x")
        assert stream.recv(2) == b"x"


def connections(count: int) -> None:
    connect(b"?").recv(2)
    ready()
    for _ in range(count):
        with connect(b"?") as stream:
            assert stream.recv(9) == b"?\n"


def datagrams(count: int) -> None:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.settimeout(10)
    link.connect((VIP, DATAGRAMS))
    ready()
    for _ in range(count):
        link.send(b"x" * 18)
        assert len(link.recv(99)) == 18


what = {"up": up, "down": down, "echo": echo, "connect": connections, "udp": datagrams}
what[sys.argv[1]](int(sys.argv[2]))
print("done", flush=True)
sys.stdin.readline()
