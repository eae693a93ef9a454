"""A lab of a thousand Subnets, as it comes from manifests: every one is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from labcli import LabCli, pod

pytestmark = pytest.mark.root

HANDLERS = Path(__file__).with_name("handlers.py")
WHO = 8001
VPCS, SUBNETS = 100, 1000
OURS = "---\napiVersion: juneau.loutres.me/v1alpha1\n"


def manifests() -> str:
    """Every Vpc has the same addresses."""
    vpcs = [f"{OURS}kind: Vpc\nmetadata: {{name: v{n}}}\nspec: {{}}\n" for n in range(VPCS)]
    subnets = [
        f"{OURS}kind: Subnet\nmetadata: {{name: s{n}}}\n"
        f"spec: {{vpc: v{n % VPCS}, cidr: 10.80.{n // VPCS}.0/24}}\n"
        for n in range(SUBNETS)
    ]
    pods = pod("first", "s0", "10.80.0.10") + pod("last", f"s{SUBNETS - 1}", "10.80.9.10")
    return "".join(vpcs + subnets) + pods


def test_a_thousand_subnets_are_served(lab: LabCli) -> None:
    status = lab.up(manifests(), "--service", f"{HANDLERS}:Handlers")
    rows = status["services"]
    assert not [row["error"] for row in rows if row["error"]]
    dns = [row for row in rows if row["service"] == "dns"]
    assert len(dns) == 2 * SUBNETS
    assert {row["subnet"] for row in rows if row["service"] == "handlers"} == {
        f"s{n}" for n in range(SUBNETS)
    }
    by_name = {row["name"]: row for row in status["subnets"]}
    for name, place, third in (("first", "s0", 0), ("last", f"s{SUBNETS - 1}", 9)):
        done = lab.in_pod(name, "curl", "-sS", "--max-time", "10", f"http://10.80.{third}.3:{WHO}/")
        assert done.returncode == 0, done.stderr + lab.log()
        assert f"/{by_name[place]['vni']}" in done.stdout
