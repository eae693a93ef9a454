"""Who may see what across Vpcs. DNS answers and BPF programming ask here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from juneau.model.cluster import Pod, Service, Vpc


def resolvable_from(service: Service, caller: Vpc) -> bool:
    """May Pods of `caller` reach `service`? A no hides that it exists. The first rule that fits decides."""
    if not caller.service_enabled:
        return False
    if service.vpc == caller.name:
        return True
    if not caller.consume or not service.shared:
        return False
    return not service.allowed_consumers or caller.name in service.allowed_consumers


def parse_consumers(annotation: str) -> frozenset[str]:
    """The consumer list of a Service: comma separated, spaces trimmed, empties dropped."""
    return frozenset(name.strip() for name in annotation.split(",") if name.strip())


def is_shared(annotation: str) -> bool:
    """Only the literal `true` shares a Service."""
    return annotation == "true"


def is_endpoint(service: Service, pod: Pod) -> bool:
    """Does `pod` stand behind `service`? A Service without a selector selects nothing."""
    return (
        pod.namespace == service.namespace
        and pod.vpc == service.vpc
        and bool(service.selector)
        and _selects(service.selector, pod.labels)
        and (pod.ready or service.publish_not_ready)
    )


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())
