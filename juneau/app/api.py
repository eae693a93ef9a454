"""What a running lab answers on its control socket: JSON for the other commands, metrics for Prometheus."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from juneau.app import collector, conns
from juneau.app.capture import Captures
from juneau.model.cluster import Subnet
from juneau.model.ids import Protocol, TenantId

if TYPE_CHECKING:
    from juneau.app.lab import Lab
    from juneau.app.node import Node

_SHUTDOWN_S: Final = 2.0
"""What a reader of a capture has to take what is left."""


@web.middleware
async def _tidy(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    finally:
        collector.after_answer(asyncio.get_running_loop())


class ControlApi:
    def __init__(self, lab: Lab) -> None:
        assert lab.node is not None
        self._lab, self._node = lab, lab.node
        self._captures = Captures(lab)
        self._runner: web.AppRunner | None = None
        self._metrics = CollectorRegistry()
        self._node.registry.metrics.export(self._metrics)
        self._metrics.register(_NodeCollector(self._node))

    async def start(self, path: Path) -> None:
        """Only root can open the socket: it shows every tenant."""
        app = web.Application(middlewares=[_tidy])
        app.add_routes([web.get(f"/v1/{name}", _json(answer)) for name, answer in self._answers().items()])
        app.router.add_get("/metrics", self._metrics_text)
        app.router.add_get("/v1/capture", self._captures.stream)
        app.router.add_delete("/v1/capture/{key}", self._captures.end)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S
        )
        await self._runner.setup()
        old = os.umask(0o177)
        try:
            await web.UnixSite(self._runner, str(path)).start()
        finally:
            os.umask(old)

    async def stop(self) -> None:
        self._captures.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _answers(self) -> dict[str, Callable[[], Any]]:
        return {
            "status": self.status,
            "drops": self.drops,
            "flows": self.flows,
            "conns": self.conns,
            "listeners": self.listeners,
            "remnants": self.remnants,
        }

    def status(self) -> dict[str, Any]:
        lab, view = self._lab, self._lab.plan.view
        return {
            "lab": lab.record.lab,
            "pid": lab.record.pid,
            "since": lab.record.since,
            "phase": lab.record.phase,
            "tap": lab.record.tap,
            "log": str(lab.state.log),
            "vpcs": [{"name": v.name, "vpcID": v.vpc_id} for v in view.vpcs.values()],
            "subnets": [_subnet(subnet) for subnet in view.subnets.values()],
            "pods": list(self._pods()),
            "services": [row._asdict() for row in self._node.host.status()],
            "clusterServices": [
                {"namespace": s.namespace, "name": s.name, "vpc": s.vpc, "clusterIP": str(s.cluster_ip)}
                for s in view.services.values()
            ],
            "vpcEndpoints": [
                {"name": e.name, "vpc": e.spec.vpc, "served": False, "message": "not served yet"}
                for e in lab.plan.endpoints
            ],
        }

    def drops(self) -> dict[str, Any]:
        """Why packets went nowhere: the kernel side by reason, the stacks' counters, the services' events;
        and what the kernel side let through."""
        names = {vpc.vpc_id: vpc.name for vpc in self._lab.plan.view.vpcs.values()}
        stacks = {names[vpc]: stack.stack.counters.snapshot() for vpc, stack in self._node.stacks()}
        services = [
            self._names(labels.tenant) | {"service": labels.service, "events": events}
            for labels, events in self._node.registry.metrics.snapshot().items()
        ]
        plane, dropped = self._node.plane, self._node.plane.drops()
        passed = {f"bpf.{name}": count for name, count in plane.passes().items()}
        passed |= {name: count for name, count in plane.counters.items() if name not in dropped}
        return {"plane": dropped, "passed": passed, "stacks": stacks, "services": services}

    def flows(self) -> list[dict[str, Any]]:
        rows = []
        for flow in self._node.plane.flows():
            tenant = flow.tenant
            row = flow._asdict() | self._names(tenant)
            row["tenant"] = {"vpcID": tenant.vpc_id, "vni": tenant.subnet_id}
            row["proto"] = _proto(flow.proto)
            row |= {key: str(row[key]) for key in ("src", "dst", "pod_mac", "service_mac")}
            rows.append(row)
        return rows

    def conns(self) -> list[dict[str, Any]]:
        return conns.connections(self._lab, self._node)

    def listeners(self) -> list[dict[str, Any]]:
        return conns.listeners(self._lab, self._node)

    def remnants(self) -> list[dict[str, Any]]:
        return conns.remnants(self._lab, self._node)

    def _pods(self) -> Iterator[dict[str, Any]]:
        for plan, record in zip(self._lab.plan.pods, self._lab.record.pods, strict=True):
            states = self._lab.containers.states(plan)
            containers = {name: {"state": states[name], "log": log} for name, log in record.logs.items()}
            shown = ("namespace", "name", "vpc", "subnet", "ip", "mac", "netns")
            row = {key: getattr(record, key) for key in shown}
            yield row | {"interface": record.host_ifname, "containers": containers}

    def _names(self, tenant: TenantId) -> dict[str, str]:
        subnet = self._lab.plan.view.subnet_by_vni.get(tenant.subnet_id)
        return {"vpc": subnet.vpc if subnet else "", "subnet": subnet.name if subnet else ""}

    async def _metrics_text(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics), content_type="text/plain")


class _NodeCollector:
    """Drops of the packet plane and counters of the stacks."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        plane = CounterMetricFamily(
            "juneau_plane_events", "Packets dropped or passed, by reason.", labels=("reason",)
        )
        for reason, count in self._node.plane.drops().items():
            plane.add_metric((reason,), count)
        yield plane
        stacks = CounterMetricFamily(
            "juneau_stack_events", "Events of a VPC's stack.", labels=("vpc", "event")
        )
        for vpc_id, stack in self._node.stacks():
            for event, count in stack.stack.counters.snapshot().items():
                stacks.add_metric((str(vpc_id), event), count)
        yield stacks


def _json(answer: Callable[[], Any]) -> Callable[[web.Request], Any]:
    async def handle(_: web.Request) -> web.Response:
        return web.json_response(answer())

    return handle


def _subnet(subnet: Subnet) -> dict[str, Any]:
    shown = {"name": subnet.name, "vpc": subnet.vpc, "vni": subnet.vni}
    return shown | {key: str(getattr(subnet, key)) for key in ("cidr", "gateway", "dns")}


def _proto(number: int) -> str:
    return Protocol(number).name.lower() if number in set(Protocol) else str(number)
