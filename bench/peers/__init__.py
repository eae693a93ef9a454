"""Who is measured, by name, in the order of the report. A peer is a context manager that yields a `Peer`."""

from __future__ import annotations

from typing import Final

from bench.model import ASYNCIO, BULK_ONLY, COMPILED, JUNEAU, UVLOOP, PeerFactory
from bench.peers import dns, kernel, pytcp
from bench.peers.juneau import compiled, juneau
from bench.peers.subnets import many_subnets
from bench.targets import MANY_SUBNETS

PEERS: Final[dict[str, PeerFactory]] = {
    JUNEAU: juneau,
    COMPILED: compiled,
    MANY_SUBNETS: many_subnets,
    UVLOOP: kernel.uvloop,
    ASYNCIO: kernel.asyncio,
    BULK_ONLY: kernel.bulk_only,
    pytcp.NAME: pytcp.pytcp,
    **dns.PEERS,
}
