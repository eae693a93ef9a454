"""Who a packet belongs to and what it was sent to."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final, NamedTuple

MAX_VNI: Final = 0xFF_FFFF
"""A Subnet's id is a VXLAN network identifier: 24 bits (RFC 7348 section 5)."""

UNDERLAY_VNI: Final = 1
DEFAULT_VPC_ID: Final = 1


class TenantId(NamedTuple):
    """A Subnet of a VPC. An IP address identifies nobody without it."""

    vpc_id: int
    subnet_id: int


class Protocol(IntEnum):
    """IP protocol numbers."""

    ICMP = 1
    TCP = 6
    UDP = 17


class ServiceId(IntEnum):
    """Built-in services. The number is a BPF map value: never reuse or change one.

    Services outside this repository take numbers from 1000 up.
    """

    ICMP = 0
    DNS = 1
    NTP = 2
    SYSLOG = 3
    HTTP_PROXY = 4


class Mac(bytes):
    """Six bytes that print as `02:4a:…`."""

    __slots__ = ()

    def __new__(cls, value: bytes | str) -> Mac:
        raw = bytes.fromhex(value.replace(":", "")) if isinstance(value, str) else bytes(value)
        if len(raw) != 6:
            raise ValueError(f"MAC address {value!r}: got {len(raw)} bytes, allowed 6")
        return super().__new__(cls, raw)

    def __str__(self) -> str:
        return self.hex(":")

    def __repr__(self) -> str:
        return f"Mac('{self}')"


class VirtualAddr(NamedTuple):
    """What a Pod dials: an address of its own Subnet that no interface owns."""

    ip: IPv4Address
    port: int
    proto: Protocol

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}/{self.proto.name.lower()}"


class ServiceSpec(NamedTuple):
    """One binding: `service_id` answers at `addr` for `tenant`, from `service_mac`."""

    service_id: int
    tenant: TenantId
    addr: VirtualAddr
    service_mac: Mac


class Vip(NamedTuple):
    """A virtual address of one Subnet, and the MAC that ARP answers for it."""

    tenant: TenantId
    ip: IPv4Address
    mac: Mac
