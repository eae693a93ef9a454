"""A node: packet plane, one stack per VPC, registry and services, on one event loop.

Nothing here is process-global: two nodes with different TAP names can live side by side.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address
from typing import Any

from juneau.app.collector import Slack
from juneau.app.tasks import attempt
from juneau.model.cluster import ClusterView, Subnet
from juneau.model.ids import Vip
from juneau.netstack.aio import AsyncStack
from juneau.netstack.limits import Limits
from juneau.netstack.stack import Stack
from juneau.packetplane import DesiredState, Nic, PacketPlane, StackInput, SubnetEntry
from juneau.services.framework import VirtualService
from juneau.services.host import ServiceHost, in_turns
from juneau.services.registry import Registry

log = logging.getLogger(__name__)

_SECRET_BYTES = 32
_LIMITS = Limits(udp_sockets=65_536)
"""Services open a VPC's sockets, one per Subnet and port: what bounds them is the kernel's map."""


class Node:
    def __init__(self, plane: PacketPlane, services: Sequence[VirtualService]) -> None:
        """Takes `plane` over: `close` closes it. Call it on the loop that will run the node."""
        self.plane = plane
        self.registry = Registry(plane, self.stack)
        self.host = ServiceHost(self.registry, services)
        self.on_stack: Callable[[AsyncStack], None] = lambda stack: None
        """Told of each new stack."""
        self._stacks: dict[int, AsyncStack] = {}
        self._known: frozenset[int] = frozenset()
        self._gateways: set[Vip] = set()
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._slack = Slack(self._loop)
        plane.start(self._loop, self._receiver)

    async def apply(self, view: ClusterView, nics: Sequence[Nic]) -> None:
        """Make kernel and services follow `view`; `nics` are this node's Pods."""
        async with self._lock:
            self._known = frozenset(view.vpc_by_id)
            desired = DesiredState(tuple(_entries(view)), tuple(nics))
            await asyncio.to_thread(self.plane.apply, desired)
            await self._answer_at_gateways(view)
            await self.host.update(view)
            for vpc_id in self._stacks.keys() - self._known:
                self._stacks.pop(vpc_id).close()

    async def _answer_at_gateways(self, view: ClusterView) -> None:
        """A gateway owns no interface, yet people ping it first: the stack answers for it."""
        wanted = {_gateway(view, subnet) for subnet in view.subnets.values()}
        async for vip in in_turns(self._gateways - wanted):
            self.plane.remove_vip(vip)
            if vip.tenant.vpc_id in self._stacks:
                self._stacks[vip.tenant.vpc_id].remove_address(int(vip.ip))
            self._gateways.discard(vip)
        async for vip in in_turns(wanted - self._gateways):
            self.stack(vip.tenant.vpc_id).add_address(int(vip.ip))
            self.plane.add_vip(vip)
            self._gateways.add(vip)

    async def close(self) -> None:
        """Unbind, end connections, and remove what the plane made. Failing steps are logged."""
        await attempt("stop the services", self.host.close())
        await attempt("unbind what is left", self.registry.close())
        await asyncio.sleep(0)  # the last RSTs and FINs leave in this turn
        await attempt("close the stacks", self._close_stacks())
        self._slack.close()
        await attempt("close the packet plane", self._close_plane())

    async def _close_stacks(self) -> None:
        for vpc_id in list(self._stacks):
            self._stacks.pop(vpc_id).close()

    async def _close_plane(self) -> None:
        self.plane.stop()
        await asyncio.to_thread(self.plane.close)

    def stack(self, vpc_id: int) -> AsyncStack:
        """The VPC's stack, made when it is first needed."""
        found = self._stacks.get(vpc_id)
        if found is None:
            found = self._stacks[vpc_id] = self._new_stack(vpc_id)
            self.on_stack(found)
        return found

    def stacks(self) -> Iterator[tuple[int, AsyncStack]]:
        yield from sorted(self._stacks.items())

    def _receiver(self, vpc_id: int) -> StackInput | None:
        return self._stacks.get(vpc_id) or (self.stack(vpc_id) if vpc_id in self._known else None)

    def _new_stack(self, vpc_id: int) -> AsyncStack:
        stack = Stack(
            link=self.plane.link,
            limits=_LIMITS,
            rng=random.SystemRandom(),
            secret=secrets.token_bytes(_SECRET_BYTES),
        )
        route: Any = lambda ip: self.plane.path_to(vpc_id, IPv4Address(ip))  # noqa: E731
        return AsyncStack(
            stack,
            self.plane.send,
            loop=self._loop,
            name=f"vpc {vpc_id}",
            route=route,
            gone=self._slack.gone,
        )


def _entries(view: ClusterView) -> Iterator[SubnetEntry]:
    for subnet in view.subnets.values():
        yield _entry(view, subnet)


def _gateway(view: ClusterView, subnet: Subnet) -> Vip:
    return Vip(view.tenant(subnet), subnet.gateway, subnet.gateway_mac)


def _entry(view: ClusterView, subnet: Subnet) -> SubnetEntry:
    return SubnetEntry(view.tenant(subnet), subnet.cidr, subnet.gateway, subnet.gateway_mac)
