"""What the packet plane is asked for and what it answers. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path as FilePath
from typing import NamedTuple, Protocol

from juneau.model.ids import Mac, TenantId, Vip
from juneau.netstack.types import Buffer, Micros
from juneau.netstack.types import Path as ReturnAddress


class PlaneError(Exception):
    """The kernel, or what is installed, would not do it: `operation object: cause (what to try)`."""


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    tap_name: str = "juneau-svc0"
    """Up to 15 characters, one per plane. Also names the filters: `cleanup` removes what carries it."""
    mtu: int = 1450
    """Largest IPv4 packet, bytes; what Pods' interfaces have (1500 less VXLAN's 50)."""
    pin_path: str = "/sys/fs/bpf/juneau"
    """Folder of the pinned maps, on a bpffs, one per plane."""
    bpf_source: FilePath | None = None
    """Folder of pod_egress.c; None: the one of this installation."""
    cache_path: FilePath | None = None
    """Where merged kernel headers go; None: /var/cache/juneau, or the user's cache folder."""
    flow_entries: int = 131_072
    """Records of `virtual_service_flow_map` (LRU, 76 bytes each)."""
    offload: bool = True
    """False: no vnet header on TAP and sender; kernel and stack then cut and checksum themselves (slow)."""
    frame_budget: int = 64
    """Frames read of a queue before other queues and callbacks get their turn, a superframe counting as four:
    16 x 64 KiB take a third of a millisecond."""
    quick_us: int = 200
    """A batch of frames that was read and understood in less is prolonged, up to four times."""
    busy_poll_us: int = 50
    """How long the loop stays awake after frames that came within 200 µs of another; 0: it sleeps at once."""
    tap_queues: int = 32
    """Queues that Pods are spread over by ifindex, 1..256. A Pod that floods harms who shares its queue."""
    tap_queue_frames: int = 1_000
    """Frames the kernel keeps per queue before it drops: about 10 ms of a busy loop at 100k frames/s."""
    send_buffer_bytes: int = 8 << 20
    """Per Pod interface: bytes in flight to one Pod before sends are dropped (`tx.would_block`)."""


class Nic(NamedTuple):
    """One Pod's interface: the host side of its veth, and the Pod's own addresses."""

    ifindex: int
    ifname: str
    tenant: TenantId
    ip: IPv4Address
    mac: Mac


class SubnetEntry(NamedTuple):
    tenant: TenantId
    cidr: IPv4Network
    gateway: IPv4Address
    gateway_mac: Mac


@dataclass(frozen=True, slots=True)
class DesiredState:
    """All of it, every time: what is not named is removed."""

    subnets: tuple[SubnetEntry, ...] = ()
    nics: tuple[Nic, ...] = ()
    vips: tuple[Vip, ...] = ()


class FlowRecord(NamedTuple):
    """One record of `virtual_service_flow_map`. Times are CLOCK_MONOTONIC nanoseconds."""

    tenant: TenantId
    src: IPv4Address
    src_port: int
    dst: IPv4Address
    dst_port: int
    proto: int
    service_id: int
    ifindex: int
    pod_mac: Mac
    service_mac: Mac
    packets: int
    bytes: int
    first_seen_ns: int
    last_seen_ns: int


@dataclass(eq=False, slots=True)
class ReturnPath:
    """The way back to a Pod. Made by the plane, one per NIC; equal only to itself, so hashing is free."""

    nic: Nic
    ether: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    """Source IP → Ethernet header, filled by the sender."""
    alive: bool = True
    """False once the NIC is gone: sends are dropped, a new Pod on the same ifindex never gets them."""
    vpc_id: int = field(init=False, repr=False)
    subnet_id: int = field(init=False, repr=False)
    """Both the tenant's, at hand for every packet."""

    def __post_init__(self) -> None:
        self.vpc_id, self.subnet_id = self.nic.tenant.vpc_id, self.nic.tenant.subnet_id

    @property
    def tenant(self) -> TenantId:
        return self.nic.tenant

    @property
    def ifindex(self) -> int:
        return self.nic.ifindex


class StackInput(Protocol):
    """What the plane needs of a VPC's stack: `AsyncStack` fits."""

    def receive(self, packet: Buffer, path: ReturnAddress, now: Micros, csum_ok: bool = False) -> None: ...

    def settle(self) -> None: ...
