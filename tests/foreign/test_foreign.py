"""CPython's own asyncio tests that open connections, where Debian's package with them is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the tests are CPython 3.11's")


def test_cpythons_asyncio_tests_pass_on_a_network_in_a_process(require):
    found = importlib.util.find_spec("test.test_asyncio")
    require("" if found else "no libpython3.11-testsuite (Debian)")
    script = Path(__file__).parent / "cpython.py"
    done = subprocess.run(
        [sys.executable, str(script), "--connecting"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    total = done.stdout.splitlines()[-1]
    assert total.startswith("cpython asyncio")
    assert int(total.split()[2]) >= 195
