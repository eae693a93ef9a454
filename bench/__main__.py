"""`make bench`: juneau beside the kernel's stack, same handler, same client, rounds alternating in one run.

Prints medians and their ratio to the kernel with asyncio streams on uvloop. `--json FILE` keeps every sample.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.client import WORKLOADS

HERE: Final = Path(__file__).parent
PORT: Final = 9000
UNITS: Final = {"up": "Mbit/s", "down": "Mbit/s", "connects": "/s", "rtt": "µs"}
MANY_PORTS: Final = (
    "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range; echo 1 >/proc/sys/net/ipv4/tcp_tw_reuse"
)
"""For the client: seconds of connect and close would use the ports up, each a minute in TIME-WAIT."""
BASE: Final = "kernel, uvloop"


class Peer:
    """A server that is up: `enter` is the command prefix that runs a client beside it."""

    def __init__(self, name: str, enter: list[str], address: str) -> None:
        self.name, self.enter, self.address = name, enter, address
        subprocess.run([*enter, "sh", "-c", MANY_PORTS], check=True, timeout=10)

    def measure(self, workload: str, seconds: float) -> float:
        client = [sys.executable, str(HERE / "client.py"), self.address, str(PORT), workload, str(seconds)]
        done = subprocess.run(
            self.enter + client, capture_output=True, text=True, timeout=60 + seconds, check=True
        )
        return float(done.stdout)


@contextmanager
def juneau_peer(*options: str) -> Iterator[Peer]:
    name = "bench" + "".join(options).replace("-", "")[:6]
    juneau = [str(Path(sys.executable).with_name("juneau")), "lab"]
    up = ["up", "-f", str(HERE / "manifests.yaml"), "--name", name, "--detach"]
    subprocess.run([*juneau, *up, "--service", f"{HERE}/handler.py:Bench", *options], check=True, timeout=120)
    try:
        enter = [*juneau, "exec", "--name", name, "client", "--"]
        yield Peer("juneau" + "".join(f" {option}" for option in options), enter, "10.80.0.3")
    finally:
        subprocess.run([*juneau, "down", "--name", name], check=True, timeout=60)


@contextmanager
def kernel_peer(loop: str) -> Iterator[Peer]:
    """Server and client in a namespace each, a veth between them, the same MTU."""
    server, client = f"jbench-s-{loop}", f"jbench-c-{loop}"
    with ExitStack() as undo:
        for netns in (server, client):
            _ip("netns", "add", netns)
            undo.callback(_ip, "netns", "del", netns)
        _ip(
            "link",
            "add",
            "eth0",
            "mtu",
            "1450",
            "netns",
            server,
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            client,
        )
        for netns, address in ((server, "10.80.0.3/24"), (client, "10.80.0.10/24")):
            _ip_in(netns, "link", "set", "eth0", "up", "mtu", "1450")
            _ip_in(netns, "address", "add", address, "dev", "eth0")
        command = [*_within(server), sys.executable, "-m", "bench.handler", loop]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
        undo.callback(process.wait, 10)
        undo.callback(process.terminate)
        assert process.stdout is not None
        process.stdout.readline()
        yield Peer(f"kernel, {loop}", _within(client), "10.80.0.3")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=10)


def _within(netns: str) -> list[str]:
    """`ip netns exec` wants to remount `/` and cannot in a chroot."""
    return ["nsenter", f"--net=/run/netns/{netns}"]


def _ip_in(netns: str, *words: str) -> None:
    subprocess.run([*_within(netns), "ip", *words], check=True, timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--no-offload", action="store_true", help="a juneau without offload, too")
    parser.add_argument("--json", type=Path, help="keep every sample there")
    options = parser.parse_args()
    with ExitStack() as stack:
        peers = [stack.enter_context(kernel_peer("uvloop")), stack.enter_context(kernel_peer("asyncio"))]
        peers.append(stack.enter_context(juneau_peer()))
        if options.no_offload:
            peers.append(stack.enter_context(juneau_peer("--no-offload")))
        samples = _rounds(peers, options.rounds, options.seconds)
    _report(samples, options)


def _rounds(peers: list[Peer], rounds: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    samples: dict[str, dict[str, list[float]]] = {peer.name: {w: [] for w in WORKLOADS} for peer in peers}
    for number in range(rounds):
        for workload in WORKLOADS:
            for peer in peers[number % len(peers) :] + peers[: number % len(peers)]:
                value = peer.measure(workload, seconds)
                samples[peer.name][workload].append(value)
                print(f"round {number + 1} {workload:9} {peer.name:24} {value:10.1f}", file=sys.stderr)
    return samples


def _report(samples: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> None:
    medians = {name: {w: statistics.median(v) for w, v in each.items()} for name, each in samples.items()}
    print(
        f"\nmedians of {options.rounds} rounds, {options.seconds:g} s each; in brackets the ratio to {BASE}"
    )
    print("| | " + " | ".join(f"{w}, {UNITS[w]}" for w in WORKLOADS) + " |")
    print("|---" * (len(WORKLOADS) + 1) + "|")
    for name, each in medians.items():
        cells = (f"{each[w]:,.0f} ({each[w] / medians[BASE][w]:.2f})" for w in WORKLOADS)
        print(f"| {name} | " + " | ".join(cells) + " |")
    if options.json:
        about = {"python": platform.python_version(), "kernel": platform.release(), "samples": samples}
        options.json.write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
