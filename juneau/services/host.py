"""Keeps every service bound in every Subnet it applies to, as the cluster changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from juneau.model.cluster import ClusterView, Subnet
from juneau.model.ids import Protocol, ServiceId, ServiceSpec, VirtualAddr
from juneau.services.framework import FIRST_FOREIGN_ID, Listener, ServiceContext, VirtualService
from juneau.services.registry import Binding, Registry

log = logging.getLogger(__name__)

_PER_TURN: Final = 16
"""Each about 50 µs: map entries, listener, bookkeeping."""
_T = TypeVar("_T")


class Name(NamedTuple):
    """Which listener of which service in which Subnet."""

    service: str
    subnet: str
    proto: Protocol
    port: int


class Start(NamedTuple):
    name: Name
    spec: ServiceSpec


class Stop(NamedTuple):
    name: Name


Plan: TypeAlias = list[Stop | Start]


class Status(NamedTuple):
    """One row: what should be bound, and whether it is. `error` is empty when it is."""

    service: str
    vpc: str
    subnet: str
    address: str
    error: str


class ServiceError(ValueError):
    """A service that no host can run."""


def reconcile(desired: Mapping[Name, ServiceSpec], running: Mapping[Name, ServiceSpec]) -> Plan:
    """Steps that turn `running` into `desired`, stops first; empty when they agree. Pure."""
    stale = [name for name, spec in running.items() if spec != desired.get(name)]
    missing = [name for name, spec in desired.items() if spec != running.get(name)]
    return [*map(Stop, sorted(stale)), *(Start(name, desired[name]) for name in sorted(missing))]


@dataclass(frozen=True)
class Desired:
    """What a view asks for: specs to bind, and what cannot be, with the reason."""

    specs: Mapping[Name, ServiceSpec]
    refused: Mapping[Name, str]


def desired_bindings(services: Iterable[VirtualService], view: ClusterView) -> Desired:
    """Every listener of every service in every Subnet it applies to. Pure."""
    specs: dict[Name, ServiceSpec] = {}
    refused: dict[Name, str] = {}
    for service in services:
        ports = [(listener.proto, listener.port) for listener in service.listeners()]
        for subnet in view.subnets.values():
            vpc = view.vpcs.get(subnet.vpc)
            if vpc is None or not service.applies_to(subnet, vpc):
                continue
            names = [Name(service.name, subnet.name, proto, port) for proto, port in ports]
            ip = _address(service, subnet, view)
            if isinstance(ip, str):
                refused.update(dict.fromkeys(names, ip))
                continue
            tenant, mac = view.tenant(subnet), service.mac(subnet, ip)
            for name in names:
                addr = VirtualAddr(ip, name.port, name.proto)
                specs[name] = ServiceSpec(service.service_id, tenant, addr, mac)
    return Desired(specs, refused)


def _address(service: VirtualService, subnet: Subnet, view: ClusterView) -> IPv4Address | str:
    """Or why there is none."""
    ip = service.address(subnet)
    if ip is None:
        return f"subnet {subnet.name} ({subnet.cidr}) has no address for it"
    if pod := view.pods_by_vpc_ip.get((subnet.vpc, ip)):
        return f"{ip} is taken by pod {pod.namespace}/{pod.name}"
    return ip


class ServiceHost:
    """Runs `services` on a registry. `update` with every new view; a service that fails hurts no other."""

    def __init__(
        self, registry: Registry, services: Sequence[VirtualService], view: ClusterView | None = None
    ) -> None:
        _check(services)
        self._registry = registry
        self._services = {service.name: service for service in services}
        self._view = view or ClusterView(synced=False)
        self._running: dict[Name, Binding] = {}
        self._errors: dict[Name, str] = {}
        self._started: set[str] = set()
        self._failed: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._closed = False
        for service in services:
            service.context = ServiceContext(lambda: self._view, registry.metrics)

    @property
    def view(self) -> ClusterView:
        return self._view

    async def update(self, view: ClusterView) -> None:
        """Follow `view`. Services see it at once; bindings follow before this returns.

        What fails is logged, counted, shown by `status` and tried again on the next update.
        """
        self._view = view
        async with self._lock:
            if not self._closed:
                await self._start_services()
                await self._apply(self._view)

    async def close(self) -> None:
        """Unbind and stop everything. A second call does nothing."""
        async with self._lock:
            self._closed = True
            await self._stop_bindings(list(self._running))
            for name in sorted(self._started):
                await self._stop_service(name)

    def status(self) -> list[Status]:
        """Every listener that should be there, in order."""
        rows = {name: (str(b.spec.addr), "") for name, b in self._running.items()}
        rows |= {name: (f":{name.port}/{name.proto.name.lower()}", why) for name, why in self._errors.items()}
        return [
            Status(name.service, self._vpc_of(name.subnet), name.subnet, address, error)
            for name, (address, error) in sorted(rows.items())
        ]

    async def _apply(self, view: ClusterView) -> None:
        desired = await self._desired(sorted(self._started), view)
        down = await self._desired(sorted(self._failed), view)
        self._errors = dict(desired.refused) | {name: self._failed[name.service] for name in down.specs}
        plan = reconcile(desired.specs, {name: binding.spec for name, binding in self._running.items()})
        await self._stop_bindings([step.name for step in plan if isinstance(step, Stop)])
        for step in plan:
            if isinstance(step, Start):
                await self._start_binding(step, view)

    async def _desired(self, services: Sequence[str], view: ClusterView) -> Desired:
        """One service per turn of the loop: a thousand Subnets take milliseconds."""
        specs: dict[Name, ServiceSpec] = {}
        refused: dict[Name, str] = {}
        for name in services:
            found = desired_bindings([self._services[name]], view)
            specs.update(found.specs)
            refused.update(found.refused)
            await asyncio.sleep(0)
        return Desired(specs, refused)

    async def _start_binding(self, step: Start, view: ClusterView) -> None:
        service = self._services[step.name.service]
        extra: dict[str, object] = {"vpc": view.subnets[step.name.subnet].vpc, "subnet": step.name.subnet}
        try:
            self._running[step.name] = await self._bind(service, step, extra)
        except Exception as error:  # noqa: BLE001 - one failing service must not stop the others
            self._errors[step.name] = str(error) or repr(error)
            log.error("%s (tried again on the next change)", self._errors[step.name])

    async def _bind(self, service: VirtualService, step: Start, extra: dict[str, object]) -> Binding:
        listener = _listener(service, step.name)
        registry, spec, handle = self._registry, step.spec, cast(Any, listener.handle)
        tls = {"ssl": listener.ssl} if listener.ssl is not None else {}
        if listener.protocol_factory is not None:
            make = (
                registry.create_server
                if listener.proto == Protocol.TCP
                else registry.create_datagram_endpoint
            )
            return await make(spec, listener.protocol_factory, name=service.name, extra=extra, **tls)
        if listener.proto == Protocol.UDP:
            return await registry.register_udp_handler(
                spec,
                handle,
                limits=service.udp_limits,
                unordered=service.udp_unordered,
                name=service.name,
                extra=extra,
            )
        return await registry.listen_tcp(
            spec,
            handle,
            limit=service.stream_limit,
            limits=service.tcp_limits,
            name=service.name,
            extra=extra,
            **tls,
        )

    async def _stop_bindings(self, names: Sequence[Name]) -> None:
        ends = [asyncio.create_task(self._running.pop(name).unregister()) async for name in in_turns(names)]
        await asyncio.gather(*ends)  # together: handlers may take their time to end

    async def _start_services(self) -> None:
        for name in sorted(self._services.keys() - self._started):
            try:
                await self._services[name].start()
            except Exception as error:  # noqa: BLE001 - one failing service must not stop the others
                self._failed[name] = f"start {name}: {error or repr(error)}"
                log.error("%s (tried again on the next change)", self._failed[name])
            else:
                self._failed.pop(name, None)
                self._started.add(name)

    async def _stop_service(self, name: str) -> None:
        self._started.discard(name)
        try:
            await self._services[name].stop()
        except Exception:
            log.exception("stop %s", name)

    def _vpc_of(self, subnet: str) -> str:
        return self._view.subnets[subnet].vpc if subnet in self._view.subnets else ""


def _listener(service: VirtualService, name: Name) -> Listener:
    return next(li for li in service.listeners() if (li.proto, li.port) == (name.proto, name.port))


async def in_turns(items: Iterable[_T]) -> AsyncIterator[_T]:
    """`items`, some per turn of the loop: packets come between when there are thousands."""
    for number, item in enumerate(items):
        if number % _PER_TURN == _PER_TURN - 1:
            await asyncio.sleep(0)
        yield item


def _check(services: Sequence[VirtualService]) -> None:
    """Raises ServiceError: names and ids must be told apart."""
    names: dict[str, VirtualService] = {}
    ids: dict[int, str] = {}
    for service in services:
        if names.setdefault(service.name, service) is not service:
            raise ServiceError(f"service {service.name!r} is given twice (rename one: `name` in its class)")
        other = ids.setdefault(service.service_id, service.name)
        if other != service.name:
            raise ServiceError(f"services {other!r} and {service.name!r} share the id {service.service_id}")
        if service.service_id < FIRST_FOREIGN_ID and service.service_id not in set(ServiceId):
            raise ServiceError(
                f"service {service.name!r} has the id {service.service_id}, allowed 1000 and up"
            )
        if not service.listeners():
            raise ServiceError(f"service {service.name!r} listens nowhere (set tcp_ports or udp_ports)")
