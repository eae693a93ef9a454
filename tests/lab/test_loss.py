"""Linux as the peer, over a veth that loses packets at random both ways; and many connections in a row."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from labcli import TWO_VPCS, LabCli, pod
from pyroute2 import IPRoute

from juneau.app import netns
from juneau.packetplane.bpf import headers

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]
MINUTES = pytest.mark.soak
"""Most of a minute each, nearly all of it waiting for timers: `make soak`."""

HANDLERS = Path(__file__).with_name("handlers.py")
VIP = "10.80.0.3"
BULK, CLIENT_CLOSES, SERVER_CLOSES = 8000, 8100, 8101
MIB = 1 << 20
SIZE_MIB = 100
DOWN_SHA256 = hashlib.sha256(bytes(range(256)) * 4096 * SIZE_MIB).hexdigest()

LOSSY = """
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/pkt_cls.h>

BPF_ARRAY(percent, u64, 1);
BPF_ARRAY(seen, u64, 2);
BPF_ARRAY(lost, u64, 2);

static inline int pass_or_drop(struct __sk_buff *skb, int way)
{
	u64 *chance;
	int zero = 0;

	chance = percent.lookup(&zero);
	if (!chance || skb->protocol != bpf_htons(ETH_P_IP)) /* ARP would measure Linux's patience */
		return TC_ACT_OK;
	seen.atomic_increment(way);
	if (bpf_get_prandom_u32() % 100 >= *chance)
		return TC_ACT_OK;
	lost.atomic_increment(way);
	return TC_ACT_SHOT;
}

int lossy_up(struct __sk_buff *skb) { return pass_or_drop(skb, 0); }
int lossy_down(struct __sk_buff *skb) { return pass_or_drop(skb, 1); }
"""
TC_H_CLSACT_INGRESS, TC_H_CLSACT_EGRESS = 0xFFFF_FFF2, 0xFFFF_FFF3
ETH_P_ALL = 3


class Way(NamedTuple):
    """IPv4 frames of one direction; one may be a superframe."""

    seen: int
    lost: int


class LossyPod:
    """Both directions of a Pod's eth0 lose `percent` of the frames."""

    def __init__(self, namespace: str) -> None:
        headers.prepare()
        import bcc  # as the packet plane does: not everywhere

        self._bpf = bcc.BPF(text=LOSSY.encode(), cflags=["-Wno-macro-redefined"])
        programs = [self._bpf.load_func(name, bcc.BPF.SCHED_CLS) for name in (b"lossy_up", b"lossy_down")]
        netns.inside(namespace, lambda: self._attach([program.fd for program in programs]))

    @staticmethod
    def _attach(fds: list[int]) -> None:
        with IPRoute() as netlink:
            (eth0,) = netlink.link_lookup(ifname="eth0")
            netlink.tc("add", "clsact", eth0)
            for parent, fd in zip((TC_H_CLSACT_EGRESS, TC_H_CLSACT_INGRESS), fds, strict=True):
                netlink.tc(
                    "add-filter", "bpf", eth0, handle=1, parent=parent, prio=1, protocol=ETH_P_ALL,
                    fd=fd, name="lossy", direct_action=True,
                )  # fmt: skip

    def lose(self, percent: int) -> None:
        """Counts from 0 again."""
        self._set(b"percent", 0, percent)
        for table in (b"seen", b"lost"):
            for way in (0, 1):
                self._set(table, way, 0)

    def counts(self) -> tuple[Way, Way]:
        """Up, down."""
        up, down = (Way(self._bpf[b"seen"][way].value, self._bpf[b"lost"][way].value) for way in (0, 1))
        return up, down

    def _set(self, table: bytes, index: int, value: int) -> None:
        entries = self._bpf[table]
        entries[entries.Key(index)] = entries.Leaf(value)

    def close(self) -> None:
        self._bpf.cleanup()


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCli]:
    lab = LabCli(tmp_path_factory.mktemp("loss"))
    services = [part for name in ("Handlers", "Short") for part in ("--service", f"{HANDLERS}:{name}")]
    lab.up(TWO_VPCS + pod("blue", "blue", "10.80.0.10"), *services)
    yield lab
    lab.run("lab", "down")
    assert lab.leftovers() == []


@pytest.fixture(scope="module")
def lossy(town: LabCli) -> Iterator[LossyPod]:
    lossy = LossyPod(record(town).pod("blue").netns)
    yield lossy
    lossy.close()


def record(town: LabCli) -> Any:
    return town.state.read()


def set_offload(town: LabCli, state: str) -> None:
    """At both ends of the veth, or what goes down would be segmented after the loss.

    Without any of ethtool's, Linux still segments below clsact only: hence gso_max_segs.
    """
    features = [word for name in ("tso", "gso", "gro") for word in (name, state)]
    segments = "65535" if state == "on" else "1"
    host = record(town).pod("blue").host_ifname
    subprocess.run(["ethtool", "-K", host, *features], check=True, timeout=10)
    for command in (
        ["ethtool", "-K", "eth0", *features],
        ["ip", "link", "set", "eth0", "gso_max_segs", segments],
    ):
        done = town.in_pod("blue", *command)
        assert done.returncode == 0, done.stderr


def retransmitted(town: LabCli) -> int:
    return int(town.json("drops")["stacks"]["blue"].get("tcp.retransmitted_segments", 0))


def transfer(town: LabCli, script: str) -> tuple[str, float]:
    """The sha256 that the receiver computed; seconds."""
    started = time.monotonic()
    done = town.in_pod("blue", "sh", "-c", script, timeout=130)
    assert done.returncode == 0, done.stderr + town.log()
    return done.stdout.split()[0], time.monotonic() - started


def figures(name: str, seconds: float, way: Way) -> None:
    rate = SIZE_MIB * MIB * 8 / seconds / 1e6
    print(f"{name}: {seconds:.2f} s, {rate:.0f} Mbit/s, lost {way.lost} of {way.seen} frames")


@pytest.mark.parametrize(
    ("percent", "offload"),
    [(1, "on"), (1, "off"), (5, "on"), pytest.param(5, "off", marks=MINUTES)],
)
def test_100_mb_both_ways_arrive_whole(
    town: LabCli, lossy: LossyPod, tmp_path: Path, percent: int, offload: str
):
    set_offload(town, offload)
    data = os.urandom(SIZE_MIB * MIB)
    (tmp_path / "up").write_bytes(data)
    try:
        lossy.lose(percent)
        digest, seconds = transfer(town, f"curl -sS -m 120 -T {tmp_path}/up http://{VIP}:{BULK}/")
        up, _ = lossy.counts()
        figures(f"up, {percent} %, offload {offload}", seconds, up)
        assert digest == hashlib.sha256(data).hexdigest()

        lossy.lose(percent)
        before = retransmitted(town)
        script = f"set -o pipefail; curl -sS -m 120 http://{VIP}:{BULK}/{SIZE_MIB} | sha256sum"
        digest, seconds = transfer(town, f"exec bash -c '{script}'")
        _, down = lossy.counts()
        figures(f"down, {percent} %, offload {offload}", seconds, down)
        assert digest == DOWN_SHA256
    finally:
        lossy.lose(0)
    for way in (up, down):
        assert way.lost > way.seen * percent / 100 / 5, "the veth did lose"
        if offload == "off":
            assert way.seen > SIZE_MIB * MIB / 1500, "one by one"
    assert retransmitted(town) - before >= down.lost / 2, "acknowledgements may be lost too, data may not"


IN_A_ROW = """
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
for _ in range(count):
    with socket.create_connection(("10.80.0.3", port), timeout=30) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        assert port == 8100 or client.recv(1) == b""
"""


@pytest.mark.parametrize(
    ("port", "percent"),
    [
        pytest.param(CLIENT_CLOSES, 0, marks=MINUTES),
        (SERVER_CLOSES, 0),
        pytest.param(CLIENT_CLOSES, 1, marks=MINUTES),
    ],
)
def test_2000_connections_in_a_row_leave_nothing(town: LabCli, lossy: LossyPod, port: int, percent: int):
    set_offload(town, "on")
    wait_for_empty_table(town)
    connect_in_a_row(town, port, 500)
    warm = rss(town)
    lossy.lose(percent)
    try:
        seconds = connect_in_a_row(town, port, 2000)
    finally:
        lossy.lose(0)
    full = rss(town)
    waiting = len(table(town))
    if port == SERVER_CLOSES:
        assert waiting >= 2000, "TIME-WAIT is with who closes first"
    wait_for_empty_table(town)
    empty = rss(town)
    print(
        f"port {port}, {percent} %: 2000 in {seconds:.1f} s, {waiting} in TIME-WAIT; RSS in KiB: "
        f"warm {warm >> 10}, then {full >> 10}, table empty {empty >> 10}"
    )
    assert max(full, empty) - warm < 8 * MIB


def connect_in_a_row(town: LabCli, port: int, count: int) -> float:
    """Seconds."""
    started = time.monotonic()
    done = town.in_pod("blue", "python3", "-c", IN_A_ROW, str(port), str(count), timeout=150)
    assert done.returncode == 0, done.stderr + town.log()
    return time.monotonic() - started


def wait_for_empty_table(town: LabCli) -> None:
    """TIME-WAIT is 60 s."""
    deadline = time.monotonic() + 70
    while left := table(town):
        assert time.monotonic() < deadline, f"{len(left)} left: {left[:5]}"
        time.sleep(0.5)


def table(town: LabCli) -> list[str]:
    """What the stacks know of connections, but listeners."""
    rows = town.json("conns", "--all")
    return [f"{row['state']} {row['remote']}" for row in rows if row["state"] != "LISTEN"]


def rss(town: LabCli) -> int:
    """Bytes, of the process that runs the lab."""
    pages = int(Path(f"/proc/{record(town).pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
