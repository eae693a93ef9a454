"""`juneau conns` and `juneau drops` beside real traffic; captures leave nothing behind in the stacks."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labcli import TWO_VPCS, LabCli, pod

from juneau.app.client import capture
from juneau.app.lab import Lab
from juneau.app.settings import lab_settings
from juneau.control import admission, manifests
from juneau.control.plan import make_plan
from juneau.services.load import load_services

pytestmark = pytest.mark.root

HANDLERS = Path(__file__).with_name("handlers.py")
VIP = "10.80.0.3"
BULK, WHO, NEVER_READS = 8000, 8001, 8003
PODS = pod("blue", "blue", "10.80.0.10") + pod("green", "green", "10.80.0.10")
SENDS = f"""
import socket, sys
s = socket.create_connection(("{VIP}", {NEVER_READS}))
s.sendall(b"x" * 1000)
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCli]:
    lab = LabCli(tmp_path_factory.mktemp("inspected"))
    lab.up(TWO_VPCS + PODS, "--service", f"{HANDLERS}:Handlers")
    yield lab
    lab.run("lab", "down")
    assert lab.leftovers() == []


@pytest.fixture(scope="module")
def client(town: LabCli) -> Iterator[subprocess.Popen[str]]:
    """In blue, connected to a handler that reads nothing."""
    arguments = ("lab", "exec", "blue", "--", sys.executable, "-c", SENDS)
    with town.start(*arguments, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        yield process
        process.communicate(timeout=20)


def table(town: LabCli, *arguments: str) -> list[dict[str, str]]:
    """The rows, cut at the columns of the header."""
    header, *lines = town.ok(*arguments).splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    names = header.split()
    return [dict(zip(names, (line[a:b].strip() for a, b in spans), strict=True)) for line in lines]


@pytest.mark.usefixtures("client")
def test_conns_name_pod_and_service(town: LabCli):
    (row,) = table(town, "conns")
    assert re.fullmatch(r"10\.80\.0\.10:\d+", row.pop("PEER"))
    assert row == {
        "VPC": "blue", "STATE": "ESTABLISHED", "RECV-Q": "0", "SEND-Q": "0", "LOCAL": f"{VIP}:{NEVER_READS}",
        "POD": "default/blue", "SERVICE": "handlers",
    }  # fmt: skip


@pytest.mark.usefixtures("client")
def test_conns_say_how_tcp_is_doing(town: LabCli):
    _, row, info = town.ok("conns", "--info").splitlines()
    assert "ESTABLISHED" in row
    assert info.startswith("    ts sack cubic wscale:")
    for pattern in (
        r"rto:\d",
        r"mss:1398 pmtu:1450 cwnd:\d{5}",
        r"rcv_wnd:\d",
        r"segs_out:\d",
        r"segs_in:\d",
    ):
        assert re.search(pattern, info), info
    assert "bytes_received:1000" in info
    (found,) = town.json("conns")
    assert (found["pod"], found["service"], found["subnet"]) == ("default/blue", "handlers", "blue")
    assert found["info"]["bytes_received"] == 1000


@pytest.mark.usefixtures("client")
def test_listeners_and_what_no_service_holds(town: LabCli):
    listening = table(town, "conns", "-l")
    assert {row["STATE"] for row in listening} == {"LISTEN"}
    assert {(row["VPC"], row["LOCAL"], row["SERVICE"]) for row in listening} > {
        ("blue", f"{VIP}:{BULK}", "handlers"), ("green", "10.80.0.2:53", "dns"),
    }  # fmt: skip
    assert {row["RECV-Q"] for row in listening} == {"0"}
    assert {row["SEND-Q"] for row in listening} == {"128"}
    # who closes first has TIME-WAIT: the handler does
    assert town.in_pod("green", "curl", "-sS", "--max-time", "10", f"http://{VIP}:{WHO}/").returncode == 0
    waiting = [row for row in table(town, "conns", "-a") if row["STATE"] == "TIME-WAIT"]
    assert [(r["VPC"], r["LOCAL"], r["POD"], r["SERVICE"]) for r in waiting] == [
        ("green", f"{VIP}:{WHO}", "default/green", "handlers")
    ]
    states = {row["STATE"] for row in table(town, "conns", "-a")}
    assert states == {"LISTEN", "ESTABLISHED", "TIME-WAIT"}


def test_drops_have_their_meaning(town: LabCli):
    assert town.in_pod("green", "curl", "-sS", f"http://{VIP}:81/").returncode == 7
    rows = {(row["WHERE"], row["VPC"], row["NAME"]): row for row in table(town, "drops")}
    row = rows["stack", "green", "tcp.no_connection"]
    assert int(row["COUNT"]) >= 1
    assert row["MEANING"].endswith("answered with RST")
    assert all(int(row["COUNT"]) for row in rows.values())
    assert not [name for _, _, name in rows if name in ("ip.received", "bound")]


def test_all_counters(town: LabCli):
    rows = {(row["WHERE"], row["VPC"], row["NAME"]): row for row in table(town, "drops", "--all")}
    assert rows["plane", "", "bpf.spoofed_mac"]["COUNT"] == "0"
    assert int(rows["plane", "", "bpf.to_service"]["COUNT"]) > 0
    assert rows["stack", "blue", "tcp.drop.paws"]["COUNT"] == "0"
    assert ("handlers", "blue", "bound") in rows
    assert [key for key, row in rows.items() if not row["MEANING"]] == []


# In this process, to look inside


async def test_a_capture_has_a_tap_only_while_somebody_reads(tmp_path: Path):
    found = manifests.parse(TWO_VPCS + PODS)
    admission.admit(found)
    settings = lab_settings(f"t{secrets.token_hex(4)}", {"JUNEAU_STATE_DIR": str(tmp_path)})
    lab = Lab(settings, make_plan(found, lab=settings.name), load_services([f"{HANDLERS}:Handlers"]))
    with lab.state.locked():
        try:
            await lab.up()
            assert lab.node is not None
            stacks = [stack.stack for _, stack in lab.node.stacks()]
            assert len(stacks) == 2

            def tapped() -> set[bool]:
                assert lab.node is not None
                return {stack.tap is not None for stack in stacks} | {lab.node.plane.drop_tap is not None}

            def look_and_leave() -> set[bool]:
                with capture(lab.state.control) as stream:
                    assert stream.read()
                    return tapped()

            assert tapped() == {False}
            assert await asyncio.to_thread(look_and_leave) == {True}
            deadline = time.monotonic() + 10
            while tapped() != {False}:
                assert time.monotonic() < deadline, "gone without a word, and no packet came"
                await asyncio.sleep(0.01)
        finally:
            await lab.close()
