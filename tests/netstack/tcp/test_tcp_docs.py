"""Every TCP counter is explained in docs/netstack.md, and every one explained exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
COUNTER = re.compile(r'"(tcp\.(?:drop\.)?[a-z_0-9]+)"')


def test_every_tcp_counter_is_explained():
    code = "".join(f.read_text() for f in (ROOT / "juneau/netstack/tcp").rglob("*.py"))
    counted = set(COUNTER.findall(code)) - {"tcp.no_port"}  # of an exception only
    explained = set(re.findall(r"^\| `(tcp\.[a-z_.0-9]+)` \|", (ROOT / "docs/netstack.md").read_text(), re.M))
    assert counted == explained
