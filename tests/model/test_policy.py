from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from juneau.model.cluster import Pod, Service, Vpc
from juneau.model.ids import Mac
from juneau.model.policy import is_endpoint, is_shared, parse_consumers, resolvable_from

OFF = Vpc("caller", 1)
PROVIDER = Vpc("caller", 1, nat_source_subnet="s")
CONSUMER = Vpc("caller", 1, consume=True)
BOTH = Vpc("caller", 1, nat_source_subnet="s", consume=True)
ANYONE, LISTED, OTHERS = frozenset(), frozenset({"x", "caller"}), frozenset({"x"})


@pytest.mark.parametrize(
    ("caller", "owner", "shared", "consumers", "expected"),
    [
        # 1: without Service routing nothing resolves, not even one's own
        (OFF, "caller", False, ANYONE, False),
        (OFF, "caller", True, LISTED, False),
        (OFF, "other", True, ANYONE, False),
        # 2: one's own always does, shared or not, listed or not
        (PROVIDER, "caller", False, ANYONE, True),
        (CONSUMER, "caller", False, OTHERS, True),
        # 3: only consumers see what others own
        (PROVIDER, "other", True, ANYONE, False),
        (PROVIDER, "other", True, LISTED, False),
        # 4: and only what is shared
        (CONSUMER, "other", False, ANYONE, False),
        (CONSUMER, "other", False, LISTED, False),
        # 5: with an empty list by all, otherwise by those it names
        (CONSUMER, "other", True, ANYONE, True),
        (BOTH, "other", True, ANYONE, True),
        (CONSUMER, "other", True, LISTED, True),
        (CONSUMER, "other", True, OTHERS, False),
        (CONSUMER, "default", True, ANYONE, True),
        (CONSUMER, "default", False, ANYONE, False),
    ],
)
def test_resolvable_from(caller, owner, shared, consumers, expected):
    service = Service("ns", "name", owner, shared=shared, allowed_consumers=consumers)
    assert resolvable_from(service, caller) is expected


@pytest.mark.parametrize(
    ("annotation", "names"),
    [("", set()), (" ", set()), (",,", set()), ("a", {"a"}), (" a , b,,a", {"a", "b"}), ("a b", {"a b"})],
)
def test_parse_consumers(annotation, names):
    assert parse_consumers(annotation) == names


@pytest.mark.parametrize(
    ("annotation", "shared"), [("true", True), ("True", False), ("1", False), ("", False)]
)
def test_only_the_literal_true_shares(annotation, shared):
    assert is_shared(annotation) is shared


POD = {
    "namespace": "ns",
    "name": "p",
    "vpc": "v",
    "subnet": "s",
    "ip": IPv4Address("10.0.0.9"),
    "mac": Mac(b"\x02" * 6),
}
SERVICE = {"namespace": "ns", "name": "x", "vpc": "v", "selector": {"app": "db"}}
LABELS = {"app": "db", "more": "y"}


@pytest.mark.parametrize(
    ("service", "pod", "expected"),
    [
        ({}, {}, True),
        ({"selector": {}}, {}, False),
        ({"selector": {"app": "db", "tier": "1"}}, {}, False),
        ({"selector": {"app": ""}}, {}, False),
        ({"vpc": "w"}, {}, False),
        ({"namespace": "other"}, {}, False),
        ({}, {"ready": False}, False),
        ({"publish_not_ready": True}, {"ready": False}, True),
    ],
)
def test_is_endpoint(service, pod, expected):
    assert is_endpoint(Service(**SERVICE | service), Pod(**POD | {"labels": LABELS} | pod)) is expected
