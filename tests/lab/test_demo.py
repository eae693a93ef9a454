"""The demo as `make demo` runs it, and that its checks can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from labcli import LabCli

pytestmark = pytest.mark.root

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = ["lab", "run", "-f", str(EXAMPLES / "demo")]
CHECK = ["--", str(EXAMPLES / "demo" / "check.sh")]


def test_demo(lab: LabCli):
    done = lab.run(*DEMO, "--service", f"{EXAMPLES}/hello.py:Hello", *CHECK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("demo: 10 checks passed")
    assert lab.leftovers() == []


def test_demo_without_its_service_fails(lab: LabCli):
    done = lab.run(*DEMO, *CHECK)
    assert done.returncode == 1
    assert "demo: FAILED: the handler knows blue" in done.stderr
    assert lab.leftovers() == []
