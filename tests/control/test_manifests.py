"""Manifests → resources: what is accepted, and one clear line for what is not."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from juneau.control import manifests
from juneau.control.manifests import ManifestError
from juneau.control.resources import Pod, Service, Subnet, Vpc

OURS = "apiVersion: juneau.loutres.me/v1alpha1\n"
SUBNET = OURS + "kind: Subnet\nmetadata: {name: a}\nspec:\n  vpc: blue\n"


def refused(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        manifests.parse(text, "f.yaml")
    assert str(caught.value).splitlines() == [str(p) for p in caught.value.problems]
    return [str(problem) for problem in caught.value.problems]


def test_several_documents_in_one_file():
    text = f"{OURS}kind: Vpc\nmetadata: {{name: blue}}\n---\n---\n{SUBNET}  cidr: 10.80.0.9/24\n"
    vpc, subnet = manifests.parse(text, "f.yaml")
    assert isinstance(vpc.resource, Vpc)
    assert isinstance(subnet.resource, Subnet)
    assert subnet.resource.spec.cidr == IPv4Network("10.80.0.0/24"), "the masked form"
    assert (vpc.where, subnet.where) == ("f.yaml:1", "f.yaml:6")


def test_a_list_is_its_items():
    text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n"
    (pod,) = manifests.parse(text, "f.yaml")
    assert isinstance(pod.resource, Pod)
    assert pod.where == "f.yaml:4"


def test_core_kinds_may_carry_any_field():
    text = """
apiVersion: v1
kind: Pod
metadata: {name: a, uid: x, managedFields: []}
spec:
  nodeName: n1
  containers:
  - {name: c, image: busybox, resources: {limits: {cpu: 1}}, command: [sleep, inf]}
status: {phase: Running}
"""
    (pod,) = manifests.parse(text)
    assert isinstance(pod.resource, Pod)
    assert pod.resource.spec.containers[0].command == ["sleep", "inf"]


def test_service_annotations():
    text = """
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations:
    juneau.loutres.me/vpc: blue
    juneau.loutres.me/shared-service: "true"
    juneau.loutres.me/shared-service-allowed-consumer-vpcs: " green, ,red "
spec: {ports: [{port: 80, targetPort: http}]}
"""
    (service,) = (m.resource for m in manifests.parse(text))
    assert isinstance(service, Service)
    assert (service.vpc, service.shared) == ("blue", True)
    assert service.allowed_consumers == {"green", "red"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "kind: Vpc\nmetadata: {name: a}\n",
            "f.yaml:1: Vpc a: no apiVersion (every resource states apiVersion and kind)",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
            "f.yaml:2: ConfigMap a: unknown kind ConfigMap of v1 "
            "(known: Vpc, Subnet, VpcEndpoint, Pod, Service, Namespace)",
        ),
        (
            "apiVersion: v1\nkind: Vpc\nmetadata: {name: a}\n",
            "f.yaml:2: Vpc a: apiVersion v1 has no kind Vpc (write apiVersion: juneau.loutres.me/v1alpha1)",
        ),
        (SUBNET, "f.yaml:4: Subnet a: spec.cidr: required"),
        (
            SUBNET + "  cdir: 10.0.0.0/24\n  cidr: 10.0.0.0/24\n",
            "f.yaml:6: Subnet a: spec.cdir: unknown field (did you mean cidr?)",
        ),
        (
            SUBNET + "  cidr: 10.0.0.0\n",
            "f.yaml:6: Subnet a: spec.cidr: '10.0.0.0' is not an IPv4 CIDR (write it as 10.80.0.0/24)",
        ),
        (
            SUBNET + "  cidr: fd00::/64\n",
            "f.yaml:6: Subnet a: spec.cidr: 'fd00::/64' is not an IPv4 CIDR (write it as 10.80.0.0/24)",
        ),
        (SUBNET + "  vpc: green\n", "f.yaml:6: not YAML: key 'vpc' given twice"),
        (
            OURS + "kind: Vpc\nmetadata: {name: Blue}\n",
            "f.yaml:3: Vpc Blue: metadata.name: 'Blue' is not a DNS-1123 name "
            "(lower-case letters, digits, '-' and '.')",
        ),
        (
            OURS + "kind: Vpc\nmetadata: {name: a}\nspec:\n  service:\n    provider: {natSource: b}\n",
            "f.yaml:6: Vpc a: spec.service.provider.natSourceSubnet: required",
        ),
        ("- a\n", "f.yaml:1: a resource is a mapping, this is list"),
        ("a: [\n", "f.yaml:2: not YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_what_is_refused(text: str, line: str):
    assert line in refused(text)


def test_every_problem_is_told_at_once():
    text = f"{OURS}kind: Vpc\nmetadata: {{name: a}}\nspec: {{x: 1, y: 2}}\n---\napiVersion: v1\nkind: Nope\n"
    assert len(refused(text)) == 3


def test_folder_takes_yaml_in_order_and_nothing_else(tmp_path: Path):
    for name in ("b.yml", "a.yaml"):
        (tmp_path / name).write_text(f"{OURS}kind: Vpc\nmetadata: {{name: {name[0]}}}\n")
    (tmp_path / "check.sh").write_text("echo")
    assert [m.resource.name for m in manifests.load([tmp_path])] == ["a", "b"]


@pytest.mark.parametrize("content", [None, "", "# nothing\n---\n"])
def test_nothing_to_load(tmp_path: Path, content: str | None):
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ManifestError) as caught:
        manifests.load([path])
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith(str(path))


def test_a_device_that_does_not_end_is_one_line():
    with pytest.raises(ManifestError, match="/dev/zero: more than"):
        manifests.load([Path("/dev/zero")])


def test_names_cannot_write_on_the_terminal():
    text = 'apiVersion: juneau.loutres.me/v1alpha1\nkind: Vpc\nmetadata: {name: "a\\e[31m\\0\\r"}'
    with pytest.raises(ManifestError) as caught:
        manifests.parse(text)
    assert str(caught.value).isprintable()


def test_binary_file_is_one_line(tmp_path: Path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="not UTF-8 text"):
        manifests.load([tmp_path])


KEYS = st.sampled_from(["apiVersion", "kind", "metadata", "spec", "name", "items", "cidr", "vpc"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["v1", "Pod", "Subnet", "List"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def lines(text: str) -> list[str]:
    """What is wrong with it, line by line; any exception but ManifestError is a defect."""
    try:
        manifests.parse(text, "f.yaml")
    except ManifestError as error:
        return str(error).split("\n")
    return []


@given(VALUES)
def test_any_document_gives_resources_or_lines(value: object):
    assert all(line.startswith("f.yaml") for line in lines(yaml.safe_dump(value)))


@given(st.text(max_size=200) | st.text("{}[]:-&*!|> \n\tabc\"'", max_size=80))
def test_any_text_gives_resources_or_lines(text: str):
    assert all(line.startswith("f.yaml") for line in lines(text))
