"""bpf/include/juneau_abi.h in Python: change both together.

Formats are `=`: host order, no hidden padding. Network-order fields travel as bytes. Needs no bcc and no
kernel.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

STAMP_TAG: Final = 0x024A
ROUTE_TABLE_BITS: Final = 32
"""The part of `RouteKey.prefix_len` that covers `table_id`."""


class PlaneCounter(IntEnum):
    """enum plane_counter: indices into `counter_map`."""

    DROP_UNKNOWN_NIC = 0
    DROP_UNKNOWN_SUBNET = 1
    DROP_MALFORMED = 2
    DROP_VLAN = 3
    DROP_IPV6 = 4
    DROP_NOT_IP = 5
    DROP_SPOOFED_MAC = 6
    DROP_SPOOFED_IP = 7
    DROP_SPOOFED_ARP = 8
    DROP_ARP_NOT_REQUEST = 9
    DROP_ARP_OWN_ADDRESS = 10
    DROP_ARP_UNKNOWN = 11
    DROP_BROADCAST = 12
    DROP_TTL_EXCEEDED = 13
    DROP_NO_ROUTE = 14
    DROP_TO_GATEWAY = 15
    DROP_FOREIGN_VIP = 16
    DROP_NO_NEIGHBOUR = 17
    DROP_CROSS_VPC = 18
    DROP_UNKNOWN_MAC = 19
    DROP_NO_TAP = 20
    PASS_ARP_REPLY = 21
    PASS_TO_SERVICE = 22
    PASS_ROUTED = 23
    PASS_SWITCHED = 24

    @property
    def is_drop(self) -> bool:
        return self.name.startswith("DROP_")

    @property
    def label(self) -> str:
        """`spoofed_mac`, as metrics and `juneau drops` print it."""
        return self.name.partition("_")[2].lower()


COUNTER_SLOTS: Final = 32
"""PLANE_COUNTERS."""

_U32: Final = Struct("=I")
_U64: Final = Struct("=Q")
_PLANE_CONFIG: Final = Struct("=I4x")
_NIC_VALUE: Final = Struct("=II4s6s2x")
_SUBNET_VALUE: Final = Struct("=I4s6s2x")
_ARP_KEY: Final = Struct("=I4s")
_ARP_VALUE: Final = Struct("=I6s2x")
_FDB_KEY: Final = Struct("=I6s2x")
_ROUTE_KEY: Final = Struct("=II4s")
_VIRTUAL_SERVICE_KEY: Final = Struct("=I4s2sBx")
_VIRTUAL_SERVICE_VALUE: Final = Struct("=I6s2x")
_FLOW_KEY: Final = Struct("=I4s4s2s2sB3x")
_FLOW_VALUE: Final = Struct("=III6s6sQQQQ")
_STAMP: Final = Struct("!HIHI")


class PlaneConfig(NamedTuple):
    tap_ifindex: int

    def pack(self) -> bytes:
        return _PLANE_CONFIG.pack(*self)

    @classmethod
    def unpack(cls, raw: bytes) -> PlaneConfig:
        return cls._make(_PLANE_CONFIG.unpack(raw))


class NicValue(NamedTuple):
    """Value of `nic_map`; its key is the ifindex, see `u32`."""

    vpc_id: int
    subnet_id: int
    ip: bytes
    mac: bytes

    def pack(self) -> bytes:
        return _NIC_VALUE.pack(*self)

    @classmethod
    def unpack(cls, raw: bytes) -> NicValue:
        return cls._make(_NIC_VALUE.unpack(raw))


class SubnetValue(NamedTuple):
    """Value of `subnet_map`; its key is the subnet_id, see `u32`."""

    vpc_id: int
    gateway_ip: bytes
    gateway_mac: bytes

    def pack(self) -> bytes:
        return _SUBNET_VALUE.pack(*self)

    @classmethod
    def unpack(cls, raw: bytes) -> SubnetValue:
        return cls._make(_SUBNET_VALUE.unpack(raw))


class ArpKey(NamedTuple):
    subnet_id: int
    ip: bytes

    def pack(self) -> bytes:
        return _ARP_KEY.pack(*self)


class ArpValue(NamedTuple):
    """`ifindex` 0: the gateway or a VIP."""

    ifindex: int
    mac: bytes

    def pack(self) -> bytes:
        return _ARP_VALUE.pack(*self)


class FdbKey(NamedTuple):
    subnet_id: int
    mac: bytes

    def pack(self) -> bytes:
        return _FDB_KEY.pack(*self)


class RouteKey(NamedTuple):
    prefix_len: int
    table_id: int
    dst: bytes

    def pack(self) -> bytes:
        return _ROUTE_KEY.pack(*self)


class VirtualServiceKey(NamedTuple):
    """Key of `virtual_service_map`. Port and protocol 0: the VIP itself."""

    subnet_id: int
    dst_ip: bytes
    dst_port: int
    proto: int

    def pack(self) -> bytes:
        port = self.dst_port.to_bytes(2, "big")
        return _VIRTUAL_SERVICE_KEY.pack(self.subnet_id, self.dst_ip, port, self.proto)


class VirtualServiceValue(NamedTuple):
    service_id: int
    service_mac: bytes

    def pack(self) -> bytes:
        return _VIRTUAL_SERVICE_VALUE.pack(*self)


class FlowKey(NamedTuple):
    """Key of `virtual_service_flow_map`. Ports are 0 for fragments and ICMP."""

    subnet_id: int
    src_ip: bytes
    dst_ip: bytes
    src_port: int
    dst_port: int
    proto: int

    def pack(self) -> bytes:
        ports = self.src_port.to_bytes(2, "big"), self.dst_port.to_bytes(2, "big")
        return _FLOW_KEY.pack(self.subnet_id, self.src_ip, self.dst_ip, *ports, self.proto)

    @classmethod
    def unpack(cls, raw: bytes) -> FlowKey:
        subnet_id, src, dst, sport, dport, proto = _FLOW_KEY.unpack(raw)
        return cls(subnet_id, src, dst, int.from_bytes(sport, "big"), int.from_bytes(dport, "big"), proto)


class FlowValue(NamedTuple):
    vpc_id: int
    service_id: int
    ifindex: int
    pod_mac: bytes
    service_mac: bytes
    packets: int
    bytes_: int
    first_seen_ns: int
    last_seen_ns: int

    def pack(self) -> bytes:
        return _FLOW_VALUE.pack(*self)

    @classmethod
    def unpack(cls, raw: bytes) -> FlowValue:
        return cls._make(_FLOW_VALUE.unpack(raw))


class Stamp(NamedTuple):
    """The Ethernet addresses of a frame on the TAP (struct stamp; network order)."""

    dst_tag: int
    subnet_id: int
    src_tag: int
    ifindex: int

    def pack(self) -> bytes:
        return _STAMP.pack(*self)


def u32(value: int) -> bytes:
    """Keys that are one number: ifindex, subnet_id, array index."""
    return _U32.pack(value)


def from_u32(raw: bytes) -> int:
    return int(_U32.unpack(raw)[0])


class MapSpec(NamedTuple):
    name: str
    key_size: int
    value_size: int


CONFIG_MAP: Final = MapSpec("plane_config_map", _U32.size, _PLANE_CONFIG.size)
COUNTER_MAP: Final = MapSpec("counter_map", _U32.size, _U64.size)
NIC_MAP: Final = MapSpec("nic_map", _U32.size, _NIC_VALUE.size)
SUBNET_MAP: Final = MapSpec("subnet_map", _U32.size, _SUBNET_VALUE.size)
ARP_TABLE: Final = MapSpec("arp_table", _ARP_KEY.size, _ARP_VALUE.size)
FDB_MAP: Final = MapSpec("fdb_map", _FDB_KEY.size, _U32.size)
ROUTE_MAP: Final = MapSpec("route_map", _ROUTE_KEY.size, _U32.size)
VIRTUAL_SERVICE_MAP: Final = MapSpec(
    "virtual_service_map", _VIRTUAL_SERVICE_KEY.size, _VIRTUAL_SERVICE_VALUE.size
)
FLOW_MAP: Final = MapSpec("virtual_service_flow_map", _FLOW_KEY.size, _FLOW_VALUE.size)

MAPS: Final = (
    CONFIG_MAP,
    COUNTER_MAP,
    NIC_MAP,
    SUBNET_MAP,
    ARP_TABLE,
    FDB_MAP,
    ROUTE_MAP,
    VIRTUAL_SERVICE_MAP,
    FLOW_MAP,
)

STRUCTS: Final[dict[str, tuple[Struct, tuple[str, ...]]]] = {
    "plane_config": (_PLANE_CONFIG, ("tap_ifindex",)),
    "nic_value": (_NIC_VALUE, NicValue._fields),
    "subnet_value": (_SUBNET_VALUE, SubnetValue._fields),
    "arp_key": (_ARP_KEY, ArpKey._fields),
    "arp_value": (_ARP_VALUE, ArpValue._fields),
    "fdb_key": (_FDB_KEY, FdbKey._fields),
    "fdb_value": (_U32, ("ifindex",)),
    "route_key": (_ROUTE_KEY, RouteKey._fields),
    "route_value": (_U32, ("subnet_id",)),
    "virtual_service_key": (_VIRTUAL_SERVICE_KEY, VirtualServiceKey._fields),
    "virtual_service_value": (_VIRTUAL_SERVICE_VALUE, VirtualServiceValue._fields),
    "flow_key": (_FLOW_KEY, FlowKey._fields),
    "flow_value": (_FLOW_VALUE, FlowValue._fields),
    "stamp": (_STAMP, Stamp._fields),
}
"""Every mirrored struct with the names of its fields, for the layout test."""
