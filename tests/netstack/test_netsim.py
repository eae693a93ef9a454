"""Throughput over loss, disorder, round-trip time and buffer size, against a recorded table.

Everything is virtual and seeded, so a number changes only when the stack does. Look at what changed, then
record it: `python tests/netstack/test_netsim.py --update`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from juneau.netstack.limits import Limits
from juneau.netstack.types import MILLISECOND, SECOND, Link
from juneau.testing.sim import SimNet
from juneau.testing.wire import Impairment

TABLE = Path(__file__).with_name("netsim_table.txt")

LOSSES = (0.0, 0.01, 0.03, 0.1)
RTTS_MS = (0, 1, 10, 50, 200)
BUFFERS = (4 << 10, 64 << 10, 4 << 20)
DISORDERS = (False, True)
BANDWIDTH = 100_000_000
QUEUE_BYTES = 256 << 10
MAX_BYTES = 1 << 20
PATIENCE = 3_600 * SECOND
STALL = 130 * SECOND
"""Longer than two backed-off RTOs of `rto_max`: nobody waits so long for the next byte."""

_RATE, _QUEUE = f"{BANDWIDTH // 10**6} Mbit/s", f"{QUEUE_BYTES >> 10} KiB"
HEAD = f"""\
Mbit/s of one connection over a wire of {_RATE} with a queue of {_QUEUE}, in virtual time.
disorder: 5 % reordered by a quarter RTT (at least 200 us), 1 % duplicated, jitter of a tenth RTT.
Recorded by `python tests/netstack/test_netsim.py --update`.

                      |      packets of 1450 B     |  superframes, lost as a whole
loss  disorder    rtt |   4 KiB   64 KiB    4 MiB |    4 KiB   64 KiB    4 MiB
"""


def impairment(loss: float, disorder: bool, rtt_ms: int) -> Impairment:
    one_way = rtt_ms * MILLISECOND // 2
    return Impairment(
        loss=loss,
        delay=one_way,
        jitter=one_way // 5 if disorder else 0,
        duplicate=0.01 if disorder else 0.0,
        reorder=0.05 if disorder else 0.0,
        reorder_delay=max(one_way // 2, 200),
        bandwidth=BANDWIDTH,
        queue_bytes=QUEUE_BYTES,
    )


def run(loss: float, disorder: bool, rtt_ms: int, buffer: int, offload: bool) -> float:
    """Mbit/s of one transfer; AssertionError if it stalls, or if a byte is wrong."""
    net = SimNet(seed=1, impairment=impairment(loss, disorder, rtt_ms))
    limits = Limits(rcv_buffer=buffer, min_rcv_buffer=min(buffer, 4096))
    link = Link(checksum_offload=offload, tso=offload)
    client, server = (net.host(ip, limits=limits, link=link) for ip in ("10.0.0.1", "10.0.0.2"))
    listener = server.listen(80)
    data = bytes(range(251)) * (min(MAX_BYTES, 32 * buffer) // 251)
    conn = client.connect(server, 80)
    conn.send(data, net.now)
    conn.shutdown(net.now)
    net.run_until(lambda: listener.waiting > 0, timeout=PATIENCE)
    peer = listener.accept()
    assert peer is not None
    got, last = bytearray(), net.now
    while not peer.at_eof:
        net.run_until(lambda: peer.recv_queue_bytes > 0 or peer.at_eof, timeout=STALL)
        assert net.now - last <= STALL
        last = net.now
        for piece in peer.read(1 << 20):
            got += piece
        server.settle()
    assert got == data
    return len(data) * 8 / net.now


def rows() -> Iterator[str]:
    for loss in LOSSES:
        for disorder in DISORDERS:
            for rtt_ms in RTTS_MS:
                plain, offload = (
                    "".join(f"{run(loss, disorder, rtt_ms, buffer, tso):9.3g}" for buffer in BUFFERS)
                    for tso in (False, True)
                )
                yield f"{loss:4.0%}  {'yes' if disorder else 'no':8} {rtt_ms:3} ms |{plain[1:]} |{offload}"


def table() -> str:
    return HEAD + "\n".join(rows()) + "\n"


def test_throughput_is_as_recorded() -> None:
    recorded, now = TABLE.read_text(encoding="utf-8").splitlines(), table().splitlines()
    changed = [f"- {old}\n+ {new}" for old, new in zip(recorded, now, strict=True) if old != new]
    hint = "if that is meant, record it: python tests/netstack/test_netsim.py --update"
    assert not changed, "\n".join([*changed, hint])


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        TABLE.write_text(table(), encoding="utf-8")
    else:
        print(table(), end="")
