"""Who answers at which address: the one place where services meet the packet plane and the stacks.

A binding is reserved, programmed step by step and committed. A step that fails undoes the ones
before it, so an address is bound wholly or not at all. A registry belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from juneau.model.ids import MAX_VNI, ServiceId, ServiceSpec, Vip
from juneau.model.ids import Protocol as IpProtocol
from juneau.services.datagrams import DatagramBinding, PacketHandler
from juneau.services.limits import TcpLimits, UdpLimits
from juneau.services.log import Reporter
from juneau.services.metrics import Labels, Metrics
from juneau.services.streams import StreamBinding, StreamHandler

log = logging.getLogger(__name__)


class VipMaps(Protocol):
    """What the registry programs: the packet plane's maps. Every call is quick and may raise."""

    def bind_service(self, spec: ServiceSpec, /) -> None: ...
    def unbind_service(self, spec: ServiceSpec, /) -> None: ...
    def add_vip(self, vip: Vip, /) -> None: ...
    def remove_vip(self, vip: Vip, /) -> None: ...


class TenantStack(Protocol):
    """What the registry needs of a VPC's `AsyncStack`."""

    def add_address(self, ip: int, /) -> None: ...
    def remove_address(self, ip: int, /) -> None: ...
    async def create_server(self, *args: Any, **kwargs: Any) -> Any: ...
    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> Any: ...


class BindError(Exception):
    """A binding that could not be made; nothing of it is left."""


class InvalidSpec(BindError, ValueError):
    """The specification itself is wrong."""


class AlreadyBound(BindError):
    """Someone answers at that address."""


class Key(NamedTuple):
    """A binding's name, and exactly the key of the kernel's map."""

    subnet_id: int
    ip: IPv4Address
    port: int
    proto: IpProtocol


class Binding:
    """One address being answered. An async context manager: leaving it unregisters."""

    def __init__(self, registry: Registry, spec: ServiceSpec, name: str) -> None:
        self.spec, self.name = spec, name
        self._registry = registry
        self._undo = ExitStack()
        self._wait: Callable[[], Awaitable[None]] | None = None
        self._done: asyncio.Future[None] | None = None

    @property
    def active(self) -> bool:
        return self._done is None

    async def unregister(self) -> None:
        """Stop answering. The address is free when this first suspends; handlers are cancelled and
        waited for, at most a few seconds. Every further call waits for the first and succeeds."""
        if self._done is not None:
            await asyncio.shield(self._done)
            return
        self._done = asyncio.get_running_loop().create_future()
        try:
            self._registry._release(self)
            if self._wait is not None:
                await self._wait()
        finally:
            self._registry._retire(self)
            self._done.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.unregister()


class ServerBinding(Binding):
    """A binding of `create_server`: what `asyncio.Server` offers, plus `unregister`."""

    server: Any

    @property
    def sockets(self) -> tuple[Any, ...]:
        return tuple(self.server.sockets)

    def is_serving(self) -> bool:
        return bool(self.server.is_serving())

    async def start_serving(self) -> None:
        await self.server.start_serving()

    async def serve_forever(self) -> None:
        """Until cancelled; then unregister."""
        try:
            await self.server.serve_forever()
        finally:
            await self.unregister()

    def close(self) -> None:
        """No new connections; those there are go on. `unregister` ends them and frees the address."""
        self.server.close()

    async def wait_closed(self) -> None:
        await self.server.wait_closed()


class EndpointBinding(Binding):
    """A binding of `create_datagram_endpoint`."""

    transport: Any
    protocol: Any


AnyBinding = TypeVar("AnyBinding", bound=Binding)


@dataclass(slots=True)
class _HeldVip:
    vip: Vip
    holders: int = 0
    undo: ExitStack = field(default_factory=ExitStack)


class Registry:
    """Makes bindings, refuses second ones, and knows what is bound."""

    def __init__(
        self, maps: VipMaps, stacks: Callable[[int], TenantStack], *, metrics: Metrics | None = None
    ) -> None:
        self.metrics = metrics or Metrics()
        self._maps, self._stacks = maps, stacks
        self._bindings: dict[Key, Binding] = {}
        self._vips: dict[tuple[int, IPv4Address], _HeldVip] = {}
        self._users: Counter[Labels] = Counter()
        """How many bindings count under these labels."""

    def bindings(self) -> tuple[Binding, ...]:
        """What is bound or being bound."""
        return tuple(self._bindings.values())

    async def listen_tcp(
        self,
        spec: ServiceSpec,
        handle: StreamHandler,
        *,
        limit: int = 2**16,
        limits: TcpLimits = TcpLimits(),  # noqa: B008 - frozen
        name: str = "",
        extra: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Binding:
        """Run `handle(reader, writer)` for every connection, each in its own task.

        `limit` is the StreamReader's; `extra` is added to what `get_extra_info` knows; `options`
        (such as `ssl`) go to the stack's `create_server`. Raises BindError.
        """
        _check(spec, IpProtocol.TCP, handle)
        async with self._reserved(Binding(self, spec, _name(spec, name)), extra) as (binding, stack, info):
            streams = StreamBinding(
                handle, limit=limit, limits=limits, events=self._events(binding), reporter=_reporter(binding)
            )
            tasks: set[asyncio.Task[None]] = set()
            binding._undo.callback(lambda: tasks.update(streams.abort()))
            await self._listen(
                binding, stack, streams.protocol, backlog=limits.backlog, extra=info, **options
            )
            binding._wait = lambda: streams.wait(tasks)
        return binding

    async def create_server(
        self,
        spec: ServiceSpec,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        name: str = "",
        extra: Mapping[str, object] | None = None,
        **options: Any,
    ) -> ServerBinding:
        """`loop.create_server` at a virtual address: for aiohttp, uvicorn or any asyncio protocol.

        Connections are the protocol's own business here; of our limits only the backlog holds.
        """
        _check(spec, IpProtocol.TCP, protocol_factory)
        async with self._reserved(ServerBinding(self, spec, _name(spec, name)), extra) as (
            binding,
            stack,
            info,
        ):
            binding.server = await self._listen(binding, stack, protocol_factory, extra=info, **options)
        return binding

    async def register_udp_handler(
        self,
        spec: ServiceSpec,
        handle: PacketHandler,
        *,
        limits: UdpLimits = UdpLimits(),  # noqa: B008 - frozen
        unordered: bool = False,
        name: str = "",
        extra: Mapping[str, object] | None = None,
    ) -> Binding:
        """Run `handle(request, responder)` for every datagram; it may be plain or `async`.

        `unordered`: answers to one client may overtake each other, so that more leave in one system call.
        """
        _check(spec, IpProtocol.UDP, handle)
        async with self._reserved(Binding(self, spec, _name(spec, name)), extra) as (binding, stack, info):
            endpoint = DatagramBinding(
                spec, handle, limits=limits, events=self._events(binding), reporter=_reporter(binding)
            )
            await stack.create_datagram_endpoint(
                lambda: endpoint, _local(spec), unordered=unordered, extra=info
            )
            binding._undo.callback(endpoint.close)
            self._program(binding)
            binding._wait = endpoint.wait
        return binding

    async def create_datagram_endpoint(
        self,
        spec: ServiceSpec,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        name: str = "",
        extra: Mapping[str, object] | None = None,
    ) -> EndpointBinding:
        """`loop.create_datagram_endpoint` at a virtual address; see `transport` and `protocol`."""
        _check(spec, IpProtocol.UDP, protocol_factory)
        async with self._reserved(EndpointBinding(self, spec, _name(spec, name)), extra) as (
            binding,
            stack,
            info,
        ):
            pair = await stack.create_datagram_endpoint(protocol_factory, _local(spec), extra=info)
            binding.transport, binding.protocol = pair
            binding._undo.callback(binding.transport.close)
            self._program(binding)
        return binding

    async def close(self) -> None:
        """Unregister everything."""
        await asyncio.gather(*(binding.unregister() for binding in self.bindings()))

    @asynccontextmanager
    async def _reserved(
        self, binding: AnyBinding, extra: Mapping[str, object] | None
    ) -> AsyncIterator[tuple[AnyBinding, TenantStack, dict[str, object]]]:
        """Reserve; let the body program; commit, or undo what it did."""
        spec, key = binding.spec, _key(binding.spec)
        if holder := self._bindings.get(key):
            raise AlreadyBound(
                f"bind {_what(binding)}: {holder.name} answers there (unregister it, or choose another port)"
            )
        self._bindings[key] = binding
        self._users[_labels(binding)] += 1
        try:
            stack = self._stacks(spec.tenant.vpc_id)
            self._hold_vip(binding, stack)
            info = {"tenant": spec.tenant, "service": binding.name, "spec": spec, **(extra or {})}
            yield binding, stack, info
            if not binding.active:
                raise BindError(f"bind {_what(binding)}: unregistered before it was bound")
        except BaseException as error:
            self._events(binding)["bind_errors"] += 1
            self._release(binding)
            if isinstance(error, Exception) and not isinstance(error, BindError):
                raise BindError(f"bind {_what(binding)}: {error or repr(error)}") from error
            raise
        self._events(binding)["bound"] += 1

    async def _listen(
        self,
        binding: Binding,
        stack: TenantStack,
        factory: Callable[[], asyncio.BaseProtocol],
        **options: Any,
    ) -> Any:
        server = await stack.create_server(factory, *_local(binding.spec), **options)
        binding._undo.callback(_close_server, server)
        self._program(binding)
        return server

    def _program(self, binding: Binding) -> None:
        """The last step: from here on packets arrive."""
        self._maps.bind_service(binding.spec)
        binding._undo.callback(self._maps.unbind_service, binding.spec)

    def _hold_vip(self, binding: Binding, stack: TenantStack) -> None:
        """Several bindings share a VIP: the first brings it up, the last takes it down."""
        tenant, ip, mac = binding.spec.tenant, binding.spec.addr.ip, binding.spec.service_mac
        held = self._vips.get((tenant.subnet_id, ip))
        if held is None:
            held = self._vips[tenant.subnet_id, ip] = _HeldVip(Vip(tenant, ip, mac))
        elif held.vip.mac != mac:
            raise BindError(f"bind {_what(binding)}: {ip} has the MAC {held.vip.mac} already, not {mac}")
        held.holders += 1
        binding._undo.callback(self._drop_vip, held)
        if held.holders == 1:
            stack.add_address(int(ip))
            held.undo.callback(stack.remove_address, int(ip))
            self._maps.add_vip(held.vip)
            held.undo.callback(self._maps.remove_vip, held.vip)

    def _drop_vip(self, held: _HeldVip) -> None:
        held.holders -= 1
        if not held.holders:
            del self._vips[held.vip.tenant.subnet_id, held.vip.ip]
            held.undo.close()

    def _release(self, binding: Binding) -> None:
        """Bookkeeping, map entry, listener, VIP, in that order; one failing step does not stop the next."""
        if self._bindings.get(_key(binding.spec)) is binding:
            del self._bindings[_key(binding.spec)]
            self._users[_labels(binding)] -= 1
        try:
            binding._undo.close()
        except Exception:
            self._events(binding)["unbind_errors"] += 1
            log.exception("unbind %s: something may be left behind", _what(binding))

    def _retire(self, binding: Binding) -> None:
        labels = _labels(binding)
        if self._users[labels] <= 0:
            del self._users[labels]
            self.metrics.retire(*labels)

    def _events(self, binding: Binding) -> Counter[str]:
        return self.metrics.of(binding.spec.tenant, binding.name)


def _check(spec: ServiceSpec, proto: IpProtocol, handle: object) -> None:
    """Raises InvalidSpec with what is wrong and what is allowed."""
    addr, tenant = spec.addr, spec.tenant
    problems = [
        (not callable(handle), f"handler is {handle!r}, which cannot be called"),
        (not isinstance(addr.ip, IPv4Address), f"address is {addr.ip!r}, allowed an IPv4Address"),
        (addr.proto != proto, f"protocol is {addr.proto!r}, allowed {proto!r} here"),
        (not 1 <= addr.port <= 0xFFFF, f"port is {addr.port}, allowed 1..65535"),
        (not 1 <= tenant.subnet_id <= MAX_VNI, f"subnet id is {tenant.subnet_id}, allowed 1..{MAX_VNI}"),
        (tenant.vpc_id < 1, f"vpc id is {tenant.vpc_id}, allowed 1 and up"),
        (len(spec.service_mac) != 6, f"MAC has {len(spec.service_mac)} bytes, allowed 6"),
        (bool(spec.service_mac[:1]) and bool(spec.service_mac[0] & 1), "MAC is a group address"),
    ]
    for wrong, problem in problems:
        if wrong:
            raise InvalidSpec(f"bind service {spec.service_id}: {problem}")


def _key(spec: ServiceSpec) -> Key:
    return Key(spec.tenant.subnet_id, spec.addr.ip, spec.addr.port, spec.addr.proto)


def _labels(binding: Binding) -> Labels:
    return Labels(binding.spec.tenant, binding.name)


def _local(spec: ServiceSpec) -> tuple[str, int]:
    return str(spec.addr.ip), spec.addr.port


def _name(spec: ServiceSpec, name: str) -> str:
    if name:
        return name
    known = spec.service_id in set(ServiceId)
    return ServiceId(spec.service_id).name.lower() if known else f"service-{spec.service_id}"


def _what(binding: Binding) -> str:
    tenant = binding.spec.tenant
    return f"{binding.name} at {binding.spec.addr} (vpc {tenant.vpc_id}, subnet {tenant.subnet_id})"


def _reporter(binding: Binding) -> Reporter:
    return Reporter(log, binding.name, binding.spec)


def _close_server(server: Any) -> None:
    server.close()
    if (abort_clients := getattr(server, "abort_clients", None)) is not None:  # asyncio has it from 3.13 on
        abort_clients()
