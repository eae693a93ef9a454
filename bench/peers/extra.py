"""What the juneau peer and the kernel peers serve besides `bench.handler`: one line an application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Extra:
    service: str
    """Its name in `Peer.ports`."""
    port: int
    juneau: str
    """MODULE:NAME of a VirtualService at `.3`, or FILE:NAME, the file relative to the checkout."""
    kernel: str
    """MODULE:NAME of `async def NAME(host: str, port: int)`, which starts serving and returns."""


HTTP_PORT: Final = 9003
EXTRAS: Final[tuple[Extra, ...]] = (
    Extra("http", HTTP_PORT, "bench.peers.http:Http", "bench.peers.http:serve"),
)
