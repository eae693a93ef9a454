"""Root tests: what they need is checked once; in CI a lack is a failure, elsewhere a skip that says why."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from juneau.app.doctor import build

settings.register_profile("ci", deadline=None)
settings.register_profile("long", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

COMPILED = os.environ.get("JUNEAU_COMPILED") == "1"
"""`make test-compiled`: the stack is to be compiled."""
REQUIRE_ALL = os.environ.get("JUNEAU_REQUIRE_ALL") == "1"
TOOLS = (
    "ip",
    "tc",
    "curl",
    "dig",
    "ping",
    "ethtool",
    "nsenter",
    "openssl",
    "clang",
    "bpftool",
    "tshark",
    "script",
)
MOUNTED_BEFORE = Path("/run/netns").is_mount()


@cache
def lacking() -> str:
    """Why root tests cannot run here; empty: they can."""
    if os.geteuid() != 0:
        return "not root"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    if importlib.util.find_spec("bcc") is None:
        return "no bcc (Debian: python3-bpfcc)"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"no {', '.join(absent)}" if absent else ""


@pytest.fixture(name="require")
def _require() -> Callable[[str], None]:
    return require


def require(why_not: str) -> None:
    """Skip with `why_not`, or fail where everything is required. Empty: go on."""
    if not why_not:
        return
    if REQUIRE_ALL:
        pytest.fail(f"JUNEAU_REQUIRE_ALL=1 and {why_not}", pytrace=False)
    pytest.skip(why_not)


def pytest_sessionstart() -> None:
    if (build() == "compiled") != COMPILED:
        pytest.exit(f"JUNEAU_COMPILED={int(COMPILED)} and juneau is {build()}", returncode=2)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if COMPILED and item.get_closest_marker("interpreted"):
        pytest.skip("puts something of its own into the stack")
    if item.get_closest_marker("root"):
        require(lacking())


def pytest_sessionfinish() -> None:
    """Tests that ran `ip netns` leave its mount behind; nobody's namespace is there any more."""
    if not lacking() and not MOUNTED_BEFORE:
        from juneau.app.netns import release_folder

        release_folder()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not lacking():
        return
    left_out = [r for r in terminalreporter.getreports("skipped") if lacking() in str(r.longrepr)]
    if left_out:
        terminalreporter.write_line(
            f"left out: {len(left_out)} tests with real packets ({lacking()})", yellow=True
        )
