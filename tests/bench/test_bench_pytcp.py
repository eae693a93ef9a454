"""The handler on pmd-pytcp's sockets: on a stand-in, and on the real ones where bench/prepare has run."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench.handler import handle
from bench.model import Settings, Unavailable
from bench.peers import pytcp


class Connection:
    """As much of its socket as the adapter uses. What was sent is gone by the next look."""

    def __init__(self, *received: bytes) -> None:
        self._received, self.sent, self.closed = list(received), b"", False
        self.tcp_session = self
        self._unsent = 0
        self.most_unsent = 0

    async def recv(self, size: int) -> bytes:
        if not self._received:
            return b""
        data = self._received.pop(0)
        if data[size:]:
            self._received.insert(0, data[size:])
        return data[:size]

    def send(self, *, data: bytes) -> None:
        self.sent += data
        self._unsent += len(data)
        self.most_unsent = max(self.most_unsent, self._unsent)

    def status(self) -> SimpleNamespace:
        unsent, self._unsent = self._unsent, self._unsent // 2
        return SimpleNamespace(tx_buffer_len=unsent)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("pmd_net_addr", "pmd_pytcp"):
        stand_in = ModuleType(name)
        for attribute in ("Ip4IfAddr", "MacAddress", "socket", "stack"):
            setattr(stand_in, attribute, None)
        monkeypatch.setitem(sys.modules, name, stand_in)
    spec = importlib.util.spec_from_file_location("pytcp_server", pytcp.SERVER)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def served(server: Any, *received: bytes) -> Connection:
    connection = Connection(*received)
    await handle(server.Reader(connection), server.Writer(connection))
    assert connection.closed
    return connection


async def test_an_upload_is_counted_whatever_came_with_its_first_line(server: Any):
    assert (await served(server, b"u", b"p\nabc", b"x" * 100_000)).sent == b"100003\n"


async def test_a_download_waits_for_what_is_unsent(server: Any):
    connection = await served(server, b"down 1000000\n")
    assert len(connection.sent) == 1_000_000
    assert connection.most_unsent <= server.HIGH_WATER + 65_536


async def test_an_echo_begins_with_what_came_with_the_first_line(server: Any):
    assert (await served(server, b"echo\nx", b"y")).sent == b"xy"


@pytest.mark.root
@pytest.mark.slow
def test_it_is_measured_where_the_bench_was_prepared():
    try:
        with pytcp.pytcp(Settings()) as peer:
            found = peer.load("rr", *peer.at("streams"), "0.2", timeout=10)
    except Unavailable as lack:
        pytest.skip(str(lack))
    assert found["count"] > 10
