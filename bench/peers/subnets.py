"""juneau with 1,000 Subnets in 100 VPCs, and three bindings in each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.handler import PORTS
from bench.model import Peer, Settings
from bench.peers.juneau import lab, pod
from bench.targets import MANY_SUBNETS

SUBNETS: Final = 1_000
_PER_VPC: Final = 10


@contextmanager
def many_subnets(settings: Settings) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "subnets.yaml"
        path.write_text(manifests(SUBNETS))
        with lab(settings, path, ["bench.service:Bench"]) as record:
            yield pod(record, "client", settings, MANY_SUBNETS, PORTS, vip=vip(SUBNETS // 2))


def vip(number: int) -> str:
    return f"10.{number // 256}.{number % 256}.3"


def manifests(count: int) -> str:
    """`count` Subnets, and a Pod in the middle one."""
    kind = "apiVersion: juneau.loutres.me/v1alpha1\nkind: "
    vpcs = [f"{kind}Vpc\nmetadata: {{name: v{n}}}\n" for n in range(-(-count // _PER_VPC))]
    subnets = [
        f"{kind}Subnet\nmetadata: {{name: s{n}}}\n"
        f"spec: {{vpc: v{n // _PER_VPC}, cidr: 10.{n // 256}.{n % 256}.0/24}}\n"
        for n in range(count)
    ]
    client = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: client\n"
        f"  annotations: {{juneau.loutres.me/subnet: s{count // 2}}}\n"
        "spec:\n  containers: [{name: idle, image: none, command: [sleep, infinity]}]\n"
    )
    return "---\n".join([*vpcs, *subnets, client])
