"""Counters of the service plane: by tenant, service and event; a dict, and Prometheus if asked for.

Labels come from bindings and events from code, never from packets, so a Pod cannot grow them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from juneau.model.ids import TenantId

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

MAX_LABELS: Final = 8192
"""Tenant and service pairs kept apart; what is past that is counted under `OVERFLOW`."""


class Labels(NamedTuple):
    tenant: TenantId
    service: str


OVERFLOW: Final = Labels(TenantId(0, 0), "other")


class Metrics:
    """All counters of a node's services."""

    def __init__(self) -> None:
        self._events: dict[tuple[TenantId, str], Counter[str]] = {}  # by Labels, or what equals them

    def of(self, tenant: TenantId, service: str) -> Counter[str]:
        """The live counter of one service in one Subnet; add to it directly."""
        events = self._events.get((tenant, service))
        if events is None:
            labels = Labels(tenant, service)
            labels = labels if len(self._events) < MAX_LABELS else OVERFLOW
            events = self._events.setdefault(labels, Counter())
        return events

    def retire(self, tenant: TenantId, service: str) -> None:
        """Fold a departed Subnet's counts into (0, 0): sums never go backwards, labels stay bounded."""
        events = self._events.pop(Labels(tenant, service), None)
        if events:
            self._events.setdefault(Labels(TenantId(0, 0), service), Counter()).update(events)

    def snapshot(self) -> dict[Labels, dict[str, int]]:
        return {Labels(*labels): dict(events) for labels, events in self._events.items()}

    def total(self, event: str) -> int:
        return sum(events[event] for events in self._events.values())

    def export(self, registry: CollectorRegistry) -> None:
        """Show everything as `juneau_service_events_total{vpc,subnet,service,event}`."""
        registry.register(_Collector(self))


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "juneau_service_events",
            "Events of virtual services, by tenant.",
            labels=("vpc", "subnet", "service", "event"),
        )
        for (tenant, service), events in self._metrics.snapshot().items():
            for event, count in events.items():
                family.add_metric((str(tenant.vpc_id), str(tenant.subnet_id), service, event), count)
        yield family
