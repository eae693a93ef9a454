"""`pip install` on any Python gives everything to import: no root, no bcc, no compiler."""

from __future__ import annotations

import subprocess
import sys

EVERYTHING = """
import importlib, pkgutil, sys
sys.modules["bcc"] = None  # as if it were not there
import juneau
for module in pkgutil.walk_packages(juneau.__path__, "juneau."):
    importlib.import_module(module.name)
assert len(sys.modules) > 100
"""


def test_everything_imports_without_bcc():
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
