"""Names on the command line."""

from __future__ import annotations

from bench.__main__ import _names
from bench.peers import PEERS
from bench.workloads import WORKLOADS


def test_names_with_commas_of_their_own_are_read_back():
    assert _names("kernel, uvloop,unbound") == ["kernel, uvloop", "unbound"]
    assert _names(",".join(PEERS)) == list(PEERS)
    assert _names(",".join(w.name for w in WORKLOADS)) == [w.name for w in WORKLOADS]
