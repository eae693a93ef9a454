"""Two VPCs with the same addresses, six Pods."""

from __future__ import annotations

from dataclasses import dataclass

from plane_world import Pod, World

from juneau.model.ids import TenantId

ONE, TWO = TenantId(7, 1), TenantId(7, 2)
"""Subnets of one VPC."""
OTHER, OTHER_TWO = TenantId(8, 0x10001), TenantId(8, 0x10002)
"""Agree with ONE and TWO in 16 bits of the VNI, and in their addresses."""


@dataclass
class Town:
    world: World
    a1: Pod
    a2: Pod
    b1: Pod
    c1: Pod
    c2: Pod
    d1: Pod

    def counted(self) -> dict[str, int]:
        """Drops and passes of BPF, without the noise that Pods' kernels make on their own."""
        found = {name.removeprefix("bpf."): n for name, n in self.world.plane.drops().items()}
        return {n: v for n, v in (found | self.world.plane.passes()).items() if n != "ipv6"}


def build(made: World) -> Town:
    one, two = made.subnet(ONE, "10.80.0.1/24"), made.subnet(TWO, "10.80.1.1/24")
    other, other_two = made.subnet(OTHER, "10.80.0.1/24"), made.subnet(OTHER_TWO, "10.80.1.1/24")
    pods = [made.pod(one, "10.80.0.10"), made.pod(one, "10.80.0.11"), made.pod(two, "10.80.1.10")]
    pods += [made.pod(other, "10.80.0.10"), made.pod(other, "10.80.0.12")]
    pods += [made.pod(other_two, "10.80.1.10")]
    made.vip(one, "10.80.0.3")
    made.vip(two, "10.80.1.3")
    made.vip(other, "10.80.0.3")
    made.apply()
    return Town(made, *pods)
