"""The plan: numbers, addresses and names, for any admitted set."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_text import endpoint, pod, service, subnet, vpc

from juneau.control import admission, manifests, plan
from juneau.control.manifests import Manifest
from juneau.control.resources import Container, ObjectMeta, Pod, PodSpec, Subnet, SubnetSpec, Vpc
from juneau.model.ids import Protocol


def make(*documents: str, lab: str = "t") -> plan.LabPlan:
    found = manifests.parse("---\n".join(documents), "f")
    admission.admit(found)
    return plan.make_plan(found, lab=lab)


TWO = (vpc("blue"), vpc("green"), subnet("a", "blue"), subnet("b", "green"))


def test_numbers():
    view = make(*TWO).view
    assert {name: v.vpc_id for name, v in view.vpcs.items()} == {"default": 1, "blue": 2, "green": 3}
    assert {name: s.vni for name, s in view.subnets.items()} == {"a": 2, "b": 3}
    a = view.subnets["a"]
    assert (a.gateway, a.dns) == (IPv4Address("10.80.0.1"), IPv4Address("10.80.0.2"))
    assert view.vpcs["default"].is_provider
    assert not view.vpcs["blue"].service_enabled


def test_pinned_addresses_go_first():
    pods = make(*TWO, pod("p", "a"), pod("q", "a", "10.80.0.4"), pod("r", "a"), pod("s", "b")).pods
    assert [str(p.ip) for p in pods] == ["10.80.0.5", "10.80.0.4", "10.80.0.6", "10.80.0.4"]


def test_same_pod_and_address_in_two_vpcs_are_two_pods():
    one, other = make(*TWO, pod("p", "a", "10.80.0.10"), pod("q", "b", "10.80.0.10")).pods
    assert one.ip == other.ip
    assert one.mac != other.mac
    assert one.host_ifname != other.host_ifname


def test_cluster_ips_skip_those_given():
    given_ip = "{clusterIP: 10.96.0.2, ports: [{port: 53, protocol: UDP, targetPort: dns}]}"
    view = make(
        service("x"), service("y", given_ip), service("z"), service("h", "{clusterIP: None}"),
        service("e", "{type: ExternalName, externalName: example.org}"),
    ).view  # fmt: skip
    ips = {name: s.cluster_ip for (_, name), s in view.services.items()}
    assert {n: str(ip) for n, ip in ips.items()} == {
        "x": "10.96.0.1", "y": "10.96.0.2", "z": "10.96.0.3", "h": "None", "e": "None",
    }  # fmt: skip
    port = view.services["default", "y"].ports[0]
    assert (port.port, port.proto, port.target_port) == (53, Protocol.UDP, "dns")
    assert view.services["default", "e"].external_name == "example.org"


def test_endpoints_are_kept():
    blue = vpc("blue", "{endpointPool: {cidrs: [10.81.0.0/28]}}")
    assert [e.name for e in make(blue, subnet("a", "blue"), endpoint("e", "blue")).endpoints] == ["e"]


CLUSTER = "search default.svc.cluster.local svc.cluster.local cluster.local\n"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("{}", f"nameserver 10.80.0.2\n{CLUSTER}options ndots:5\n"),
        ("{dnsPolicy: ClusterFirst}", f"nameserver 10.80.0.2\n{CLUSTER}options ndots:5\n"),
        ("{dnsPolicy: Default}", ""),
        ("{dnsPolicy: None, dnsConfig: {nameservers: [9.9.9.9]}}", "nameserver 9.9.9.9\n"),
        (
            "{dnsConfig: {nameservers: [9.9.9.9, 10.80.0.2, 1.1.1.1, 8.8.8.8], searches: [x.org], "
            "options: [{name: ndots, value: '1'}, {name: edns0}]}}",
            "nameserver 10.80.0.2\nnameserver 9.9.9.9\nnameserver 1.1.1.1\n"
            "search x.org\noptions ndots:1 edns0\n",
        ),
    ],
)
def test_resolv_conf(spec: str, text: str):
    assert make(*TWO, pod("p", "a", spec=spec)).pods[0].resolv_conf == text


def test_resolv_conf_is_left_alone_where_the_webhook_skips():
    skip = pod("p", "a").replace("{juneau", '{juneau.loutres.me/dns-inject-skip: "true", juneau')
    in_default = (subnet("default", "default", "10.16.0.0/16"), pod("q"))
    assert [p.resolv_conf for p in make(*TWO, skip, *in_default).pods] == ["", ""]


def test_command_and_args():
    spec = (
        "{containers: [{name: c, command: [a], args: [b], env: [{name: X, value: y}]}, {name: d, args: [z]}]}"
    )
    one, other = make(*TWO, pod("p", "a", spec=spec)).pods[0].containers
    assert (one.argv, one.env) == (("a", "b"), (("X", "y"),))
    assert other.argv == (), "args without a command belong to an image's entry point"


def test_names_of_kernel_objects():
    planned = make(*TWO, pod("web.1", "a"), lab="t").pods[0]
    assert planned.netns == "juneau.t.default.web.1"
    assert planned.hostname == "web"
    assert planned.host_ifname != make(*TWO, pod("web.1", "a"), lab="u").pods[0].host_ifname
    long = make(*TWO, pod("x" * 250, "a")).pods[0]
    assert len(long.netns) < 255
    assert long.netns.startswith(plan.netns_prefix("t"))


NAMES = st.text("ab-", min_size=1, max_size=3).map(lambda s: f"x{s}x")
PODS = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from(["a", "b"]), st.none() | st.integers(4, 9)),
    max_size=11,
    unique_by=(lambda t: t[:2], lambda t: (t[2], t[3] if t[3] is not None else t[:2])),
)


def _manifests(pods: list[tuple[str, str, str, int | None]]) -> list[Manifest]:
    resources: list[object] = []
    for name, owner in (("a", "blue"), ("b", "green")):
        resources.append(Vpc(metadata=ObjectMeta(name=owner)))
        spec = SubnetSpec(vpc=owner, cidr=IPv4Network("10.0.0.0/28"))
        resources.append(Subnet(metadata=ObjectMeta(name=name), spec=spec))
    for namespace, name, where, pinned in pods:
        notes = {"juneau.loutres.me/subnet": where}
        if pinned is not None:
            notes["juneau.loutres.me/address"] = f"10.0.0.{pinned}"
        meta = ObjectMeta(name=name, namespace=namespace, annotations=notes)
        resources.append(Pod(metadata=meta, spec=PodSpec(containers=[Container(name="c")])))
    return [Manifest("f", r) for r in resources]  # type: ignore[arg-type]


@given(PODS)
def test_any_admitted_set_has_a_sound_plan(pods: list[tuple[str, str, str, int | None]]):
    found = _manifests(pods)
    admission.admit(found)
    made = plan.make_plan(found, lab="t")
    assert made == plan.make_plan(found, lab="t"), "deterministic"
    assert len({p.netns for p in made.pods}) == len({p.host_ifname for p in made.pods}) == len(pods)
    assert all(len(p.host_ifname) <= 15 for p in made.pods)
    assert len({(p.subnet, p.ip) for p in made.pods}) == len({p.mac for p in made.pods}) == len(pods)
    for planned, (_, _, where, pinned) in zip(made.pods, pods, strict=True):
        cidr = made.view.subnets[where].cidr
        assert planned.ip in cidr
        assert planned.ip not in admission.reserved(cidr)
        assert pinned is None or planned.ip == IPv4Address(f"10.0.0.{pinned}")
        assert planned.mac[0] & 0b11 == 0b10, "locally administered, unicast"


@given(st.integers(24, 28), st.sets(st.integers(0, 255)))
def test_first_free_is_the_lowest(prefix: int, used: set[int]):
    cidr = IPv4Network(f"10.0.0.0/{prefix}")
    taken = {IPv4Address(f"10.0.0.{n}") for n in used}
    free = [ip for ip in cidr if ip not in taken and ip not in admission.reserved(cidr)]
    if free:
        assert plan.first_free(cidr, taken) == free[0]
    else:
        with pytest.raises(ValueError, match="all are taken"):
            plan.first_free(cidr, taken)
