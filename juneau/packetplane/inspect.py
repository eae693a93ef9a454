"""Read a plane's pinned maps, from its own process or another: `juneau flows`, `juneau drops`, metrics."""

from __future__ import annotations

from ipaddress import IPv4Address
from struct import iter_unpack

from juneau.model.ids import Mac, TenantId
from juneau.packetplane.bpf import abi
from juneau.packetplane.bpf.maps import BpfMap, possible_cpus
from juneau.packetplane.types import FlowRecord, PlaneError, PlaneSettings


def open_map(settings: PlaneSettings, spec: abi.MapSpec) -> BpfMap:
    """Raises PlaneError."""
    try:
        per_cpu = possible_cpus() if spec is abi.COUNTER_MAP else 0
        return BpfMap.open(settings.pin_path, spec, per_cpu=per_cpu)
    except OSError as err:
        raise PlaneError(
            f"open map {settings.pin_path}/{spec.name}: {err.strerror} (is the plane up? are you root?)"
        ) from err


def read_counters(settings: PlaneSettings) -> dict[abi.PlaneCounter, int]:
    counters = open_map(settings, abi.COUNTER_MAP)
    try:
        return counters_of(counters)
    finally:
        counters.close()


def read_flows(settings: PlaneSettings, limit: int | None = None) -> list[FlowRecord]:
    flows = open_map(settings, abi.FLOW_MAP)
    try:
        return flows_of(flows, limit)
    finally:
        flows.close()


def counters_of(counters: BpfMap) -> dict[abi.PlaneCounter, int]:
    """Every counter, zeros too, summed over the CPUs."""
    return {which: _sum(counters.get(abi.u32(which)) or b"") for which in abi.PlaneCounter}


def _sum(per_cpu: bytes) -> int:
    return sum(value for (value,) in iter_unpack("=Q", per_cpu))


def flows_of(flows: BpfMap, limit: int | None = None) -> list[FlowRecord]:
    """Latest first."""
    raw = [(abi.FlowKey.unpack(k), abi.FlowValue.unpack(v)) for k, v in flows.items().items()]
    raw.sort(key=lambda entry: entry[1].last_seen_ns, reverse=True)
    return [flow_record(*entry) for entry in raw[:limit]]


def flow_record(key: abi.FlowKey, value: abi.FlowValue) -> FlowRecord:
    return FlowRecord(
        tenant=TenantId(value.vpc_id, key.subnet_id),
        src=IPv4Address(key.src_ip),
        src_port=key.src_port,
        dst=IPv4Address(key.dst_ip),
        dst_port=key.dst_port,
        proto=key.proto,
        service_id=value.service_id,
        ifindex=value.ifindex,
        pod_mac=Mac(value.pod_mac),
        service_mac=Mac(value.service_mac),
        packets=value.packets,
        bytes=value.bytes_,
        first_seen_ns=value.first_seen_ns,
        last_seen_ns=value.last_seen_ns,
    )
