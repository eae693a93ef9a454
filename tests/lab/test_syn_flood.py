"""A Pod floods a VIP with SYNs: bounded memory, other VPCs are still served, SYN cookies serve its own VPC.

The first flood is slower than what one core of the node can take. Past that the Pod's queue of the TAP
overflows, and its real clients live on their kernels' retransmissions, cookies or not: the second flood is
for the other VPC only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import pytest
from labcli import TWO_VPCS, LabCli, pod, wait_until

from juneau.netstack.limits import MIB, Limits
from juneau.netstack.tcp.options import TcpOptions

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(120)]

HANDLERS = Path(__file__).with_name("handlers.py")
VIP, WHO = "10.80.0.3", 8001
SYNS = 100_000
PACED, FLAT_OUT = 10_000, 10_000_000
"""SYNs a second; the latter is as fast as one core sends."""
P99_MS = 50
GROWTH = 32 * MIB
SYN_RECEIVED_S = (1 << TcpOptions().synack_retries + 1) - 1
"""Until the last retransmission of a SYN-ACK is given up: 63 s."""

NO_RESETS = "ip rule add pref 10 ipproto tcp sport 1024-32767 blackhole"
"""The Pod's kernel would answer SYN-ACKs with RSTs, ending what is half-open. Clients use higher ports."""

FLOOD = """
import socket, struct, sys, time
mac, count, rate = bytes.fromhex(sys.argv[1].replace(":", "")), int(sys.argv[2]), int(sys.argv[3])
us, vip, port = socket.inet_aton("10.80.0.10"), socket.inet_aton(sys.argv[4]), int(sys.argv[5])
def folded(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return total
ip = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 44, 1, 0x4000, 64, 6, 0, us, vip))
ip[10:12] = struct.pack("!H", folded(bytes(ip)) ^ 0xffff)
front = bytes.fromhex("020000000000") + mac + b"\\x08\\x00" + ip
tcp = struct.Struct("!HHIIHHHHHH")
rest = folded(us + vip + struct.pack("!HHHHHHH", 6, 24, port, 0x6002, 65535, 0x0204, 1410))
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
began = time.monotonic()
for n in range(count):
    if not n % 100:
        time.sleep(max(0, began + n / rate - time.monotonic()))
    if n == 2_000: print(time.monotonic(), flush=True)
    sport, seq = 1024 + n % 31_744, n * 40_503 & 0xffffffff
    total = rest + sport + (seq >> 16) + (seq & 0xffff)
    total = (total & 0xffff) + (total >> 16)
    total = (total & 0xffff) + (total >> 16)
    raw.send(front + tcp.pack(sport, port, seq, 0, 0x6002, 65535, total ^ 0xffff, 0, 0x0204, 1410))
print(time.monotonic(), flush=True)
"""

CLIENTS = """
import json, socket, sys, time
vip, port, count, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
for _ in range(count):
    began = time.monotonic()
    with socket.create_connection((vip, port), 10) as client:
        took = time.monotonic() - began
        client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    print(json.dumps([began, took * 1000, answer.partition(b"\\r\\n\\r\\n")[2].decode().strip()]), flush=True)
    time.sleep(pause)
"""


class Handshake(NamedTuple):
    began: float
    """CLOCK_MONOTONIC, which all Pods share."""
    took_ms: float
    answer: str


@pytest.fixture
def town(lab: LabCli) -> LabCli:
    pods = pod("blue", "blue", "10.80.0.10") + pod("green", "green", "10.80.0.10")
    lab.up(TWO_VPCS + pods, "--service", f"{HANDLERS}:Handlers")
    assert lab.in_pod("blue", *NO_RESETS.split()).returncode == 0
    for where in ("blue", "green"):
        finish(start_clients(lab, where, 20, 0))
    return lab


def start_clients(town: LabCli, where: str, count: int, pause_s: float) -> subprocess.Popen[str]:
    script = (sys.executable, "-c", CLIENTS, VIP, str(WHO), str(count), str(pause_s))
    return town.start("lab", "exec", where, "--", *script)


def start_flood(town: LabCli, syns: int, rate: int) -> subprocess.Popen[str]:
    mac = next(row["mac"] for row in town.json("lab", "status")["pods"] if row["name"] == "blue")
    script = (sys.executable, "-c", FLOOD, mac, str(syns), str(rate), VIP, str(WHO))
    return town.start("lab", "exec", "blue", "--", *script)


def finish(clients: subprocess.Popen[str]) -> list[Handshake]:
    out, err = clients.communicate(timeout=60)
    assert clients.returncode == 0, err
    return [Handshake(*json.loads(line)) for line in out.splitlines()]


def counted(town: LabCli) -> dict[str, int]:
    found: dict[str, int] = town.json("drops")["stacks"]["blue"]
    return found


def half_open(town: LabCli) -> int:
    return sum(row["state"] == "SYN_RECEIVED" for row in town.json("conns", "--all"))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def p99(handshakes: list[Handshake]) -> float:
    return quantiles((h.took_ms for h in handshakes), n=100)[98]


def test_syn_flood(town: LabCli):
    pid = town.json("lab", "status")["pid"]
    before, start_bytes = counted(town), resident(pid)
    flood = start_flood(town, SYNS, PACED)
    assert flood.stdout is not None
    flood.stdout.readline()
    clients = [start_clients(town, "blue", 20, 0.2), start_clients(town, "green", 400, 0.01)]
    peak = start_bytes
    while flood.poll() is None:
        peak = max(peak, resident(pid))
        time.sleep(0.05)
    ended = float(flood.communicate()[0])
    blue, green = finish(clients[0]), [h for h in finish(clients[1]) if h.began < ended]
    left, after = half_open(town), counted(town)
    growth = max(peak, resident(pid)) - start_bytes
    events = {name: count - before.get(name, 0) for name, count in after.items()}
    print(
        f"green: {len(green)} handshakes, p99 {p99(green):.1f} ms;"
        f" blue: {len(blue)}, slowest {max(h.took_ms for h in blue):.1f} ms; {growth / MIB:.1f} MiB more;"
        f" {left} half-open; {events}"
    )

    assert flood.returncode == 0
    assert events["ip.received"] >= SYNS * 0.95, "the flood reaches the stack"
    assert events["tcp.syn_cookies_sent"] >= SYNS * 0.9
    assert left == Limits().half_open, "nobody reset them, and no more were kept"
    assert growth < GROWTH
    assert len(green) >= 300
    assert p99(green) < P99_MS
    assert [h.answer for h in blue] == ["2/2"] * 20
    assert max(h.began for h in blue) < ended
    assert events["tcp.syn_cookies_accepted"] == 20, "each of them by a cookie"

    wait_until(lambda: half_open(town) == 0, SYN_RECEIVED_S + 10)
    assert finish(start_clients(town, "blue", 1, 0))[0].answer == "2/2"
    assert counted(town)["tcp.syn_cookies_accepted"] == after["tcp.syn_cookies_accepted"], (
        "as before the flood"
    )


def test_another_vpc_while_the_flood_is_more_than_the_node_can_take(town: LabCli):
    pid = town.json("lab", "status")["pid"]
    start_bytes = resident(pid)
    green = start_clients(town, "green", 3_000, 0.001)
    flood = start_flood(town, 10 * SYNS, FLAT_OUT)
    began, ended = (float(line) for line in flood.communicate(timeout=60)[0].splitlines())
    growth = resident(pid) - start_bytes
    found = [h for h in finish(green) if began < h.began < ended]
    lost = town.json("drops")["plane"]["tap.overflow"]
    print(
        f"green: {len(found)} handshakes in {ended - began:.1f} s, p99 {p99(found):.1f} ms;"
        f" {growth / MIB:.1f} MiB more; {lost} SYNs overflowed"
    )

    assert lost > SYNS, "more than the node can take"
    assert counted(town)["tcp.syn_cookies_sent"] > SYNS / 4
    assert growth < GROWTH
    assert len(found) >= 300
    assert p99(found) < P99_MS
