"""docs/netstack.md claims nothing that is not there, and leaves no counter unexplained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs/netstack.md").read_text()
TESTS = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", DOC)))
COUNTED = re.compile(r'(?:drop|add|reason =|return)\(?\s*f?"((?:ip|icmp|udp)\.[\w{]+)')


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_the_test_exists(file: str, name: str):
    source = (ROOT / "tests/netstack" / file).read_text()
    assert re.search(rf"^ *(def |class |){name}\b", source, re.MULTILINE)


def test_the_code_exists():
    paths = re.findall(r"`((?:wire/|tcp/|aio/)?\w+\.py)`", DOC)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / "juneau/netstack" / path).exists()] == []


def test_every_counter_is_explained():
    files = [*(ROOT / "juneau/netstack").glob("*.py")]
    names = {name for file in files for name in COUNTED.findall(file.read_text())}
    assert len(names) > 20
    explained = set(re.findall(r"`((?:ip|icmp|udp)\.[\w*]+)`", DOC))
    patterns = {name.partition("{")[0] + "*" * ("{" in name) for name in names}
    assert patterns - explained == set()
