"""Packets between kernel and stacks: TAP, dispatcher, sender, the BPF program on Pods' interfaces."""

from juneau.model.ids import Vip
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
