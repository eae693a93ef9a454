"""Linux's own IP, ICMP and UDP as the peer, over a TUN in a namespace of its own."""

from __future__ import annotations

import fcntl
import os
import random
import secrets
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from juneau.netstack.stack import Stack
from juneau.netstack.types import Endpoint, Link, Micros, parse_ip
from juneau.netstack.udp import UdpSocket
from juneau.netstack.wire import vnet

pytestmark = pytest.mark.root

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR, TUN_F_CSUM = 0x1, 0x1000, 0x4000, 0x1
ECHO_PORT = 7
CLIENT = """
import socket
for size in (0, 1, 1000, 1422, 1423, 9000, 65507):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        data = bytes(i % 251 for i in range(size))
        s.sendto(data, ("10.99.0.1", 7))
        assert s.recvfrom(70000) == (data, ("10.99.0.1", 7)), size
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(5)
    s.connect(("10.99.0.1", 9))
    s.send(b"x")
    try:
        s.recv(10)
    except ConnectionRefusedError:
        print("refused")
"""


class Tun:
    """The namespace's only neighbour is a stack at 10.99.0.1, which echoes UDP on port 7."""

    def __init__(self, *, offload: bool) -> None:
        self.name = f"jt{secrets.token_hex(4)}"
        self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(
            self.fd, TUNSETIFF, struct.pack("16sH22x", self.name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR)
        )
        fcntl.ioctl(self.fd, TUNSETOFFLOAD, TUN_F_CSUM if offload else 0)
        self.stack = Stack(link=Link(checksum_offload=offload), rng=random.Random(1), secret=os.urandom(16))
        self.stack.add_address(parse_ip("10.99.0.1"))
        self.echo: UdpSocket = self.stack.udp_bind(Endpoint(0, ECHO_PORT))
        self.vouched = 0

    def run(self, *command: str) -> str:
        """Run `command` in the namespace, serving it meanwhile; its output."""
        command = (*within(self.name), *command)
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(command, stdout=pipe, stderr=out, text=True)
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end:
            select.select([self.fd], [], [], 0.02)
            self.serve(time.monotonic_ns() // 1000)
        process.kill()
        output, _ = process.communicate(timeout=5)
        assert process.returncode == 0, output
        return output

    def serve(self, now: Micros) -> None:
        try:
            while True:
                header, packet = vnet.parse(os.read(self.fd, 70_000))
                self.vouched += header.csum_ok
                self.stack.receive(packet, "tun", now, csum_ok=header.csum_ok)
        except BlockingIOError:
            pass
        for got in iter(self.echo.receive, None):
            self.echo.send(got.payload, got.remote, got.path, local_ip=got.local.ip)
        while packets := self.stack.take_packets(now):
            for packet in packets:
                flags = vnet.F_NEEDS_CSUM if packet.csum_start else 0
                header = vnet.VnetHeader(flags, 0, 0, 0, packet.csum_start, packet.csum_offset)
                os.writev(self.fd, [header.build(), packet.header, *packet.payload])


def within(netns: str) -> tuple[str, ...]:
    """`ip netns exec` and `ip -n` want to remount `/` and cannot in a chroot."""
    return ("nsenter", f"--net=/run/netns/{netns}")


def ip(*arguments: str, netns: str = "") -> None:
    inside = within(netns) if netns else ()
    subprocess.run([*inside, "ip", *arguments], check=True, timeout=10)


@pytest.fixture(params=[True, False], ids=["offload", "no-offload"])
def tun(request: pytest.FixtureRequest) -> Iterator[Tun]:
    tun = Tun(offload=request.param)
    try:
        ip("netns", "add", tun.name)
        ip("link", "set", tun.name, "netns", tun.name)
        ip("link", "set", tun.name, "mtu", "1450", "up", netns=tun.name)
        ip("addr", "add", "10.99.0.2/24", "dev", tun.name, netns=tun.name)
        yield tun
    finally:
        os.close(tun.fd)
        subprocess.run(["ip", "netns", "del", tun.name], check=False, timeout=10)


@pytest.mark.parametrize("size", [0, 1422, 1423, 65_507])
def test_ping(tun: Tun, size: int):
    output = tun.run("ping", "-c", "2", "-i", "0.05", "-W", "5", "-s", str(size), "10.99.0.1")
    assert "2 received, 0% packet loss" in output
    assert "wrong" not in output  # what ping says of a payload that came back changed


def test_udp_of_any_size_and_a_closed_port(tun: Tun):
    assert tun.run(sys.executable, "-c", CLIENT) == "refused\n"
    counters = tun.stack.counters
    assert (counters["udp.received"], counters["udp.closed_port"]) == (7, 1)
    assert (tun.vouched > 0) == tun.stack.link.checksum_offload
