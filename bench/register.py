"""How long it takes to bind three listeners in each of COUNT Subnets: `python -m bench.register COUNT`.

A process of its own with a packet plane of its own, without a lab around it: reading manifests is not what
is measured.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop

from bench.peers.subnets import manifests
from bench.service import Bench
from juneau.app.node import Node
from juneau.control import admission, plan
from juneau.control.manifests import load
from juneau.model.cluster import ClusterView
from juneau.packetplane import PacketPlane, PlaneSettings, cleanup

BINDINGS: Final = 3


def view_of(count: int) -> ClusterView:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "subnets.yaml"
        path.write_text(manifests(count))
        found = load([path])
    admission.admit(found)
    return plan.make_plan(found, lab="register").view


async def register(plane: PacketPlane, view: ClusterView) -> float:
    """Seconds from the view to the last binding. Raises RuntimeError where one is missing."""
    node = Node(plane, [Bench()])
    try:
        start = time.perf_counter()
        await node.apply(view, [])
        took = time.perf_counter() - start
        status = node.host.status()
        if errors := [row.error for row in status if row.error]:
            raise RuntimeError(f"{len(errors)} bindings failed: {errors[0]}")
        if len(status) != BINDINGS * len(view.subnets):
            raise RuntimeError(f"{len(status)} bindings in {len(view.subnets)} Subnets")
    finally:
        await node.close()
    return took


def main() -> None:
    view = view_of(int(sys.argv[1]))
    name = f"jreg{secrets.token_hex(3)}"
    settings = PlaneSettings(tap_name=name, mtu=1450, pin_path=f"/sys/fs/bpf/{name}", offload=True)
    plane = PacketPlane.open(settings)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps({"seconds": runner.run(register(plane, view))}))
    finally:
        cleanup(settings)


if __name__ == "__main__":
    main()
