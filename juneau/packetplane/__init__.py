"""Packets between kernel and stacks: TAP, dispatcher, sender, the BPF program on Pods' interfaces."""

from juneau.packetplane.plane import PacketPlane, cleanup
from juneau.packetplane.types import (
    DesiredState,
    FlowRecord,
    Nic,
    PlaneError,
    PlaneSettings,
    ReturnPath,
    StackInput,
    SubnetEntry,
    Vip,
)

__all__ = [
    "DesiredState",
    "FlowRecord",
    "Nic",
    "PacketPlane",
    "PlaneError",
    "PlaneSettings",
    "ReturnPath",
    "StackInput",
    "SubnetEntry",
    "Vip",
    "cleanup",
]
