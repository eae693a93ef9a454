"""Desired state to map contents, and the difference to what a map holds."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.model.ids import Mac, Protocol, ServiceSpec, TenantId, VirtualAddr
from juneau.packetplane import DesiredState, Nic, PlaneError, SubnetEntry, Vip, plan
from juneau.packetplane.bpf import abi

GATEWAY_MAC, POD_MAC, VIP_MAC = (Mac(bytes([2, 0, 0, 0, 0, n])) for n in (1, 2, 3))
ONE, OTHER = TenantId(7, 1), TenantId(8, 0x10001)

entries = st.dictionaries(st.binary(min_size=1, max_size=2), st.binary(max_size=2))


def subnet(tenant: TenantId, cidr: str = "10.80.0.0/24") -> SubnetEntry:
    network = IPv4Network(cidr)
    return SubnetEntry(tenant, network, network[1], GATEWAY_MAC)


def nic(tenant: TenantId, ip: str = "10.80.0.10", ifindex: int = 5, mac: Mac = POD_MAC) -> Nic:
    return Nic(ifindex, f"veth{ifindex}", tenant, IPv4Address(ip), mac)


@given(entries, entries)
def test_carrying_out_the_difference_leaves_nothing_to_do(
    desired: dict[bytes, bytes], actual: dict[bytes, bytes]
) -> None:
    change = plan.diff(desired, actual)
    for key in change.delete:
        del actual[key]
    actual.update(change.update)
    assert actual == desired
    assert plan.diff(desired, actual) == ((), ())


@given(entries)
def test_what_agrees_is_not_written_again(actual: dict[bytes, bytes]) -> None:
    assert plan.diff(actual, dict(actual)) == ((), ())


def test_tenants_with_the_same_addresses_have_no_key_in_common() -> None:
    state = DesiredState((subnet(ONE), subnet(OTHER)), (nic(ONE), nic(OTHER, ifindex=6)))
    vips = [Vip(ONE, IPv4Address("10.80.0.2"), VIP_MAC), Vip(OTHER, IPv4Address("10.80.0.2"), VIP_MAC)]
    made = plan.contents(state, vips, [])
    counts = {spec.name: len(held) for spec, held in made.items()}
    assert counts == {
        "subnet_map": 2,
        "route_map": 2,
        "nic_map": 2,
        "fdb_map": 2,
        "arp_table": 6,
        "virtual_service_map": 2,
    }


def test_a_vip_may_take_the_gateways_address_but_not_a_pods() -> None:
    state = DesiredState((subnet(ONE),), (nic(ONE),))
    vips = [Vip(ONE, IPv4Address(ip), VIP_MAC) for ip in ("10.80.0.1", "10.80.0.10")]
    arp = plan.contents(state, vips, [])[abi.ARP_TABLE]
    assert arp[abi.ArpKey(1, bytes([10, 80, 0, 1])).pack()] == abi.ArpValue(0, VIP_MAC).pack()
    assert arp[abi.ArpKey(1, bytes([10, 80, 0, 10])).pack()] == abi.ArpValue(5, POD_MAC).pack()


def test_a_service_is_programmed_beside_its_vip() -> None:
    spec = ServiceSpec(1001, ONE, VirtualAddr(IPv4Address("10.80.0.3"), 8080, Protocol.TCP), VIP_MAC)
    made = plan.contents(DesiredState((subnet(ONE),)), [Vip(ONE, spec.addr.ip, VIP_MAC)], [spec])
    assert made[abi.VIRTUAL_SERVICE_MAP] == {
        abi.VirtualServiceKey(1, spec.addr.ip.packed, 8080, 6).pack(): abi.VirtualServiceValue(
            1001, VIP_MAC
        ).pack(),
        abi.VirtualServiceKey(1, spec.addr.ip.packed, 0, 0).pack(): abi.VirtualServiceValue(
            0, VIP_MAC
        ).pack(),
    }


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (DesiredState((subnet(ONE), subnet(TenantId(9, 1)))), "subnet_id 1: given twice"),
        (DesiredState((subnet(ONE),), (nic(ONE), nic(ONE, "10.80.0.11", mac=VIP_MAC))), "ifindex 5"),
        (DesiredState((subnet(ONE),), (nic(ONE), nic(ONE, ifindex=6, mac=VIP_MAC))), "pod address"),
        (DesiredState((subnet(ONE),), (nic(ONE), nic(ONE, "10.80.0.11", ifindex=6))), "pod mac"),
        (DesiredState((subnet(ONE),), (nic(OTHER),)), "not in the desired state"),
        (
            DesiredState((subnet(ONE),), (), (Vip(OTHER, IPv4Address("10.80.0.2"), VIP_MAC),)),
            "not in the desired state",
        ),
    ],
)
def test_what_maps_cannot_hold_is_refused(state: DesiredState, said: str) -> None:
    with pytest.raises(PlaneError, match=said):
        plan.check(state)
