"""No counter without its line, no line without its counter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from juneau.app.explain import PLANE, SERVICE, STACK, explain
from juneau.packetplane.bpf.abi import PlaneCounter

ROOT = Path(__file__).parents[2] / "juneau"
STACK_USE = re.compile(r'(?:drop|add|values|reason =|return)[\[(]?\s*f?"((?:ip|icmp|udp|tcp)\.[\w.]+)')
STACK_CHOICE = re.compile(r'"(tcp\.drop\.\w+)"')
PLANE_NAME = re.compile(r'"((?:rx|tx|tap)\.\w+)"')
SERVICE_NAME = re.compile(r'"((?:tcp|udp)\.\w+|dns(?:\.\w+)*\.[a-z_]+)"|_events\(binding\)\["(\w+)"\]')
NO_COUNTERS = re.compile(r"dns\.(label|name|opt|option|pointer|question|rdata|rr|soa|trailer)$")
"""Fields of Malformed."""


def names(folder: str, *patterns: re.Pattern[str]) -> Iterator[str]:
    for file in (ROOT / folder).rglob("*.py"):
        for pattern in patterns:
            for match in pattern.finditer(file.read_text()):
                yield next(filter(None, match.groups()))


USED = {
    "stack": {*names("netstack", STACK_USE, STACK_CHOICE)},
    "plane": {*names("packetplane", PLANE_NAME)} | {f"bpf.{which.label}" for which in PlaneCounter},
    "service": {name for name in names("services", SERVICE_NAME) if not NO_COUNTERS.match(name)},
}
LINES = {"stack": STACK, "plane": PLANE, "service": SERVICE}


@pytest.mark.parametrize("where", USED)
def test_every_counter_has_a_line(where: str):
    assert len(USED[where]) > 20
    assert [name for name in sorted(USED[where]) if not explain(name, LINES[where])] == []


@pytest.mark.parametrize("where", USED)
def test_every_line_has_a_counter(where: str):
    said = {key for key in LINES[where] if not key.endswith("*")}
    assert sorted(said - USED[where]) == []


def test_families():
    assert explain("ip.bad_checksum", STACK) == STACK["ip.bad_*"]
    assert explain("udp.icmp_error_unknown", STACK) == STACK["udp.icmp_error_unknown"]
    assert explain("dns.NXDOMAIN", SERVICE) == SERVICE["dns.*"]
    assert explain("gone.with_the_wind", STACK) == ""


def test_lines_are_short():
    assert [line for lines in LINES.values() for line in lines.values() if len(line) > 90] == []
