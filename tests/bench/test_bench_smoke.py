"""The bench itself, on the kernel's sockets: namespaces, pinning, client, report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import juneau.cli.bench
from bench.model import ASYNCIO, ROOT, UVLOOP, Settings, run
from bench.peers import kernel
from juneau.cli.main import app


def namespaces() -> set[str]:
    return {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.startswith("jbench-")}


@pytest.mark.root
def test_a_peer_serves_and_leaves_nothing():
    with kernel.asyncio(Settings()) as peer:
        mine = {word.rpartition("/")[2] for word in peer.enter if word.startswith("--net")}
        assert mine <= namespaces()
        assert peer.load("rr", *peer.at("streams"), "0.1", timeout=10)["count"] > 0
        assert peer.load("udp", *peer.at("udp"), "0.1", timeout=10)["received"] > 0
        assert peer.rss_kib() > 1_000
        assert peer.cpu_s() > 0
        [pid] = peer.server_pids()
    assert not mine & namespaces()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.root
def test_a_run_of_two_peers(tmp_path: Path):
    command = [sys.executable, "-m", "bench", "--only", "rtt", "--rounds", "2", "--seconds", "0.1"]
    command += ["--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "| rtt |" in done.stdout
    document = json.loads((tmp_path / "latest.json").read_text())
    assert document["machine"]["kernel"] == os.uname().release
    assert all(len(document["samples"]["rtt"][peer]) == 2 for peer in (UVLOOP, ASYNCIO, "juneau"))
    assert not document["failed"]


def test_juneau_bench_is_the_checkout_s():
    command = [sys.executable, "-P", "-m", "juneau.cli.main", "bench", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
    assert done.stdout.startswith("usage: bench")


def test_juneau_bench_without_a_checkout_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(juneau.cli.bench.juneau, "__file__", str(tmp_path / "juneau" / "__init__.py"))
    result = CliRunner().invoke(app, ["bench", "--quick"])
    assert result.exit_code == 2
    assert "make bench" in result.stderr
