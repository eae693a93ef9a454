"""The commands of docs/operations.md run, in order, and print tables with the columns the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from labcli import LabCli

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)\n)?", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_the_page(lab: LabCli, tmp_path: Path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = lab.env | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    said = []
    for commands, header in BLOCKS:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}{lab.log()}"
        said.append(done.stdout)
        if header:
            assert header.split() in [line.split() for line in done.stdout.splitlines()], done.stdout
    everything = "".join(said)
    for seen in (
        "ESTABLISHED",
        "LISTEN",
        "tcp.no_connection",
        "blue/blue",
        "juneau_stack_events_total",
        "curl: 7",
    ):
        assert seen in everything
    assert "removed lab" in said[-1]


def test_the_page_has_its_commands():
    assert len(BLOCKS) == 8
    assert sum(bool(header) for _, header in BLOCKS) == 3
