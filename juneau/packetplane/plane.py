"""The packet plane of one node: what `app` drives.

`open`, `apply`, `close` and `cleanup` block (compiler, netlink): call them outside the event loop or through
`asyncio.to_thread`, for pyroute2's synchronous IPRoute fails inside a running loop. Everything else is cheap
and may be called on the loop. One lock covers the maps, so `apply` in a thread and `bind_service` on the loop
do not undo one another; it is never held across netlink.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import Counter
from ipaddress import IPv4Address
from itertools import chain
from typing import Final

from juneau.model.ids import Mac, ServiceSpec, Vip
from juneau.netstack.tap import Tap as DropTap
from juneau.netstack.types import Link, TxPacket
from juneau.packetplane import filters, inspect, plan
from juneau.packetplane.bpf import abi, bpffs, loader
from juneau.packetplane.dispatcher import Dispatcher, Receiver
from juneau.packetplane.reader import TapReader
from juneau.packetplane.sender import Sender
from juneau.packetplane.tap import Tap
from juneau.packetplane.types import (
    DesiredState,
    FlowRecord,
    Nic,
    PlaneError,
    PlaneSettings,
    ReturnPath,
)

_FULL: Final = (errno.E2BIG, errno.ENOSPC)
"""A hash says the one, a trie the other."""
_NO_MAC: Final = Mac(b"\x02\x4a\0\0\0\0")


class PacketPlane:
    def __init__(self, settings: PlaneSettings, program: loader.LoadedProgram, tap: Tap) -> None:
        self.settings = settings
        self.counters: Counter[str] = Counter()
        """What user space counted: `rx.*`, `tx.*`. Drops are also in `drops()`."""
        self._program = program
        self._maps = {spec: inspect.open_map(settings, spec) for spec in abi.MAPS}
        self._lock = threading.Lock()
        self._desired = DesiredState()
        self._by_address = plan.ByAddress(self._desired)
        self._vips: dict[plan.Address, list[Vip]] = {}
        """Those added since, the latest last."""
        self._services: dict[bytes, ServiceSpec] = {}
        self._macs: dict[plan.Address, Mac] = {}
        self._gateway_macs: dict[int, Mac] = {}
        self._path_by_address: dict[tuple[int, IPv4Address], ReturnPath] = {}
        self._paths_by_subnet: dict[int, list[ReturnPath]] = {}
        self._filtered: set[int] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender = Sender(settings, self.counters, self._mac_of)
        self._dispatcher = Dispatcher(
            _no_stacks, self.counters, vnet_header=tap.vnet_header, quick_us=settings.quick_us
        )
        self._reader = TapReader(tap, self._dispatcher, settings, self.counters, self._point_at)
        self._point_at(tap)

    @classmethod
    def open(cls, settings: PlaneSettings) -> PacketPlane:
        """Make or take over the TAP, compile, load, pin. Blocking, about a second. Raises PlaneError."""
        is_new = not os.path.exists(f"/sys/class/net/{settings.tap_name}")
        tap = Tap.open(settings)  # first: it is what a second plane of this name cannot have
        program = None
        try:
            program = loader.load(settings)
            return cls(settings, program, tap)
        except BaseException:
            if program is not None:
                program.close()
            if is_new:
                tap.destroy()
                bpffs.remove_pins(settings.pin_path)
            tap.close()
            raise

    @property
    def link(self) -> Link:
        """For the stacks above.

        Superframes leave room for Ethernet below the 64 KiB from which on the kernel cuts them in software.
        """
        offload = self.settings.offload
        uso = self._reader.tap.uso  # packet sockets learnt it in the same release
        return Link(self.settings.mtu, offload, offload, max_superframe=65_521, uso=uso)

    @property
    def tap_ifindex(self) -> int:
        return self._reader.tap.ifindex

    # What BPF shall do

    def apply(self, desired: DesiredState) -> None:
        """Make maps and filters agree with `desired` and what is bound; blocking, repeatable.

        Maps are compared as read back from the kernel. NICs that are not named lose everything but the
        filter, which then drops all. An interface that refuses its filter stops no other. Raises PlaneError.
        """
        plan.check(desired)
        with self._lock:
            self._desired = desired
            self._by_address = plan.ByAddress(desired)
            self._learn_macs()
            self._replace_paths(desired.nics)
            self._reconcile_maps()
        self._filter(desired.nics)

    def bind_service(self, spec: ServiceSpec) -> None:
        """From now on BPF counts flows to `spec.addr` under its service. Raises PlaneError."""
        key, value = plan.service_entry(spec)
        with self._lock:
            self._set(abi.VIRTUAL_SERVICE_MAP, key, value)
            self._services[key] = spec

    def unbind_service(self, spec: ServiceSpec) -> None:
        """Idempotent."""
        key, _ = plan.service_entry(spec)
        with self._lock:
            self._services.pop(key, None)
            self._delete(abi.VIRTUAL_SERVICE_MAP, key)

    def add_vip(self, vip: Vip) -> None:
        """Answer ARP for `vip`, hand its packets to the stack. Idempotent; the caller counts references."""
        with self._lock:
            self._put_vips(vip, [*self._vips_beside(vip), vip])
            try:
                self._program_address(vip)
            except PlaneError:
                self._put_vips(vip, self._vips_beside(vip))
                self._program_address(vip)
                raise

    def remove_vip(self, vip: Vip) -> None:
        """Idempotent. Whatever else has the address (the gateway, the desired state) gets it back."""
        with self._lock:
            self._put_vips(vip, self._vips_beside(vip))
            self._program_address(vip)

    # Packets

    def start(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        """Read the TAP on `loop`; `receiver` names the stack of a vpc_id, None: drop, counted."""
        self._loop = loop
        self._dispatcher.receiver = receiver
        self._reader.start(loop)

    def send(self, packets: list[TxPacket]) -> None:
        """Onto the Pods' interfaces, at once. Never blocks, never raises; failures are counted drops."""
        self._sender.send(packets)

    def path_to(self, tenant_vpc: int, ip: IPv4Address) -> ReturnPath | None:
        """For connections towards a Pod. None: no such Pod here."""
        return self._path_by_address.get((tenant_vpc, ip))

    # What happened

    @property
    def drop_tap(self) -> DropTap | None:
        """Sees what this side of the kernel drops, with the reason. Costs nothing while None."""
        return self._dispatcher.tap

    @drop_tap.setter
    def drop_tap(self, tap: DropTap | None) -> None:
        self._dispatcher.tap = self._sender.tap = tap

    def drops(self) -> dict[str, int]:
        """By reason: `bpf.*` (all), `rx.*`, `tx.*`, and `tap.overflow`, which counts since the TAP exists."""
        kernel = inspect.counters_of(self._maps[abi.COUNTER_MAP])
        found = {f"bpf.{which.label}": n for which, n in kernel.items() if which.is_drop}
        found["tap.overflow"] = self._reader.tap.kernel_drops()
        return found | {name: n for name, n in self.counters.items() if name not in _NOT_DROPS}

    def passes(self) -> dict[str, int]:
        """What BPF let through: `arp_reply`, `to_service`, `routed`, `switched`."""
        kernel = inspect.counters_of(self._maps[abi.COUNTER_MAP])
        return {which.label: n for which, n in kernel.items() if not which.is_drop}

    def flows(self, limit: int | None = None) -> list[FlowRecord]:
        """Latest first, at most `limit`. A full map takes a second: call it in a thread."""
        return inspect.flows_of(self._maps[abi.FLOW_MAP], limit)

    # The end

    def stop(self) -> None:
        """Stop reading. What is for services waits in the TAP, then overflows (`tap.overflow`)."""
        self._reader.stop()
        self._loop = None

    def close(self, *, keep_pins: bool = False) -> None:
        """Blocking. `keep_pins`: leave TAP, maps and filters to the next process; Pods still reach Pods."""
        self.stop()
        self._sender.close()
        self._maps[abi.CONFIG_MAP].set(abi.u32(0), abi.PlaneConfig(0).pack())
        if not keep_pins:
            filters.detach(filters.attached(self.settings))
            self._reader.tap.destroy()
            bpffs.remove_pins(self.settings.pin_path)
        self._reader.tap.close()
        self._program.close()
        for opened in self._maps.values():
            opened.close()

    # Inside

    def _point_at(self, tap: Tap) -> None:
        tap.steer(self._program.steering_fd)
        self._set(abi.CONFIG_MAP, abi.u32(0), abi.PlaneConfig(tap.ifindex).pack())

    # A node has thousands of VIPs: one that comes or goes costs no look at those of other addresses.

    def _vips_beside(self, vip: Vip) -> list[Vip]:
        return [other for other in self._vips.get(plan.address_of(vip), ()) if other != vip]

    def _put_vips(self, vip: Vip, vips: list[Vip]) -> None:
        """`vips` are all that were added at the address of `vip`."""
        address = plan.address_of(vip)
        if vips:
            self._vips[address] = vips
        else:
            self._vips.pop(address, None)
        self._learn_mac(address)

    def _program_address(self, vip: Vip) -> None:
        address = plan.address_of(vip)
        wanted = plan.contents(self._by_address.at(address), self._vips_at(address), ())
        for spec, key in (
            (abi.VIRTUAL_SERVICE_MAP, plan.vip_entry(vip)[0]),
            (abi.ARP_TABLE, plan.arp_of_vip(vip)[0]),
        ):
            if key in wanted[spec]:
                self._set(spec, key, wanted[spec][key])
            else:
                self._delete(spec, key)

    def _vips_at(self, address: plan.Address) -> list[Vip]:
        return [*self._by_address.at(address).vips, *self._vips.get(address, ())]

    def _all_vips(self) -> list[Vip]:
        return [*self._desired.vips, *chain.from_iterable(self._vips.values())]

    def _learn_mac(self, address: plan.Address) -> None:
        subnet_id, ip = address
        if vips := self._vips_at(address):
            self._macs[address] = vips[-1].mac
        else:
            self._macs.pop(address, None)
        for path in self._paths_by_subnet.get(subnet_id, ()):
            path.ether.pop(ip, None)

    def _learn_macs(self) -> None:
        self._gateway_macs = {s.tenant.subnet_id: s.gateway_mac for s in self._desired.subnets}
        self._macs = {plan.address_of(vip): vip.mac for vip in self._all_vips()}
        for path in self._dispatcher.paths.values():
            path.ether.clear()

    def _mac_of(self, path: ReturnPath, source: bytes) -> bytes:
        """A source that is no VIP (any more) speaks through the gateway: a removed VIP's RST must leave."""
        subnet_id = path.nic.tenant.subnet_id
        return self._macs.get((subnet_id, source)) or self._gateway_macs.get(subnet_id, _NO_MAC)

    def _replace_paths(self, nics: tuple[Nic, ...]) -> None:
        """Paths of unchanged NICs stay the same objects: connections hold them."""
        old = {path.nic: path for path in self._dispatcher.paths.values()}
        new = {nic.ifindex: old.get(nic) or ReturnPath(nic) for nic in nics}
        self._path_by_address = {(p.nic.tenant.vpc_id, p.nic.ip): p for p in new.values()}
        self._paths_by_subnet = {}
        for path in new.values():
            self._paths_by_subnet.setdefault(path.nic.tenant.subnet_id, []).append(path)
        self._dispatcher.paths = new
        gone = [path for path in old.values() if new.get(path.ifindex) is not path]
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._sender.forget, gone)
        else:
            self._sender.forget(gone)

    def _reconcile_maps(self) -> None:
        wanted = plan.contents(self._desired, self._all_vips(), self._services.values())
        for spec, entries in wanted.items():
            change = plan.diff(entries, self._maps[spec].items())
            for key in change.delete:
                self._delete(spec, key)
            for key, value in change.update:
                self._set(spec, key, value)

    def _filter(self, nics: tuple[Nic, ...]) -> None:
        """Attach where our program is missing; after a restart everywhere, for the program is new."""
        in_place = self._filtered & filters.attached(self.settings)
        failed = filters.attach(
            self.settings, [nic for nic in nics if nic.ifindex not in in_place], self._program.fd
        )
        self._filtered = {nic.ifindex for nic in nics} - {nic.ifindex for nic in failed}
        if failed:
            text = "; ".join(f"{nic.ifname}: {cause}" for nic, cause in failed.items())
            raise PlaneError(f"attach filter to {text} (does the interface exist in this network namespace?)")

    def _set(self, spec: abi.MapSpec, key: bytes, value: bytes) -> None:
        try:
            self._maps[spec].set(key, value)
        except OSError as err:
            opened = self._maps[spec]
            cause = f"all {opened.max_entries} entries are taken" if err.errno in _FULL else err.strerror
            raise PlaneError(f"write {spec.name}: {cause}") from err

    def _delete(self, spec: abi.MapSpec, key: bytes) -> None:
        try:
            self._maps[spec].delete(key)
        except OSError as err:
            raise PlaneError(f"delete from {spec.name}: {err.strerror}") from err


_NOT_DROPS: Final = frozenset({"rx.frames", "rx.batches", "rx.reopened", "rx.read_error"})


def _no_stacks(_vpc_id: int) -> None:
    return None


def cleanup(settings: PlaneSettings) -> list[str]:
    """Remove what a crashed plane left: filters, TAP, pins; returns what it was. Blocking; PlaneError."""
    removed = []
    for ifindex in sorted(filters.attached(settings)):
        filters.detach([ifindex])
        removed.append(f"filter of ifindex {ifindex}")
    if filters.remove_link(settings.tap_name):
        removed.append(f"tap {settings.tap_name}")
    return removed + [f"pin {path}" for path in bpffs.remove_pins(settings.pin_path)]


__all__ = ["PacketPlane", "cleanup"]
