"""A throw-away VPC around one handler: one Subnet, one Pod, no manifest to write."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final

from juneau.control import admission, plan
from juneau.control.manifests import Manifest
from juneau.control.resources import ANNOTATION, ObjectMeta, Pod, Resource, Subnet, SubnetSpec, Vpc, VpcSpec

CIDR: Final = IPv4Network("10.80.0.0/24")
POD_ADDRESS: Final = CIDR.network_address + 10
POD: Final = "pod"


def manifests() -> list[Manifest]:
    where = {ANNOTATION + "subnet": "serve", ANNOTATION + "address": str(POD_ADDRESS)}
    resources: tuple[Resource, ...] = (
        Vpc(metadata=ObjectMeta(name="serve"), spec=VpcSpec()),
        Subnet(metadata=ObjectMeta(name="serve"), spec=SubnetSpec(vpc="serve", cidr=CIDR)),
        Pod(metadata=ObjectMeta(name=POD, annotations=where)),
    )
    return [Manifest("juneau serve", resource) for resource in resources]


def make_plan(*, lab: str, mtu: int) -> plan.LabPlan:
    found = manifests()
    admission.admit(found)
    return plan.make_plan(found, lab=lab, mtu=mtu)
